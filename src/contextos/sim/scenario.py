"""One seed, one small world: who asks for what, how the payments behave, how many processes there are, who lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from contextos.sim import example

STRATEGIES: Final = ("keyed", "keyed", "lookup", "none", "lookup_weak")
AMOUNTS: Final = (500, 1500, 2900, 3000, 3001, 3001, 4200, 4200, 4800, 9900, 150_000)
ORDERS: Final = (*("ord_881",) * 6, *("ord_895",) * 8, "ord_882", "ord_883", "ord_890", "ord_896", "ord_missing")
MODES: Final = ("stream", "stream", "batch", "long_running")
SESSIONS_MS: Final = (14_400_000, 14_400_000, 1_800_000, 60_000, 5_000)
"""The longest that a session may take: the default, half of what a gate gives, and too little for any person."""
USERS: Final = (*("usr_771",) * 9, *("usr_772",) * 6, "usr_773", "usr_774")
HOSTILE_PLANS: Final = (*("understated_mode",) * 3, "no_checkpoint", "unknown_tool", "other_amount", "unchecked_step")
"""What a planner that is not to be trusted proposes; none of it may ever pay."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as a client sends it, perhaps more than once."""

    request_id: str
    user_id: str
    order_id: str
    amount_inr: int
    max_tool_calls: int
    at_us: int
    times: int
    mode: str = "stream"
    max_session_ms: int = SESSIONS_MS[0]

    def body(self) -> dict[str, Any]:
        """The wire form."""
        request = {**example.request(), "request_id": self.request_id}
        request["user"] = {**request["user"], "user_id": self.user_id}
        known = {"order_id": self.order_id, "refund_amount": self.amount_inr, "currency": "INR"}
        known["identity_verified"] = True
        request["input"] = {**request["input"], "message": "Refund it.", "context": known}
        request["mode"] = self.mode
        limits = {"max_tool_calls": self.max_tool_calls, "max_session_duration_ms": self.max_session_ms}
        request["runtime"] = {**request["runtime"], **limits}
        return request


@dataclass(frozen=True, slots=True)
class Scenario:
    """What the seed fixes before anything runs. `hostile` names the kind of plan that the planner makes, if it lies."""

    strategy: str
    scope: str
    external_reads: bool
    hosts: int
    asked: tuple[Asked, ...]
    hostile: str | None
    approvers_answer: float
    meddling: bool
    nudges: bool
    cancels: bool
    parallel_reads: bool = False


def draw(chance: Random) -> Scenario:
    """A scenario by chance; half of the time small enough to be paid without a second person."""
    asked: list[Asked] = []
    for number in range(chance.choice((1, 2, 2, 3, 3))):
        asked.append(_ask(chance, number, asked))
    drawn = Scenario(
        strategy=chance.choice(STRATEGIES),
        scope=chance.choice(("tenant", "tenant", "run")),
        external_reads=chance.random() < 0.3,
        hosts=chance.choice((1, 1, 2)),
        asked=tuple(asked),
        hostile=chance.choice(HOSTILE_PLANS) if chance.random() < 0.15 else None,
        approvers_answer=chance.choice((0.6, 1.0, 1.0)),
        meddling=chance.random() < 0.4,
        nudges=chance.random() < 0.3,
        cancels=chance.random() < 0.35,
    )
    modes = [(chance.choice(MODES), chance.choice(SESSIONS_MS)) for _ in asked]
    return replace(
        drawn,
        parallel_reads=chance.random() < 0.5,
        asked=tuple(
            replace(one, mode=mode, max_session_ms=most) for one, (mode, most) in zip(asked, modes, strict=True)
        ),
    )


def _ask(chance: Random, number: int, before: list[Asked]) -> Asked:
    order_id = chance.choice(ORDERS)
    amount = chance.choice(AMOUNTS)
    if before and chance.random() < 0.5:
        # The same act again, by another request.
        order_id, amount = before[-1].order_id, before[-1].amount_inr
    return Asked(
        request_id=f"req_sim{number}",
        user_id=chance.choice(USERS),
        order_id=order_id,
        amount_inr=amount,
        max_tool_calls=chance.choice((3, 4, 8, 8, 8)),
        at_us=chance.randrange(5) * 400_000,
        times=chance.choice((1, 1, 2)),
    )

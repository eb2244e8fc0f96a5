"""What the CPU time of a refund is for: `python -m benchmarks.purposes`.

Each function of `PURPOSES` is measured in the CPU time of its thread, without what a listed function inside it takes.
Threads that the process starts, such as the writer of the store, are the last line. Measuring a call costs time itself,
so the share of what is called often reads a little too large.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks import outside, refund_pack
from benchmarks.bars import folder, is_quick, note
from benchmarks.floor import CASES, governed
from contextos.action.gateway.dispatcher import Dispatcher
from contextos.action.gateway.tool_gateway import Gateway
from contextos.deployment import driver
from contextos.deployment.deployment import Deployment
from contextos.runtime import loop
from contextos.runtime.attempts import one_plan
from contextos.trust.journal.ledger import RunJournal
from contextos.trust.policy.policy_set import PolicySet

PURPOSES: Final[tuple[tuple[Any, str, str], ...]] = (
    (Deployment, "invoke", "request, lease and view"),
    (Deployment, "advance", "request, lease and view"),
    (driver, "invoke_agent", "loop"),
    (loop, "admit", "identity and pins"),
    (loop, "retrieve_evidence", "evidence and memory"),
    (one_plan, "compile_context", "compile"),
    (one_plan, "_verify", "policy and Critic"),
    (PolicySet, "decide", "policy and Critic"),
    (Gateway, "_check", "guards and envelopes"),
    (Dispatcher, "deliver", "tool calls"),
    (RunJournal, "_append", "entries and hashes"),
    (RunJournal, "commit", "commit"),
    (loop, "conclude", "concluding"),
)


class Meter:
    """Adds up CPU time of the current thread, in nanoseconds, under the purpose that was entered last."""

    def __init__(self) -> None:
        self.spent: Counter[str] = Counter()
        self._within: list[str] = []
        self._since = 0

    def enter(self, purpose: str) -> None:
        self._charge()
        self._within.append(purpose)

    def leave(self) -> None:
        self._charge()
        self._within.pop()

    def _charge(self) -> None:
        now = time.thread_time_ns()
        if self._within:
            self.spent[self._within[-1]] += now - self._since
        self._since = now

    def measured(self, call: Callable[..., Any], purpose: str) -> Callable[..., Any]:
        """Return `call`, whose time counts for `purpose`."""
        if inspect.iscoroutinefunction(call):

            @functools.wraps(call)
            async def wrapped(*values: Any, **named: Any) -> Any:
                self.enter(purpose)
                try:
                    return await call(*values, **named)
                finally:
                    self.leave()

        else:

            @functools.wraps(call)
            def wrapped(*values: Any, **named: Any) -> Any:
                self.enter(purpose)
                try:
                    return call(*values, **named)
                finally:
                    self.leave()

        return wrapped


async def measure(path: Path, count: int) -> None:
    """Print for each case the share of each purpose in the CPU time of `count` refunds, one after the other."""
    shop, meter = outside.Shop(path, keyed=True), Meter()
    deployment = await refund_pack.open_deployment(path, refund_pack.Tools(shop, "", keyed=True), 0)
    for owner, name, purpose in PURPOSES:
        setattr(owner, name, meter.measured(getattr(owner, name), purpose))
    for place, (case, amount) in enumerate(CASES.items()):
        for number in range(count + count // 10):
            if number == count // 10:
                meter.spent.clear()
                process, thread = time.process_time_ns(), time.thread_time_ns()
            await governed(deployment, outside.request(10_000 * place + number, amount))
        process, thread = time.process_time_ns() - process, time.thread_time_ns() - thread
        rest = thread - meter.spent.total()
        shares = {**meter.spent, "the approver, and the event loop": rest, "other threads": process - thread}
        for purpose, spent in sorted(shares.items(), key=lambda share: -share[1]):
            note(f"CPU of a refund ({case}): {purpose}", f"{100 * spent / process:9.1f} %")
    outside.close(deployment)
    shop.close()


def main() -> None:
    with folder() as name:
        asyncio.run(measure(Path(name), 40 if is_quick() else 200))


if __name__ == "__main__":
    main()

"""What a person signs to do an act, and the act by signatures that were made elsewhere.

An act is any function that does something by an `Actor`, such as `deployment.acts.governance.publish_artifact`, or by a
function that signs one statement. The function that does it also says what is signed, so that nothing else is signed
than what is then checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Never

from contextos.contracts.encoding.jcs import canonical
from contextos.deployment.acts.act import Actor
from contextos.deployment.deployment import Deployment
from contextos.deployment.signing import SignStatement
from contextos.errors import ApprovalRefused, InvalidInput, Problem
from contextos.trust.approvals.acts import ACT_TYP
from contextos.trust.identity.jws import signing_input, unverified_payload, unverified_time

MAX_STATED_S: Final = 900
"""How long a statement that says its own time can be signed, and a token be sent after it was signed, in seconds."""
MAX_AHEAD_S: Final = 60
"""How far the clock of who states or signs it can be ahead, in seconds."""


@dataclass(frozen=True, slots=True)
class ActStatement:
    """What a person signs to do an act: `payload` is the canonical JSON of the act, `typ` the type of the token."""

    payload: bytes
    _act: Mapping[str, Any] = field(repr=False, compare=False)
    typ: str = ACT_TYP

    @classmethod
    def of_act(cls, act: Mapping[str, Any], typ: str = ACT_TYP) -> ActStatement:
        """Return the statement of an act, which is a JSON object."""
        return cls(canonical(act), act, typ)

    @property
    def statement(self) -> dict[str, Any]:
        """The act as a JSON object."""
        return dict(self._act)

    def signing_input(self, kid: str, signed_at_s: int) -> bytes:
        """Return the bytes to sign with the person's Ed25519 key `kid`. The token is these, a dot, and the signature in
        Base64url without padding. `signed_at_s` is the time of signing, in Unix seconds: the token counts for
        `MAX_STATED_S` from then.
        """
        return signing_input(kid, self.typ, self._act, signed_at_s)


class _Stated(Exception):
    """A signal to `statements_of` and `statement_of`, not an error."""

    def __init__(self, statements: Sequence[Mapping[str, Any]]) -> None:
        self.statements = statements


class _Reader(Actor):
    """An actor who reads what they would sign, and signs nothing. The act ends there."""

    def sign(self, statements: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        raise _Stated(statements)


@dataclass(frozen=True, slots=True)
class _Signer(Actor):
    """An actor who signed elsewhere. A statement that they did not sign gets a token that is none."""

    app: Deployment
    tokens: tuple[str, ...]

    def sign(self, statements: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        if len(self.tokens) != len(statements):
            detail = f"the act has {len(statements)} statements, and {len(self.tokens)} tokens were sent"
            remedy = "sign each statement of the act as it is now"
            raise InvalidInput(Problem("/tokens", "other_statements", detail, remedy))
        by_statement = {canonical(unverified_payload(one)): one for one in self.tokens}
        return [_presented(self.app, by_statement.get(canonical(one), "")) for one in statements]


def _unsigned(_statement: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"kind": "jws", "token": ""}


async def statements_of(actor_id: str, act: Callable[[Actor], Awaitable[object]]) -> tuple[ActStatement, ...]:
    """Return what `actor_id` signs for `act`, in order; empty if it would change nothing. Nothing is changed.

    Raises whatever `act` refuses before it is signed.
    """
    try:
        await act(_Reader(actor_id, _unsigned))
    except _Stated as stated:
        return tuple(ActStatement.of_act(one) for one in stated.statements)
    return ()


async def statement_of(act: Callable[[SignStatement], Awaitable[object]], typ: str = ACT_TYP) -> ActStatement:
    """Return what a person signs for `act`, which signs one statement with the function that it gets. Nothing is
    changed.

    Raises whatever `act` refuses before it is signed.
    """

    def read(said: Mapping[str, Any]) -> Never:
        raise _Stated([said])

    try:
        await act(read)
    except _Stated as stated:
        return ActStatement.of_act(stated.statements[0], typ)
    raise AssertionError("an act is signed before it is done")


def signed_with(app: Deployment, token: str) -> SignStatement:
    """Return the function that signs one statement with a token (a compact JWS) which the person made before. Raises
    `ApprovalRefused` as `signed_elsewhere`.
    """
    return lambda _said: _presented(app, token)


def signed_elsewhere(app: Deployment, actor_id: str, tokens: Sequence[str]) -> Actor:
    """Return the actor who signed elsewhere: a compact JWS for each statement of the act, in any order.

    An act by them raises `ApprovalRefused` for a statement that none of the tokens signs or a token that says no time
    (`assertion_invalid`), and for one that was not signed in the last `MAX_STATED_S` (`assertion_expired`), and
    `InvalidInput` if there is another number of them.
    """
    return _Signer(actor_id, _unsigned, app, tuple(tokens))


def _presented(app: Deployment, token: str) -> Mapping[str, Any]:
    """A token as the proof of an act. Who carries tokens could keep one, and send it at a moment of their choice."""
    signed_at_s = unverified_time(token)
    if unverified_payload(token) is not None and signed_at_s is None:
        raise ApprovalRefused("assertion_invalid", "the token does not say when it was signed (`iat` of its header)")
    if signed_at_s is not None and not _is_recent(app, signed_at_s * 1_000_000):
        detail = f"the act was not signed in the last {MAX_STATED_S} s; ask for the statement again"
        raise ApprovalRefused("assertion_expired", detail)
    return {"kind": "jws", "token": token}


def check_stated_at(app: Deployment, at_us: int) -> None:
    """Raise `InvalidInput` unless `at_us` (Unix microseconds) lies in the last `MAX_STATED_S` seconds.

    For an act that says its own time: it is signed later than it was stated, and nobody dates it as they like.
    """
    if not _is_recent(app, at_us):
        detail = f"the act was not stated in the last {MAX_STATED_S} s"
        raise InvalidInput(Problem("/at_us", "not_now", detail, "ask for the statement again"))


def _is_recent(app: Deployment, at_us: int) -> bool:
    return -MAX_AHEAD_S * 1_000_000 <= app.ports.clock.now_us() - at_us <= MAX_STATED_S * 1_000_000

"""What a person signs to do an act of an operator, and the same act by the token that was signed elsewhere.

Both are one function of `operations`: asked for its statement it ends where the person would sign, and nothing is
changed. So what is signed is what is checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Never

from contextos.contracts.encoding.jcs import canonical
from contextos.operations.signing import SignStatement
from contextos.trust.approvals.acts import ACT_TYP
from contextos.trust.identity.jws import signing_input


@dataclass(frozen=True, slots=True)
class Statement:
    """What a person signs. `said` is the statement as JSON, and `typ` the type of the token."""

    typ: str
    said: Mapping[str, Any]

    @property
    def payload(self) -> bytes:
        """The canonical JSON of the statement."""
        return canonical(dict(self.said))

    def signing_input(self, kid: str) -> bytes:
        """Return the bytes to sign with the person's Ed25519 key `kid`. The token is these, a dot, and the signature in
        Base64url without padding.
        """
        return signing_input(kid, self.typ, self.said)


class _Stated(Exception):
    """A signal to `statement_of`, not an error."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.said = said


async def statement_of(act: Callable[[SignStatement], Awaitable[object]], typ: str = ACT_TYP) -> Statement:
    """Return what a person signs for `act`, which signs with the function that it is given. Nothing is changed.

    Raises whatever `act` refuses before it is signed.
    """

    def read(said: Mapping[str, Any]) -> Never:
        raise _Stated(said)

    try:
        await act(read)
    except _Stated as stated:
        return Statement(typ, stated.said)
    raise AssertionError("an act is signed before it is done")


def signer_by_token(token: str) -> SignStatement:
    """Return the function that signs with a token (a compact JWS) which the person made before."""
    return lambda _said: {"kind": "jws", "token": token}

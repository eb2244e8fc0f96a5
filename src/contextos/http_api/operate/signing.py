"""What a person signs to do an act, as a document. The server never sees their private key."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from contextos.app import App
from contextos.application.statements import Statement
from contextos.contracts.encoding.codec import loads
from contextos.contracts.envelopes.identity import MAX_TOKEN_CHARS
from contextos.contracts.model import Model, OpenObject
from contextos.http_api.problems import HttpProblem
from contextos.trust.identity.callers import Caller

StatementToken = Annotated[str, Field(max_length=MAX_TOKEN_CHARS)]
"""The compact JWS of a statement by the caller's key."""


class SigningDocument(Model):
    """What the caller signs to do an act as things are now. `signing_inputs` are as those of an approval's statement.

    The same request with `token` does the act.
    """

    statement: OpenObject
    signing_inputs: dict[str, str]


async def to_sign(app: App, caller: Caller, said: Statement) -> SigningDocument:
    """Return what the caller signs with each of their keys in the directory."""
    known = await app.deployment.ports.directory.approver(caller.tenant_id, caller.subject)
    statement = loads(said.payload)
    assert isinstance(statement, dict), "a statement is an object"
    inputs = {one.kid: said.signing_input(one.kid).decode() for one in (known.keys if known else ())}
    return SigningDocument(statement=statement, signing_inputs=inputs)


def demand_role(held: frozenset[str], *roles: str) -> None:
    """Raise `HttpProblem` (403) unless one of these roles is held. It is asked before anything is looked up."""
    if held.isdisjoint(roles):
        named = " or ".join(f"`{one}`" for one in sorted(roles))
        raise HttpProblem(403, "not_allowed", f"this needs the role {named}, which you do not hold here")

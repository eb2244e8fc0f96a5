"""Acts of people over HTTP: what is signed, and the act by the tokens that were signed. The server sees no private key.

Both steps run the same function of `operations`, so what is signed is what is checked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from contextos.deployment.acts.act import Actor
from contextos.service.acts import ActStatement, signed_elsewhere, statements_of
from contextos.service.operations.operation import Signed
from contextos.service.views import ActDocument, StatedAct
from contextos.trust.identity.callers import Caller
from contextos.workspace import App


async def to_sign(app: App, caller: Caller, act: ActStatement) -> StatedAct:
    """Return a statement with what the caller signs with each of their keys in the directory."""
    known = await app.deployment.ports.directory.approver(caller.tenant_id, caller.subject)
    now_s = app.deployment.ports.clock.now_us() // 1_000_000
    inputs = {one.kid: act.signing_input(one.kid, now_s).decode() for one in (known.keys if known else ())}
    return StatedAct(statement=act.statement, signing_inputs=inputs)


async def act_document(app: App, caller: Caller, act: Callable[[Actor], Awaitable[object]]) -> ActDocument:
    """Return what the caller signs to do `act`. Nothing is changed. Raises whatever `act` refuses."""
    return ActDocument(statements=[await to_sign(app, caller, one) for one in await statements_of(caller.subject, act)])


def signing_actor(app: App, caller: Caller, signed: Signed) -> Actor:
    """Return the caller as the actor who signed these tokens elsewhere."""
    return signed_elsewhere(app.deployment, caller.subject, signed.tokens)

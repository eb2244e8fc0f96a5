"""Acts whose signatures are made elsewhere: what their actor signs, and how the signed tokens do the act.

The same proposal says what is signed and does the act, so exactly what was signed is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.deployment.acts.act import Actor, ActProposal, ResultT
from contextos.deployment.deployment import Deployment
from contextos.errors import ApprovalRefused, InvalidInput, Problem
from contextos.service.views import ActDocument, StatedAct
from contextos.trust.identity.jws import signing_input, unverified_payload, unverified_time

MAX_STATED_S: Final = 900
"""The most seconds between the time of a statement and its signature, and between the signature and its arrival."""
MAX_AHEAD_S: Final = 60
"""The most seconds that the clock of a person who states or signs an act can be ahead."""


def signer_elsewhere(actor_id: str) -> Actor:
    """Return an actor who signs nothing here: their tokens are given to `done_with`."""
    return Actor(actor_id, lambda _statement: {"kind": "jws", "token": ""})


async def act_document(app: Deployment, tenant_id: str, proposal: ActProposal[Any]) -> ActDocument:
    """Return what the actor of a proposal signs, with the bytes to sign for each of their keys in the directory. The
    token is these bytes, a dot, and the signature in Base64url without padding.

    Nothing is changed. If the act has no statement and is refused, the refusal is raised.
    """
    if not proposal.statements:
        await proposal.signed()
    approver = await app.ports.directory.approver(tenant_id, proposal.by.id)
    kids, now_s = [key.kid for key in approver.keys] if approver else [], app.ports.clock.now_us() // 1_000_000
    acts = [
        StatedAct(
            statement=dict(statement),
            signing_inputs={kid: signing_input(kid, proposal.typ, statement, now_s).decode() for kid in kids},
        )
        for statement in proposal.statements
    ]
    return ActDocument(statements=acts)


async def done_with(app: Deployment, proposal: ActProposal[ResultT], tokens: Sequence[str]) -> ResultT:
    """Do an act that was signed elsewhere: `tokens` has a compact JWS for each of its statements, in any order.

    Raises `ApprovalRefused` for a statement that none of the tokens signs or a token that says no time
    (`assertion_invalid`), and for a token that was not signed in the last `MAX_STATED_S` (`assertion_expired`).
    Raises `InvalidInput` if the numbers of statements and tokens differ, and all errors of the act.
    """
    statements = proposal.statements
    if statements and len(tokens) != len(statements):
        detail = f"the act has {len(statements)} statements, and {len(tokens)} tokens were sent"
        remedy = "sign each statement of the act as it is now"
        raise InvalidInput(Problem("/tokens", "other_statements", detail, remedy))
    by_statement = {canonical(unverified_payload(token)): token for token in tokens}
    matching = (by_statement.get(canonical(dict(statement)), "") for statement in statements)
    return await proposal.commit([_token_proof(app, token) for token in matching])


def _token_proof(app: Deployment, token: str) -> Mapping[str, Any]:
    """Return a token as the proof of an act. A token has to be recent, because its carrier could send it much later."""
    signed_at_s = unverified_time(token)
    if unverified_payload(token) is not None and signed_at_s is None:
        raise ApprovalRefused("assertion_invalid", "the token does not say when it was signed (`iat` of its header)")
    if signed_at_s is not None and not _is_recent(app, signed_at_s * 1_000_000):
        detail = f"the act was not signed in the last {MAX_STATED_S} s; ask for the statement again"
        raise ApprovalRefused("assertion_expired", detail)
    return {"kind": "jws", "token": token}


def check_stated_at(app: Deployment, at_us: int) -> None:
    """Raise `InvalidInput` unless `at_us` (Unix microseconds) lies in the last `MAX_STATED_S` seconds.

    This is for an act that states its own time: it is signed later, and its actor must not choose any date they like.
    """
    if not _is_recent(app, at_us):
        detail = f"the act was not stated in the last {MAX_STATED_S} s"
        raise InvalidInput(Problem("/at_us", "not_now", detail, "ask for the statement again"))


def _is_recent(app: Deployment, at_us: int) -> bool:
    return -MAX_AHEAD_S * 1_000_000 <= app.ports.clock.now_us() - at_us <= MAX_STATED_S * 1_000_000

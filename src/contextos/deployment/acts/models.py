"""The act with which an operator has one model called outside of any run, to learn whether it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import TypeAdapter, ValidationError

from contextos.action.models.prices import settled_units, worst_case_units
from contextos.contracts.acts import ProposedAct
from contextos.contracts.entries.account import cents, cost_units
from contextos.contracts.envelopes.models import ModelProfile
from contextos.contracts.journal import CONTROL
from contextos.contracts.model import Cents
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelReply
from contextos.contracts.ports.storage import Store
from contextos.deployment.acts.act import Act, Actor, ActProposal, propose_commit
from contextos.deployment.deployment import Deployment
from contextos.errors import ApprovalRefused, InvalidInput, NotFound, Problem

PROMPT: Final = "This is a test of the connection. Answer with the one word: ready"
MOST_INPUT_TOKENS: Final = 1_280
"""The most tokens of the prompt, with what a protocol and a provider add to it."""
MAX_OUTPUT_TOKENS: Final = 256
"""The most tokens of the answer. A model that reasons spends some before it writes."""
MAX_TIMEOUT_MS: Final = 30_000
_CENTS: Final = TypeAdapter[float](Cents)


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """The result of one call of a profile, with its duration. `cost_units` is None if the provider reported no usage
    with a price; the cost is then at most `most_cost_units`.
    """

    profile: ModelProfile
    reply: ModelReply
    latency_ms: int
    cost_units: int | None
    most_cost_units: int


@Act
async def check_model(
    app: Deployment, tenant_id: str, ref: str, *, by: Actor, max_cost_cents: float, at_us: int | None = None
) -> ActProposal[CheckedModel]:
    """Call a published profile once, after the act is on record; return the result of the call.

    `at_us` is when the operator states it, in Unix microseconds; now if it is None. A statement that is on record
    already is refused. If it is used twice at the same moment, both uses are on record and at most one calls.

    Raises:
        NotFound: nothing is published under this reference, or it is withdrawn.
        InvalidInput: `ref` is not a profile, the deployment calls no models, the call can cost more than
            `max_cost_cents`, or `max_cost_cents` is not an amount.
        ApprovalRefused: the same statement was used before (`act_used`), or as `prove_act`.
    """
    _refuse_amount(max_cost_cents)
    profile = await _published_profile(app, tenant_id, ref)
    if app.ports.models is None:
        raise _invalid("", "no_models", "this deployment calls no models", "open it with a provider of models")
    output_tokens = min(MAX_OUTPUT_TOKENS, profile.max_output_tokens)
    most_units = worst_case_units(profile, MOST_INPUT_TOKENS, output_tokens)
    if most_units > cost_units(max_cost_cents):
        detail = f"a call of `{ref}` can cost {cents(most_units):g} US cents, and {max_cost_cents:g} are allowed"
        raise _invalid("/max_cost_cents", "too_dear", detail, "allow more, or check a profile that costs less")
    stated_us = app.ports.clock.now_us() if at_us is None else at_us
    arguments = {"profile": ref, "max_cost_cents": max_cost_cents, "at_us": stated_us}
    proposed = ProposedAct("model.checked", f"{ref}/{stated_us}", arguments)
    store, sender = app.ports.stores.tenant(tenant_id), app.ports.models
    await _refuse_used(store, proposed.about, 0)
    timeout_ms = min(MAX_TIMEOUT_MS, profile.timeout_ms)
    call = ModelCall(
        profile=profile,
        messages=() if profile.embeds else (ModelMessage("user", PROMPT),),
        texts=(PROMPT,) if profile.embeds else (),
        max_output_tokens=output_tokens,
        timeout_ms=timeout_ms,
        first_token_ms=min(profile.first_token_ms or timeout_ms, timeout_ms),
        egress=tuple(sorted(app.config.egress.get(tenant_id, ()))),
    )

    async def send(_proved: None) -> CheckedModel:
        # The same statement can have been committed since it was proposed.
        await _refuse_used(store, proposed.about, 1)
        began_us = app.ports.clock.now_us()
        reply = await sender.send(tenant_id, call)
        latency_ms = max(0, app.ports.clock.now_us() - began_us) // 1_000
        units = settled_units(reply.usage, profile.prices) if reply.usage is not None else None
        return CheckedModel(profile, reply, latency_ms, units if reply.billed or units else 0, most_units)

    return propose_commit(app.ports, app.config, tenant_id, proposed, by).then(send)


async def _refuse_used(store: Store, subject: str, limit: int) -> None:
    """Refuse a statement that is on record more than `limit` times."""
    if len(await store.lines(CONTROL, subject)) > limit:
        raise ApprovalRefused("act_used", "the statement of this check was used for a call; ask for another one")


def _refuse_amount(amount: float) -> None:
    try:
        _CENTS.validate_python(amount, strict=True)
    except ValidationError as error:
        detail = f"`{amount}` is not an amount: {error.errors()[-1]['msg'].lower()}"
        remedy = "write US cents, with at most 4 decimals"
        raise _invalid("/max_cost_cents", "bad_amount", detail, remedy) from None


async def _published_profile(app: Deployment, tenant_id: str, ref: str) -> ModelProfile:
    catalog = app.catalog(tenant_id)
    stored = await catalog.repository.published(ref)
    if stored is None or ref in (await catalog.active()).withdrawn:
        raise NotFound(f"`{ref[:200]}` is not published in this tenant or is withdrawn; list what is")
    if not isinstance(stored.artifact, ModelProfile):
        raise _invalid("/ref", "not_a_profile", f"`{ref[:200]}` is not a model profile", "see `contextos models list`")
    return stored.artifact


def _invalid(pointer: str, code: str, detail: str, remedy: str) -> InvalidInput:
    return InvalidInput(Problem(pointer, code, detail, remedy))

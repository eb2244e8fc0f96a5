"""What an operator states about an effect whose reply was lost, and the form in which it is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from contextos.action.gateway.result_validation import MAX_OUTPUT_BYTES, disagreement
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.identity import Settled
from contextos.contracts.envelopes.tool import StatedCall
from contextos.contracts.journal import Entry
from contextos.deployment.deployment import Deployment
from contextos.errors import ApprovalRefused, InvalidInput, Problem
from contextos.trust.redact import redact, scan_unsafe


async def recorded_settlement(
    app: Deployment, tenant_id: str, entries: Sequence[Entry], envelope: StatedCall, stated: dict[str, Any]
) -> Settled:
    """Return a settlement as it is recorded: valid, checked against the pinned capability, redacted by the pack's
    rules.

    Raises:
        InvalidInput: a field is wrong, or the output is too large, unsafe or not what the capability states.
        ApprovalRefused: the entry with the pins of the run was erased (`not_waiting`).
    """
    settled = parse(Settled, stated)
    if not settled.happened:
        return settled
    pinned = next((unerased_body(entry) for entry in reversed(entries) if entry.kind == "run.pinned"), None)
    assert pinned is not None, "a call was dispatched by a run that is pinned"
    loaded = await app.catalog(tenant_id).load(pinned)
    capability = app.registry.register(loaded.definitions)[envelope.capability_id]
    if len(canonical(settled.output)) > MAX_OUTPUT_BYTES:
        detail = f"the output has more than {MAX_OUTPUT_BYTES} bytes"
        raise InvalidInput(Problem("/output", "too_large", detail, "state only the fields of the schema"))
    schema_problem = app.registry.check(capability, "output", settled.output)
    if problem := schema_problem or disagreement(capability, envelope.args, settled.output):
        raise InvalidInput(replace(problem, pointer=f"/output{problem.pointer}"))
    redacted, _ = redact(
        {"output": settled.output, "mutations": list(settled.mutations)},
        loaded.pack.policy_layer.guardrails.redaction_rules,
    )
    if problems := scan_unsafe(redacted, declared_text=True):
        raise InvalidInput(*(replace(unsafe, remedy="remove it") for unsafe in problems))
    assert isinstance(redacted, dict), "redaction keeps the shape"
    return parse(Settled, {**stated, **redacted})


def unerased_body(entry: Entry) -> Any:
    """Return the body of an entry without which a run cannot be settled. Raises `ApprovalRefused` if it was erased."""
    if entry.body is None:
        raise ApprovalRefused("not_waiting", f"entry {entry.seq} (`{entry.kind}`) was erased: it cannot be settled")
    return read_body(entry)

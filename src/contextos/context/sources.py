"""What each source of a run says, as blocks: the pack, the caller, policy, the registry.

Trusted is what was published and signed. The caller asserts, and an adapter describes itself, so the words of both are
data like any other from outside.
Source: contextos-facts.md, sections 6 and 7; shared/design/contracts.md, "Who is asking", "Compile".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextos.context.blocks import FIRST, NAMED, USUAL, JsonObject, block, one_line
from contextos.context.controls import Matched
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.run import InvokeRequest


def business_blocks(pack: ContextPack) -> list[JsonObject]:
    """The non-negotiables, one each, in the pack's order."""
    return [
        block(f"non_negotiable_{number}", "business", one_line(text), FIRST, ("pack", "trusted", _class(pack)))
        for number, text in enumerate(pack.business_context.non_negotiables, 1)
    ]


def session_blocks(request: InvokeRequest, session_id: str | None, pack: ContextPack) -> list[JsonObject]:
    """Message, asserted facts and attachments of the request. An ephemeral run has these and no history."""
    refs = (f"session:{session_id}",) if session_id else ()
    attached = sorted([item.artifact_id, item.media_type, item.sha256] for item in request.attachments)
    message = {"message": request.input.message, "channel": request.input.channel, "locale": request.input.locale}
    said: tuple[tuple[str, int, Any], ...] = (
        ("request_message", FIRST, message),
        ("request_context", NAMED, request.input.context),
        ("request_attachments", USUAL, attached),
    )
    source = ("request", "untrusted", _class(pack))
    return [block(name, "session", one_line(value), priority, source, refs) for name, priority, value in said if value]


def attachment_entries(request: InvokeRequest) -> list[JsonObject]:
    """The attachments' entries of the evidence manifest; the bytes are fetched, if ever, by the gateway."""
    pins = sorted({(item.artifact_id, f"sha256:{item.sha256}") for item in request.attachments})
    return [
        {"evidence_ref": f"attachment:{artifact_id}#{digest}", "source_id": artifact_id, "hash": digest}
        for artifact_id, digest in pins
    ]


def control_blocks(controls: Mapping[str, Any], pack: ContextPack) -> list[JsonObject]:
    """The active controls as one block; none where none is active."""
    if not any(controls.values()):
        return []
    return [block("controls", "policy", one_line(controls), FIRST, ("policy", "trusted", _class(pack)))]


def rule_blocks(matched: Matched, pack: ContextPack) -> list[JsonObject]:
    """The rules that matched, each with its rationale."""
    found = []
    for rule_id, (rule, bundle_ids) in sorted(matched.items()):
        said = {"rule_id": rule_id, "allow": rule.then.allow, "rationale": rule.rationale}
        refs = [f"policy:{bundle_id}#{rule_id}" for bundle_id in sorted(bundle_ids)]
        source = ("policy", "trusted", _class(pack))
        found.append(block(f"rule_{rule_id}", "policy", one_line(said), USUAL, source, refs))
    return found


def tool_block(
    capability: SurfaceCapability, decision: PolicyDecision, constraints: JsonObject, priority: int, pack: ContextPack
) -> JsonObject:
    """A surfaced capability: what it says of itself, its risk, its bounds and gates."""
    said = {
        "capability_id": capability.capability_id,
        "kind": capability.kind,
        "risk_level": capability.risk_level,
        "approval_mode": capability.approval_mode,
        "description": capability.description,
        "constraints": constraints,
        "gates": sorted(decision.gates),
    }
    source = ("adapter_registry", "untrusted", _class(pack))
    return block(f"tool_{capability.capability_id}", "tool", one_line(said), priority, source)


def _class(pack: ContextPack) -> str:
    """What comes with the pack or the request is classified as the pack is."""
    return pack.pack_meta.data_classification

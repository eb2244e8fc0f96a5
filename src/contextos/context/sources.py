"""Build the blocks of the prompt from their sources: the pack, the caller, policy and the registered tools.

Only published and signed text is trusted. A caller's assertions and an adapter's description of itself are data, like
all other external text.
Source: docs/design/contracts.md, "Who is asking", "Compile".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextos.context.blocks import PRIORITY_DEFAULT, PRIORITY_NAMED, PRIORITY_REQUIRED, JsonObject, block, one_line
from contextos.context.controls import MatchedRules
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.policy import PolicyDecision
from contextos.contracts.envelopes.run import InvokeRequest


def business_blocks(pack: ContextPack) -> list[JsonObject]:
    """Build one prompt block for each non-negotiable rule of the pack, in the pack's order."""
    return [
        block(
            f"non_negotiable_{number}",
            "business",
            one_line(text),
            PRIORITY_REQUIRED,
            ("pack", "trusted", _classification(pack)),
        )
        for number, text in enumerate(pack.business_context.non_negotiables, 1)
    ]


def session_blocks(request: InvokeRequest, session_id: str | None, pack: ContextPack) -> list[JsonObject]:
    """Build the prompt blocks of the request: message, facts that the caller states, and attachments.
    Without `session_id` the blocks name no session as their source.
    """
    refs = (f"session:{session_id}",) if session_id else ()
    attachments = sorted([item.artifact_id, item.media_type, item.sha256] for item in request.attachments)
    message = {"message": request.input.message, "channel": request.input.channel, "locale": request.input.locale}
    contents: tuple[tuple[str, int, Any], ...] = (
        ("request_message", PRIORITY_REQUIRED, message),
        ("request_context", PRIORITY_NAMED, request.input.context),
        ("request_attachments", PRIORITY_DEFAULT, attachments),
    )
    source = ("request", "untrusted", _classification(pack))
    return [
        block(name, "session", one_line(value), priority, source, refs) for name, priority, value in contents if value
    ]


def attachment_entries(request: InvokeRequest) -> list[JsonObject]:
    """Build the entries of the request's attachments in the evidence manifest. The attached files are not read."""
    pins = sorted({(item.artifact_id, f"sha256:{item.sha256}") for item in request.attachments})
    return [
        {"evidence_ref": f"attachment:{artifact_id}#{digest}", "source_id": artifact_id, "hash": digest}
        for artifact_id, digest in pins
    ]


def control_blocks(controls: Mapping[str, Any], pack: ContextPack) -> list[JsonObject]:
    """Build one prompt block that lists the active controls, or no block if none is active."""
    if not any(controls.values()):
        return []
    return [
        block("controls", "policy", one_line(controls), PRIORITY_REQUIRED, ("policy", "trusted", _classification(pack)))
    ]


def rule_blocks(matched: MatchedRules, pack: ContextPack) -> list[JsonObject]:
    """Build one prompt block for each policy rule that matched, with its rationale."""
    blocks = []
    for rule_id, (rule, bundle_ids) in sorted(matched.items()):
        content = {"rule_id": rule_id, "allow": rule.then.allow, "rationale": rule.rationale}
        refs = [f"policy:{bundle_id}#{rule_id}" for bundle_id in sorted(bundle_ids)]
        source = ("policy", "trusted", _classification(pack))
        blocks.append(block(f"rule_{rule_id}", "policy", one_line(content), PRIORITY_DEFAULT, source, refs))
    return blocks


def tool_block(
    capability: SurfaceCapability, decision: PolicyDecision, constraints: JsonObject, priority: int, pack: ContextPack
) -> JsonObject:
    """Build the prompt block of a tool: its own description, its risk, its argument constraints and its approval
    gates.
    """
    content = {
        "capability_id": capability.capability_id,
        "kind": capability.kind,
        "risk_level": capability.risk_level,
        "approval_mode": capability.approval_mode,
        "description": capability.description,
        "constraints": constraints,
        "gates": sorted(decision.gates),
    }
    source = ("adapter_registry", "untrusted", _classification(pack))
    return block(f"tool_{capability.capability_id}", "tool", one_line(content), priority, source)


def _classification(pack: ContextPack) -> str:
    """Return the pack's classification, which the text of the pack and of the request has."""
    return pack.pack_meta.data_classification

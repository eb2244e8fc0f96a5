"""The output of the compiler: the `CompiledContext` in its wire form.

It consists of values that contracts have already validated, so it is not validated again. A replay validates it.
"""

from __future__ import annotations

from collections.abc import Mapping

from contextos.context.blocks import JsonObject


def compiled_context(
    body: JsonObject, digests: Mapping[str, str], *, pack_ref: str, request_id: str, trace_id: str, estimator: str
) -> JsonObject:
    """Add the ledger to `body` and return the finished `CompiledContext` as JSON.

    The `compiled_context_hash` is the digest of the last stage, whose output is `body`.
    """
    ledger = _ledger(body) | {
        "pack_ref": pack_ref,
        "request_id": request_id,
        "trace_id": trace_id,
        "estimator": estimator,
        "stage_digests": dict(digests),
        "compiled_context_hash": digests["manifests_and_controls"],
    }
    return {**body, "context_ledger": ledger}


def _ledger(body: JsonObject) -> JsonObject:
    """The ledger fields that are derived from the body."""
    report, manifests = body["budget_report"], body["manifests"]
    memory = [item for item in body["compiled_prompt"]["context_blocks"] if item["bucket"] == "memory"]
    return {
        "policy_bundles": [entry["bundle_id"] for entry in manifests["policy_manifest"]],
        "tools": [entry["capability_id"] for entry in manifests["surface_report"] if entry["surfaced"]],
        "evidence_refs": sorted({entry["evidence_ref"] for entry in manifests["evidence_manifest"]}),
        "memory_refs": sorted({ref for item in memory for ref in item["provenance_refs"]}),
        "budget": {
            "tokens_used_at_compile": report["tokens_used_at_compile"],
            "truncated_buckets": list(report["bucket_truncations"]),
        },
    }

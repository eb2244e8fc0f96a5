"""The output of the compiler: the content address of each stage's product, and the `CompiledContext` in its wire form.

It consists of values that contracts have already validated, so it is not validated again. A replay validates it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from contextos.context.blocks import SORTED, JsonObject
from contextos.contracts.encoding.jcs import canonical, content_address


def is_plain(foreign: Any) -> bool:
    """Return whether `foreign`, written as JSON with sorted keys, is already canonical: no float and
    only ASCII keys.
    """
    return canonical(foreign) == orjson.dumps(foreign, option=SORTED)


def address(product: JsonObject, *, plain: bool) -> str:
    """Return the content digest of a compiler stage's output.

    `plain`: the argument constraints are plain (see `is_plain`). All else in the output is text, integers and our own
    names, so no canonicalisation pass is needed.
    """
    if not plain:
        return content_address(product)
    return "sha256:" + hashlib.sha256(orjson.dumps(product, option=SORTED)).hexdigest()


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


def recorded_context(compiled: JsonObject) -> JsonObject:
    """Return what an entry states of a compiled context that only a template reads: a `RecordedContext`."""
    manifests = compiled["manifests"]
    stated = {
        "policy_manifest": manifests["policy_manifest"],
        "omissions": manifests["omissions"],
        "surface_report": [one for one in manifests["surface_report"] if not one["surfaced"]],
        "redactions": manifests["redactions"],
    }
    return {
        "manifests": {name: entries for name, entries in stated.items() if entries},
        **{name: compiled[name] for name in ("runtime_controls", "budget_report", "context_ledger")},
    }


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

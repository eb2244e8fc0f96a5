"""Where stages end: the address of what each made, and from the last one's JSON the `CompiledContext`.

The long lists (blocks, evidence, omissions, surface) are made of values that contracts have validated already, so
their models are built without asking again; everything else is validated as sealed. Tests hold both ways equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, TypeVar

import orjson

from contextos.context.blocks import SORTED, Json
from contextos.contracts.codec import canonical, content_address
from contextos.contracts.compiled import (
    BlockProvenance,
    CompiledContext,
    ContextBlock,
    EvidenceManifestEntry,
    Omission,
    SurfaceEntry,
)
from contextos.contracts.model import Model

M = TypeVar("M", bound=Model)


def is_plain(foreign: Any) -> bool:
    """Whether plain sorted output of `foreign` is canonical: no float, no key beyond ASCII that would differ."""
    return canonical(foreign) == orjson.dumps(foreign, option=SORTED)


def address(product: Json, *, plain: bool) -> str:
    """The content address of what a stage made.

    `plain` says that the argument constraints are plain. All else in a product is text, integers and names of our own,
    of which sorted output is canonical as it stands, so the walk that would find out is saved.
    """
    if not plain:
        return content_address(product)
    return "sha256:" + hashlib.sha256(orjson.dumps(product, option=SORTED)).hexdigest()


def compiled_context(
    body: Json, digests: Mapping[str, str], *, pack_ref: str, request_id: str, trace_id: str, estimator: str
) -> CompiledContext:
    """The model of `body` and its ledger; it equals the validated form of the same JSON.

    The digest of the last stage, which made `body`, is the `compiled_context_hash`.
    """
    prompt, manifests = body["compiled_prompt"], body["manifests"]
    ledger = _ledger(body) | {
        "pack_ref": pack_ref, "request_id": request_id, "trace_id": trace_id, "estimator": estimator,
        "stage_digests": dict(digests),
        "compiled_context_hash": digests["manifests_and_controls"],
    }  # fmt: skip
    rest = CompiledContext.validate_sealed({
        **body,
        "compiled_prompt": prompt | {"context_blocks": []},
        "manifests": manifests | {"evidence_manifest": [], "omissions": [], "surface_report": []},
        "context_ledger": ledger | {"evidence_refs": []},
    })
    return rest.model_copy(update={
        "compiled_prompt": rest.compiled_prompt.model_copy(update={
            "context_blocks": tuple(map(_block, prompt["context_blocks"])),
        }),
        "manifests": rest.manifests.model_copy(update={
            "evidence_manifest": tuple([
                _row(EvidenceManifestEntry, row, "name") for row in manifests["evidence_manifest"]
            ]),
            "omissions": tuple(map(Omission.unasked, manifests["omissions"])),
            "surface_report": tuple(map(SurfaceEntry.unasked, manifests["surface_report"])),
        }),
        "context_ledger": rest.context_ledger.model_copy(update={"evidence_refs": tuple(ledger["evidence_refs"])}),
    })  # fmt: skip


def _ledger(body: Json) -> Json:
    """What of the ledger follows from the body."""
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


def _block(fields: Json) -> ContextBlock:
    own = dict(fields)
    own["provenance_refs"] = tuple(fields["provenance_refs"])
    own["provenance"] = _row(BlockProvenance, fields["provenance"], "observed_at_us")
    return ContextBlock.unasked(own)


def _row(model: type[M], fields: Json, optional: str | None = None) -> M:
    return model.unasked(fields, unset=None if optional in fields else optional)

"""Where stages end: the address of what each made, and from the last one's JSON the `CompiledContext`.

The long lists (blocks, evidence, omissions, surface) are made of values that contracts have validated already, so
their models are built without asking again; everything else is validated as sealed. Tests hold both ways equal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

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

_put: Final = object.__setattr__
_OPTIONAL: Final[dict[type[Model], str]] = {BlockProvenance: "observed_at_us", EvidenceManifestEntry: "name"}
_EVERY: Final[dict[type[Model], set[str]]] = {
    model: set(model.model_fields)
    for model in (BlockProvenance, ContextBlock, EvidenceManifestEntry, Omission, SurfaceEntry)
}
_BUT_OPTIONAL: Final = {model: _EVERY[model] - {name} for model, name in _OPTIONAL.items()}


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
            "evidence_manifest": _all(EvidenceManifestEntry, manifests["evidence_manifest"]),
            "omissions": _all(Omission, manifests["omissions"]),
            "surface_report": _all(SurfaceEntry, manifests["surface_report"]),
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
    own["provenance"] = _trusted(BlockProvenance, fields["provenance"])
    return _trusted(ContextBlock, own)


def _all(model: type[M], rows: Iterable[Json]) -> tuple[M, ...]:
    return tuple([_trusted(model, row) for row in rows])


def _trusted(model: type[M], fields: Json) -> M:
    """`model` with these very fields, unasked; its optional one is None where it is not set.

    What `model_construct` does, at a fifth of its cost: 1,000 blocks are 2,000 models. The set of fields that are set
    is shared, which frozen models allow: pydantic copies it wherever it would write into it.
    """
    given = _EVERY[model]
    optional = _OPTIONAL.get(model)
    if optional and optional not in fields:
        fields, given = {**fields, optional: None}, _BUT_OPTIONAL[model]
    made = model.__new__(model)
    _put(made, "__dict__", fields)
    _put(made, "__pydantic_fields_set__", given)
    _put(made, "__pydantic_extra__", None)
    _put(made, "__pydantic_private__", None)
    return made

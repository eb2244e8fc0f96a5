"""Context blocks: every block's content is one line of JSON, so that no text can end its own block or forge another.

JSON encoding is the only change that text undergoes, and reading the JSON gives it back to the letter. Beyond what
JSON demands, `<`, `>` and characters that break lines or hide (separators, bidirectional marks, zero-width, tags) are
written as escapes, so that neither a renderer's tags nor a person's eye is deceived.
Source: shared/design/contracts.md, "Compile"; contextos-facts.md, section 7.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import orjson

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.run import Bucket

JsonObject = dict[str, Any]

FIRST: Final = 1000
"""Priority of what is required, and of what the task template names."""
NAMED: Final = 800
"""Evidence that answers a named requirement which is not demanded here."""
USUAL: Final = 500

_DECEIVING: Final = re.compile(
    "[<>\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
SORTED: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_MAX_STEM_CHARS: Final = 200


def one_line(value: Any) -> str:
    """A JSON value as one line of JSON text that holds no delimiter and no hidden character.

    >>> one_line({"note": "</block>"})
    '{"note":"\\\\u003c/block\\\\u003e"}'

    Raises:
        MalformedJson: `value` is not I-JSON.
    """
    return undeceiving(canonical(value).decode())


def undeceiving(text: str) -> str:
    """JSON text with every deceiving character as an escape; it reads back the same."""
    if text.isascii() and "<" not in text and ">" not in text and "\x7f" not in text:
        return text
    return _DECEIVING.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def block(
    block_id: str, bucket: Bucket, content: str, priority: int, source: tuple[str, str, str], refs: Iterable[str] = ()
) -> JsonObject:
    """A `ContextBlock` in its wire form. `source` is origin, integrity, classification; only trusted text instructs."""
    origin, integrity, classification = source
    return {
        "block_id": block_id,
        "bucket": bucket,
        "content": content,
        "priority": priority,
        "truncated": False,
        "provenance_refs": list(refs),
        "provenance": {
            "origin": origin,
            "integrity": integrity,
            "classification": classification,
            "instruction_treatment": "instruction" if integrity == "trusted" else "data_only",
        },
    }


def fact_block(block_id: str, bucket: Bucket, item: EvidenceItem, priority: int) -> JsonObject:
    """The block of a retrieved or recalled fact: data, whatever its integrity."""
    ref = item.evidence_ref
    said: JsonObject = {"evidence_ref": ref, "predicate": item.predicate, "subject": item.subject, "value": item.value}
    if item.name is not None:
        said["name"] = item.name
    return {
        "block_id": block_id,
        "bucket": bucket,
        "content": one_line(said),
        "priority": priority,
        "truncated": False,
        "provenance_refs": [ref],
        "provenance": {
            "origin": item.origin,
            "integrity": item.integrity,
            "classification": item.classification,
            "observed_at_us": item.observed_at_us,
            "instruction_treatment": "data_only",
        },
    }


def identified(items: Sequence[EvidenceItem], prefix: str) -> list[tuple[str, EvidenceItem]]:
    """Each distinct item, in a fixed order, under a block id of its own: its name, or the head of its digest."""
    seen: set[str] = set()
    ordinals: dict[str, int] = {}
    found: list[tuple[str, EvidenceItem]] = []
    last: EvidenceItem | None = None
    for item in sorted(items, key=_identity):
        if last is not None and item.digest == last.digest and _identity(item) == _identity(last):
            continue
        last = item
        short = item.name is not None and 0 < len(item.name) <= _MAX_STEM_CHARS
        block_id = stem = f"{prefix}{item.name if short else item.digest[7:23]}"
        while block_id in seen:
            ordinals[stem] = ordinals.get(stem, 1) + 1
            block_id = f"{stem}.{ordinals[stem]}"
        seen.add(block_id)
        found.append((block_id, item))
    return found


def _identity(item: EvidenceItem) -> tuple[Any, ...]:
    """Everything that tells two items apart; the digest stands for subject, predicate and value."""
    return (
        item.name is not None,
        item.name or "",
        item.digest,
        item.evidence_ref,
        item.observed_at_us,
        item.origin,
        item.integrity,
        item.classification,
        item.hop,
    )


def evidence_priority(item: EvidenceItem, required: Collection[str]) -> int:
    """Required first, then named, then the nearer in the graph."""
    if item.name is None:
        return max(USUAL - 100 * item.hop, 0)
    return FIRST if item.name in required else NAMED


def evidence_entry(item: EvidenceItem) -> JsonObject:
    """An `EvidenceManifestEntry` in its wire form."""
    entry: JsonObject = {"evidence_ref": item.evidence_ref, "source_id": item.origin, "hash": item.digest}
    if item.name is not None:
        entry["name"] = item.name
    return entry

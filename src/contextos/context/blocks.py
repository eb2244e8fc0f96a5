"""Build context blocks. The content of a block is one line of JSON, so no text can end its own block or forge another.

JSON encoding is the only change made to text, and decoding the JSON returns exactly the same text. In addition to what
JSON requires, `<`, `>` and characters that break lines or are invisible (separators, bidirectional marks, zero-width
characters, tags) are escaped, so they can mislead neither a renderer nor a reader.
Source: docs/design/contracts.md, "Compile".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.evidence import EvidenceItem
from contextos.contracts.envelopes.run import Bucket

JsonObject = dict[str, Any]

PRIORITY_REQUIRED: Final = 1000
"""Priority of required blocks, and of the capabilities that the task template uses."""
PRIORITY_NAMED: Final = 800
"""Priority of evidence that has a requirement's name but is not required in this run."""
PRIORITY_DEFAULT: Final = 500

_MISLEADING: Final = re.compile(
    "[<>\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_MAX_STEM_CHARS: Final = 200


def one_line(value: Any) -> str:
    """Return a JSON value as one line of JSON text without delimiters and without invisible characters.

    >>> one_line({"note": "</block>"})
    '{"note":"\\\\u003c/block\\\\u003e"}'

    Raises:
        MalformedJson: `value` is not I-JSON.
    """
    return escape_misleading(canonical(value).decode())


def escape_misleading(text: str) -> str:
    """Escape characters in JSON text that could mislead a reader (invisible, or changing the direction of writing).
    The JSON value stays the same.
    """
    if text.isascii() and "<" not in text and ">" not in text and "\x7f" not in text:
        return text
    return _MISLEADING.sub(_escape_match, text)


def _escape_match(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def block(
    block_id: str, bucket: Bucket, content: str, priority: int, source: tuple[str, str, str], refs: Iterable[str] = ()
) -> JsonObject:
    """Build a block of the prompt (a `ContextBlock`) as JSON. `source` is (origin, integrity, classification).

    Only trusted text is marked as an instruction; all other text is data.
    """
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
    """Build the prompt block of a retrieved fact, as JSON. The block is marked as data, not as an instruction.

    If its bucket is full, blocks with a higher `priority` are kept.
    """
    ref = item.evidence_ref
    content: JsonObject = {
        "evidence_ref": ref,
        "predicate": item.predicate,
        "subject": item.subject,
        "value": item.value,
    }
    if item.name is not None:
        content["name"] = item.name
    return {
        "block_id": block_id,
        "bucket": bucket,
        "content": one_line(content),
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
    """Return each distinct evidence item with a unique block id, in a fixed order.

    The id is `prefix` and the item's name, or the first 16 hex digits of its digest.
    """
    used_ids: set[str] = set()
    ordinals: dict[str, int] = {}
    result: list[tuple[str, EvidenceItem]] = []
    last: tuple[Any, ...] = ()
    for identity, index in sorted([(_identity(item), index) for index, item in enumerate(items)]):
        if identity == last:
            continue
        last, item = identity, items[index]
        name = item.name
        block_id = stem = f"{prefix}{name if name and len(name) <= _MAX_STEM_CHARS else item.digest[7:23]}"
        while block_id in used_ids:
            ordinals[stem] = ordinals.get(stem, 1) + 1
            block_id = f"{stem}.{ordinals[stem]}"
        used_ids.add(block_id)
        result.append((block_id, item))
    return result


def _identity(item: EvidenceItem) -> tuple[Any, ...]:
    """Return all fields that distinguish two items. The digest covers subject, predicate and value."""
    name = item.name
    return (
        name is not None,
        name or "",
        item.digest,
        item.evidence_ref,
        item.observed_at_us,
        item.origin,
        item.integrity,
        item.classification,
        item.hop,
    )


def evidence_priority(item: EvidenceItem, is_required: bool) -> int:
    """Return the priority of an evidence item in the prompt: required items first, then items with a name, then others
    by graph distance.
    """
    if item.name is None:
        return max(PRIORITY_DEFAULT - 100 * item.hop, 0)
    return PRIORITY_REQUIRED if is_required else PRIORITY_NAMED


def evidence_entry(item: EvidenceItem) -> JsonObject:
    """Build the entry of an item in the evidence manifest (the list of evidence that the run can use), as JSON."""
    entry: JsonObject = {"evidence_ref": item.evidence_ref, "source_id": item.origin, "hash": item.digest}
    if item.name is not None:
        entry["name"] = item.name
    return entry

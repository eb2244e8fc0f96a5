"""Reads the bodies of stored entries: the one place that parses a body and knows how an answer is wrapped."""

from __future__ import annotations

from typing import Any

import orjson

from contextos.contracts.journal import CONTROL, INDEX, KINDS, Entry
from contextos.errors import Integrity


def read_body(entry: Entry) -> Any:
    """Return the parsed body of an entry, or its answer if the kind is recorded; None if it was erased.

    The value has the type that `bodies` lists for the kind. It is not validated, because folds read every entry.

    Raises:
        Integrity: a recorded entry holds no answer.
    """
    if entry.body is None:
        return None
    body = orjson.loads(entry.body)
    if entry.run in (INDEX, CONTROL) or entry.kind not in KINDS or not KINDS[entry.kind].recorded:
        return body
    if not isinstance(body, dict) or "answer" not in body:
        raise Integrity(
            f"entry {entry.seq} of `{entry.run}` (`{entry.kind}`) holds no answer; find out which process wrote it"
        )
    return body["answer"]

"""Reads the bodies of stored entries: the one place that parses a body and knows how an answer is wrapped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from contextos.contracts.entries.bodies import body_fault
from contextos.contracts.entries.kinds import KINDS, UNSIGNED_KINDS
from contextos.contracts.journal import CONTROL, INDEX, Entry, Logged
from contextos.errors import Integrity

_REFUSED_ENDS: Final = ("refused", "rejected")
_EFFECT_KINDS: Final = ("tool.", "approval.", "slot.", "agent.", "call.", "session.finished")
MAX_REFUSED_ENTRIES: Final = 64
"""A run with so many entries or more counts as a run of which something came (see `is_refused`)."""


def read_body(entry: Entry) -> Any:
    """Return the parsed body of an entry, or its answer if the kind is recorded; None if the body was erased. It is
    also None if the body is malformed and any process with store access could append the entry: it states nothing.

    The value has the type that `bodies` lists for the kind. It is not validated, because folds read every entry.

    Raises:
        Integrity: a recorded entry holds no answer.
    """
    if entry.body is None:
        return None
    if entry.kind in UNSIGNED_KINDS and body_fault(entry.run, entry.kind, entry.body):
        return None
    body = orjson.loads(entry.body)
    if entry.run in (INDEX, CONTROL) or entry.kind not in KINDS or not KINDS[entry.kind].recorded:
        return body
    if not isinstance(body, dict) or "answer" not in body:
        raise Integrity(
            f"entry {entry.seq} of `{entry.run}` (`{entry.kind}`) holds no answer; find out which process wrote it"
        )
    return body["answer"]


def is_refused(entries: Sequence[Entry]) -> bool:
    """Return whether a run ended before anything came of it: nothing was called or finished, and nobody was asked."""
    if not entries or entries[-1].kind != "run.ended" or (read_body(entries[-1]) or {}).get("end") not in _REFUSED_ENDS:
        return False
    return not any(entry.kind.startswith(_EFFECT_KINDS) for entry in entries)


def environment_of(received: Mapping[str, Any]) -> str:
    """Return the environment in which a run was begun, from the body of its `run.received`."""
    return str(received["deployment"]["environment"])


def logged(entries: Iterable[Entry]) -> list[Logged]:
    """Return stored entries as their run reads them, each with its parsed body (`read_body`)."""
    return [
        Logged(entry.seq, entry.kind, entry.key, entry.at_us, entry.by, read_body(entry), entry.hash)
        for entry in entries
    ]

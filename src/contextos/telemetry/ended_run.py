"""`EndedRunEntries`: the account of a run since its last end, for spans, events, metrics and sampling.

Telemetry keeps no second account of a run, and parses nothing again. Values are taken by name from known fields.
Arguments, outputs, evidence, messages and reasons are never taken, and a text counts only if it has the form of an
identifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import Any, Final, get_args

from contextos.contracts.entries.account import RunAccount
from contextos.contracts.entries.kinds import account_of
from contextos.contracts.entries.reading import logged
from contextos.contracts.envelopes.verdicts import FailureCode
from contextos.contracts.journal import Entry, Logged
from contextos.contracts.trace import TraceContext
from contextos.errors import Integrity

Value = str | int | float | bool | tuple[str, ...]
Attributes = Mapping[str, Value]

MAX_VALUE_CHARS: Final = 256
_IDENTIFIER: Final = re.compile(rf"[A-Za-z0-9_.:/@#+\-]{{1,{MAX_VALUE_CHARS}}}")
_HTTP_ERROR: Final = re.compile(r"http_[1-5][0-9]{2}")
_FAILURES: Final = frozenset(get_args(FailureCode))


@dataclass(frozen=True, slots=True)
class EndedRunEntries:
    """The entries of a run since its last end (`log`); the body of an erased one is None.

    `account` is the account of the whole run, and `trace` the trace of its request. `segment` counts how often it was
    reopened before: 0 for most runs. The budget that it had used at its last end is `spent_before`.
    """

    tenant_id: str
    account: RunAccount
    trace: TraceContext
    log: Sequence[Logged]
    segment: int
    spent_before: Mapping[str, float]

    @property
    def run_id(self) -> str:
        """Return the id of the run."""
        return self.account.run_id

    def of(self, *kinds: str) -> Iterator[Logged]:
        """Yield the entries of these kinds whose body was not erased, in order."""
        start_seq = self.log[0].seq
        return (entry for entry in self.account.of(*kinds) if entry.seq >= start_seq and entry.body is not None)

    def first(self, kind: str) -> Mapping[str, Any]:
        """Return the body of the first entry of a kind, else of the last one before this part, else an empty one."""
        earlier = (entry for entry in reversed(self.account.of(kind)) if not entry.key and entry.seq < self.log[0].seq)
        body: Mapping[str, Any] | None = next((entry.body for entry in (*self.of(kind), *earlier)), None)
        return body or {}

    @property
    def record(self) -> Mapping[str, Any]:
        """Return the final record, or an empty one."""
        return next((entry.body for entry in self.of("record.revised") if entry.key == "final"), {})

    @property
    def end(self) -> str:
        """Return how the run ended."""
        return str((self.log[-1].body or {}).get("end", "unknown"))


def ended_run(tenant_id: str, account: RunAccount) -> EndedRunEntries:
    """Return the entries that telemetry reads of a run whose last entry is `run.ended`.

    Raises:
        Integrity: the run has not ended, or the body of its request was erased.
    """
    log = sorted(chain.from_iterable(account.by_kind.values()), key=attrgetter("seq"))
    if not log or log[-1].kind != "run.ended":
        raise Integrity("a run that has not ended has no telemetry; drive it to its end")
    if log[0].body is None:
        raise Integrity(f"the request of `{account.run_id}` was erased, and with it its trace")
    ends = account.of("run.ended")
    start_seq = ends[-2].seq if len(ends) > 1 else 0
    records = [entry.body for entry in account.of("record.revised") if entry.key == "final" and entry.seq <= start_seq]
    return EndedRunEntries(
        tenant_id=tenant_id,
        account=account,
        trace=TraceContext.model_validate(log[0].body["request"]["trace"]),
        log=[entry for entry in log if entry.seq > start_seq],
        segment=len(ends) - 1,
        spent_before=(records[-1] or {}).get("budget_usage", {}) if records else {},
    )


def ended_parts(entries: Sequence[Entry]) -> Iterator[EndedRunEntries]:
    """Yield each part of a stored run that ends with `run.ended`, in order; nothing for a run that has not ended.

    Raises:
        Integrity: the body of its request was erased.
    """
    log = logged(entries)
    for length, entry in enumerate(log, 1):
        if entry.kind == "run.ended":
            yield ended_run(entries[0].tenant, account_of(entries[0].run, log[:length]))


def identifiers(found: Mapping[str, Any]) -> dict[str, Value]:
    """Return the attributes that can be exported: numbers, truth values, and texts with the form of an identifier.

    >>> identifiers({"tool": "adp_orders.lookup", "why": "he said so", "none": None, "count": 3})
    {'tool': 'adp_orders.lookup', 'count': 3}
    """
    attributes: dict[str, Value] = {}
    for name, value in found.items():
        if isinstance(value, str):
            if _IDENTIFIER.fullmatch(value):
                attributes[name] = value
        elif isinstance(value, list | tuple):
            if texts := tuple(text for text in value if isinstance(text, str) and _IDENTIFIER.fullmatch(text)):
                attributes[name] = texts
        elif isinstance(value, bool | int | float):
            attributes[name] = value
    return attributes


def error_type(code: Any) -> str:
    """Return `code` if it is a failure code of the runtime or `http_<status>`, else `tool_error`.

    An adapter chooses its own codes freely, so any other code could hold anything.
    """
    is_known = isinstance(code, str) and (code in _FAILURES or _HTTP_ERROR.fullmatch(code))
    return str(code) if is_known else "tool_error"

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
        begins = self.log[0].seq
        return (entry for entry in self.account.of(*kinds) if entry.seq >= begins and entry.body is not None)

    def first(self, kind: str) -> Mapping[str, Any]:
        """Return the body of the first entry of a kind, else of the last one before this part, else an empty one."""
        before = (one for one in reversed(self.account.of(kind)) if not one.key and one.seq < self.log[0].seq)
        body: Mapping[str, Any] | None = next((entry.body for entry in (*self.of(kind), *before)), None)
        return body or {}

    @property
    def record(self) -> Mapping[str, Any]:
        """Return the final record, or an empty one."""
        return next((one.body for one in self.of("record.revised") if one.key == "final"), {})

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
    begins = ends[-2].seq if len(ends) > 1 else 0
    records = [one.body for one in account.of("record.revised") if one.key == "final" and one.seq <= begins]
    return EndedRunEntries(
        tenant_id=tenant_id,
        account=account,
        trace=TraceContext.model_validate(log[0].body["request"]["trace"]),
        log=[one for one in log if one.seq > begins],
        segment=len(ends) - 1,
        spent_before=(records[-1] or {}).get("budget_usage", {}) if records else {},
    )


def ended_parts(entries: Sequence[Entry]) -> Iterator[EndedRunEntries]:
    """Yield each part of a stored run that ends with `run.ended`, in order; nothing for a run that has not ended.

    Raises:
        Integrity: the body of its request was erased.
    """
    log = logged(entries)
    for at, entry in enumerate(log, 1):
        if entry.kind == "run.ended":
            yield ended_run(entries[0].tenant, account_of(entries[0].run, log[:at]))


def identifiers(found: Mapping[str, Any]) -> dict[str, Value]:
    """Return the attributes that can be exported: numbers, truth values, and texts with the form of an identifier.

    >>> identifiers({"tool": "adp_orders.lookup", "why": "he said so", "none": None, "count": 3})
    {'tool': 'adp_orders.lookup', 'count': 3}
    """
    kept: dict[str, Value] = {}
    for name, value in found.items():
        if isinstance(value, str):
            if _IDENTIFIER.fullmatch(value):
                kept[name] = value
        elif isinstance(value, list | tuple):
            if texts := tuple(one for one in value if isinstance(one, str) and _IDENTIFIER.fullmatch(one)):
                kept[name] = texts
        elif isinstance(value, bool | int | float):
            kept[name] = value
    return kept


def error_type(code: Any) -> str:
    """Return a code of a failed call from a closed set: those of the runtime, `http_<status>`, or `tool_error`.

    An adapter chooses its own codes freely, so such a code could hold anything.
    """
    known = isinstance(code, str) and (code in _FAILURES or _HTTP_ERROR.fullmatch(code))
    return str(code) if known else "tool_error"

"""What only a person's act explains in a run: a body that is missing, and an entry that reopens an ended run or has a
question asked again.

The act of an erasure names the entry's place and digest. The act of a reopening names the run, the place and the raised
limit. The act of asking again names the run, the place and the reason. The runtime seals them. So a process that can
write to the store but has no key for acts cannot account for a body that it emptied, reopen a run or have anything
asked again, not even with a key that signs heads.
Source: docs/design/journal.md, "Erasures"; docs/adr/0026-an-escalated-run-has-a-way-on.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from contextos.contracts.acts import OperatorAct
from contextos.contracts.entries.bodies import ACT_ARGUMENTS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import CONTROL, ENTRY_ERASED, Entry, erasure_key
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken, Integrity
from contextos.trust.approvals.acts import counted_act

DECISION_ACTS: Final = ("decision.resolved", "decision.closed")
"""The acts about the decision of a run that has ended, in the order in which they can come."""


class NeededAct(NamedTuple):
    """An act on which `entry` rests: the key of its line in `control`, which act it is, and what it would do."""

    entry: Entry
    key: str
    is_it: Callable[[OperatorAct], bool]
    does: str

    def missing(self) -> ChainBroken:
        """Return the error that names the entry."""
        return ChainBroken(self.entry.run, self.entry.seq, f"rests on an act that is missing: no act {self.does}")


def erasure_of(entry: Entry) -> dict[str, Any]:
    """Return what the act that erases `entry` says about it: its place and its digest."""
    return {"run": entry.run, "seq": entry.seq, "body_digest": entry.body_digest}


async def require_acts(store: Store, entries: Sequence[Entry], keys: Keys) -> tuple[int, ...]:
    """Return the sequence numbers of the entries without a body, each of which was erased by a signed `entry.erased`.

    Raises:
        ChainBroken: a body is missing, and no signed entry of `control` erased it; names the first such entry. Or the
            run was reopened, or a question asked again, and no signed entry of `control` did so there.
    """
    dependent_entries = [entry for entry in entries if entry.body is None or entry.kind in _ACT_TESTS]
    erased_first = sorted(dependent_entries, key=lambda entry: entry.body is not None)
    for needed in (needed_act for entry in erased_first for needed_act in explaining(entry)):
        lines = await store.lines(CONTROL, needed.key)
        acts = (act_in(line, needed.entry.tenant, keys) for line in lines)
        if not any(act is not None and needed.is_it(act) for act in acts):
            raise needed.missing()
    return tuple(entry.seq for entry in dependent_entries if entry.body is None)


def explaining(entry: Entry) -> Iterator[NeededAct]:
    """Yield the acts that alone explain that an entry has no body, reopens its run or has a question asked again."""
    if entry.body is None:
        key = erasure_key(entry.run, entry.seq)
        yield NeededAct(entry, key, partial(erases, entry=entry), f"`{ENTRY_ERASED}` erased its body")
    if entry.kind in _ACT_TESTS:
        is_made_by, does = _ACT_TESTS[entry.kind]
        yield NeededAct(entry, entry.run, partial(is_made_by, entry=entry), does)


async def refuse_unerased(store: Store, entries: Sequence[Entry], keys: Keys) -> None:
    """Refuse an entry that has a body although an operator erased it: somebody put the row of an older copy back.

    Raises:
        ChainBroken: names the first such entry.
    """
    entries_by_key = {erasure_key(entry.run, entry.seq): entry for entry in entries if entry.body is not None}
    for line in await store.lines(CONTROL, *entries_by_key):
        entry = entries_by_key[line.key]
        act = act_in(line, entry.tenant, keys)
        if act is None or not erases(act, entry):
            continue
        # It can have been erased since it was read.
        if any(stored.body is not None for stored in await store.read(entry.run, after=entry.seq - 1, limit=1)):
            detail = f"has a body again, and entry {line.seq} of `{CONTROL}` erased it; erase it once more"
            raise ChainBroken(entry.run, entry.seq, detail)


def erases(act: OperatorAct, entry: Entry) -> bool:
    """Return whether an act erases the body of exactly this entry."""
    arguments = {name: act.arguments.get(name) for name in ("run", "seq", "body_digest")}
    return act.kind == ENTRY_ERASED and arguments == erasure_of(entry)


def reopens(act: OperatorAct, entry: Entry) -> bool:
    """Return whether an operator made this `run.reopened` entry by this act."""
    origin = (act.kind, act.actor, act.arguments.get("run"), act.expected)
    if origin != ("run.reopened", entry.by, entry.run, entry.seq - 1):
        return False
    try:
        answer = read_body(entry)
    except (Integrity, ValueError):
        return False
    statement = {"by": act.actor, **{name: act.arguments.get(name) for name in ("reason", "limit", "to")}}
    return entry.body is None or answer == statement


def reasks(act: OperatorAct, entry: Entry) -> bool:
    """Return whether a person made this `approval.reasked` entry by this act."""
    origin = (act.kind, act.actor, act.arguments.get("run"), act.expected)
    if origin != ("approval.reasked", entry.by, entry.run, entry.seq - 1):
        return False
    try:
        answer = read_body(entry)
    except (Integrity, ValueError):
        return False
    return answer is None or (answer.get("by"), answer.get("reason")) == (act.actor, act.arguments.get("reason"))


_ACT_TESTS: Final = {
    "run.reopened": (reopens, "reopened the run"),
    "approval.reasked": (reasks, "had a question asked again"),
}
"""By kind of an entry that an operator's act makes: the test of whether an act made it, and what the act does."""


def last_record(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Return the last record of a run that was not erased, or None."""
    records = (read_body(entry) for entry in reversed(entries) if entry.kind == "record.revised")
    return next((record for record in records if record is not None), None)


def decision_acts(
    run_id: str, record: Mapping[str, Any], acts: Iterable[tuple[Entry, OperatorAct]]
) -> list[tuple[Entry, OperatorAct]]:
    """Return the acts about the last record of an ended run, in their order: first that an escalated decision is
    resolved, and then that it is closed, each at most once.
    """
    acts_by_kind: dict[str, tuple[Entry, OperatorAct]] = {}
    kinds = [kind for kind in DECISION_ACTS if kind == "decision.closed" or record["status"] == "ESCALATED"]
    for line, act in acts:
        subject = (act.arguments.get("run"), act.arguments.get("record_hash"))
        if line.key == run_id and act.kind in kinds and subject == (run_id, record["record_hash"]):
            acts_by_kind.setdefault(act.kind, (line, act))
    return [acts_by_kind[kind] for kind in kinds if kind in acts_by_kind]


def acts_on_end(entries: Sequence[Entry], acts: Iterable[tuple[Entry, OperatorAct]]) -> list[Entry]:
    """Return the lines of the acts that are about the decision of a run, if the run has ended."""
    record = last_record(entries) if entries[-1].kind == "run.ended" else None
    return [] if record is None else [line for line, _ in decision_acts(entries[0].run, record, acts)]


def act_in(line: Entry, tenant_id: str, keys: Keys) -> OperatorAct | None:
    """Return the sealed act in an entry of this tenant's `control`, or None if there is no such act."""
    return counted_act(line, keys) if line.tenant == tenant_id and line.kind in ACT_ARGUMENTS else None

"""What only a person's act explains in a run: a body that is missing, and an entry that reopens an ended run or has a
question asked again.

The act of an erasure names the entry's place and digest, that of a reopening the run, the place and the raised limit,
and that of a question the run, the place and the reason; the runtime seals them. So a process that can write to the
store but has no key for acts cannot account for a body that it has emptied, nor reopen a run, nor have anything asked
again, not even with a key that signs heads.
Source: docs/design/journal.md, "Erasures"; docs/adr/0026-an-escalated-run-has-a-way-on.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from contextos.contracts.acts import OperatorAct
from contextos.contracts.entries.bodies import ACT_ARGUMENTS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import CONTROL, ENTRY_ERASED, Entry, erasure_key
from contextos.contracts.ports.outside import Keys
from contextos.contracts.ports.storage import Store
from contextos.errors import ChainBroken, Integrity
from contextos.trust.approvals.acts import read_act


def erasure_of(entry: Entry) -> dict[str, Any]:
    """Return what the act that erases `entry` says about it: its place and its digest."""
    return {"run": entry.run, "seq": entry.seq, "body_digest": entry.body_digest}


async def require_acts(store: Store, entries: Sequence[Entry], keys: Keys) -> tuple[int, ...]:
    """Return the sequence numbers of the entries without a body, each of which was erased by a signed `entry.erased`.

    Raises:
        ChainBroken: a body is missing, and no signed entry of `control` erased it; names the first such entry. Or the
            run was reopened, or a question asked again, and no signed entry of `control` did so there.
    """
    gaps = [entry for entry in entries if entry.body is None]
    for entry in gaps:
        lines = await store.lines(CONTROL, erasure_key(entry.run, entry.seq))
        if not any(_is(erases, line, entry, keys) for line in lines):
            raise ChainBroken(entry.run, entry.seq, "has no body, and no signed `entry.erased` says who erased it")
    for entry in entries:
        if entry.kind == "run.reopened":
            lines = await store.lines(CONTROL, entry.run)
            if not any(_is(reopens, line, entry, keys) for line in lines):
                raise ChainBroken(entry.run, entry.seq, "reopens the run, and no signed act of an operator did so")
        elif entry.kind == "approval.reasked":
            lines = await store.lines(CONTROL, entry.run)
            if not any(_is(reasks, line, entry, keys) for line in lines):
                raise ChainBroken(entry.run, entry.seq, "has a question asked again, and no signed act did so")
    return tuple(entry.seq for entry in gaps)


async def refuse_unerased(store: Store, entries: Sequence[Entry], keys: Keys) -> None:
    """Refuse an entry that has a body although an operator erased it: somebody put the row of an older copy back.

    Raises:
        ChainBroken: names the first such entry.
    """
    whole = {erasure_key(entry.run, entry.seq): entry for entry in entries if entry.body is not None}
    for line in await store.lines(CONTROL, *whole):
        entry = whole[line.key]
        if not _is(erases, line, entry, keys):
            continue
        # It can have been erased since it was read.
        if any(one.body is not None for one in await store.read(entry.run, after=entry.seq - 1, limit=1)):
            detail = f"has a body again, and entry {line.seq} of `{CONTROL}` erased it; erase it once more"
            raise ChainBroken(entry.run, entry.seq, detail)


def erases(act: OperatorAct, entry: Entry) -> bool:
    """Return whether an act is the one that erases the body of `entry`."""
    said = {name: act.arguments.get(name) for name in ("run", "seq", "body_digest")}
    return act.kind == ENTRY_ERASED and said == erasure_of(entry)


def reopens(act: OperatorAct, entry: Entry) -> bool:
    """Return whether an act is the one by which its operator made this `run.reopened`."""
    made = (act.kind, act.actor, act.arguments.get("run"), act.expected)
    if made != ("run.reopened", entry.by, entry.run, entry.seq - 1):
        return False
    try:
        answer = read_body(entry)
    except (Integrity, ValueError):
        return False
    said = {"by": act.actor, **{name: act.arguments.get(name) for name in ("reason", "limit", "to")}}
    return entry.body is None or answer == said


def reasks(act: OperatorAct, entry: Entry) -> bool:
    """Return whether an act is the one by which a person made this `approval.reasked`."""
    made = (act.kind, act.actor, act.arguments.get("run"), act.expected)
    if made != ("approval.reasked", entry.by, entry.run, entry.seq - 1):
        return False
    try:
        answer = read_body(entry)
    except (Integrity, ValueError):
        return False
    return answer is None or (answer.get("by"), answer.get("reason")) == (act.actor, act.arguments.get("reason"))


def act_in(line: Entry, tenant_id: str, keys: Keys) -> OperatorAct | None:
    """Return the sealed act in an entry of this tenant's `control`, or None if it holds none."""
    if line.tenant != tenant_id or line.kind not in ACT_ARGUMENTS:
        return None
    try:
        return read_act(line, keys).act
    except ChainBroken:
        return None


def _is(does: Callable[[OperatorAct, Entry], bool], line: Entry, entry: Entry, keys: Keys) -> bool:
    act = act_in(line, entry.tenant, keys)
    return act is not None and does(act, entry)

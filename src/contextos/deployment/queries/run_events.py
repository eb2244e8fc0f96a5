"""What happened to the runs of a tenant, in order: the lines of the tenant's index as events.

A line is written in the commit that it describes, and the numbers of the lines have no gaps. So a reader that continues
behind the last event that it saw misses no event and gets none twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, get_args

from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import INDEX
from contextos.deployment.queries.checked_run import CheckedRun, read_checked
from contextos.deployment.queries.positions import cursor_of
from contextos.trust.journal.chain import verify_chain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contextos.contracts.journal import Entry
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store

RunEventName = Literal[
    "run.began",
    "run.dispatched",
    "run.waiting",
    "approval.answered",
    "slot.answered",
    "effect.settled",
    "run.ended",
    "run.reopened",
]
RUN_EVENTS: Final[tuple[RunEventName, ...]] = get_args(RunEventName)
AwaitedAnswer = Literal["approval", "slot", "settlement"]

PAGE_EVENTS: Final = 100
"""The most events that are read at once."""

_EVENT_NAMES: Final[dict[str, RunEventName]] = {"run.indexed": "run.began", "run.closed": "run.ended"}
"""The names of events that differ from the kind of their line in the index."""
_LAST_KINDS: Final = {"run.dispatched": "tool.dispatching", "run.waiting": "record.revised", "run.ended": "run.ended"}
"""By event, the kind of the entry at which its line says the run is. For other events it is the event's name."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One thing that happened to a run.

    `sequence` is its number among the tenant's events, from 1 without gaps, and `cursor` the text from which a reader
    continues. `at_us` is Unix time in microseconds. `waits_for` says for what a run waits (`run.waiting`), or is None.
    `fault` says what about the event or its run does not verify; None if all of it does.
    """

    tenant_id: str
    run_id: str
    event: RunEventName
    sequence: int
    cursor: str
    at_us: int
    waits_for: AwaitedAnswer | None
    fault: str | None


async def read_events(
    store: Store, tenant_id: str, keys: Keys, after: Entry | None, *, limit: int = PAGE_EVENTS
) -> tuple[Sequence[RunEvent], Entry | None]:
    """Return at most `limit` events behind the line `after` of the index (None: from the first), and the last line.

    Raises:
        ChainBroken: a line of the index that was read is missing, moved or changed.
    """
    entries = await store.read(INDEX, after=after.seq if after else 0, limit=limit)
    verify_chain(tenant_id, INDEX, entries, after=after)
    # Runs are read after the lines, so that each run is at least as far as its lines say.
    runs = {run_id: await read_checked(store, tenant_id, keys, run_id) for run_id in {entry.key for entry in entries}}
    return [event_of_line(entry, runs[entry.key]) for entry in entries], entries[-1] if entries else after


def event_of_line(line: Entry, run: CheckedRun) -> RunEvent:
    """Return the event of a line of the index. `run` is the run that it names, read after the line."""
    name = _EVENT_NAMES.get(line.kind, line.kind)
    body = read_body(line)
    length: int = body.get("entries", 0) if isinstance(body, dict) else 0
    fault = run.fault
    if name not in RUN_EVENTS:
        fault = fault or f"line {line.seq} of the index has the unknown kind `{line.kind}`"
    elif fault is None and name != "run.began":
        kind = run.entries[length - 1].kind
        if kind != _LAST_KINDS.get(name, name):
            fault = f"line {line.seq} of the index says `{line.kind}`, and entry {length} of `{line.key}` is `{kind}`"
    return RunEvent(
        tenant_id=line.tenant,
        run_id=line.key,
        event=name,  # type: ignore[arg-type]  # an unknown kind has a fault
        sequence=line.seq,
        cursor=cursor_of(line),
        at_us=line.at_us,
        waits_for=body.get("for") if name == "run.waiting" and isinstance(body, dict) else None,
        fault=fault,
    )

"""Read and verify a run, and compute its events."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from contextos.deployment.queries.checked_run import read_checked
from contextos.deployment.stream.folding import Position, StreamEvent, position_of, stream_events
from contextos.errors import Integrity, NotFound

if TYPE_CHECKING:
    from contextos.contracts.ports.outside import Keys
    from contextos.contracts.ports.storage import Store


@dataclass(frozen=True, slots=True)
class StreamedRun:
    """The events of a run as of one moment, in order. `entries` is the number of its entries then; `after` is the place
    behind which the reader wants events.
    """

    run_id: str
    entries: int
    ended: bool
    events: tuple[StreamEvent, ...]
    after: Position

    def behind(self, last: Position) -> list[StreamEvent]:
        """Return the events behind a place."""
        return list(self.events[bisect_right(self.events, last, key=attrgetter("position")) :])


async def read_stream(store: Store, tenant_id: str, keys: Keys, run_id: str, after: str = "") -> StreamedRun:
    """Read a run and return its events. `after` is the id of one of its events, or "".

    Raises:
        InvalidInput: this run has no event with the id `after` (`unknown_event`).
        Integrity: the run does not verify, so its events are not shown as if they were true.
        NotFound: there is no such run in this tenant.
    """
    run = await read_checked(store, tenant_id, keys, run_id)
    if run.fault is not None:
        raise Integrity(f"{run.fault}; find out what was altered: `contextos verify`")
    if not run.entries:
        raise NotFound(f"there is no run `{run_id[:64]}` in this tenant; list them with `contextos runs list`")
    position = position_of(run.run_id, run.entries, after)
    return StreamedRun(run.run_id, len(run.entries), run.view().ended, tuple(stream_events(run.entries)), position)

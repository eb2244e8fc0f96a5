"""Server-sent events, whatever the pieces are in which their bytes arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from contextos.client.event_stream import EventReader, StreamedEvent

STREAM = (
    ': waiting\n\nid: run_1:1\nevent: RUN_STARTED\ndata: {"type": "RUN_STARTED",\ndata:  "text": "é"}\n\n'
    'id: run_1:2\ndata:{}\nretry: 5\nunknown\n\nevent: DROPPED\n\nevent: CUSTOM\ndata: {}\n\ndata: {"cut": 1}'
)
EVENTS = [
    StreamedEvent("run_1:1", "RUN_STARTED", {"type": "RUN_STARTED", "text": "é"}),
    StreamedEvent("run_1:2", "", {}),
    StreamedEvent("run_1:2", "CUSTOM", {}),
]
"""The id of an event stays until another comes, and an event without data is none."""


@given(st.lists(st.integers(1, 9), max_size=400), st.sampled_from(["\n", "\r\n", "\r"]))
def test_events_are_the_same_in_every_partition_of_the_bytes(sizes: list[int], end: str) -> None:
    raw, reader, found = STREAM.replace("\n", end).encode(), EventReader(), []
    for size in [*sizes, len(raw)]:
        found += reader.feed(raw[:size])
        raw = raw[size:]
    assert found == EVENTS

"""What was verified once is found again by its content alone, and takes no more room than it may."""

from __future__ import annotations

from contextos.contracts.entries import linked
from contextos.contracts.entries.linked import RecentlyUsed, entries_size, forget, know, known
from contextos.contracts.journal import Draft, Entry, genesis, link


def stream(length: int, run: str) -> list[Entry]:
    made: list[Entry] = []
    for seq in range(1, length + 1):
        before = made[-1].hash if made else genesis("t", run)
        made.append(link("t", run, seq, before, Draft("run.context", str(seq), seq, "runtime", b"{}", bytes(16))))
    return made


def test_the_noted_part_of_a_stream_is_known_and_another_content_is_not() -> None:
    entries = stream(5, "run_noted")
    assert known("t", "run_noted", entries) == 0
    know("t", "run_noted", entries[:4])
    again = [Entry(*one) for one in entries]
    assert known("t", "run_noted", again) == 4
    assert known("t", "run_noted", again[:2]) == 2
    assert known("t", "run_noted", again[2:4], before=2) == 2
    assert known("t", "run_noted", [*again[:2], again[2]._replace(by="mallory")]) == 0
    assert known("t", "run_noted", again[1:3]) == 0
    assert known("u", "run_noted", again) == 0
    forget("t", "run_noted")
    assert known("t", "run_noted", again) == 0


def test_what_was_used_last_is_kept_within_the_bound() -> None:
    table = RecentlyUsed[int](100)
    for number in range(1000):
        table.keep(number, number, 10)
        assert table.get(0) == 0, "it is in use"
        assert len({*table._new, *table._old}) <= 11
    assert table.get(999) == 999
    assert table.get(500) is None
    counted = RecentlyUsed[int](64)
    for number in range(1000):
        assert counted.keep(number, number) == number
        assert counted.get(0) == 0, "it is in use"
        assert len({*counted._new, *counted._old}) <= 64
    table.drop(999)
    assert table.get(999) is None


def test_a_table_counts_what_its_entries_take() -> None:
    entries = [one._replace(body=bytes(1000)) for one in stream(3, "run_sized")]
    assert 3000 < entries_size(entries) < 3000 + 3 * 1000
    assert entries_size([entries[0]._replace(body=None)]) == linked._ENTRY_BYTES

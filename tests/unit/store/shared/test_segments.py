"""Segments: what is read back is what was written, and whatever else is stored is refused in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextos.contracts.entries.linked import RecentlyUsed, know
from contextos.contracts.journal import Batch, Draft, Entry, genesis, link
from contextos.errors import ChainBroken, Integrity
from contextos.store.shared import segments as module
from contextos.store.shared.batch import MAX_BATCH_ENTRIES, MAX_ENTRY_NAME_CHARS, refuse_misfit
from contextos.store.shared.segments import (
    DICTIONARY_FILE,
    MAX_HEADER_BYTES,
    READABLE_KIND,
    SEGMENT_BYTES,
    Segment,
    dictionary_id,
    header_line,
    read_rows,
    segments,
    without,
)
from tests.golden import journal_dictionary


def stream(bodies: list[bytes], tenant: str = "acme", run: str = "run_a", kinds: tuple[str, ...] = ()) -> list[Entry]:
    head, made = genesis(tenant, run), list[Entry]()
    for number, body in enumerate(bodies):
        kind = kinds[number] if number < len(kinds) else "run.context"
        salt = number.to_bytes(1, "big") * 16 if number else b"0123456789abcdef"
        made.append(link(tenant, run, number + 1, head, Draft(kind, f"k{number}", 5 + number, "runtime", body, salt)))
        head = made[-1].hash
    return made


def read(rows: list[Segment], tenant: str = "acme", run: str = "run_a", after: int = 0) -> list[Entry]:
    before: bytes | None = None
    pairs = []
    for row in rows:
        pairs.append((before, *row))
        before = row.head
    return list(read_rows(tenant, run, after, [pair for pair in pairs if pair[1] > after]))


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), min_size=1, max_size=4), st.integers(0, 16))
@settings(max_examples=60)
def test_entries_are_read_back_as_they_were_written(commits: list[list[bytes]], after: int) -> None:
    entries = stream([body for bodies in commits for body in bodies])
    rows: list[Segment] = []
    start = 0
    for bodies in commits:
        rows += segments(entries[start : start + len(bodies)])
        start += len(bodies)
    assert read(rows, after=after) == entries[after:]


def test_what_sql_reads_is_a_segment_of_its_own_and_not_compressed() -> None:
    entries = stream([b'{"a":1}', b'{"b":2}', b'{"c":3}'], kinds=("run.context", READABLE_KIND))
    rows = segments(entries)
    assert [(row.entries, row.dictionary == b"") for row in rows] == [(1, False), (1, True), (1, False)]
    assert rows[1].body.endswith(b'\n{"b":2}')
    assert read(rows) == entries


def test_a_large_commit_is_several_segments() -> None:
    entries = stream([bytes(SEGMENT_BYTES // 2)] * 5)
    rows = segments(entries)
    assert len(rows) > 1
    assert read(rows) == entries


@pytest.mark.parametrize("char", ["k", "\x01", "\U0001f600"])
def test_the_longest_names_that_a_store_takes_are_read_back(char: str) -> None:
    """In JSON a control character takes six bytes."""
    longest = MAX_ENTRY_NAME_CHARS - len("run.contextruntime")
    entries, head = list[Entry](), genesis("acme", "run_a")
    for seq in range(1, 40):
        drafted = Draft("run.context", char * longest, 5, "runtime", b'"x"', b"0123456789abcdef")
        entries.append(link("acme", "run_a", seq, head, drafted))
        head = entries[-1].hash
    refuse_misfit("acme", Batch("run_a", tuple(entries)))
    assert read(segments(entries)) == entries


def test_the_most_entries_that_a_store_takes_at_once_are_read_back() -> None:
    entries = stream([b'"x"'] * 200) * (MAX_BATCH_ENTRIES // 200)
    (row,) = segments(entries)
    assert len(header_line(tuple(zip(*entries, strict=True)))) < MAX_HEADER_BYTES // 2
    assert row.entries == MAX_BATCH_ENTRIES


def test_a_page_does_not_begin_within_a_segment_of_the_page_before() -> None:
    """Two segments that overlap can begin two pages; a read of a part can begin within a segment."""
    first, both = segments(stream([b'"1"']))[0], segments(stream([b'"1"', b'"2"']))[0]
    assert [one.seq for one in read_rows("acme", "run_a", 1, [(None, *both)])] == [2]
    assert [one.seq for one in read_rows("acme", "run_a", 0, [(None, *first)], goes_on=True)] == [1]
    with pytest.raises(ChainBroken, match="entry 2: is missing; entry 1 is in its place"):
        list(read_rows("acme", "run_a", 1, [(None, *both)], goes_on=True))


@pytest.mark.parametrize("column", Segment._fields)
def test_a_column_of_another_type_is_one_sentence(column: str) -> None:
    (row,) = segments(stream([b'"1"']))
    for value in (None, 1.5, [], "x" if column != "erased" else b"x"):
        with pytest.raises(ChainBroken, match="entry 1: is in a row with a column of another type"):
            list(read_rows("acme", "run_a", 0, [(None, *row._replace(**{column: value}))]))
    with pytest.raises(ChainBroken, match="a column of another type"):
        list(read_rows("acme", "run_a", 0, [("x", *row)]))


@pytest.mark.requirement("J-ERASE")
def test_an_erased_entry_leaves_its_digest_and_the_rest_as_it_was() -> None:
    entries = stream([b'"first"', b'"secretword"', b'"third"'])
    (row,) = segments(entries)
    for seq in (2, 1):
        left = without("acme", "run_a", None, row, seq)
        assert left is not None
        row = left
    assert without("acme", "run_a", None, row, 2) is None
    gone = [one._replace(body=None, salt=None) for one in entries[:2]]
    assert read([row]) == [*gone, entries[2]]
    assert (row.salts[:32], row.salts[32:]) == (bytes(32), entries[2].salt)


ALTERATIONS: dict[str, Callable[[Segment], Segment]] = {
    "a_flipped_byte": lambda row: row._replace(body=row.body[:20] + bytes([row.body[20] ^ 1]) + row.body[21:]),
    "a_cut_body": lambda row: row._replace(body=row.body[:-3]),
    "an_empty_body": lambda row: row._replace(body=b""),
    "bytes_behind_the_frame": lambda row: row._replace(body=row.body + b"x"),
    "another_head": lambda row: row._replace(head=bytes(32)),
    "another_salt": lambda row: row._replace(salts=bytes([row.salts[0] ^ 1]) + row.salts[1:]),
    "an_emptied_salt": lambda row: row._replace(salts=bytes(16) + row.salts[16:]),
    "a_cut_salt": lambda row: row._replace(salts=row.salts[:-1]),
    "an_entry_less": lambda row: row._replace(entries=row.entries - 1, salts=row.salts[16:]),
    "no_entry": lambda row: row._replace(entries=0, salts=b""),
    "another_entry_format": lambda row: row._replace(v=row.v + 1),
    "not_compressed": lambda row: row._replace(dictionary=b""),
    "an_erasure_that_was_none": lambda row: row._replace(erased=f"1:{'0' * 64} "),
    "an_erasure_that_is_no_text_of_ours": lambda row: row._replace(erased="x:y:z 7 "),
}


@pytest.mark.requirement("J-CHAIN")
@pytest.mark.parametrize("alteration", ALTERATIONS)
def test_an_altered_segment_is_named_and_never_read(alteration: str) -> None:
    (row,) = segments(stream([b'{"amount":4200}', b'"x"', b'"y"']))
    with pytest.raises(ChainBroken) as broken:
        read([ALTERATIONS[alteration](row)])
    assert broken.value.stream == "run_a"


def test_bytes_behind_the_bodies_are_not_passed_over() -> None:
    (row,) = segments(stream([b'"1"'], kinds=(READABLE_KIND,)))
    assert row.dictionary == b"", "a segment of this kind is not compressed"
    with pytest.raises(ChainBroken, match="cannot be unpacked"):
        read([row._replace(body=row.body + b"x")])


@given(st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=200)
def test_any_altered_byte_of_a_segment_is_found(position: int, change: int) -> None:
    entries = stream([b'{"amount":4200}', b'"x"'])
    (row,) = segments(entries)
    position %= len(row.body)
    body = row.body[:position] + bytes([row.body[position] ^ change]) + row.body[position + 1 :]
    try:
        found = read([row._replace(body=body)])
    except ChainBroken:
        return
    # A bit of a zstd frame that means nothing changes nothing.
    assert found == entries


@pytest.mark.requirement("J-CHAIN", "J-TENANT")
def test_a_segment_of_another_place_is_refused() -> None:
    entries = stream([b'"1"', b'"2"', b'"3"'])
    first, second, third = (segments([one])[0] for one in entries)
    for tenant, run in (("acme", "run_b"), ("other", "run_a")):
        with pytest.raises(ChainBroken):
            read([first], tenant, run)
    for rows, missing in (([second, third], 1), ([first, third], 2), ([first, second, second], 3)):
        with pytest.raises(ChainBroken) as broken:
            read(rows)
        assert broken.value.seq == missing
    with pytest.raises(ChainBroken):
        read([first, second._replace(seq=3), third])


def test_a_format_or_dictionary_that_is_not_known_is_one_sentence() -> None:
    (row,) = segments(stream([b'"1"']))
    with pytest.raises(Integrity, match="format 2, and this code knows 1; run the contextos that wrote it"):
        read([row._replace(format=2)])
    with pytest.raises(
        Integrity, match="dictionary `0000000000000000`, which this code does not have: begin with a new store"
    ):
        read([row._replace(dictionary=bytes(8))])


def test_the_dictionary_is_what_its_script_makes_of_dry_runs() -> None:
    assert DICTIONARY_FILE.read_bytes() == journal_dictionary.made()


def test_no_store_loses_its_dictionary_unseen() -> None:
    what_to_do = (
        "Stores that name the dictionary of before cannot be read any more. Before the first release: pin the new"
        " digest here, and say it in a line `Upgrade` of CHANGELOG.md. After it: add a file with a new name, and keep"
        " this one."
    )
    found = {file.name: sha256(file.read_bytes()).hexdigest() for file in DICTIONARY_FILE.parent.glob("*.dict")}
    assert found == {"journal_1.dict": "b03628a75b9885fd01125d344603323dcc860167f8cfcf6498b020251513ad9f"}, what_to_do
    assert found[DICTIONARY_FILE.name].startswith(dictionary_id().hex())


def test_the_dictionary_holds_placeholders_where_runs_differ() -> None:
    text = DICTIONARY_FILE.read_text("utf-8")
    assert set(re.findall("[0-9a-f]{16,}", text)) == {
        "0" * size for size in map(len, re.findall("[0-9a-f]{16,}", text))
    }
    assert "eyJ" not in text.replace('"eyJ"', "")


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_row_that_was_verified_before_is_judged_as_one_that_was_not(
    is_noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each field of a row altered, and each byte of it: the table of what was read changes nothing."""
    entries = stream([b'{"a":1}', b'{"b":2}', b'{"c":3}'], run="run_twice")
    if is_noted:
        know("acme", "run_twice", entries)
    row = segments(entries)[0]

    def judged(altered: Segment) -> list[Entry] | str:
        try:
            return read([altered], run="run_twice")
        except (ChainBroken, Integrity) as fault:
            return str(fault)

    def flipped(value: bytes, at: int) -> bytes:
        return value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]

    altered = [row, row._replace(seq=4), row._replace(entries=2), row._replace(v=7), row._replace(format=9)]
    altered += [row._replace(dictionary=b""), row._replace(erased=f"1:{'0' * 64} ")]
    for name in ("head", "marks", "salts", "body"):
        value = getattr(row, name)
        altered += [row._replace(**{name: flipped(value, at)}) for at in range(len(value))]
    known = [judged(one) for one in altered for _ in range(2)]
    assert known[0] == known[1] == entries
    assert all(isinstance(one, str) or one == entries for one in known)
    monkeypatch.setattr(module, "_ENTRY_CACHE", RecentlyUsed(0))
    monkeypatch.setattr(module, "_cache_entries", lambda *_: None)
    assert known == [judged(one) for one in altered for _ in range(2)]


def test_what_this_process_linked_is_not_unpacked_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = stream([b'{"a":1}', b'{"b":2}', b'{"c":3}'], run="run_linked")
    know("acme", "run_linked", entries)
    rows = [*segments(entries[:2]), *segments(entries[2:])]
    unknown = segments([entries[0]._replace(by="mallory"), entries[1]])
    monkeypatch.setattr(module, "_unpack", lambda _row: b"")
    assert read(rows, run="run_linked") == entries
    left = without("acme", "run_linked", None, rows[0], 1)
    assert left is not None
    for gone in (rows[:1], [left], unknown):
        with pytest.raises(ChainBroken):
            read(gone, run="run_linked")

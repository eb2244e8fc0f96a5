"""The file passes what every witness passes, and is read quickly without a line being taken on trust."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, INDEX, WitnessedHead
from contextos.errors import Integrity
from contextos.store.witness import file as witness_file
from contextos.store.witness.file import MARGIN_US, FileWitness
from tests.suites.witness_suite import Make, WitnessSuite, head

HOUR_US = MARGIN_US


class TestFileWitness(WitnessSuite):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        return lambda: FileWitness(tmp_path / "witness.jsonl")


@pytest.mark.parametrize("tenant", ["ä", 'a"b', "a\\b", "a\nb", "tenant"])
@pytest.mark.parametrize("spell", [canonical, orjson.dumps, lambda one: orjson.dumps(one, None, orjson.OPT_INDENT_2)])
def test_a_line_says_the_same_in_every_spelling(tmp_path: Path, tenant: str, spell: object) -> None:
    witness = FileWitness(tmp_path / "witness.jsonl")
    raw = spell(head(3, tenant=tenant)._asdict())  # type: ignore[operator]
    witness.path.write_bytes(raw.replace(b"\n", b"") + b"\n")
    assert list(asyncio.run(witness.heads(tenant))) == [head(3, tenant=tenant)]


@pytest.mark.parametrize(
    "spoil",
    [
        (b'"seq":3', b'"seq":3.0'),
        (b'"seq":3', b'"seq":"3"'),
        (b'"seq":3', b'"seq":true'),
        (b'"stream":', b'"streams":'),
        (b'"seq":3', b'"seq":3,"seq":4'),
        (b'"kid":"', b'"more":1,"kid":"'),
    ],
)
def test_a_line_of_another_form_is_refused(tmp_path: Path, spoil: tuple[bytes, bytes]) -> None:
    witness = FileWitness(tmp_path / "witness.jsonl")
    spoilt = canonical(head(3)._asdict()).replace(*spoil)
    witness.path.write_bytes(b'{"x":1,' + spoilt[1:] + b"\n")
    with pytest.raises(Integrity, match="line 1"):
        asyncio.run(witness.heads("tenant_acme_prod"))


def later(seq: int, hours: float, tenant: str = "a", stream: str = INDEX) -> WitnessedHead:
    return head(seq, stream, tenant)._replace(at_us=int(1_793_000_000_000_000 + hours * HOUR_US))


def put(path: Path, *heads: WitnessedHead) -> FileWitness:
    path.write_bytes(b"".join(canonical(one._asdict()) + b"\n" for one in heads))
    return FileWitness(path)


@pytest.mark.parametrize("block_bytes", [1, 2, 7, 100, 271, 272, 273, 1000, 1 << 20])
def test_blocks_of_any_size_read_the_same(block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [later(seq, seq, tenant) for seq in range(1, 12) for tenant in ("a", "b")]
    witness = put(tmp_path / "witness.jsonl", *made)
    raw = witness.path.read_bytes()
    # An empty line, a line that was cut off, and an end without a line end.
    witness.path.write_bytes(b"\n" + raw[:500] + b"\n" + raw + raw[:40])
    monkeypatch.setattr(witness_file, "BLOCK_BYTES", block_bytes)
    first = made[0]
    assert asyncio.run(witness.heads("a")) == [first, *made[::2]]


def test_a_line_of_another_form_is_named_in_whichever_block_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    witness = put(tmp_path / "witness.jsonl", *(later(seq, seq) for seq in range(1, 9)))
    lines = witness.path.read_bytes().splitlines()
    witness.path.write_bytes(b"\n".join([*lines[:4], b"{}", *lines[4:]]))
    monkeypatch.setattr(witness_file, "BLOCK_BYTES", 64)
    with pytest.raises(Integrity, match="line 5 of"):
        asyncio.run(witness.heads("a"))


def test_what_is_read_since_a_time_is_the_end_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [later(seq, seq, stream=stream) for seq in range(1, 101) for stream in (INDEX, CONTROL)]
    witness = put(tmp_path / "witness.jsonl", *made)
    monkeypatch.setattr(witness_file, "BLOCK_BYTES", 500)
    # What cannot be read lies far before the end: nobody comes to it.
    whole = witness.path.read_bytes()
    witness.path.write_bytes(b"{}\n" + whole[3:])
    found = list(asyncio.run(witness.heads("a", since_us=made[179].at_us)))
    assert found == made[-len(found) :]
    assert 22 < len(found) < 30, "and everything since"
    with pytest.raises(Integrity):
        asyncio.run(witness.heads("a"))


def test_a_head_of_a_slow_clock_and_one_that_came_late_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = later(61, 49.5)
    made = [*(later(seq, seq, stream=stream) for seq in range(1, 51) for stream in (INDEX, CONTROL)), slow, later(3, 2)]
    witness = put(tmp_path / "witness.jsonl", *made)
    monkeypatch.setattr(witness_file, "BLOCK_BYTES", 1000)
    found = list(asyncio.run(witness.heads("a", since_us=made[-3].at_us)))
    assert {slow, *made[-4:-2]} <= set(found)


@pytest.mark.parametrize(("hours", "is_read"), [(0.9, True), (1.1, False)])
def test_what_is_up_to_an_hour_older_than_the_time_is_read(
    hours: float, is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head of a slow clock, or one that came late, lies that far before the end."""
    asked = later(9, 9)
    made = [later(1, 9 - hours), later(1, 9 - hours, stream=CONTROL), asked, asked._replace(stream=CONTROL)]
    witness = put(tmp_path / "witness.jsonl", *made)
    # A block holds a line, and the first two are read only if the third is young enough.
    monkeypatch.setattr(witness_file, "BLOCK_BYTES", 1)
    found = asyncio.run(witness.heads("a", since_us=asked.at_us))
    assert (made[0] in found) is is_read


def test_the_last_head_of_each_stream_is_found_however_old_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = [later(1, 1), later(1, 1, stream=CONTROL), later(2, 2, stream=CONTROL)]
    made = [*old, *(later(seq, seq, "b") for seq in range(3, 50)), *(later(seq, seq) for seq in range(50, 90))]
    witness = put(tmp_path / "witness.jsonl", *made)
    monkeypatch.setattr(witness_file, "BLOCK_BYTES", 500)
    found = asyncio.run(witness.heads("a", since_us=made[-1].at_us))
    assert found[-1] == made[-1]
    assert old[-1] in found
    assert list(asyncio.run(witness.heads("nobody", since_us=made[-1].at_us))) == []

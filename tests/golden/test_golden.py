"""Old histories replay under today's code: the good ones to the byte, the bad ones to their error.

A change that makes one of them fail changes what recorded runs derive, and needs a new number for `SEMANTICS`.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.exported import Export, read_export, replay_export
from contextos.contracts.entries.bodies import body_fault
from contextos.errors import ContextOSError
from contextos.trust.seal import KeyRing

HERE = Path(__file__).resolve().parent
CORPUS: dict[str, Any] = tomllib.loads((HERE / "corpus.toml").read_text("utf-8"))
KEYS = KeyRing({}, {"export": [bytes.fromhex(CORPUS["export_key"])]})


def raw(name: str) -> bytes:
    return gzip.decompress((HERE / f"{name}.jsonl.gz").read_bytes())


def read(name: str) -> Export:
    return read_export(raw(name), KEYS)


@pytest.mark.parametrize("name", CORPUS["good"])
def test_a_good_history_replays_to_its_record(name: str) -> None:
    replayed = asyncio.run(replay_export(read(name)))
    assert {one.run_id: [one.status, one.record_hash] for one in replayed} == CORPUS["good"][name]["runs"]


@pytest.mark.parametrize("name", CORPUS["good"])
def test_every_body_of_a_good_history_has_the_type_of_its_kind(name: str) -> None:
    for stream, entries in read(name).streams.items():
        for entry in entries:
            assert entry.body is None or body_fault(stream, entry.kind, entry.body) is None, (entry.seq, entry.kind)


@pytest.mark.requirement("J-SEMANTICS")
@pytest.mark.parametrize("name", CORPUS["bad"])
def test_a_bad_history_is_refused_where_it_is_bad(name: str) -> None:
    with pytest.raises(ContextOSError) as refused:
        asyncio.run(replay_export(read(name)))
    expected = CORPUS["bad"][name]
    assert (type(refused.value).__name__, expected["says"] in str(refused.value)) == (expected["error"], True), str(
        refused.value
    )


def test_every_file_is_listed_as_it_is_and_every_change_says_why() -> None:
    listed = {**CORPUS["good"], **CORPUS["bad"]}
    assert sorted(path.name.removesuffix(".jsonl.gz") for path in HERE.glob("*.gz")) == sorted(listed)
    for name, entry in listed.items():
        assert hashlib.sha256(raw(name)).hexdigest() == entry["sha256"], f"{name} changed; say why in `because`"
        assert len(entry["because"]) > 20

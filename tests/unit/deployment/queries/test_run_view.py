"""A run's state is a function of its entries, and an erased end is shown as erased and never as open."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.exported import read_export
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Draft, Entry, genesis, link
from contextos.deployment.queries.run_view import run_view
from contextos.trust.seal import KeyRing


def stream(*steps: tuple[str, Any]) -> list[Entry]:
    made: list[Entry] = []
    for seq, (kind, body) in enumerate(steps, 1):
        before = made[-1].hash if made else genesis("t", "run_1")
        raw = orjson.dumps({"answer": body} if KINDS[kind].recorded else body)
        made.append(link("t", "run_1", seq, before, Draft(kind, "", seq, "runtime", raw, bytes(16))))
    return made


RECEIVED = ("run.received", {"request": {"mode": "long_running"}})


def test_a_long_run_that_was_only_received_waits_for_an_engine() -> None:
    view = run_view("t", "run_1", stream(RECEIVED))
    assert (view.state, view.waiting, view.ended, view.record) == ("received", {"for": "engine"}, False, None)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_another_mode_waits_for_nothing_at_its_receipt(mode: str) -> None:
    assert run_view("t", "run_1", stream(("run.received", {"request": {"mode": mode}}))).waiting is None


def test_an_erased_receipt_is_no_defect() -> None:
    [received] = stream(RECEIVED)
    view = run_view("t", "run_1", [received._replace(body=None, salt=None)])
    assert (view.state, view.waiting) == ("received", None)


@pytest.mark.parametrize("name", ["refunds", "sessions"])
def test_no_erasure_of_another_entry_takes_the_record_away(name: str) -> None:
    raw = gzip.decompress((Path(__file__).parents[3] / "golden" / f"{name}.jsonl.gz").read_bytes())
    for run, entries in read_export(raw, KeyRing.from_seed(b"k" * 32)).streams.items():
        record = run_view("t", run, entries).record
        assert record is not None
        pinned = [read_body(one)["pins"] for one in entries if one.kind == "run.pinned"]
        assert record["lineage"]["pins_digest"] == content_address(pinned[-1] if pinned else {})
        assert record["record_hash"] == content_address(
            {name: one for name, one in record.items() if name != "record_hash"}
        )
        for at, one in enumerate(entries):
            erased = [*entries[:at], one._replace(body=None, salt=None), *entries[at + 1 :]]
            assert one.kind == "record.revised" or run_view("t", run, erased).record == record, one.kind

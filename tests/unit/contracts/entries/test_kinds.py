"""The account of a run goes with its journal: after every append it says what the entries so far say, read anew."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.exported import read_export
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.entries.account import RunAccount
from contextos.contracts.entries.kinds import KINDS, account_of, fold_entry
from contextos.contracts.entries.reading import logged
from contextos.contracts.journal import LEDGERS, Entry, Logged
from contextos.trust.journal import tape
from contextos_sim.play import play
from contextos_sim.world import SimulatedWorld
from tests.golden.test_golden import CORPUS, KEYS

GOLDEN = Path(__file__).resolve().parents[3] / "golden"


def told(account: RunAccount) -> dict[str, Any]:
    """Everything that an account says."""
    asked = {entry.body["tool"] for entry in account.of("call.asked") if entry.body}
    return {
        "used": account.used(),
        "ledgers": account.ledger_heads(),
        "effects": list(account.effects.items()),
        "evidence": account.evidence_refs(),
        "decisions": list(account.decisions),
        "controls": {name: sorted(raised) for name, raised in account.controls.items()},
        "matched": list(account.matched_rules),
        "instructing": list(account.instructing),
        "void": account.void_answers(),
        "undone": account.undone_call(asked),
        "kinds": {kind: len(entries) for kind, entries in account.by_kind.items()},
        "times": (account.began_us, account.now_us),
    }


def golden_runs() -> Iterator[Any]:
    for name in CORPUS["good"]:
        raw = gzip.decompress((GOLDEN / f"{name}.jsonl.gz").read_bytes())
        for run, entries in read_export(raw, KEYS).streams.items():
            if run.startswith("run_"):
                yield pytest.param(run, entries, id=f"{name}-{run[-6:]}")


@pytest.mark.parametrize(("run", "entries"), list(golden_runs()))
def test_the_account_after_each_entry_is_that_of_the_entries_so_far(run: str, entries: Sequence[Entry]) -> None:
    """Reading an account changes nothing in it, and no later entry changes what was read."""
    account, log, before = RunAccount(run), logged(entries), list[tuple[dict[str, Any], str]]()
    for number, entry in enumerate(log, 1):
        fold_entry(account, entry)
        now = told(account)
        assert now == told(account_of(run, log[:number]))
        before.append((now, repr(now)))
        heads = {ledger: [one.hash for one in log[:number] if KINDS[one.kind].ledger == ledger] for ledger in LEDGERS}
        assert now["ledgers"] == {
            name: {"entries": len(hashes), "head": content_address(hashes)} for name, hashes in heads.items()
        }
    assert [repr(now) for now, _ in before] == [shown for _, shown in before]


def test_the_account_of_a_live_run_is_that_of_its_stored_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that die, wait, are cancelled and settled: each journal of a simulated sample, at each of its entries."""
    checked = 0

    def checking(account: RunAccount, entry: Logged) -> None:
        nonlocal checked
        fold_entry(account, entry)
        log = sorted((one for kind in account.by_kind for one in account.of(kind)), key=lambda one: one.seq)
        assert told(account) == told(account_of(account.run_id, log)), entry.seq
        checked += 1

    monkeypatch.setattr(tape, "fold_entry", checking)
    for seed in range(4):
        world = SimulatedWorld(seed)
        play(world)
        assert not world.checker.violations
    assert checked > 500

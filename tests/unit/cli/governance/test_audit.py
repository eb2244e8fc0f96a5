"""Replay, verify, export: what was changed is found and named, and an export needs nobody's trust."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.segments import drop_triggers, entries_as_rows


def tamper(path: Path, *statements: str) -> None:
    """Change the store past every trigger that keeps it, as somebody with the file can. `journal` has a row for each
    entry.
    """
    with closing(sqlite3.connect(path / "contextos.db")) as store:
        drop_triggers(store)
        with entries_as_rows(store):
            for statement in statements:
                assert store.execute(statement).rowcount > 0, "nothing was tampered with"
        store.commit()


def test_ledgers_verify_and_runs_replay_equal(shop) -> None:
    assert shop.say("verify").code == 0
    replayed = [shop.say("replay", run, "--json").json["replayed"][0] for run in ("req_small", "req_large")]
    assert [one["equal"] for one in replayed] == [True, True]
    shown = shop.say("runs", "show", "req_large", "--json").json
    assert replayed[1]["record_hash"] == shown["record"]["record_hash"]


@pytest.mark.parametrize(
    ("what", "statement"),
    [
        (
            "a changed body",
            "UPDATE journal SET body = CAST(replace(body, '4200', '4201') AS BLOB) WHERE kind = 'approval.asked'",
        ),
        ("a changed time", "UPDATE journal SET at_us = at_us + 1 WHERE kind = 'approval.answered'"),
        ("a changed author", "UPDATE journal SET \"by\" = 'user_finance_lead_78' WHERE kind = 'approval.answered'"),
        ("a dropped entry", "DELETE FROM journal WHERE kind = 'approval.answered'"),
        ("a dropped tail", "DELETE FROM journal WHERE kind IN ('run.ended', 'replay.packed')"),
        ("a dropped run", "DELETE FROM journal WHERE run LIKE 'run_%'"),
        ("a forged head", "UPDATE heads SET sig = zeroblob(64)"),
    ],
)
def test_tampering_is_found(shop, what: str, statement: str) -> None:
    tamper(shop.path, statement)
    said = shop.say("verify", "--json")
    assert said.code == 3, what
    assert said.json["error"]["code"] == "chain_broken"


def test_a_tampered_run_does_not_replay(shop) -> None:
    tamper(
        shop.path, "UPDATE journal SET body = CAST(replace(body, '4200', '4201') AS BLOB) WHERE kind = 'run.received'"
    )
    assert shop.say("replay", "req_large").code == 3


def test_an_export_verifies_with_nothing_but_its_key(shop, tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    exported = shop.say("runs", "export", "req_small", "req_large", "--out", str(out), *shop.by, "--json").json
    assert shop.say("replay", str(out)).code == 0
    shutil.rmtree(shop.path)
    trusted = [
        word
        for purpose, keys in exported["public_keys"].items()
        for key in keys
        for word in ("--trusted-key", f"{purpose}={key}")
    ]
    said = shop.say("verify", str(out), *trusted, "--json")
    assert said.code == 0
    assert [one["stream"] for one in said.json["verified"]] == exported["files"][0]["runs"]
    assert (said.json["unproved"], said.json["unsigned"]) == ([], [])
    assert shop.say("verify", str(out), "--trusted-key", "ab" * 32).code == 3
    replayed = shop.say("replay", str(out), *trusted, "--json")
    assert replayed.code == 0
    assert [one["run_id"] for one in replayed.json["replayed"]] == exported["files"][0]["runs"]
    assert shop.say("replay", str(out), "--trusted-key", "ab" * 32).code == 3
    assert shop.say("replay", "req_large", *trusted).code == 2


@pytest.mark.parametrize("change", ["a dropped line", "a changed line", "a line twice", "lines swapped"])
def test_a_changed_export_is_found(shop, tmp_path: Path, change: str) -> None:
    out = tmp_path / "runs.jsonl"
    shop.say("runs", "export", "req_large", "--out", str(out), *shop.by)
    rows = out.read_text().splitlines()
    if change == "a dropped line":
        del rows[5]
    elif change == "a changed line":
        entry = json.loads(rows[5])
        rows[5] = json.dumps(entry | {"entry": entry["entry"] | {"at_us": entry["entry"]["at_us"] + 1}})
    elif change == "a line twice":
        rows.insert(5, rows[5])
    else:
        rows[5], rows[6] = rows[6], rows[5]
    out.write_text("\n".join(rows) + "\n")
    assert shop.say("verify", str(out)).code == 3
    assert shop.say("replay", str(out)).code == 3


def test_an_export_never_replaces_a_file(shop, tmp_path: Path) -> None:
    out = tmp_path / "runs.jsonl"
    out.write_text("mine")
    assert shop.say("runs", "export", "req_small", "--out", str(out), *shop.by).code == 2
    assert out.read_text() == "mine"
    verified = {one["stream"]: one["entries"] for one in shop.say("verify", "--json").json["verified"]}
    assert verified["control"] == 8, "what did not leave is not on record as if it had"
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


def test_verify_lists_unprovable_claims_and_finds_a_removed_run_against_a_witness(shop, tmp_path: Path) -> None:
    settings = shop.path / "contextos.toml"
    without = settings.read_text()
    settings.write_text('witness = "off"\n' + without)
    assert "cannot be excluded: there is no witness" in shop.say("verify").out
    assert shop.say("verify", "--json").json["witnessed"] == {}
    settings.write_text(f'witness = "{tmp_path / "witness.jsonl"}"\n' + without)
    assert shop.say("runs", "resume").code == 0
    assert shop.say("verify", "--json").json["witnessed"] == {"control": 8, "index": 8}
    tamper(
        shop.path,
        "DELETE FROM journal WHERE run LIKE 'run_%' OR run = 'index'",
        "DELETE FROM heads",
        "DELETE FROM run_terms",
        "DELETE FROM documents WHERE collection IN ('leases', 'requests')",
    )
    said = shop.say("verify", "--json")
    assert (said.code, said.json["error"]["code"]) == (3, "chain_broken")
    assert "witnessed at" in said.json["error"]["detail"]
    assert "record the loss with `contextos store restored`" in said.json["error"]["detail"]
    settings.write_text('witness = "off"\n' + without)
    assert shop.say("verify").code == 0, "without the witness nobody can tell"
    assert shop.say("verify", "--witness", str(tmp_path / "witness.jsonl")).code == 3
    assert shop.say("verify", "--witness", str(tmp_path / "nothing.jsonl")).code == 2


def test_after_a_witnessed_cut_a_command_ends_before_it_does_anything(shop, tmp_path: Path) -> None:
    settings = shop.path / "contextos.toml"
    settings.write_text(f'witness = "{tmp_path / "witness.jsonl"}"\n' + settings.read_text())
    assert shop.say("runs", "resume").code == 0
    tamper(shop.path, "DELETE FROM journal WHERE run = 'control'")
    before = shop.refunds()
    said = shop.say("invoke", shop.request("next"), "--json")
    assert (said.code, said.json["error"]["code"]) == (3, "chain_broken")
    assert shop.refunds() == before


def test_a_witness_that_cannot_be_written_is_a_warning(shop) -> None:
    settings = shop.path / "contextos.toml"
    settings.write_text('witness = "no/such/folder/witness.jsonl"\n' + settings.read_text())
    said = shop.say("runs", "resume")
    assert said.code == 0
    assert "warning" in said.err


def test_a_finding_of_the_witness_after_a_command_does_not_hide_the_commands_result(
    shop, tmp_path: Path, monkeypatch
) -> None:
    from contextos.deployment.witness import WitnessPublisher
    from contextos.errors import Integrity

    async def found_broken(witnessing: WitnessPublisher, tenants: list[str]) -> int:
        raise Integrity("the witness file holds no witnessed heads")

    settings = shop.path / "contextos.toml"
    settings.write_text(f'witness = "{tmp_path / "witness.jsonl"}"\n' + settings.read_text())
    monkeypatch.setattr(WitnessPublisher, "publish", found_broken)
    said = shop.say("invoke", shop.request("next"), "--json")
    assert said.code != 3, "an exit code of 3 means that nothing was done"
    assert said.json["run_id"], "the answer is shown"
    assert "warning: the witness file holds no witnessed heads" in said.err

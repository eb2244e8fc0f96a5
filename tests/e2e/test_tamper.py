"""Proof 7: every change of a recorded entry is found, and the entry is named.

The export first: every byte of it counts. Then the database, by an attacker who owns the file and drops its triggers.
Then lawful erasure: the chain still verifies and a replay says what it lacks.

What cannot be found here, whatever we write: an attacker who owns the whole database and takes it back, whole, to a
state in which it once was; or who deletes a run at the end of the index with everything that names it (heads, leases
and all); or the last lines of the `control` stream, which nothing signs. Those states were honest when they were made.
Only a witness outside knows better: an export, or signed heads that were sent elsewhere. The test on a database that
was taken back shows that boundary, and that an export kept outside is such a witness.
"""

from __future__ import annotations

import base64
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextos.audit import export, verify
from contextos.audit.exported import read_export
from contextos.audit.replay import replay
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import INDEX, Draft, Entry, genesis, link
from contextos.deployment import operator
from contextos.errors import ApprovalRefused, ChainBroken, Integrity, NotFound, ReplayMismatch, SignatureInvalid
from contextos.store.shared.segments import hash_bytes
from contextos.trust.journal.chain import verify_chain
from contextos.trust.seal import KeyRing
from tests.e2e.test_approvals import policies_changed
from tests.segments import drop_triggers, entries_as_rows
from tests.world import OPERATOR, TENANT, TestWorld, open_world, request, run


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, KeyRing, str]:
    """A run with an approval, a second run, both in one export."""

    async def go() -> tuple[bytes, KeyRing, str]:
        world = await open_world(tmp_path_factory.mktemp("export"))
        waiting = await world.invoke(request(4200, "req_1"))
        await world.approve(waiting.run_id)
        other = await world.invoke(request(2500, "req_2"))
        raw = await export.export_runs(world.deployment, TENANT, [waiting.run_id, other.run_id], by=world.actor())
        world.close()
        return raw, world.keys, waiting.run_id

    made: tuple[bytes, KeyRing, str] = run(go())
    return made


def where(raw: bytes, keys: KeyRing) -> tuple[str, int] | None:
    """The stream and entry that reading the export names; None when it reads."""
    try:
        read_export(raw, keys)
    except ChainBroken as broken:
        return broken.stream, broken.seq
    except SignatureInvalid:
        return "export", 1
    return None


def places(raw: bytes) -> list[tuple[str, int]]:
    """By line of an honest export: what a change of that line must be named as."""
    return [("export", number) for number, _ in enumerate(raw.split(b"\n")[:-1], start=1)]


def flipped(raw: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(raw)
    changed[position] ^= bit
    return bytes(changed)


@pytest.mark.requirement("T-TAMPER-EXPORT")
def test_an_honest_export_reads(exported: tuple[bytes, KeyRing, str]) -> None:
    raw, keys, run_id = exported
    streams = read_export(raw, keys).streams
    assert streams[run_id][-1].kind == "run.ended"
    assert len(streams) == 2


@pytest.mark.requirement("T-TAMPER-EXPORT")
def test_a_flipped_byte_of_an_export_is_found_and_its_entry_named(exported: tuple[bytes, KeyRing, str]) -> None:
    """Places all over one entry of each kind, the manifest and the artifacts; the soak below flips every bit."""
    raw, keys, _ = exported
    named, lines = places(raw), raw.split(b"\n")
    kinds: set[str] = set()
    start = 0
    for line, place in zip(lines, named, strict=False):
        kind = orjson.loads(line).get("entry", {}).get("kind", "line")
        step = 997 if kind in kinds else max(5, len(line) // 30)
        kinds.add(kind)
        for position in range(start, start + len(line), step):
            for bit in (0x01, 0x80):
                assert where(flipped(raw, position, bit), keys) == place, (position, bit)
        start += len(line) + 1


@pytest.mark.requirement("T-TAMPER-EXPORT")
@settings(max_examples=300)
@given(position=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_any_flipped_bit_is_found_where_it_is(exported: tuple[bytes, KeyRing, str], position: int, bit: int) -> None:
    raw, keys, _ = exported
    position %= len(raw)
    found = where(flipped(raw, position, 1 << bit), keys)
    assert found is not None
    line = raw.count(b"\n", 0, position)
    if raw[position : position + 1] != b"\n":
        assert found == places(raw)[line]


@pytest.mark.soak
@pytest.mark.requirement("T-TAMPER-EXPORT")
def test_every_flipped_bit_of_a_whole_export_is_found(exported: tuple[bytes, KeyRing, str]) -> None:
    raw, keys, _ = exported
    for position in range(len(raw)):
        for bit in range(8):
            assert where(flipped(raw, position, 1 << bit), keys) is not None, (position, bit)


@pytest.mark.requirement("T-TAMPER-EXPORT")
def test_a_line_that_is_dropped_doubled_or_swapped_is_named(exported: tuple[bytes, KeyRing, str]) -> None:
    raw, keys, _ = exported
    lines, named = raw.split(b"\n")[:-1], places(raw)

    def first_fault(rows: list[bytes]) -> tuple[str, int] | None:
        return where(b"\n".join(rows) + b"\n", keys)

    for at in range(1, len(lines)):
        assert first_fault(lines[:at] + lines[at + 1 :]) is not None, f"line {at + 1} was dropped"
        assert first_fault(lines[: at + 1] + lines[at:]) is not None, f"line {at + 1} was doubled"
        assert first_fault(lines[:at] + lines[at + 1 :]) == named[at]
        if at + 1 < len(lines):
            assert first_fault([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]) == named[at]
        if at > 1:
            assert first_fault(lines[:at]) is not None, f"the tail from line {at + 1} on was dropped"


@pytest.mark.requirement("T-TAMPER-EXPORT")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"\n\n",
        b"{}\n",
        b"[]\n",
        b'{"manifest":null}\n',
        b'{"manifest":{}}\n',
        b'{"manifest":{"signatures":[]}}\n',
        b'{"manifest":{"signatures":[{}]}}\n',
        b'{"manifest":{"signatures":1}}\n',
        b"\xff\n",
        b"x" * 100,
    ],
)
def test_a_file_that_is_no_export_is_refused_with_a_typed_error(
    raw: bytes, exported: tuple[bytes, KeyRing, str]
) -> None:
    assert where(raw, exported[1]) is not None


@pytest.mark.requirement("T-TAMPER-EXPORT")
def test_an_export_by_another_key_is_refused(exported: tuple[bytes, KeyRing, str]) -> None:
    assert where(exported[0], KeyRing.from_seed(b"x" * 32)) == ("export", 1)


def attack(path: Path, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """Change the file as its owner would, without the triggers that prevent it. `journal` has a row for each entry."""
    with closing(sqlite3.connect(path / "contextos.db")) as connection, connection:
        drop_triggers(connection)
        connection.execute("PRAGMA ignore_check_constraints = ON")
        with entries_as_rows(connection):
            for statement, values in statements:
                changed = connection.execute(statement, values).rowcount
                assert changed > 0, "an attack that changes nothing proves nothing"


async def first_fault(world: TestWorld) -> tuple[str, int] | None:
    try:
        await verify.verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
    except ChainBroken as broken:
        return broken.stream, broken.seq
    return None


async def two_runs(path: Path) -> tuple[TestWorld, str, str, list[Entry]]:
    world = await open_world(path, stores="sqlite")
    await policies_changed(world)
    waiting = await world.invoke(request(4200, "req_1"))
    await world.approve(waiting.run_id)
    other = await world.invoke(request(2500, "req_2"))
    assert await first_fault(world) is None
    return world, waiting.run_id, other.run_id, list(await world.stores.tenant(TENANT).read(waiting.run_id))


COLUMNS = {
    "kind": "run.resumed",
    "key": "elsewhere",
    "at_us": 1,
    '"by"': "nobody",
    "hash": "sha256:" + "0" * 64,
    "salt": bytes(16),
    "body": b"{}",
    "v": 2,
}


@pytest.mark.requirement("T-TAMPER-STORE")
@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_column_of_any_entry_is_named(column: str, tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id, _, entries = await two_runs(tmp_path)
        for seq in (1, 2, len(entries) // 2, len(entries)):
            place = "WHERE tenant = ? AND run = ? AND seq = ?"
            kept = getattr(entries[seq - 1], column.strip('"'))
            attack(tmp_path, (f"UPDATE journal SET {column} = ? {place}", (COLUMNS[column], TENANT, run_id, seq)))
            assert await first_fault(world) == (run_id, seq), column
            attack(tmp_path, (f"UPDATE journal SET {column} = ? {place}", (kept, TENANT, run_id, seq)))
            assert await first_fault(world) is None
        world.close()

    run(go())


OF = "tenant = ? AND run = ?"


@pytest.mark.requirement("T-TAMPER-STORE", "R-INDEX")
def test_a_row_deleted_from_the_database_is_missed(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id, other, entries = await two_runs(tmp_path)
        last = len(entries)
        store = world.stores.tenant(TENANT)
        index = await store.read(INDEX)

        def everything() -> bytes:
            with closing(sqlite3.connect(tmp_path / "contextos.db")) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return (tmp_path / "contextos.db").read_bytes()

        assert everything()
        cases: list[tuple[str, list[tuple[str, tuple[Any, ...]]], tuple[str, int]]] = [
            ("an entry", [(f"DELETE FROM journal WHERE {OF} AND seq = 5", (TENANT, run_id))], (run_id, 5)),
            ("the first entry", [(f"DELETE FROM journal WHERE {OF} AND seq = 1", (TENANT, run_id))], (run_id, 1)),
            (
                "the tail",
                [(f"DELETE FROM journal WHERE {OF} AND seq > ?", (TENANT, run_id, last - 3))],
                (run_id, last - 2),
            ),
            ("the whole run", [(f"DELETE FROM journal WHERE {OF}", (TENANT, run_id))], (run_id, 1)),
            (
                "the tail and the index line that closed it",
                [
                    (f"DELETE FROM journal WHERE {OF} AND seq > ?", (TENANT, other, 10)),
                    (f"DELETE FROM journal WHERE {OF} AND seq = ?", (TENANT, INDEX, index[-1].seq)),
                ],
                (other, 11),
            ),
            ("a line of the index", [(f"DELETE FROM journal WHERE {OF} AND seq = 2", (TENANT, INDEX))], (INDEX, 2)),
            (
                "a run and the end of the index",
                [
                    (f"DELETE FROM journal WHERE {OF}", (TENANT, other)),
                    (f"DELETE FROM journal WHERE {OF} AND key = ?", (TENANT, INDEX, other)),
                ],
                (INDEX, next(line.seq for line in index if line.key == other)),
            ),
            ("signed heads", [("DELETE FROM heads WHERE tenant = ? AND stream = ?", (TENANT, run_id))], (run_id, 1)),
            (
                "the last signed head",
                [("DELETE FROM heads WHERE tenant = ? AND stream = ? AND seq = ?", (TENANT, run_id, last))],
                (run_id, last - 5),
            ),
            (
                "the control stream's first line",
                [(f"DELETE FROM journal WHERE {OF} AND seq = 1", (TENANT, "control"))],
                ("control", 1),
            ),
        ]
        for what, statements, place in cases:
            with closing(sqlite3.connect(tmp_path / "contextos.db")) as connection:
                tables = ("journal", "segments", "heads")
                kept = {table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in tables}
            attack(tmp_path, *statements)
            found = await first_fault(world)
            assert found is not None, f"{what} was taken and nobody noticed"
            if what != "the last signed head":
                assert found == place, what
            with closing(sqlite3.connect(tmp_path / "contextos.db")) as connection, connection:
                for table, rows in kept.items():
                    connection.execute(f"DELETE FROM {table}")
                    connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
            assert await first_fault(world) is None
        world.close()

    run(go())


def rewritten(entries: list[Entry], change: Callable[[Entry], bytes]) -> list[Entry]:
    """The stream again with other bodies and every hash made to fit: what an attacker without a key can do best."""
    head, made = genesis(entries[0].tenant, entries[0].run), []
    for entry in entries:
        body = change(entry)
        draft = Draft(entry.kind, entry.key, entry.at_us, entry.by, body, entry.salt or b"")
        made.append(link(entry.tenant, entry.run, entry.seq, head, draft))
        head = made[-1].hash
    verify_chain(entries[0].tenant, entries[0].run, made)
    return made


@pytest.mark.requirement("T-TAMPER-STORE", "T-HEADS-SIGNED")
@pytest.mark.parametrize("heads", ["kept", "deleted", "rewritten"])
def test_a_run_rewritten_with_hashes_that_fit_is_found_by_its_signed_heads(heads: str, tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id, _, entries = await two_runs(tmp_path)
        forged = rewritten(entries, lambda entry: (entry.body or b"").replace(b"4200", b"2400"))
        assert forged[0].hash != entries[0].hash
        statements: list[tuple[str, tuple[Any, ...]]] = [
            (
                f"UPDATE journal SET body_digest = ?, prev_hash = ?, hash = ?, body = ? WHERE {OF} AND seq = ?",
                (one.body_digest, one.prev_hash, one.hash, one.body, TENANT, run_id, one.seq),
            )
            for one in forged
        ]
        place = "tenant = ? AND stream = ?"
        if heads == "deleted":
            statements.append((f"DELETE FROM heads WHERE {place}", (TENANT, run_id)))
        if heads == "rewritten":
            signed = (await world.stores.tenant(TENANT).read_run(run_id)).heads
            change = f"UPDATE heads SET hash = ? WHERE {place} AND seq = ?"
            statements += [(change, (hash_bytes(forged[seq - 1].hash), TENANT, run_id, seq)) for seq, *_ in signed]
        index = list(await world.stores.tenant(TENANT).read(INDEX))
        old, new = entries[-1].hash.encode(), forged[-1].hash.encode()
        lines = rewritten(index, lambda entry: (entry.body or b"").replace(old, new))
        statements += [
            (
                f"UPDATE journal SET body_digest = ?, prev_hash = ?, hash = ?, body = ? WHERE {OF} AND seq = ?",
                (one.body_digest, one.prev_hash, one.hash, one.body, TENANT, INDEX, one.seq),
            )
            for one in lines
        ]
        attack(tmp_path, *statements)
        found = await first_fault(world)
        assert found is not None
        assert found[0] == run_id
        world.close()

    run(go())


@pytest.mark.requirement("T-REPLAY-MISMATCH")
def test_a_rewritten_record_does_not_replay(tmp_path: Path) -> None:
    """Even where no signature is asked for: what was derived is derived again and compared."""

    async def go() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(2500, "req_1"))
        entries = list(await world.stores.tenant(TENANT).read(view.run_id))
        named = {}
        for kind in (
            "policy.decided",
            "plan.proposed",
            "plan.verified",
            "tool.dispatching",
            "record.revised",
            "run.ended",
        ):
            spoil = next(entry.seq for entry in entries if entry.kind == kind)

            def change(entry: Entry, spoil: int = spoil) -> bytes:
                body = orjson.loads(entry.body or b"{}")
                return canonical({**body, "extra": 1}) if entry.seq == spoil else entry.body or b""

            with pytest.raises(ReplayMismatch) as error:
                await replay(world.deployment, TENANT, view.run_id, rewritten(entries, change))
            named[kind] = (error.value.seq, spoil)
        assert all(found == spoil for found, spoil in named.values()), named
        world.close()

    run(go())


@pytest.mark.requirement("T-ERASE", "P-ACTS")
@pytest.mark.parametrize("stores", ["memory", "sqlite"])
def test_after_a_lawful_erasure_the_chain_verifies_and_replay_names_the_missing_entries(
    stores: str, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        await world.approve(waiting.run_id)
        run_id, store = waiting.run_id, world.stores.tenant(TENANT)
        whole = list(await store.read(run_id))
        noted = [entry.seq for entry in whole if entry.kind in ("run.context", "context.compiled", "plan.proposed")]
        for seq in noted:
            await operator.erase_entry(
                world.deployment, TENANT, run_id, seq, by=world.actor(), reason="the customer asked"
            )
        acts = [entry for entry in await store.read("control") if entry.kind == "entry.erased"]
        assert [orjson.loads(act.body or b"")["act"]["arguments"]["seq"] for act in acts] == noted
        with pytest.raises(NotFound):
            await operator.erase_entry(world.deployment, TENANT, run_id, 999, by=world.actor(), reason="no such entry")
        verified = {one.stream: one for one in await verify.verify_tenant(store, TENANT, world.keys)}
        assert verified[run_id].erased == tuple(noted)
        replayed = await replay(world.deployment, TENANT, run_id)
        assert (replayed.status, replayed.missing) == ("DECIDED", tuple(noted))
        message = next(entry.seq for entry in whole if entry.kind == "run.received")
        await operator.erase_entry(world.deployment, TENANT, run_id, message, by=world.actor(), reason="asked again")
        await verify.verify_tenant(store, TENANT, world.keys)
        with pytest.raises(ReplayMismatch) as error:
            await replay(world.deployment, TENANT, run_id)
        assert error.value.seq == message
        assert "erased" in str(error.value)
        raw = await export.export_runs(world.deployment, TENANT, [run_id], by=world.actor())
        streams = read_export(raw, world.keys).streams
        assert [entry.seq for entry in streams[run_id] if entry.body is None] == sorted([*noted, message])
        world.close()

    run(go())


@pytest.mark.requirement("T-ERASE")
def test_whichever_body_is_erased_the_run_can_be_looked_at_verified_and_its_replay_is_typed(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        view = await world.approve(waiting.run_id)
        store = world.stores.tenant(TENANT)
        entries = list(await store.read(view.run_id))
        stored = world.stores._tenants[TENANT]
        kept, terms = stored.streams, dict(stored.terms)
        control = list(kept["control"])
        for entry in entries:
            # The act of the erasure before goes, too: it would contradict the body that is back.
            kept[view.run_id], kept["control"], stored.terms = list(entries), list(control), dict(terms)
            await operator.erase_entry(world.deployment, TENANT, view.run_id, entry.seq, by=world.actor(), reason="x")
            seen = await world.deployment.view(TENANT, view.run_id)
            assert (seen.state, seen.ended) == ("completed", True), entry.kind
            await verify.verify_tenant(store, TENANT, world.keys)
            try:
                replayed = await replay(world.deployment, TENANT, view.run_id)
                assert replayed.missing == (entry.seq,)
            except Integrity as error:
                assert f"entry {entry.seq}" in str(error)
        kept[view.run_id] = [one._replace(body=None, salt=None) for one in entries]
        seen = await world.deployment.view(TENANT, view.run_id)
        assert (seen.ended, seen.record) == (True, None)
        world.close()

    run(go())


@pytest.mark.requirement("T-ERASE")
def test_a_question_that_was_erased_can_be_cancelled_and_not_answered(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        waiting = await world.invoke(request(4200, "req_1"))
        entries = await world.stores.tenant(TENANT).read(waiting.run_id)
        asked = next(entry.seq for entry in entries if entry.kind == "approval.asked")
        shown = await world.binding_digest(waiting.run_id)
        await operator.erase_entry(world.deployment, TENANT, waiting.run_id, asked, by=world.actor(), reason="x")
        with pytest.raises(ApprovalRefused):
            await world.answer(waiting.run_id, binding_digest=shown)
        assert world.refunds() == []
        world.close()

    run(go())


def test_half_an_erasure_is_found(tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id, _, _ = await two_runs(tmp_path)
        attack(tmp_path, (f"UPDATE journal SET salt = NULL WHERE {OF} AND seq = 4", (TENANT, run_id)))
        assert await first_fault(world) == (run_id, 4)
        world.close()

    run(go())


@pytest.mark.requirement("T-WITNESS")
def test_a_database_taken_back_whole_is_only_found_by_a_witness_outside(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores="sqlite")
        await world.invoke(request(2500, "req_1"))
        with closing(sqlite3.connect(tmp_path / "contextos.db")) as connection:
            connection.execute("VACUUM INTO ?", (str(tmp_path / "yesterday.db"),))
        later = await world.invoke(request(4200, "req_2"))
        await world.approve(later.run_id)
        witness = await export.export_runs(world.deployment, TENANT, [later.run_id], by=world.actor())
        world.close()
        for name in ("contextos.db", "contextos.db-wal", "contextos.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / "yesterday.db").rename(tmp_path / "contextos.db")
        again = await open_world(tmp_path, stores="sqlite")
        assert await first_fault(again) is None, "nothing inside can tell"
        streams = read_export(witness, again.keys).streams
        assert await again.stores.tenant(TENANT).read(later.run_id) == []
        assert streams[later.run_id][-1].kind == "run.ended", "the export kept outside shows what is gone"
        again.close()

    run(go())


@pytest.mark.requirement("T-EXPORT-TENANT", "P-ACTS-EXPORT")
def test_an_export_holds_runs_of_its_tenant_only(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(2500, "req_1"))
        with pytest.raises(Exception, match="there is no run"):
            await export.export_runs(world.deployment, "tenant_other_prod", [view.run_id], by=world.actor())
        raw = await export.export_runs(world.deployment, TENANT, [view.run_id], by=world.actor())
        manifest = orjson.loads(raw.split(b"\n")[0])["manifest"]
        assert orjson.loads(base64.b64decode(manifest["payload"]))["tenant"] == TENANT
        assert set(read_export(raw, world.keys).streams) == {view.run_id}
        control = await world.stores.tenant(TENANT).read("control")
        assert (control[-1].kind, control[-1].by) == ("runs.exported", OPERATOR)
        assert list(orjson.loads(control[-1].body or b"")["act"]["arguments"]["runs"]) == [view.run_id]
        assert await world.stores.tenant("tenant_other_prod").read("control") == []
        world.close()

    run(go())

"""C16: what was altered does not verify, and what was cut or emptied is never driven on.

The attackers: the application's role with raw SQL, the owner of the database, and somebody who alters an export.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import pytest

from contextos.audit import export, exported
from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, INDEX, Draft, Entry, body_digest, genesis, link
from contextos.deployment import operator
from contextos.deployment.queries.checked_run import read_checked
from contextos.errors import ChainBroken
from contextos.trust.journal.chain import verify_chain
from tests.attacks.attackers import REFUSED, Attacker
from tests.exports import ATTACKERS
from tests.exports import Opened as OpenedFile
from tests.unit.cli.conftest import Shop
from tests.world import TENANT, TestWorld, open_world, request

Opened = Callable[[TestWorld], Awaitable[None]]


def on_world(path: Path, stores: str, act: Opened) -> None:
    """Open the world at `path`, run `act` and close the world."""

    async def go() -> None:
        world = await open_world(path, stores=stores)
        try:
            await act(world)
        finally:
            await world.aclose()

    asyncio.run(go())


async def fault(world: TestWorld) -> str:
    """What `verify` says; empty if all verifies."""
    try:
        await verify_tenant(world.stores.tenant(TENANT), TENANT, world.keys)
    except ChainBroken as broken:
        return str(broken)
    return ""


@pytest.fixture
def paid(stores: str, tmp_path: Path) -> str:
    """The run of a refund that was approved and paid, in the world at `tmp_path`."""
    runs = []

    async def act(world: TestWorld) -> None:
        waiting = await world.invoke(request(4200, "req_1"))
        runs.append((await world.approve(waiting.run_id)).run_id)
        assert len(world.refunds()) == 1
        assert await fault(world) == ""

    on_world(tmp_path, stores, act)
    return runs[0]


def in_run(run_id: str, more: str = "") -> str:
    return f"WHERE tenant = '{TENANT}' AND run = '{run_id}'{more}"


def dispatched(attacker: Attacker, run_id: str) -> int:
    """The number of the entry with which the payment was sent."""
    ((seq,),) = attacker.owner(f"SELECT max(seq) FROM {{journal}} {in_run(run_id)} AND kind = 'tool.dispatching'")
    return int(seq)


def cut_behind(attacker: Attacker, run_id: str, seq: int) -> None:
    """Take the run back to its signed head before entry `seq`, as the owner of the database can."""
    ((head,),) = attacker.owner(
        f"SELECT max(seq) FROM {{heads}} WHERE tenant = '{TENANT}' AND stream = '{run_id}' AND seq < {seq}"
    )
    attacker.owner(
        f"DELETE FROM {{journal}} {in_run(run_id)} AND seq > {head}",
        f"DELETE FROM {{heads}} WHERE tenant = '{TENANT}' AND stream = '{run_id}' AND seq > {head}",
        f"DELETE FROM {{documents}} WHERE tenant = '{TENANT}' AND collection = 'keys'",
        f"UPDATE {{runs}} SET wake_at_us = 1 {in_run(run_id)}",
    )


def test_salt_and_body_cannot_be_shifted_into_each_other(
    stores: str, attacker: Attacker, paid: str, tmp_path: Path
) -> None:
    async def read(world: TestWorld) -> None:
        entries = list(await world.stores.tenant(TENANT).read(paid))
        whole = next(one for one in entries if one.kind == "policy.decided")
        assert whole.salt is not None
        assert whole.body is not None
        raw = whole.salt + whole.body
        for salt_bytes in (0, 15, 17):
            moved = whole._replace(salt=raw[:salt_bytes], body=raw[salt_bytes:])
            shifted = [moved if one is whole else one for one in entries]
            with pytest.raises(ChainBroken, match=f"entry {whole.seq}: "):
                verify_chain(TENANT, paid, shifted)

    on_world(tmp_path, stores, read)


@pytest.mark.parametrize("stream", [INDEX, CONTROL])
def test_no_body_of_a_shared_stream_is_ever_absent(
    stream: str, stores: str, attacker: Attacker, paid: str, tmp_path: Path
) -> None:
    attacker.owner(f"UPDATE {{journal}} SET body = NULL, salt = NULL {in_run(stream)} AND seq = 1")

    async def act(world: TestWorld) -> None:
        assert f"`{stream}` entry 1: has no body" in await fault(world)

    on_world(tmp_path, stores, act)


def test_a_paid_run_that_is_cut_and_whose_closing_line_is_emptied_is_found_and_not_paid_again(
    stores: str, attacker: Attacker, paid: str, tmp_path: Path
) -> None:
    cut_behind(attacker, paid, dispatched(attacker, paid))
    attacker.owner(f"UPDATE {{journal}} SET body = NULL, salt = NULL {in_run(INDEX)} AND kind = 'run.closed'")
    told, payments = fault_and_payments(tmp_path, stores, paid)
    assert "has no body, and this stream is never erased" in told
    assert payments == 1


def test_a_paid_run_that_is_cut_with_the_line_that_closed_it_contradicts_the_line_of_its_dispatch(
    stores: str, attacker: Attacker, paid: str, tmp_path: Path
) -> None:
    cut_behind(attacker, paid, dispatched(attacker, paid))
    attacker.owner(f"DELETE FROM {{journal}} {in_run(INDEX)} AND kind = 'run.closed'")
    told, payments = fault_and_payments(tmp_path, stores, paid)
    assert "is missing: the index states" in told
    assert payments == 1


def fault_and_payments(path: Path, stores: str, run_id: str) -> tuple[str, int]:
    """What `verify` finds, and how often was paid in all after a worker refused to take the run up again."""

    async def act(world: TestWorld) -> None:
        found.append(await fault(world))
        with pytest.raises(ChainBroken):
            await world.deployment.advance(TENANT, run_id)
        paid.append(len(world.refunds()))

    found: list[str] = []
    paid: list[int] = []
    on_world(path, stores, act)
    return found[0], paid[0]


def test_every_effect_is_in_the_index_in_the_commit_that_precedes_it(stores: str, paid: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        store = world.stores.tenant(TENANT)
        entries = await store.read(paid)
        lines = [line for line in await store.lines(INDEX, paid) if line.kind == "run.dispatched"]
        stated = [orjson.loads(line.body or b"")["entries"] for line in lines]
        payment = next(
            one for one in entries if one.kind == "tool.dispatching" and b"issue_refund" in (one.body or b"")
        )
        assert payment.seq in stated
        signed = {seq for seq, *_ in (await store.read_run(paid)).heads}
        assert set(stated) <= signed, "each line is in a commit of its own run, under a signed head"

    on_world(tmp_path, stores, act)


def test_a_run_that_ended_without_a_closing_line_is_found(
    stores: str, attacker: Attacker, paid: str, tmp_path: Path
) -> None:
    attacker.owner(f"DELETE FROM {{journal}} {in_run(INDEX)} AND kind = 'run.closed'")

    async def act(world: TestWorld) -> None:
        assert "ended and the index does not say so" in await fault(world)

    on_world(tmp_path, stores, act)


def test_the_application_can_empty_nothing(stores: str, attacker: Attacker, paid: str, tmp_path: Path) -> None:
    for what in (
        "UPDATE {journal} SET body = NULL, salt = NULL",
        f"UPDATE {{journal}} SET body = NULL, salt = NULL {in_run(INDEX)}",
        "DELETE FROM {journal}",
        "DELETE FROM {documents}",
        "DELETE FROM {runs}",
        "DELETE FROM {graph_commits}",
        "UPDATE {heads} SET sig = sig",
        "UPDATE {segments} SET body = body",
        "DELETE FROM {segments}",
    ):
        with pytest.raises(REFUSED):
            attacker.application(what)

    async def act(world: TestWorld) -> None:
        assert await fault(world) == ""

    on_world(tmp_path, stores, act)


def test_the_application_rewrites_only_caches(stores: str, attacker: Attacker, paid: str) -> None:
    for what in (
        "UPDATE {documents} SET body = body",
        "UPDATE {documents} SET version = 1, body = body WHERE version > 1",
        "UPDATE {documents} SET version = version + 1 WHERE collection = 'artifacts'",
        "UPDATE {documents} SET version = version + 1 WHERE collection = 'pins'",
        "UPDATE {documents} SET version = version + 1 WHERE collection = 'requests'",
        "UPDATE {runs} SET number = number + 1",
        "UPDATE {graph_commits} SET head = 0",
        "UPDATE {journal} SET kind = 'x'",
    ):
        with pytest.raises(REFUSED):
            attacker.application(what)


def test_an_emptied_body_is_named_first_whatever_else_is_wrong(
    stores: str, attacker: Attacker, paid: str, tmp_path: Path
) -> None:
    attacker.owner(f"UPDATE {{journal}} SET body = NULL, salt = NULL {in_run(paid)} AND seq >= 4")
    attacker.owner(f"UPDATE {{journal}} SET at_us = 1 {in_run(paid)} AND seq = 2")

    async def act(world: TestWorld) -> None:
        named = "entry 4: has no body"
        assert named in await fault(world)
        for asked in (
            lambda: replay(world.deployment, TENANT, paid),
            lambda: export.export_runs(world.deployment, TENANT, [paid], by=world.actor()),
            lambda: world.deployment.advance(TENANT, paid),
        ):
            with pytest.raises(ChainBroken, match=named):
                await asked()

    on_world(tmp_path, stores, act)


def test_an_erasure_that_somebody_without_a_key_records_accounts_for_nothing(
    stores: str, attacker: Attacker, paid: str, tmp_path: Path
) -> None:
    """The attacker copies the form of an honest record, and appends it to the chain of `control`."""

    async def forged(world: TestWorld) -> None:
        store = world.stores.tenant(TENANT)
        entry = (await store.read(paid))[4]
        arguments = {"run": paid, "seq": 5, "reason": "the law", "body_digest": entry.body_digest}
        act = {"tenant_id": TENANT, "kind": "entry.erased", "actor": "operator", "arguments": arguments, "expected": 5}
        made_up = {"kid": world.keys.kids("act")[0], "signature": "00" * 64}
        said = {"act": act, "role": "operator", "assertion": {"kind": "unsafe_local"}, "key": None, "seal": made_up}
        control = await store.read(CONTROL)
        draft = Draft("entry.erased", f"{paid}/5", 1, "operator", canonical(said), bytes(16))
        head = control[-1].hash if control else genesis(TENANT, CONTROL)
        made.append(link(TENANT, CONTROL, len(control) + 1, head, draft))

    made: list[Entry] = []
    on_world(tmp_path, stores, forged)
    (line,) = made
    blob = (lambda raw: f"X'{raw.hex()}'") if stores == "sqlite" else (lambda raw: f"decode('{raw.hex()}', 'hex')")
    attacker.application(
        'INSERT INTO {journal} (tenant, run, seq, v, kind, key, at_us, "by", body_digest, prev_hash, hash, salt, body)'
        f" VALUES ('{TENANT}', 'control', {line.seq}, 1, '{line.kind}', '{line.key}', {line.at_us}, '{line.by}',"
        f" '{line.body_digest}', '{line.prev_hash}', '{line.hash}', {blob(line.salt)}, {blob(line.body)})"
    )

    async def accuses_nobody(world: TestWorld) -> None:
        assert (await read_checked(world.stores.tenant(TENANT), TENANT, world.keys, paid)).fault is None

    on_world(tmp_path, stores, accuses_nobody)
    attacker.owner(f"UPDATE {{journal}} SET body = NULL, salt = NULL {in_run(paid)} AND seq = 5")

    async def act(world: TestWorld) -> None:
        assert "no act `entry.erased` erased its body" in await fault(world)

    on_world(tmp_path, stores, act)


def test_an_erasure_and_its_record_are_one_and_it_verifies(
    stores: str, attacker: Attacker, paid: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = "sqlite" if stores == "sqlite" else request.getfixturevalue("database").eraser

    async def act(world: TestWorld) -> None:
        await operator.erase_entry(world.deployment, TENANT, paid, 5, by=world.actor(), reason="the customer asked")
        store = world.stores.tenant(TENANT)
        assert await fault(world) == ""
        assert [one.seq for one in await store.read(paid) if one.body is None] == [5]
        raw = await export.export_runs(world.deployment, TENANT, [paid], by=world.actor())
        assert exported.read_export(raw, world.keys).streams[paid][4].body is None

    on_world(tmp_path, place, act)


def test_the_bodies_of_an_export_cannot_be_emptied(stores: str, paid: str, tmp_path: Path) -> None:
    async def act(world: TestWorld) -> None:
        raw = await export.export_runs(world.deployment, TENANT, [paid], by=world.actor())
        file = OpenedFile.of(raw)
        for entry in file.runs[0]:
            digest = body_digest(bytes.fromhex(entry.pop("salt")), canonical(entry.pop("body")))
            entry |= {"body_digest": digest}
        holder = ATTACKERS[2]
        assert holder.name == "export key", "the chain and the signed heads hold without the bodies"
        with pytest.raises(ChainBroken, match=r"entry 1: rests on an act that is missing: no act `entry.erased`"):
            exported.read_export(holder.made(file), world.keys)

    on_world(tmp_path, stores, act)


def test_the_digest_of_a_body_has_a_boundary() -> None:
    assert body_digest(b"0123456789abcdef", b"g") != body_digest(b"0123456789abcdefg", b"")


def test_a_tenant_that_nobody_knows_does_not_verify(shop: Shop) -> None:
    said = shop.say("verify", "--tenant", "nobody")
    assert (said.code, "there is no tenant `nobody`" in said.err) == (2, True)


def test_a_named_witness_that_is_gone_or_empty_is_no_proof(shop: Shop, tmp_path: Path) -> None:
    witness, settings = tmp_path / "heads.jsonl", shop.path / "contextos.toml"
    settings.write_text(f'witness = "{witness}"\n' + settings.read_text())
    assert shop.say("runs", "resume").code == 0
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(witness.read_bytes())
    for empty in (lambda: witness.write_bytes(b""), witness.unlink):
        empty()
        assert shop.say("verify").code == 3
        assert shop.say("verify", "--witness", str(copy)).code == 0
    copy.write_bytes(b"")
    assert shop.say("verify", "--witness", str(copy)).code == 3
    assert shop.say("verify", "--witness", str(tmp_path / "gone.jsonl")).code == 2

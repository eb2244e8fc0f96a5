"""C16: what a verification says that goes on from a checkpoint, or that covers a range of runs.

The attackers: the owner of the database, who cannot sign; and somebody who can write the checkpoint file. A whole
verification finds every alteration, and so does the range that holds it. One that goes on from a checkpoint says what
it did not read.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contextos.audit.checkpoint import Checkpoint, OpenRun, joined, read_checkpoint, seal_checkpoint
from contextos.audit.verify import RunNumbers, Verification, VerifiedStream
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, INDEX, Batch, Draft
from contextos.deployment import operator
from contextos.errors import ChainBroken, InvalidInput, SignatureInvalid
from contextos.trust import pages
from contextos.trust.seal import KeyRing
from tests.attacks.attackers import Attacker
from tests.attacks.shop import Shop
from tests.attacks.test_c16_verify_passes_nothing_altered import cut_behind, dispatched, in_run, on_world
from tests.world import OPERATOR, TENANT, TestWorld, request

WHOLE = RunNumbers()
NOW_US = 1_793_000_000_000_000


async def verified(
    world: TestWorld, numbers: RunNumbers = WHOLE, since: Checkpoint | None = None
) -> tuple[Checkpoint, dict[str, VerifiedStream]]:
    """Verify, and return the checkpoint and what was read."""
    store = world.stores.tenant(TENANT)
    verification = Verification(store, TENANT, world.keys, numbers=numbers, since=since)
    read = {one.stream: one async for one in verification.streams()}
    return verification.checkpoint(NOW_US, NOW_US, runtime="0.1.0"), read


async def fault(world: TestWorld, numbers: RunNumbers = WHOLE, since: Checkpoint | None = None) -> str:
    try:
        await verified(world, numbers, since)
    except ChainBroken as broken:
        return str(broken)
    return ""


async def number_of(world: TestWorld, run_id: str) -> int:
    return int((await world.stores.tenant(TENANT).lines(INDEX, run_id))[0].seq)


class Three:
    """Three runs in the world at `path`: one that paid, one that waits for a person, and one that was refused."""

    def __init__(self, path: Path, stores: str) -> None:
        self.path, self.stores, self.runs = path, stores, list[str]()
        self.kept: Checkpoint | None = None
        on_world(path, stores, self._made)

    async def _made(self, world: TestWorld) -> None:
        for amount in (900, 4200, 99_999):
            self.runs.append((await world.invoke(request(amount, f"req_{amount}"))).run_id)
        self.kept, _ = await verified(world)
        assert [one.run for one in self.kept.open] == [self.runs[1]]
        assert (self.kept.runs, self.kept.compared) == (3, True)

    def faults(self, *asked: tuple[RunNumbers, Checkpoint | None]) -> list[str]:
        found: list[str] = []

        async def act(world: TestWorld) -> None:
            found.extend([await fault(world, numbers, since) for numbers, since in asked])

        on_world(self.path, self.stores, act)
        return found

    def ranges(self) -> list[RunNumbers]:
        """One range for each run, the last without an end."""
        found: list[RunNumbers] = []

        async def act(world: TestWorld) -> None:
            first, second, third = [await number_of(world, run) for run in self.runs]
            assert first == 1
            found.extend([RunNumbers(1, second - 1), RunNumbers(second, third - 1), RunNumbers(third)])

        on_world(self.path, self.stores, act)
        return found


@pytest.fixture
def three(stores: str, tmp_path: Path) -> Three:
    return Three(tmp_path, stores)


def test_an_altered_old_run_is_found_whole_and_in_its_range_and_a_later_one_says_that_it_was_not_read(
    three: Three, attacker: Attacker
) -> None:
    attacker.owner(f"UPDATE {{journal}} SET at_us = 1 {in_run(three.runs[0])} AND seq = 3")
    one, two, rest = three.ranges()
    whole, first, second, last, later = three.faults(
        (WHOLE, None), (one, None), (two, None), (rest, None), (WHOLE, three.kept)
    )
    assert f"`{three.runs[0]}` entry 3" in whole
    assert whole == first
    assert (second, last, later) == ("", "", "")

    async def act(world: TestWorld) -> None:
        _, read = await verified(world, since=three.kept)
        assert three.runs[0] not in read
        assert three.runs[2] not in read
        assert three.runs[1] in read, "it was open"
        assert read[INDEX].unread == read[INDEX].entries
        assert read[CONTROL].unread == 0, "control is always read whole"

    on_world(three.path, three.stores, act)


def test_a_run_that_is_removed_from_the_middle_is_found_whole_and_in_its_range(
    three: Three, attacker: Attacker
) -> None:
    one, two, rest = three.ranges()
    attacker.owner(f"DELETE FROM {{journal}} {in_run(three.runs[0])}")
    whole, first, second, last = three.faults((WHOLE, None), (one, None), (two, None), (rest, None))
    assert f"`{three.runs[0]}` entry 1: is missing" in whole
    assert (whole == first, second, last) == (True, "", "")


def test_a_run_that_is_removed_with_its_lines_is_found_by_the_range_that_held_them(
    three: Three, attacker: Attacker
) -> None:
    one, two, rest = three.ranges()
    attacker.owner(
        f"DELETE FROM {{journal}} {in_run(three.runs[0])}",
        f"DELETE FROM {{journal}} {in_run(INDEX)} AND key = '{three.runs[0]}'",
    )
    found = three.faults((WHOLE, None), (one, None), (two, None), (rest, None))
    assert "`index` entry 1: is missing" in found[0]
    assert "`index` entry 1: is missing" in found[1]
    assert found[2] == f"`index` entry {one.last}: is missing; entry {two.first} is in its place"
    assert f"`{three.runs[0]}` was driven and the index does not name it" in found[3]


def test_ranges_together_read_what_a_whole_verification_reads(three: Three) -> None:
    ranges = three.ranges()

    async def act(world: TestWorld) -> None:
        whole, read = await verified(world)
        parts = [await verified(world, numbers) for numbers in ranges]
        together = joined([one for one, _ in parts])
        assert together is not None
        names = ("first", "before", "last", "head", "control", "control_head", "runs", "open", "compared")
        assert all(getattr(together, name) == getattr(whole, name) for name in names)
        runs = [set(one) - {INDEX, CONTROL} for _, one in parts]
        assert set().union(*runs) == set(read) - {INDEX, CONTROL}
        assert sum(map(len, runs)) == 3, "no run is read twice"
        assert await fault(world, since=together) == ""
        with pytest.raises(InvalidInput, match="ends at line"):
            joined([parts[0][0], parts[2][0]])
        with pytest.raises(InvalidInput, match="begins at run"):
            await verified(world, since=parts[1][0])
        rewritten = parts[1][0].model_copy(update={"before": "sha256:" + "0" * 64})
        with pytest.raises(ChainBroken, match="rewritten between"):
            joined([parts[0][0], rewritten])

    on_world(three.path, three.stores, act)


def test_a_run_that_was_open_at_the_checkpoint_is_read_again(three: Three, attacker: Attacker) -> None:
    attacker.owner(f"UPDATE {{journal}} SET at_us = 1 {in_run(three.runs[1])} AND seq = 3")
    [later] = three.faults((WHOLE, three.kept))
    assert f"`{three.runs[1]}` entry 3: " in later


@pytest.mark.parametrize("lines", ["with its lines", "without its lines"])
def test_an_open_run_that_is_cut_to_an_older_signed_head_is_found(three: Three, attacker: Attacker, lines: str) -> None:
    """All that is left of the run was signed. The old lines of the index are not read again."""
    run_id = three.runs[1]
    kept = three.kept
    assert kept is not None

    async def paid(world: TestWorld) -> None:
        await world.approve(run_id)
        entries = await world.stores.tenant(TENANT).read(run_id)
        opened.append(
            OpenRun(run=run_id, number=await number_of(world, run_id), entries=len(entries) - 1, head=entries[-2].hash)
        )

    opened: list[OpenRun] = []
    on_world(three.path, three.stores, paid)
    last = f"(SELECT max(seq) FROM {{journal}} {in_run(INDEX)})"
    ((seq, digest),) = attacker.owner(f"SELECT seq, hash FROM {{journal}} {in_run(INDEX)} AND seq = {last}")
    since = kept.model_copy(update={"last": seq, "head": digest, "open": tuple(opened)})
    cut_behind(attacker, run_id, dispatched(attacker, run_id))
    if lines == "without its lines":
        attacker.owner(
            f"DELETE FROM {{journal}} {in_run(INDEX)} AND key = '{run_id}' AND kind <> 'run.indexed' AND seq < {seq}"
        )
    [later] = three.faults((WHOLE, since))
    assert f"`{run_id}` entry {opened[0].entries}: is missing or differs: it was verified before" in later


def test_a_run_that_went_on_since_the_checkpoint_is_read_again_and_then_no_more(three: Three) -> None:
    async def act(world: TestWorld) -> None:
        await world.approve(three.runs[1])
        new = (await world.invoke(request(902, "req_902"))).run_id
        later, read = await verified(world, since=three.kept)
        assert set(read) == {three.runs[1], new, INDEX, CONTROL}
        assert (later.runs, later.open) == (4, ())
        _, nothing = await verified(world, since=later)
        assert set(nothing) == {INDEX, CONTROL}

    on_world(three.path, three.stores, act)


def test_an_erased_old_run_is_read_again_and_an_emptied_one_is_not(
    stores: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = "sqlite" if stores == "sqlite" else request.getfixturevalue("database").eraser
    three = Three(tmp_path, place)

    async def act(world: TestWorld) -> None:
        run_id = three.runs[0]
        await operator.erase_entry(world.deployment, TENANT, run_id, 5, by=world.actor(OPERATOR), reason="the law")
        later, read = await verified(world, since=three.kept)
        assert read[run_id].erased == (5,)
        assert later.runs == 3
        _, after = await verified(world, since=later)
        assert run_id not in after

    on_world(tmp_path, place, act)


def test_an_ended_run_that_is_cut_and_gets_a_new_line_is_found_by_it(three: Three, attacker: Attacker) -> None:
    """The old lines are not read again, so the attacker takes away the one that closed the run."""
    run_id = three.runs[1]

    async def paid(world: TestWorld) -> None:
        await world.approve(run_id)
        await world.invoke(request(90, "req_90"))
        kept.append((await verified(world))[0])
        assert kept[0].open == ()

    async def added(world: TestWorld) -> None:
        """Any process that can write to the store can add a line."""
        store = world.stores.tenant(TENANT)
        last = (await store.read(run_id))[-1]
        body = canonical({"run": run_id, "entries": last.seq, "head": last.hash})
        line = Draft("run.dispatched", run_id, last.at_us, "runtime", body, bytes(16))
        await store.commit(Batch(run=run_id, shared=((INDEX, line),)))

    kept: list[Checkpoint] = []
    on_world(three.path, three.stores, paid)
    cut_behind(attacker, run_id, dispatched(attacker, run_id))
    attacker.owner(f"DELETE FROM {{journal}} {in_run(INDEX)} AND key = '{run_id}' AND kind <> 'run.indexed'")
    on_world(three.path, three.stores, added)
    whole, later = three.faults((WHOLE, None), (WHOLE, kept[0]))
    assert whole != ""
    assert f"goes on with `{run_id}`" in later


def test_a_store_that_is_behind_a_checkpoint_or_differs_from_it_is_a_finding(three: Three, attacker: Attacker) -> None:
    kept = three.kept
    assert kept is not None
    other = kept.model_copy(update={"head": "sha256:" + "1" * 64})
    ahead = kept.model_copy(update={"last": kept.last + 5})
    less = kept.model_copy(update={"control": kept.control + 1})
    found = three.faults((WHOLE, other), (WHOLE, ahead), (WHOLE, less))
    assert "is not what it was at" in found[0]
    assert f"`index` entry {kept.last + 5}: is missing: it was there at" in found[1]
    assert f"`control` entry {kept.control + 1}: is missing" in found[2]
    attacker.owner(f"DELETE FROM {{journal}} {in_run(INDEX)} AND seq = {kept.last}")
    [cut] = three.faults((WHOLE, kept))
    assert f"`index` entry {kept.last}: is missing: it was there at" in cut


KEPT = Checkpoint(
    v=1,
    runtime="0.1.0",
    tenant_id=TENANT,
    begun_at_us=NOW_US,
    at_us=NOW_US,
    first=1,
    before="sha256:0",
    last=9,
    head="sha256:9",
    control=1,
    control_head="sha256:1",
    compared=True,
    runs=3,
    open=(),
)


def test_a_checkpoint_without_the_key_altered_or_of_another_tenant_is_refused() -> None:
    keys, others = KeyRing.from_seed(b"k" * 32), KeyRing.from_seed(b"o" * 32)
    raw = seal_checkpoint(KEPT, keys)
    assert read_checkpoint(raw, TENANT, keys) == KEPT
    forged = seal_checkpoint(KEPT, others)
    sealed = json.loads(raw)
    altered = {**sealed, "payload": base64.b64encode(base64.b64decode(sealed["payload"]).replace(b"9", b"8")).decode()}
    for bad in (forged, json.dumps(altered).encode()):
        with pytest.raises(SignatureInvalid, match="this checkpoint was altered, or no key"):
            read_checkpoint(bad, TENANT, keys)
    with pytest.raises(InvalidInput, match="is of the tenant"):
        read_checkpoint(raw, "tenant_other", keys)
    for bad in (b"", b"[]", b"{}", b"\xff", b'{"payloadType":"x"}', b"[" * 5000):
        with pytest.raises(InvalidInput, match="this is not a checkpoint"):
            read_checkpoint(bad, TENANT, keys)
    for purpose in ("head", "act", "export"):
        borrowed = KeyRing({"checkpoint": KeyRingSeed.of(purpose)})
        with pytest.raises(SignatureInvalid):
            read_checkpoint(seal_checkpoint(KEPT, borrowed), TENANT, keys)


class KeyRingSeed:
    """The private keys of `KeyRing.from_seed(b"k" * 32)`."""

    @staticmethod
    def of(purpose: str) -> bytes:
        import hashlib

        return hashlib.sha256(b"contextos " + purpose.encode() + b"\0" + b"k" * 32).digest()


def test_a_checkpoint_of_an_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = KeyRing.from_seed(b"k" * 32)
    raw = seal_checkpoint(KEPT.model_copy(update={"v": 2}), keys)
    with pytest.raises(InvalidInput, match="has version 2, and this runtime knows 1; verify without it"):
        read_checkpoint(raw, TENANT, keys)


def test_a_key_that_was_retired_before_the_time_of_a_checkpoint_does_not_count() -> None:
    old = KeyRing.from_seed(b"k" * 32)
    raw = seal_checkpoint(KEPT, old)
    [kid] = old.kids("checkpoint")
    public = old.public_key("checkpoint", kid)
    assert public is not None
    trusted = {"checkpoint": [public]}
    assert read_checkpoint(raw, TENANT, KeyRing({}, trusted, {kid: NOW_US})) == KEPT
    with pytest.raises(SignatureInvalid):
        read_checkpoint(raw, TENANT, KeyRing({}, trusted, {kid: NOW_US - 1}))


def test_the_command_line_goes_on_from_a_checkpoint_and_says_what_it_did_not_read(
    initialised: Shop, tmp_path: Path
) -> None:
    file, again = tmp_path / "kept.json", tmp_path / "again.json"
    assert initialised.say("invoke", str(initialised.request("small"))).code == 0
    first = initialised.say("verify", "--checkpoint", str(file))
    assert (first.code, file.stat().st_mode & 0o077) == (0, 0)
    assert initialised.say("key", "rotate", "--purpose", "checkpoint", *initialised.by).code == 0
    later = initialised.say("verify", "--since", str(file), "--checkpoint", str(again))
    assert later.code == 0, later
    assert (later.json["not_read"]["runs"], later.json["streams"]) == (1, 2)
    assert initialised.say("verify", "--since", str(again)).code == 0
    whole = initialised.say("verify")
    assert "not_read" not in whole.json
    lines = first.json["checkpoint"]["lines"]
    bounded = initialised.say("verify", "--runs", f"1:{lines}", "--checkpoint", str(again))
    assert (bounded.code, bounded.json["range"]) == (0, {"first": 1, "last": lines})
    rest = initialised.say("verify", "--runs", f"{lines + 1}:", "--checkpoint", str(file))
    assert rest.code == 0
    assert initialised.say("verify", "--since", str(again), "--since", str(file)).code == 0


def test_the_command_line_refuses_each_wrong_use_with_one_sentence(initialised: Shop, tmp_path: Path) -> None:
    kept, other = tmp_path / "kept.json", tmp_path / "other.json"
    assert initialised.say("verify", "--checkpoint", str(kept)).code == 0
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    os.mkfifo(tmp_path / "pipe")
    sealed = json.loads(kept.read_bytes())
    sealed["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
    other.write_text(json.dumps(sealed))
    wrong: list[tuple[int, list[str], str]] = [
        (2, ["--checkpoint", str(precious)], "is not a checkpoint, and is kept"),
        (2, ["--checkpoint", str(tmp_path / "pipe")], "cannot be read"),
        (2, ["--checkpoint", str(tmp_path / "gone" / "x")], "cannot be written"),
        (2, ["--since", str(tmp_path / "missing")], "cannot be read"),
        (2, ["--since", str(precious)], "this is not a checkpoint"),
        (3, ["--since", str(other)], "this checkpoint was altered"),
        (2, ["--runs", "5"], "is not a range of runs"),
        (2, ["--runs", "9:2"], "is not a range of runs"),
        (2, ["--runs", "900:"], "the index has no line 899"),
        (2, ["--runs", "1:2", "--witness", str(kept)], "is not compared with a witness"),
        (2, ["--runs", "2:", "--since", str(kept)], "begins at run 1"),
    ]
    for code, arguments, said in wrong:
        told = initialised.say("verify", *arguments)
        assert (told.code, said in told.err + told.out) == (code, True), (arguments, told)
    assert precious.read_text() == "mine"


KILLED = """
import os, signal, sys
from contextos.audit import verify
from contextos.cli import run_command_line
from contextos.cli.governance import verify as command
from contextos.trust import pages

command.CHECKPOINT_INTERVAL_S, pages.PAGE_ENTRIES = 0.0, 2
checked, seen = verify.verify_audited_run, []

async def killed(*arguments, **options):
    seen.append(1)
    if len(seen) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return await checked(*arguments, **options)

verify.verify_audited_run = killed
run_command_line(sys.argv[1:])
"""


def test_a_verification_that_is_killed_goes_on_from_its_last_checkpoint(initialised: Shop, tmp_path: Path) -> None:
    for number in range(6):
        body = json.loads(Path(initialised.request("small")).read_text())
        body["request_id"] = f"req_{number}"
        (tmp_path / "body.json").write_text(json.dumps(body))
        assert initialised.say("invoke", str(tmp_path / "body.json")).code in (0, 1)
    file = tmp_path / "kept.json"
    arguments = ["verify", "--workspace", str(initialised.path), "--checkpoint", str(file)]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done
    kept = json.loads(base64.b64decode(json.loads(file.read_bytes())["payload"]))
    whole = initialised.say("verify").json
    assert 0 < kept["runs"] < 6
    on = initialised.say("verify", "--since", str(file), "--checkpoint", str(file))
    assert on.code == 0, on
    not_read = kept["runs"] - len(kept["open"])
    assert not_read > 0
    assert on.json["not_read"]["runs"] == not_read
    assert on.json["streams"] == whole["streams"] - not_read
    finished = json.loads(base64.b64decode(json.loads(file.read_bytes())["payload"]))
    assert (finished["runs"], finished["compared"]) == (6, True)


def test_pages_of_any_size_read_the_same(three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(world: TestWorld) -> None:
        wanted = await verified(world)
        for size in (1, 2, 3, 7):
            monkeypatch.setattr(pages, "PAGE_ENTRIES", size)
            found, read = await verified(world)
            assert (found, read) == wanted

    on_world(three.path, three.stores, act)


def test_a_witness_that_was_emptied_or_cut_is_found_from_a_checkpoint_too(initialised: Shop, tmp_path: Path) -> None:
    initialised.settings(f'witness = "{tmp_path / "witness.jsonl"}"\n')
    witness, file = tmp_path / "witness.jsonl", tmp_path / "kept.json"
    assert initialised.say("invoke", str(initialised.request("small"))).code == 0
    assert initialised.say("verify", "--checkpoint", str(file)).code == 0
    before = witness.read_bytes()
    # Cut to what it had before the checkpoint: nothing was published since.
    witness.write_bytes(b"".join(line + b"\n" for line in before.splitlines()[:-1]))
    found = initialised.say("verify", "--since", str(file))
    assert (found.code, "its end was cut" in str(found.json)) == (3, True), found
    witness.write_bytes(before)
    assert initialised.say("invoke", str(initialised.request("large"))).code == 5
    whole = initialised.say("verify", "--since", str(file))
    assert (whole.code, whole.json["witness"]) == (0, str(witness)[-180:])
    for left, named in ((b"", "it was emptied or moved"), (before, "its end was cut")):
        witness.write_bytes(left)
        found = initialised.say("verify", "--since", str(file))
        assert (found.code, named in str(found.json)) == (3, True), found

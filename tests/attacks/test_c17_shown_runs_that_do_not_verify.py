"""C17: `runs show`, `list` and `sessions` say when what they show does not verify, and end with exit code 3.

The attacker is the owner of the database: no trigger and no grant stops them, and they hold no key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.contracts.journal import INDEX, Draft, Entry, link
from contextos.workspace import open_app
from contextos.workspace.settings import Settings
from tests.attacks.conftest import DatabaseOwner
from tests.attacks.shop import Shop
from tests.world import TENANT


@pytest.fixture
def intruder(initialised: Shop, owner: DatabaseOwner) -> DatabaseOwner:
    """The owner of the database of the workspace."""
    return DatabaseOwner(initialised.path, owner.database)


def execute(intruder: DatabaseOwner, *statements: str) -> None:
    async def act() -> None:
        for statement in statements:
            await intruder.execute(statement)

    asyncio.run(act())


def stored(shop: Shop, stream: str) -> list[Entry]:
    async def act() -> list[Entry]:
        app = await open_app(Settings.read(shop.path))
        found = list(await app.stores.tenant(TENANT).read(stream))
        app.close()
        return found

    return asyncio.run(act())


def of(run: str, more: str = "") -> str:
    return f"WHERE tenant = '{TENANT}' AND run = '{run}'{more}"


def altered_body(intruder: DatabaseOwner, run: str, entries: list[Entry]) -> list[str]:
    """Another order in the request, with everything else as it was."""
    body = (entries[0].body or b"").replace(b"ord_881", b"ord_882")
    return [f"UPDATE {{journal}} SET body = {intruder.blob(body)} {of(run, ' AND seq = 1')}"]


def garbage(intruder: DatabaseOwner, run: str, entries: list[Entry]) -> list[str]:
    """A first entry that is no JSON."""
    return [f"UPDATE {{journal}} SET body = {intruder.blob(b'{')} {of(run, ' AND seq = 1')}"]


def rewritten_end(intruder: DatabaseOwner, run: str, entries: list[Entry]) -> list[str]:
    """Another record at the end, with its hashes made anew."""
    for at, entry in enumerate(entries):
        if entry.kind == "record.revised":
            first = at
    statements, head = [], entries[first].prev_hash
    for entry in entries[first:]:
        body = (entry.body or b"").replace(b'"DECIDED"', b'"REJECTED"')
        made = link(
            TENANT, run, entry.seq, head, Draft(entry.kind, entry.key, entry.at_us, entry.by, body, entry.salt or b"")
        )
        statements.append(
            f"UPDATE {{journal}} SET body = {intruder.blob(body)}, body_digest = '{made.body_digest}',"
            f" prev_hash = '{made.prev_hash}', hash = '{made.hash}' {of(run, f' AND seq = {entry.seq}')}"
        )
        head = made.hash
    return statements


def emptied(intruder: DatabaseOwner, run: str, entries: list[Entry]) -> list[str]:
    return [f"UPDATE {{journal}} SET body = NULL, salt = NULL {of(run, ' AND seq = 1')}"]


def cut(intruder: DatabaseOwner, run: str, entries: list[Entry]) -> list[str]:
    """The end of the run is gone, with the heads that were signed there."""
    return [
        f"DELETE FROM {{journal}} {of(run, ' AND seq > 3')}",
        f"DELETE FROM {{heads}} WHERE tenant = '{TENANT}' AND stream = '{run}' AND seq > 3",
    ]


def gone(intruder: DatabaseOwner, run: str, entries: list[Entry]) -> list[str]:
    return [
        f"DELETE FROM {{journal}} {of(run)}",
        f"DELETE FROM {{heads}} WHERE tenant = '{TENANT}' AND stream = '{run}'",
    ]


@pytest.mark.parametrize(
    ("attack", "told"),
    [
        (altered_body, "has a body that its digest does not cover"),
        (garbage, "has a body that its digest does not cover"),
        (rewritten_end, "is not the one that the index states"),
        (emptied, "no act `entry.erased`"),
        (cut, "is missing: the index states"),
        (gone, "is missing: the index names the run"),
    ],
)
def test_an_altered_run_is_shown_as_one_that_does_not_verify(
    attack: Callable[..., list[str]], told: str, initialised: Shop, intruder: DatabaseOwner
) -> None:
    shop = initialised
    run = shop.say("invoke", str(shop.request("small"))).json["run_id"]
    whole = shop.say("invoke", str(shop.request("next"))).json["run_id"]
    assert (shop.say("runs", "list").code, shop.say("runs", "show", run).code) == (0, 0)
    execute(intruder, *attack(intruder, run, stored(shop, run)))

    shown = shop.say("runs", "show", run)
    assert (shown.code, shown.err) == (3, "")
    assert told in shown.json["fault"]
    assert (shop.say("runs", "show", whole).code, shop.say("runs", "show", whole).json["fault"]) == (0, None)

    listed = shop.say("runs", "list")
    assert (listed.code, listed.err) == (3, "")
    faults = {one["run_id"]: one["fault"] for one in listed.json["runs"]}
    assert faults.keys() == {run, whole}
    assert faults[whole] is None
    assert told in faults[run]


def test_the_terminal_says_it_before_the_story(
    initialised: Shop, intruder: DatabaseOwner, capsys: pytest.CaptureFixture[str]
) -> None:
    from contextos.cli import run_command_line

    run = initialised.say("invoke", str(initialised.request("small"))).json["run_id"]
    execute(intruder, *altered_body(intruder, run, stored(initialised, run)))
    for command in (["runs", "show", run], ["runs", "list"]):
        capsys.readouterr()
        assert run_command_line(command) == 3
        said = capsys.readouterr().out
        assert "DOES NOT VERIFY: " in said
        assert "contextos verify" in said
    capsys.readouterr()
    run_command_line(["runs", "show", run])
    assert capsys.readouterr().out.lstrip().startswith("DOES NOT VERIFY: ")


def test_a_line_of_the_index_that_was_altered_or_removed_is_named(initialised: Shop, intruder: DatabaseOwner) -> None:
    first = initialised.say("invoke", str(initialised.request("small"))).json["run_id"]
    initialised.say("invoke", str(initialised.request("next")))
    lines = [line for line in stored(initialised, INDEX) if line.key == first]
    where = " AND seq IN (" + ", ".join(str(line.seq) for line in lines) + ")"
    execute(intruder, f"DELETE FROM {{journal}} {of(INDEX, where)}")
    for command in (("runs", "list"), ("verify",)):
        said = initialised.say(*command)
        assert said.code == 3
        assert "`index` entry" in said.out + said.err
    shown = initialised.say("runs", "show", first)
    assert shown.code == 3
    assert "is in no line of the index" in shown.json["fault"]


@pytest.mark.parametrize("change", [(b'"mode":"long_running"', b'"mode":"stream"'), (b"ord_881", b"ord_882")])
def test_an_altered_session_is_listed_as_one_that_does_not_verify(
    change: tuple[bytes, bytes], initialised: Shop, intruder: DatabaseOwner, tmp_path: Path
) -> None:
    body: Any = orjson.loads(initialised.request("small").read_bytes()) | {"mode": "long_running"}
    sent = tmp_path / "session.json"
    sent.write_bytes(orjson.dumps(body))
    run = initialised.say("invoke", str(sent)).json["run_id"]
    assert [one["run_id"] for one in initialised.say("runs", "sessions").json["sessions"]] == [run]
    entries = stored(initialised, run)
    altered = (entries[0].body or b"").replace(*change)
    assert altered != entries[0].body
    execute(intruder, f"UPDATE {{journal}} SET body = {intruder.blob(altered)} {of(run, ' AND seq = 1')}")
    said = initialised.say("runs", "sessions")
    assert (said.code, said.err) == (3, "")
    [one] = said.json["sessions"]
    assert one["run_id"] == run
    assert "has a body that its digest does not cover" in one["fault"]

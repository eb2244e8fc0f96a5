"""Makes the golden corpus: `PYTHONPATH=src:. python tests/golden/make.py [FILE ...]`, all of it or the files named.

Ids differ each time it is made, so it is made again only where an old history must go: after a change of `SEMANTICS`.
`corpus.toml` is written with it; say why in its `because`. Runs of every end are real ones
over the example; each bad export holds one of them, spoiled as its name says by an attacker who has every key of ours,
and so with chains and signatures that hold wherever they can.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from contextos.audit import export, exported
from contextos.audit.export_lines import entry_line, head_line
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.entries.kinds import LedgerHeads
from contextos.contracts.journal import Draft, Entry, genesis, link
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.journal.signed_heads import signed_head
from contextos.trust.seal import KeyRing, kid_of
from tests.world import TENANT, TestWorld, open_world, public_key, request

HERE = Path(__file__).resolve().parent
SEED = b"k" * 32
GOOD = ("refunds", "sessions")
STRANGER = bytes(range(3, 35))

Spoil = Callable[[list[Entry]], list[Entry]]


async def runs(world: TestWorld) -> dict[str, str]:
    """A run of each kind, by the name of what became of it."""
    made = {"decided": (await world.invoke(request(900, "req_small"))).run_id}
    for number, verdict in enumerate(("approved", "denied")):
        waiting = await world.invoke(request(4200 + number, f"req_{verdict}"))
        made[verdict] = (await world.approve(waiting.run_id, verdict)).run_id
    waiting = await world.invoke(request(4300, "req_void"))
    await world.answer(waiting.run_id)
    world.edit_directory(lambda tenant: tenant["users"][0]["roles"].append("auditor"))
    await world.deployment.advance(TENANT, waiting.run_id)
    made["voided"] = waiting.run_id
    refused = request(900, "req_refused")
    refused["user"]["user_id"] = "user_nobody"
    made["refused"] = (await world.invoke(refused)).run_id
    return made


async def sessions(world: TestWorld) -> dict[str, str]:
    """A `long_running` run of each kind: decided, approved, and out of time."""
    made = {}
    for number, title in enumerate(("decided", "approved", "exhausted")):
        body = request(900 if title == "decided" else 4400 + number, f"req_session_{title}")
        body |= {"mode": "long_running", "session_id": f"sess_{title}"}
        view = await world.invoke(body)
        await world.deployment.advance(TENANT, view.run_id)
        if title == "approved":
            await world.approve(view.run_id)
        if title == "exhausted":
            world.clock.at_us += 14_400_000_000
            await world.deployment.advance(TENANT, view.run_id)
        made[title] = view.run_id
    return made


def linked(entries: Sequence[Entry]) -> list[Entry]:
    """Entries in a chain that fits, with records that index their ledgers as they are."""
    head, made, ledgers = genesis(entries[0].tenant, entries[0].run), list[Entry](), LedgerHeads()
    for seq, one in enumerate(entries, start=1):
        body = one.body or b""
        if one.kind == "record.revised":
            record = {name: value for name, value in orjson.loads(body).items() if name != "record_hash"}
            record["lineage"] |= {"ledgers": ledgers.as_json()}
            body = canonical(record | {"record_hash": content_address(record)})
        draft = Draft(one.kind, one.key, one.at_us, one.by, body, one.salt or b"")
        made.append(link(one.tenant, one.run, seq, head, draft))
        ledgers.add(made[-1])
        head = made[-1].hash
    return made


def changing(kind: str, change: Callable[[Any], None]) -> Spoil:
    """The last entry of a kind with another body."""

    def spoil(entries: list[Entry]) -> list[Entry]:
        at = max(number for number, one in enumerate(entries) if one.kind == kind)
        body = orjson.loads(entries[at].body or b"")
        change(body)
        return linked([*entries[:at], entries[at]._replace(body=canonical(body)), *entries[at + 1 :]])

    return spoil


def forged(entries: list[Entry]) -> list[Entry]:
    """The approval is signed by a key that is not the approver's."""

    def change(body: Any) -> None:
        token = sign_approval(STRANGER, kid_of(public_key(STRANGER)), {"verdict": "approved"})
        body["answer"]["assertion"] = {"kind": "jws", "token": token}

    return changing("approval.answered", change)(entries)


def without_gate(entries: list[Entry]) -> list[Entry]:
    """As if nobody had been asked."""
    asked = ("approval.asked", "approval.answered", "run.resumed", "evidence.rechecked")
    of_it = ("approval/", "redeem/")
    return linked([one for one in entries if one.kind not in asked and not one.key.startswith(of_it)])


SPOILED: dict[str, Spoil] = {
    "forged_approval": forged,
    "skipped_gate": without_gate,
    "rewritten_record": changing("record.revised", lambda body: body.update(outcome="denied")),
    "rewritten_score": changing("run.scored", lambda body: body.update(verdict="replan")),
    "loosened_policy": changing("policy.decided", lambda body: body.update(gates=[])),
    "other_semantics": changing("run.pinned", lambda body: body["answer"].update(semantics=2)),
}


def written(world: TestWorld, entries: Sequence[Entry], rest: Sequence[bytes]) -> bytes:
    """An export of one run with these entries, as `audit.export` writes it; `rest` are the lines behind its head."""
    kid, signature = signed_head(world.keys, entries[-1])
    head = head_line(entries[0].run, (len(entries), entries[-1].hash, kid, signature))
    return export.signed_file(TENANT, [*map(entry_line, entries), head, *rest], world.keys)


async def of_refunds() -> dict[str, bytes]:
    """An export of runs that their callers drove, and what becomes of it in wrong hands."""
    with tempfile.TemporaryDirectory() as name:
        world = await open_world(Path(name))
        made = await runs(world)
        files = {"refunds": await export.export_runs(world.deployment, TENANT, list(made.values()), by=world.actor())}
        opened = exported.read_export(files["refunds"], world.keys)
        for title, spoil in SPOILED.items():
            # What stands before a question is covered by the signature of who answered it.
            name = made["decided" if title == "other_semantics" else "approved"]
            alone = await export.export_runs(world.deployment, TENANT, [name], by=world.actor())
            entries = list(opened.streams[name])
            files[title] = written(world, spoil(entries), alone.split(b"\n")[2 + len(entries) : -1])
        files["tampered_ledger"] = alone.replace(b'"kind":"run.scored"', b'"kind":"run.scoreD"')
        rest = alone.split(b"\n")[2 + len(entries) : -1]
        files["missing_artifact"] = written(world, entries, [one for one in rest if not one.startswith(b'{"artifact"')])
        world.close()
    return files


async def of_sessions() -> bytes:
    """An export of runs that an engine drove."""
    with tempfile.TemporaryDirectory() as name:
        world = await open_world(Path(name))
        made = await sessions(world)
        raw = await export.export_runs(world.deployment, TENANT, list(made.values()), by=world.actor())
        world.close()
    return raw


async def main(named: Sequence[str]) -> None:
    files = {**await of_refunds(), "sessions": await of_sessions()}
    keys = KeyRing.from_seed(SEED)
    corpus = tomllib.loads((HERE / "corpus.toml").read_text("utf-8"))
    corpus["export_key"] = (keys.public_key("export", keys.kids("export")[0]) or b"").hex()
    for title in named or files:
        (HERE / f"{title}.jsonl.gz").write_bytes(gzip.compress(files[title], mtime=0))
        listed = corpus["good" if title in GOOD else "bad"][title]
        listed["sha256"] = hashlib.sha256(files[title]).hexdigest()
        if title in GOOD:
            replayed = await exported.replay_export(exported.read_export(files[title], keys))
            listed["runs"] = {one.run_id: [one.status, one.record_hash] for one in replayed}
    (HERE / "corpus.toml").write_text("".join(toml_lines(corpus)), "utf-8")


def toml_lines(corpus: dict[str, Any]) -> Iterator[str]:
    """The lines of `corpus.toml`; a JSON string or array of strings is one of TOML too."""
    yield "# The golden corpus: what each file is, and what comes of replaying it. `make.py` made them.\n"
    yield f'\nexport_key = "{corpus["export_key"]}"\n'
    for table in ("good", "bad"):
        for title, listed in corpus[table].items():
            yield f"\n[{table}.{title}]\n"
            yield from (f"{key} = {json.dumps(value)}\n" for key, value in listed.items() if key != "runs")
            if "runs" in listed:
                yield f"\n[{table}.{title}.runs]\n"
                yield from (f"{run} = {json.dumps(expected)}\n" for run, expected in listed["runs"].items())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))

"""A populated world, each alteration of each column of its tables, and what comes of an alteration.

Tables and columns come from the schema of the database, collections and fields from the documents themselves.
"""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
import re
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from contextos.audit.library import verify_library
from contextos.audit.verify import verify_facts, verify_tenant
from contextos.contracts import documents
from contextos.contracts.documents.collection import Collection
from contextos.contracts.documents.epochs import DATABASE_PLACES, PUBLISHED_HEADS, DatabasePlace, PublishedHeads
from contextos.contracts.documents.identities import (
    BROWSER_SESSIONS,
    FLOW_QUESTIONS,
    PASSKEY_REGISTRATIONS,
    SIGNED_IN,
    SealedIdentity,
)
from contextos.contracts.documents.operations import (
    BREAKERS,
    DRIFT_INCIDENTS,
    OPEN_SESSIONS,
    PASSKEY_COUNTS,
    CircuitDocument,
    DriftIncident,
    OpenPlace,
    PasskeyCount,
)
from contextos.contracts.documents.runs import (
    BLOCKED_BY,
    BLOCKED_RUNS,
    DEAD_LETTERS,
    HEARTBEATS,
    BlockedRun,
    DeadLetterDocument,
    Heartbeat,
)
from contextos.contracts.documents.subscriptions import (
    REMINDERS,
    SUBSCRIPTIONS,
    UNDELIVERED,
    HeldRun,
    Reminder,
    Subscription,
    UndeliveredEvent,
)
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.artifacts import ExtensionManifest
from contextos.contracts.journal import CONTROL, Batch
from contextos.deployment.acts.curation import (
    add_artifact,
    add_revision,
    archive_assertion,
    classify_artifact,
    register_extension,
)
from contextos.deployment.acts.memories import review_memory
from contextos.deployment.operator import request_cancel
from contextos.deployment.restore import record_restore
from contextos.errors import ContextOSError
from contextos.intelligence.memory import list_candidates
from contextos.store.postgres.database_identity import DATABASE_IDENTITY
from contextos.trust.rows.unvouched_writes import SignedWrites
from contextos.trust.seal import seal
from tests.attacks.test_b10_many_small_effects import limited, refund
from tests.attacks.test_g171_a_partners_claim_counts_once_and_is_in_the_chain import (
    KEYS,
    PARTNER,
    claim,
    partner,
    public,
)
from tests.segments import drop_triggers
from tests.world import TENANT, TestWorld, open_world, request

VOICE: Final = "@acme/voice"
UNVERIFIED: Final = "ord_890"
DOC: Final = Path("docs/design/rows.md")
HOUR_US: Final = 3_600_000_000


def pack(body: dict[str, Any]) -> None:
    """The example's pack with a limit on a sum, and with a slot in each template."""
    limited(body, condition={">": [{"+": [{"var": "history.refunded"}, {"var": "args.amount_inr"}]}, 9000]})
    slot = {
        "slotId": "voice",
        "acceptedArtifactExtensions": [VOICE],
        "selectionMode": "autonomous",
        "resolutionMode": "accumulate",
    }
    for template in body["decision_layer"]["task_templates"]:
        template["context_slots"] = [{"slot": slot}]


async def populate(world: TestWorld) -> None:
    """Runs that were paid, denied, cancelled, wait and are limited; facts, memories, artifacts, a restore; and a row in
    each collection that only another part of the application writes.
    """
    world.edit_directory(
        lambda tenant: [user.update(organization_id="acme", team_ids=["support"]) for user in tenant["users"]]
    )
    app, by = world.deployment, world.actor()
    await register_extension(app, TENANT, ExtensionManifest(extension=VOICE), by=by)
    for name, visibility in (("of_all", "org"), ("of_team", "team:support"), ("of_legal", "team:legal")):
        of = {"artifact_id": name, "org_id": "acme"}
        fields = {"title": name, "owner_level": "organization", "owner_id": "acme", "visibility": visibility}
        await add_artifact(app, TENANT, {**of, **fields}, by=by)
        await add_revision(app, TENANT, {**of, "mime": "text/plain", "content": f"Be {name}."}, by=by)
        await classify_artifact(app, TENANT, {**of, "extension": VOICE, "asserted_by": "user"}, by=by)
    await archive_assertion(app, TENANT, "acme", "of_legal", VOICE, by=by)
    await record_restore(app, None, TENANT, by=by)
    await world.stock("ord_x1", "ord_x2", total_inr=250_000)
    verified = {
        "src": "customer:cus_78",
        "predicate": "identity_verified",
        "dst": "check:idv_once",
        "value": True,
        "evidence_ref": "artifact:idv_once#rev_1",
        "observed_at": "2026-05-03T09:30:00Z",
        "integrity": "trusted",
        "classification": "CONFIDENTIAL",
        "edge_id": "edge_once",
    }
    await world.put_facts([verified])
    denied = {**verified, "value": False, "dst": "check:idv_no", "edge_id": "edge_zno"}
    await world.put_facts([{**verified, "edge_id": "edge_yes"}, denied])
    await world.put_facts([{"retracts": "edge_once", "evidence_ref": "artifact:recheck#rev_2"}])
    app.ports = replace(app.ports, partners={PARTNER: partner(PARTNER, public(KEYS))})
    called = {"ord_881": {"hop_claim": claim(world.clock.now_us())}, "ord_882": {}}
    for order, by_partner in called.items():
        body = request(900, f"req_{order}", order_id=order) | by_partner
        assert (await world.invoke(body)).state == "completed"
    proposals = [
        one for one in await list_candidates(world.stores.tenant(TENANT)) if one.candidate.predicate == "was_refunded"
    ]
    await review_memory(app, TENANT, proposals[0].proposal_id, "promote", by=by, supersede=True)
    await review_memory(app, TENANT, proposals[1].proposal_id, "reject", by=by)
    await world.invoke(refund(0, 1_000, "ord_x1"))
    await world.invoke(refund(1, 901, "ord_x1"))
    refused = await world.invoke(request(4_300, "req_denied", order_id="ord_x2"))
    await world.answer(refused.run_id, verdict="denied")
    cancelled = await world.invoke(request(2_600, "req_cancelled", order_id="ord_x2") | {"mode": "long_running"})
    await request_cancel(app, TENANT, cancelled.run_id, by=by, reason="the customer called back")
    await world.invoke(request(4_200, "req_waiting", order_id="ord_x2"))
    await _others(world, cancelled.run_id)


async def _others(world: TestWorld, run_id: str) -> None:
    """Rows of the parts of an application that this world does not run."""
    now = world.clock.now_us()
    sealed = SealedIdentity(seal("application/vnd.contextos.test+json", b"{}", world.keys, "head"))
    circuit = CircuitDocument("adp_payments", "issue_refund", "open", 3, now, now + HOUR_US, "other")
    writes = [
        BREAKERS.write("adp_payments.issue_refund", 0, circuit),
        DRIFT_INCIDENTS.write("adp_other.tool/sha256:0/tool_1", 0, DriftIncident(run_id, "tool_1", now)),
        PASSKEY_COUNTS.write("sha256:1", 0, PasskeyCount(7)),
        SignedWrites(None, TENANT, world.keys).keep(f"adp_other/{run_id}/1/call", ("0" * 16,), now),  # type: ignore[arg-type]
        OPEN_SESSIONS.write("agt_other/0", 0, OpenPlace(run_id)),
        SIGNED_IN.write("user/usr_x", 0, sealed),
        BROWSER_SESSIONS.write("sha256:2", 0, sealed),
        PASSKEY_REGISTRATIONS.write("sha256:3", 0, sealed),
        FLOW_QUESTIONS.write("sha256:4", 0, sealed),
        PUBLISHED_HEADS.write("witness", 0, PublishedHeads({"index": 1})),
        DEAD_LETTERS.write("run_ffffffffffffffff", 0, DeadLetterDocument("x", "y", now, True, 3, 5)),
        BLOCKED_RUNS.write("run_ffffffffffffffff", 0, BlockedRun("adp_payments.issue_refund/ik_x")),
        BLOCKED_BY.write(
            "adp_payments.issue_refund/ik_x/run_ffffffffffffffff", 0, BlockedRun("adp_payments.issue_refund/ik_x")
        ),
        HEARTBEATS.write("run_ffffffffffffffff", 0, Heartbeat("other", now, now + HOUR_US)),
        SUBSCRIPTIONS.write("mail", 0, Subscription(("run.ended",), "", "", 0, (HeldRun(run_id, 1, 2, now),))),
        REMINDERS.write("mail/0000000000000001", 0, Reminder(run_id, 1, now)),
        UNDELIVERED.write("mail/0000000000000001", 0, UndeliveredEvent(run_id, 1, "run.ended", 5, now, "down")),
    ]
    store = world.stores.tenant(TENANT)
    if not (await store.look([DATABASE_PLACES.place("place")])).documents:
        writes.append(DATABASE_PLACES.write("place", 0, DatabasePlace("here", 1)))
    await store.commit(Batch(run=CONTROL, writes=tuple(writes)))


def collections() -> dict[str, Collection[Any]]:
    """Every collection of documents that the code has, by name."""
    found = {}
    for module in pkgutil.iter_modules(documents.__path__):
        named = vars(importlib.import_module(f"{documents.__name__}.{module.name}"))
        found |= {one.name: one for one in named.values() if isinstance(one, Collection)}
    return found


async def populated_collections(world: TestWorld) -> set[str]:
    """The collections that have a row."""
    store = world.stores.tenant(TENANT)
    return {name for name in collections() if await store.scan(name, limit=1)}


@dataclass(frozen=True)
class Alteration:
    """One alteration: what of (`table`, `column`), or of (`collection`, field), how, and the statement that does it."""

    table: str
    column: str
    how: str
    statement: str
    parameters: tuple[Any, ...] = ()


class Rows:
    """The tables of a store as its owner has them, over SQL that both databases know."""

    def __init__(self, path: Path, url: str | None) -> None:
        self.path, self.url = path, url

    def columns(self) -> dict[str, list[tuple[str, str]]]:
        """Each table with its columns and their types, from the schema."""
        if self.url is None:
            with closing(sqlite3.connect(self.path / "contextos.db")) as connection:
                tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                return {
                    name: [(one[1], one[2].lower()) for one in connection.execute(f"PRAGMA table_info({name})")]
                    for name in tables
                    if not name.startswith("sqlite_")
                }
        found: dict[str, list[tuple[str, str]]] = {}
        query = (
            "SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns AS c"
            " JOIN information_schema.tables AS t USING (table_schema, table_name)"
            " WHERE c.table_schema = 'contextos' AND t.table_type = 'BASE TABLE' ORDER BY 1, c.ordinal_position"
        )
        for table, column, kind in self.execute(query):
            found.setdefault(table, []).append((column, kind))
        return found

    def be_at_home(self) -> None:
        """Let a copy of a PostgreSQL database be the one that its tenant was in, so that it is written to."""
        ((identity,),) = self.execute(DATABASE_IDENTITY)
        ((epoch,),) = self.execute("SELECT version FROM documents WHERE collection = 'epoch' AND key = 'store'")
        body = DATABASE_PLACES.encode(DatabasePlace(identity, epoch))
        assert self.execute("UPDATE documents SET body = ? WHERE collection = 'epoch' AND key = 'place'", body)

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement that nothing stops; a parameter is `?`. Returns rows, or one for each change."""
        if self.url is None:
            with closing(sqlite3.connect(self.path / "contextos.db", timeout=30)) as connection, connection:
                drop_triggers(connection)
                connection.execute("PRAGMA ignore_check_constraints = ON")
                cursor = connection.execute(statement, parameters)
                return cursor.fetchall() if cursor.description else [()] * max(cursor.rowcount, 0)
        return asyncio.run(self._on_postgres(statement, parameters))

    async def _on_postgres(self, statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        import asyncpg

        assert self.url is not None
        numbers = iter(range(1, 99))
        numbered = re.sub(r"\?", lambda _: f"${next(numbers)}", statement)
        connection = await asyncpg.connect(self.url)
        try:
            async with connection.transaction():
                await connection.execute("SET LOCAL session_replication_role = replica")
                await connection.execute("SET LOCAL search_path = contextos")
                changes = numbered.startswith(("UPDATE", "DELETE", "INSERT"))
                rows = await connection.fetch(f"{numbered} RETURNING 1" if changes else numbered, *parameters)
                return [tuple(row) for row in rows]
        finally:
            await connection.close()


def alterations(rows: Rows) -> Iterator[Alteration]:
    """Every alteration of every column of every table, for the first, the middle and the last row, but for the bodies
    of documents, of which every field is altered.
    """
    for table, columns in rows.columns().items():
        if table in ("schema_version",):
            yield Alteration(table, columns[0][0], "other", f"UPDATE {table} SET {columns[0][0]} = 'x'")
            continue
        names = [name for name, _ in columns]
        found = rows.execute(f"SELECT {', '.join(_q(name) for name in names)} FROM {table} ORDER BY 1, 2")
        chosen = [found[0], found[len(found) // 2], found[-1]] if found else []
        for at, row in enumerate(dict.fromkeys(chosen)):
            of = _where(names, row)
            yield Alteration(table, "*", f"row {at} is gone", f"DELETE FROM {table} {of[0]}", of[1])
            for number, (name, kind) in enumerate(columns):
                if (table, name) == ("documents", "body"):
                    continue
                for how, value in _others_of(name, kind, row[number], [one[number] for one in found]):
                    statement = f"UPDATE {table} SET {_q(name)} = ? {of[0]}"
                    yield Alteration(table, name, f"row {at}: {how}", statement, (value, *of[1]))
    yield from _of_documents(rows)


def _of_documents(rows: Rows) -> Iterator[Alteration]:
    found = rows.execute("SELECT tenant, collection, key, version, body FROM documents ORDER BY 1, 2, 3")
    by_collection: dict[str, list[tuple[Any, ...]]] = {}
    for row in found:
        by_collection.setdefault(row[1], []).append(row)
    of = "WHERE tenant = ? AND collection = ? AND key = ?"
    for name, same in by_collection.items():
        parsed = [orjson.loads(bytes(row[4])) for row in same]
        for row, body in list(zip(same, parsed, strict=True))[:6]:
            place = tuple(row[:3])
            yield Alteration(name, "*", "gone", f"DELETE FROM documents {of}", place)
            for how, version in (("version + 1", row[3] + 1), ("version 0", 0)):
                yield Alteration(name, "*", how, f"UPDATE documents SET version = ? {of}", (version, *place))
            again = "INSERT INTO documents (tenant, collection, key, version, body) VALUES (?, ?, ?, ?, ?)"
            yield Alteration(name, "*", "doubled", again, (row[0], name, f"{row[2]}x", *row[3:]))
            for field, value in body.items():
                others = [one[field] for one in parsed if field in one]
                for how, changed in _values_of(field, value, others):
                    raw = canonical(body | {field: changed})
                    yield Alteration(name, field, how, f"UPDATE documents SET body = ? {of}", (raw, *place))


def _others_of(name: str, kind: str, value: Any, others: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, bytes):
        yield "flipped", bytes([value[0] ^ 1]) + value[1:] if value else b"x"
        yield "empty", b""
    elif isinstance(value, str):
        yield "other", f"{value}x"
    elif isinstance(value, bool):
        yield "other", not value
    elif isinstance(value, int | float):
        yield "zero", type(value)(0)
        yield "other", value + 1 if kind != "real" else value / 2
        if name.endswith("_us") and value:
            yield "an hour ago", value - HOUR_US
    elif value is None:
        yield "set", 1 if "int" in kind else b"x" if kind in ("blob", "bytea") else "x"
    swapped = next((one for one in others if one != value and one is not None), None)
    if swapped is not None:
        yield "swapped", swapped


def _values_of(name: str, value: Any, others: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield "empty", {}
        for inner, one in value.items():
            for how, changed in _values_of(inner, one, ()):
                yield f"{inner} {how}", value | {inner: changed}
    elif isinstance(value, list):
        yield "empty" if value else "one", [] if value else ["x"]
    elif isinstance(value, bytes | str | int | float | bool) or value is None:
        yield from _others_of(name, "", value, ())
    swapped = next((one for one in others if one != value), None)
    if swapped is not None:
        yield "swapped", swapped


def _q(name: str) -> str:
    return f'"{name}"'


def _where(names: Sequence[str], row: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """The row by its values that are not large; together they are one row."""
    parts, values = [], list[Any]()
    for name, value in zip(names, row, strict=True):
        if value is None:
            parts.append(f"{_q(name)} IS NULL")
        elif not isinstance(value, bytes | float):
            parts.append(f"{_q(name)} = ?")
            values.append(value)
    return "WHERE " + " AND ".join(parts), tuple(values)


async def found_by_verify(world: TestWorld) -> bool:
    """Whether `verify` finds anything."""
    store = world.stores.tenant(TENANT)
    try:
        await verify_tenant(store, TENANT, world.keys)
        await verify_facts(world.stores.graph(TENANT), store, world.keys)
        await verify_library(world.stores.artifacts(TENANT), store, world.keys)
    except ContextOSError:
        return True
    return False


async def decisions(world: TestWorld) -> dict[str, Any]:
    """What is shown, decided and done from here on, without ids that are drawn by chance."""
    said: dict[str, Any] = {}

    async def note(name: str, what: Any) -> None:
        try:
            view = await what
        except ContextOSError as error:
            said[name] = f"refused: {type(error).__name__}"
            return
        record = view.record or {}
        detail = [one["code"] for one in record.get("rationale", {}).get("failures", ())]
        said[name] = [view.state, (view.waiting or {}).get("for"), detail, record.get("status")]

    store = world.stores.tenant(TENANT)
    try:
        waiting = {run_id for _, run_id in await store.waiting()}
        claims = {row.key: orjson.loads(row.body)["run_id"] for row in await store.scan("requests")}
    except ContextOSError as error:
        return {"*": f"refused: {type(error).__name__}"}
    for name, run_id in sorted(claims.items()):
        await note(f"shown {name}", world.deployment.view(TENANT, run_id))
        said[f"waits {name}"] = run_id in waiting
    await note("the same request", world.invoke(request(900, "req_ord_881", order_id="ord_881")))
    await note("the same payment", world.invoke(request(900, "req_again", order_id="ord_881")))
    await note("above the limit", world.invoke(refund(7, 8_500, "ord_x1")))
    await note("a retracted fact", world.invoke(request(900, "req_fact", order_id=UNVERIFIED)))
    await note("the denied one", world.invoke(request(4_300, "req_denied_again", order_id="ord_x2")))
    if "req_cancelled" in claims:
        await note("the cancelled one", _driven(world, claims["req_cancelled"]))
    if "req_waiting" in claims:
        await note("the approved one", world.approve(claims["req_waiting"]))
    said["refunds"] = sorted((one["order_id"], one["amount_inr"]) for one in world.refunds())
    return said


async def _driven(world: TestWorld, run_id: str) -> Any:
    await world.deployment.advance(TENANT, run_id)
    return await world.deployment.view(TENANT, run_id)


_FOUND: Final = ("Integrity", "ChainBroken", "SignatureInvalid")


def outcome(baseline: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """`nothing` if all is the same; `denies` if less is decided or done; `refused` if an answer is an error that says
    that the store was altered; else `open`.
    """
    if now == baseline:
        return "nothing"
    if any(error in str(one) for one in now.values() for error in _FOUND):
        return "refused"
    more = [one for one in now.get("refunds", ()) if one not in baseline["refunds"]]
    changed = {name for name in baseline if now.get(name) != baseline[name]}
    less = {name for name in changed if _is_less(name, now.get(name))}
    return "denies" if not more and changed == less else "open"


def _is_less(name: str, now: Any) -> bool:
    """Whether an answer says that less was decided or done, or that it is later."""
    if name.startswith(("waits", "refunds")) or now is None or isinstance(now, str):
        return True
    if {"unknown_ref", "unpinned_ref"}.intersection(now[2]):
        return True  # what decides is gone
    return isinstance(now, list) and now[0] not in ("completed", "refused", "escalated", "rejected", "cancelled")


def verdicts(text: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Each (table or collection, column or field) of the page, with its proof and what happens if it lies."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) != 4 or not cells[0].startswith("`"):
            continue
        for name in re.findall(r"`([^`]+)`", cells[1]):
            found[cells[0].strip("`"), name] = (cells[2], cells[3])
    return found


async def opened(path: Path, stores: str) -> TestWorld:
    """The world at `path`, made and populated if it is new."""
    fresh = not (path / "directory.json").exists()
    world = await open_world(path, stores=stores, pack=pack)
    if fresh:
        await populate(world)
    return world


def copied(source: Path, target: Path) -> Path:
    """A copy of a world that nobody has open."""
    shutil.copytree(source, target)
    return target

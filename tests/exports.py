"""Rich exports, and exports that were altered and made to fit again with whatever keys an attacker has.

`rich_exports` makes them over the example. `Opened` is a file in parts; `Attacker.made` writes it again.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from contextos.audit.export import export_runs, signed_exports, signed_file
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.entries.kinds import LedgerHeads
from contextos.contracts.journal import Draft, Entry, genesis, header_hash, link
from contextos.contracts.statements.questions import CONTENT, approval_statement
from contextos.deployment import operator
from contextos.deployment.acts.ended_runs import close_decision, reopen_run, resolve_escalation
from contextos.trust.approvals.acts import sign_act
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.identity.jws import detached
from contextos.trust.journal.signed_heads import head_payload
from contextos.trust.seal import KeyRing, kid_of, pae
from tests.world import (
    APPROVER,
    APPROVER_KEY,
    OPERATOR,
    OPERATOR_KEY,
    TENANT,
    TestWorld,
    open_world,
    public_key,
    request,
)

RUNTIME = KeyRing.from_seed(b"k" * 32)
STRANGER = KeyRing.from_seed(b"x" * 32)
PERSONS: Mapping[str, bytes] = {APPROVER: APPROVER_KEY, OPERATOR: OPERATOR_KEY}

PURPOSES = ("export", "head", "act", "pack")


def raw_keys(ring: KeyRing) -> dict[str, list[bytes]]:
    """The public keys of a ring by purpose, as a reader who has nothing of this software gets them."""
    return {one: [key for kid in ring.kids(one) if (key := ring.public_key(one, kid))] for one in PURPOSES}


async def refunds(path: Path) -> bytes:
    """A small refund, an approved one of which a body was erased, a denied one, and one that was cancelled while it
    waited. The directory listed the approver otherwise in between.
    """
    world = await open_world(path)
    runs = [(await world.invoke(request(900, "req_small"))).run_id]
    for verdict in ("approved", "denied"):
        asked = await world.invoke(request(4200 + len(runs), f"req_{verdict}"))
        runs.append((await world.approve(asked.run_id, verdict)).run_id)
        world.edit_directory(lambda tenant: [one["roles"].append("auditor") for one in tenant["approvers"]])
    entries = await world.stores.tenant(TENANT).read(runs[1])
    seq = next(one.seq for one in entries if one.kind == "context.compiled")
    await operator.erase_entry(world.deployment, TENANT, runs[1], seq, by=world.actor(), reason="the customer asked")
    asked = await world.invoke(request(4300, "req_cancelled"))
    await operator.request_cancel(world.deployment, TENANT, asked.run_id, by=world.actor(), reason="a mistake")
    await world.deployment.advance(TENANT, asked.run_id)
    return await exported(world, [*runs, asked.run_id])


async def waiting(path: Path) -> bytes:
    """A refund that waits for its approver."""
    world = await open_world(path)
    return await exported(world, [(await world.invoke(request(4400, "req_open"))).run_id])


async def settled(path: Path) -> bytes:
    """A refund whose outcome was unknown and that an operator settled."""
    from tests.e2e.test_settlements import HAPPENED, uncertain

    world, run_id = await uncertain(path)
    await world.settle(run_id, HAPPENED)
    return await exported(world, [run_id])


async def reopened(path: Path) -> bytes:
    """Runs that exhausted their calls: one that an operator reopened and whose decision they closed when it had ended,
    and one whose decision they resolved.
    """
    world = await open_world(path)
    body = request(900, "req_short")
    body["runtime"] |= {"max_tool_calls": 2}
    run_id = (await world.invoke(body)).run_id
    await reopen_run(world.deployment, TENANT, run_id, by=world.actor(), reason="more", to=9)
    await world.deployment.advance(TENANT, run_id)
    await close_decision(world.deployment, TENANT, run_id, by=world.actor(), reason="paid")
    other = (await world.invoke({**body, "request_id": "req_resolved"})).run_id
    await resolve_escalation(world.deployment, TENANT, other, "REJECTED", by=world.actor(), reason="too late")
    return await exported(world, [run_id, other])


async def session(path: Path) -> bytes:
    """The session of an agent that refunds, and finishes."""
    from contextos.contracts.ports.gates import Done
    from tests.sessions import REFUND, chosen_by_agent, read_first, refund_args, refund_session

    world = await open_world(path, pack=chosen_by_agent)
    gate = await refund_session(world, "s1", 900)
    await read_first(gate, 900)
    assert isinstance(await gate.call(REFUND, refund_args(900), call_id="pay"), Done)
    await gate.finish("approved")
    return await exported(world, [gate.run_id])


async def with_slot(path: Path) -> bytes:
    """A run whose user picked for a slot."""
    from tests.e2e.test_slots_in_runs import declaring, on, opened, pick_of

    world = await opened(path, declaring(selectionMode="interactive"))
    run_id = (await world.invoke(request(900, "req_slot"))).run_id
    await pick_of(world, run_id, "of_team")
    await on(world, run_id)
    return await exported(world, [run_id])


async def with_passkey(path: Path) -> bytes:
    """A refund that was approved with a passkey."""
    from tests.attacks.test_e36_passkeys import asked, options, with_passkeys, yes
    from tests.passkeys import Passkey

    passkey = Passkey("EdDSA")
    world = await with_passkeys(path, passkey.listed())
    question = await asked(world)
    statement = yes(question)
    await question.answer_with_passkey(passkey.get(await options(question, statement)), statement)
    await world.deployment.advance(TENANT, question.run_id)
    return await exported(world, [question.run_id])


async def exported(world: TestWorld, runs: Sequence[str]) -> bytes:
    raw = await export_runs(world.deployment, TENANT, runs, by=world.actor())
    (again,) = await signed_exports(world.deployment, TENANT, list(reversed(runs)))
    assert again.raw == raw, "an export is the same however often, and in which order, it is asked for"
    await world.aclose()
    return raw


RICH: Mapping[str, Callable[[Path], Any]] = {
    one.__name__: one for one in (refunds, waiting, settled, reopened, session, with_slot, with_passkey)
}


@dataclass
class Opened:
    """The parts of a file: the fields of each line. `changed` names acts and artifacts to sign again, by position."""

    tenant: str
    runs: list[list[dict[str, Any]]]
    heads: list[dict[str, Any]]
    acts: list[dict[str, Any]]
    artifacts: list[dict[str, Any]]
    definitions: list[dict[str, Any]]
    sealed: dict[str, Any]
    resealed: set[int] = field(default_factory=set)
    resigned: set[int] = field(default_factory=set)
    more: list[bytes] = field(default_factory=list)

    @classmethod
    def of(cls, raw: bytes) -> Opened:
        lines = [next(iter(orjson.loads(row).items())) for row in raw.splitlines()]
        by: dict[str, list[Any]] = {}
        runs: dict[str, list[Any]] = {}
        for kind, value in lines:
            by.setdefault(kind, []).append(value)
            if kind == "entry":
                runs.setdefault(value["run"], []).append(value)
        sealed = lines[0][1]
        tenant = orjson.loads(base64.b64decode(sealed["payload"]))["tenant"]
        kinds = ("head", "control", "artifact", "definition")
        heads, acts, artifacts, definitions = (by.get(one, []) for one in kinds)
        return cls(tenant, list(runs.values()), heads, acts, artifacts, definitions, sealed)

    def persons(self) -> dict[str, set[str]]:
        """The keys of the people whom the file lists, in hex, as they would reach a reader in another way."""
        found: dict[str, set[str]] = {}
        for one in self.acts:
            if one["kind"] == "person.listed":
                person = one["body"]["person"]
                keys = {key["public_key"] for key in person["keys"]}
                keys |= {base64.urlsafe_b64decode(key["public_key"] + "==").hex() for key in person.get("passkeys", ())}
                found.setdefault(one["key"], set()).update(keys)
        return found

    def rows(self) -> list[bytes]:
        rows = []
        for number, entries in enumerate(self.runs):
            rows += [canonical({"entry": one}) for one in entries]
            rows += [canonical({"head": one}) for one in self.heads[number : number + 1]]
        rows += [canonical({"control": one}) for one in self.acts]
        rows += [canonical({"artifact": one}) for one in self.artifacts]
        rows += [canonical({"definition": one}) for one in self.definitions]
        return rows + self.more

    def copy(self) -> Opened:
        return copy.deepcopy(self)


@dataclass(frozen=True)
class Attacker:
    """Who alters: `ring` has the keys that they have, by purpose, and `persons` the keys of people."""

    name: str
    ring: KeyRing | None
    purposes: tuple[str, ...]
    persons: Mapping[str, bytes] = field(default_factory=dict)

    def made(self, file: Opened) -> bytes:
        """The file with everything made to fit that this attacker can make fit."""
        if self.ring is None:
            return b"\n".join([canonical({"manifest": file.sealed}), *file.rows()]) + b"\n"
        for number, entries in enumerate(file.runs):
            self._linked(file, entries)
            if "head" in self.purposes and number < len(file.heads) and entries:
                last = entries[-1]
                payload = head_payload(file.tenant, last["run"], last["seq"], last["hash"])
                kid, signature = self.ring.sign("head", payload)
                signed = {"run": file.heads[number]["run"], "kid": kid, "signature": signature.hex()}
                file.heads[number] = file.heads[number] | signed
        if "act" in self.purposes:
            for number in file.resealed:
                self._sealed(file, file.acts[number])
        if "pack" in self.purposes:
            for number in file.resigned:
                one = file.artifacts[number]
                message = pae(one["payloadType"], base64.b64decode(one["payload"]))
                kid, signature = self.ring.sign("pack", message)
                one["signatures"] = [{"keyid": kid, "sig": base64.b64encode(signature).decode()}]
        return signed_file(file.tenant, file.rows(), self.ring)

    def _linked(self, file: Opened, entries: list[dict[str, Any]]) -> None:
        """The entries in a chain that fits, with the questions in it bound to the entries before them, and records that
        index the ledgers as they are now.
        """
        before, rebound, ledgers = "", dict[str, dict[str, Any]](), LedgerHeads()
        last: Entry | None = None
        for one in entries:
            if last is None:
                before = genesis(file.tenant, one["run"])
            self._rebind(one, before, rebound)
            if one["kind"] == "record.revised" and isinstance((one.get("body") or {}).get("lineage"), dict):
                record = {name: value for name, value in one["body"].items() if name != "record_hash"}
                record["lineage"] = record["lineage"] | {"ledgers": ledgers.as_json()}
                one["body"] = record | {"record_hash": content_address(record)}
            last = linked(file.tenant, one, last)
            with suppress(KeyError):
                ledgers.add(last)
            one["hash"] = last.hash
            before = before if one["kind"] == "run.resumed" else last.hash

    def _rebind(self, one: dict[str, Any], before: str, rebound: dict[str, dict[str, Any]]) -> None:
        body = one.get("body") or {}
        binding = body.get("binding")
        if one["kind"] == "approval.asked" and isinstance(binding, dict):
            binding["nonce"] = before
            if {"args", "evidence"} <= body.keys():
                binding["args_digest"] = content_address(body["args"])
                binding["evidence_snapshot_hash"] = content_address(body["evidence"])
            body["binding_digest"] = content_address(binding)
        if one["kind"] == "approval.asked":
            rebound[one["key"]] = body
        if one["kind"] == "approval.answered" and one["key"] in rebound and isinstance(body.get("answer"), dict):
            body["answer"]["binding_digest"] = rebound[one["key"]].get("binding_digest")
            self.vouch_answer(rebound[one["key"]], body["answer"])

    def vouch_answer(self, question: Mapping[str, Any], answer: dict[str, Any]) -> None:
        """Sign an answer with the key of its approver, if this attacker has it."""
        seed = self.persons.get(str(answer.get("approver")))
        whole = {"verdict", "reason", "assertion"} <= answer.keys() and set(CONTENT) <= question.keys()
        if seed and whole and isinstance(answer["assertion"], dict) and answer["assertion"].get("kind") == "jws":
            said = approval_statement(question, answer["approver"], answer["verdict"], answer["reason"])
            token = detached(sign_approval(seed, kid_of(public_key(seed)), said), said)
            answer["assertion"] = {"kind": "jws", "token": token}

    def _sealed(self, file: Opened, line: dict[str, Any]) -> None:
        assert self.ring is not None, "who seals has keys"
        body = {name: value for name, value in line["body"].items() if name != "seal"}
        seed = self.persons.get((body.get("act") or {}).get("actor", "") if isinstance(body.get("act"), dict) else "")
        if seed and (body.get("assertion") or {}).get("kind") == "jws":
            body["assertion"] = {"kind": "jws", "token": sign_act(seed, kid_of(public_key(seed)), body["act"])}
        place = {name: line[name] for name in ("kind", "key", "at_us", "by", "salt")}
        kid, signature = self.ring.sign("act", canonical({**place, "tenant": file.tenant, "body": body}))
        line["body"] = body | {"seal": {"kid": kid, "signature": signature.hex()}}


def linked(tenant: str, one: Mapping[str, Any], last: Entry | None) -> Entry:
    """The entry of a line behind another one, whatever hash the line states."""
    before = last.hash if last else genesis(tenant, one["run"])
    if "body" in one:
        draft = Draft(
            one["kind"], one["key"], one["at_us"], one["by"], canonical(one["body"]), bytes.fromhex(one["salt"])
        )
        return link(tenant, one["run"], one["seq"], before, draft)
    named = {name: one[name] for name in ("run", "seq", "kind", "key", "at_us", "by", "body_digest")}
    entry = Entry(tenant=tenant, **named, prev_hash=before, hash="", body=None, salt=None)
    return entry._replace(hash=header_hash(entry))


ATTACKERS: tuple[Attacker, ...] = (
    Attacker("a stranger", None, ()),
    Attacker("another key", STRANGER, PURPOSES, {APPROVER: bytes(range(7, 39)), OPERATOR: bytes(range(8, 40))}),
    Attacker("export key", RUNTIME, ("export",)),
    Attacker("all keys of the runtime", RUNTIME, PURPOSES),
    Attacker("all keys of the runtime and a person's", RUNTIME, PURPOSES, PERSONS),
)

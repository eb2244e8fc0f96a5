"""G65: what no chain and no signed head proves is checked all the same, in a store and in an export.

These are authors, times, ids of answers and the form of bodies; and an export says what it does not prove.
The attacker holds the key for heads and writes to the store, or holds the key for exports.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.audit.exported import read_export, replay_export
from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.entries.kinds import KINDS, LedgerHeads
from contextos.contracts.journal import Batch, Draft, Entry, body_digest, genesis, header_hash, link
from contextos.errors import ChainBroken, ContextOSError, Integrity, SignatureInvalid
from contextos.trust.journal.chain import verify_chain
from contextos.trust.journal.signed_heads import head_payload, index_lines, signed_head
from contextos.trust.seal import KeyRing, kid_of, pae
from tests import export_verifier
from tests.attacks.shop import Shop
from tests.exports import ATTACKERS, RICH, RUNTIME, Opened, raw_keys, refunds, waiting
from tests.world import TENANT, SystemEntropy, open_world, request

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "export.md"
EXPORT_KEY, ALL_KEYS = ATTACKERS[2:4]

Change = Callable[[list[Entry]], None]


def relinked(entries: Sequence[Entry]) -> list[Entry]:
    """The entries in a chain that fits, and questions bound to what stands before them."""
    head, made = genesis(TENANT, entries[0].run), list[Entry]()
    for seq, one in enumerate(entries, start=1):
        assert one.body is not None
        assert one.salt is not None
        body = one.body
        if one.kind == "approval.asked":
            asked = orjson.loads(body)
            asked["binding"]["nonce"] = head
            body = canonical(asked | {"binding_digest": content_address(asked["binding"])})
        made.append(link(TENANT, one.run, seq, head, Draft(*one[3:7], body, one.salt)))
        head = made[-1].hash
    return made


def at(entries: Sequence[Entry], kind: str) -> int:
    return max(number for number, one in enumerate(entries) if one.kind == kind)


def later(entries: list[Entry]) -> None:
    place = at(entries, "policy.decided")
    entries[place] = entries[place]._replace(at_us=entries[-1].at_us + 1)


def by_somebody(kind: str) -> Change:
    def change(entries: list[Entry]) -> None:
        entries[at(entries, kind)] = entries[at(entries, kind)]._replace(by="user_x")

    return change


def member_twice(entries: list[Entry]) -> None:
    place = at(entries, "evidence.retrieved")
    body = (entries[place].body or b"").replace(b'{"answer":', b'{"answer":[],"answer":', 1)
    entries[place] = entries[place]._replace(body=body)


def spaced(entries: list[Entry]) -> None:
    entries[-1] = entries[-1]._replace(body=(entries[-1].body or b"").replace(b'":', b'": ', 1))


def answer_of_another(name: str) -> Change:
    def change(entries: list[Entry]) -> None:
        place = at(entries, "tool.returned")
        body = orjson.loads(entries[place].body or b"")
        said = str(body["answer"]["envelope"].get(name, "?"))
        body["answer"]["envelope"][name] = said[:-1] + ("1" if said.endswith("0") else "0")
        entries[place] = entries[place]._replace(body=canonical(body))

    return change


def of_no_kind(entries: list[Entry]) -> None:
    entries[-1] = entries[-1]._replace(kind="run.ended2")


def a_member_more(entries: list[Entry]) -> None:
    entries[-1] = entries[-1]._replace(body=canonical(orjson.loads(entries[-1].body or b"") | {"more": 1}))


def without(*kinds: str) -> Change:
    """Cut every entry of these kinds or ledgers; the record is as it was."""

    def change(entries: list[Entry]) -> None:
        kept = [one for one in entries if not {one.kind, KINDS[one.kind].ledger}.intersection(kinds)]
        entries[:] = kept

    return change


def record_without(ledger: str) -> Change:
    """Cut a ledger, and its name out of each record."""

    def change(entries: list[Entry]) -> None:
        for place, one in enumerate(entries):
            if one.kind == "record.revised":
                body = orjson.loads(one.body or b"")
                del body["lineage"]["ledgers"][ledger]
                entries[place] = one._replace(body=canonical(body))
        entries[:] = [one for one in entries if KINDS[one.kind].ledger != ledger or one.kind == "record.revised"]

    return change


def undecided(entries: list[Entry]) -> None:
    """Cut the decision ledger but for the record, which says that it is empty."""
    entries[:] = [one for one in entries if one.kind == "record.revised" or KINDS[one.kind].ledger != "decision"]
    entries[:] = relinked(entries)
    first = next(place for place, one in enumerate(entries) if one.kind == "record.revised")
    body, ledgers = orjson.loads(entries[first].body or b""), LedgerHeads()
    for one in entries[:first]:
        ledgers.add(one)
    body["lineage"]["ledgers"] = ledgers.as_json()
    entries[first] = entries[first]._replace(body=canonical(body))


SPOILED: dict[str, tuple[Change, str]] = {
    "a time that goes back": (later, "is earlier than the entry before it"),
    "a decision by a person": (by_somebody("policy.decided"), "is by `user_x`"),
    "an answer by somebody else": (by_somebody("approval.answered"), "is by `user_x`"),
    "an end by a person": (by_somebody("run.ended"), "is by `user_x`"),
    "a body with a member twice": (member_twice, "not canonical JSON"),
    "a body with a blank": (spaced, "not canonical JSON"),
    "an answer of another call": (answer_of_another("tool_call_id"), "another `tool_call_id`"),
    "an answer of another run": (answer_of_another("run_id"), "is nothing that a run holds"),
    "an answer of another tool": (answer_of_another("capability_id"), "another `capability_id`"),
    "an entry of no kind": (of_no_kind, "not a kind"),
    "a body with a member more": (a_member_more, "more"),
    "a run without its effect ledger": (without("effect"), "names another effect ledger"),
    "a run without its context ledger": (without("context"), "names another context ledger"),
    "a run without its decision ledger": (without("decision"), "ends a run that has no record"),
    "a record without the effect ledger": (record_without("effect"), "is a record without the effect ledger"),
    "a record without the context ledger": (record_without("context"), "is a record without the context ledger"),
    "a record of an empty decision ledger": (undecided, "whose decision ledger is missing"),
}


@pytest.mark.parametrize("title", SPOILED)
def test_a_run_that_the_holder_of_the_key_for_heads_wrote_is_found_by_verify_and_replay(
    title: str, stores: str, tmp_path: Path
) -> None:
    change, said = SPOILED[title]

    async def go() -> None:
        (tmp_path / "honest").mkdir()
        honest = await open_world(tmp_path / "honest")
        asked = await honest.invoke(request(4200, "req_1"))
        await honest.approve(asked.run_id)
        entries = list(await honest.stores.tenant(TENANT).read(asked.run_id))
        world = await open_world(tmp_path, stores=stores)
        change(entries)
        made = relinked(entries)
        lines, signature = index_lines(made, SystemEntropy()), signed_head(world.keys, made[-1])
        store = world.stores.tenant(TENANT)
        await store.commit(Batch(run=asked.run_id, entries=tuple(made), shared=lines, signature=signature))
        with pytest.raises(ChainBroken, match=re.escape(said)):
            await verify_tenant(store, TENANT, world.keys)
        with pytest.raises(Integrity):
            await replay(world.deployment, TENANT, asked.run_id)
        await world.aclose()

    asyncio.run(go())


def test_a_question_that_is_not_bound_to_the_entries_before_it_is_found(tmp_path: Path) -> None:
    file = Opened.of(asyncio.run(waiting(tmp_path)))
    (asked,) = [one for one in file.runs[0] if one["kind"] == "approval.asked"]
    asked["body"]["binding"]["nonce"] = "sha256:" + "0" * 64
    entries, last = file.runs[0], None
    from tests.exports import linked

    for one in entries:
        last = linked(file.tenant, one, last)
        one["hash"] = last.hash
    assert last is not None
    kid, signature = RUNTIME.sign("head", head_payload(TENANT, last.run, last.seq, last.hash))
    file.heads[0] |= {"kid": kid, "signature": signature.hex()}
    from contextos.audit.export import signed_file

    raw = signed_file(file.tenant, file.rows(), RUNTIME)
    with pytest.raises(ChainBroken, match="is a question that is not bound to the entries before it"):
        read_export(raw, RUNTIME)
    with pytest.raises(export_verifier.Refused, match="bound to nothing"):
        export_verifier.verified(raw, raw_keys(RUNTIME))


def test_the_body_of_every_stream_has_one_spelling() -> None:
    for body in (b'{"a":1,"a":1}', b'{"b":1,"a":1}', b'{"a": 1}', b'{"a":1.0}', b'"\\u00e9"', b"", b"{", b"1e3"):
        entry = link("t", "control", 1, genesis("t", "control"), Draft("k", "", 1, "runtime", body, bytes(16)))
        with pytest.raises(ChainBroken, match="not canonical JSON"):
            verify_chain("t", "control", [entry])
    for value in ({}, {"a": 1e17}, {"a": [1e21, 1.5, -1e-7, 2**53 - 1]}, {"é": "\u2028"}):
        entry = link("t", "run", 1, genesis("t", "run"), Draft("k", "", 1, "runtime", canonical(value), bytes(16)))
        assert verify_chain("t", "run", [entry]) == entry.hash


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return bytes(asyncio.run(refunds(tmp_path_factory.mktemp("refunds"))))


def test_who_has_only_the_key_for_exports_learns_what_rests_on_it(rich: bytes) -> None:
    public = {purpose: [RUNTIME.public_key(purpose, RUNTIME.kids(purpose)[0]) or b""] for purpose in RUNTIME_PURPOSES}
    for left_out in RUNTIME_PURPOSES[1:]:
        given = {purpose: keys for purpose, keys in public.items() if purpose != left_out}
        assert read_export(rich, KeyRing({}, given)).unproved == (left_out,)
    assert read_export(rich, KeyRing({}, {"export": public["export"]})).unproved == RUNTIME_PURPOSES[1:]
    assert read_export(rich, KeyRing({}, public)).unproved == ()


STRANGE: tuple[Any, ...] = (
    *(2**70, -1, 0, True, None, "", "\ud800", "a\x00b", "\u00e9" * 3, [], {}, [[]], {"": 1}, 1.5, 1e300, "x" * 70_000),
    *([[[[[]]]]], {"kind": 1}),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield from [path] if path else []
    if isinstance(value, dict | list):
        for step, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(child, (*path, step))


def put(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new


def is_judged(raw: bytes) -> None:
    """Whatever is in a file that all keys signed, its reader gets an answer or a typed refusal."""
    try:
        export = read_export(raw, RUNTIME)
    except (ChainBroken, SignatureInvalid):
        return
    with suppress(ContextOSError):
        asyncio.run(replay_export(export))


@pytest.mark.parametrize("side", ["input_schema", "output_schema"])
@pytest.mark.parametrize("wrong", [{"properties": 1.5}, {"properties": None}, {"required": 1}, {"$defs": 1}])
def test_a_definition_with_a_schema_of_another_form_is_judged(rich: bytes, side: str, wrong: Any) -> None:
    for number, at_once in product(range(len(Opened.of(rich).definitions)), (True, False)):
        file = Opened.of(rich)
        for one in file.definitions[number]["capabilities"]:
            one[side] = wrong if at_once else one[side] | wrong
        is_judged(ALL_KEYS.made(file))


@pytest.mark.slow
@pytest.mark.parametrize("name", RICH)
def test_no_value_that_all_keys_signed_is_a_raw_error_of_a_reader(name: str, tmp_path: Path) -> None:
    honest, chance = Opened.of(asyncio.run(RICH[name](tmp_path))), random.Random(7)
    shown = 0
    while shown < 300:
        file = honest.copy()
        acts, artifacts = dict(enumerate(file.acts)), dict(enumerate(file.artifacts))
        number, one = chance.choice([(0, entry) for run in file.runs for entry in run] * 2 + [*acts.items()] * 2)
        if chance.random() < 0.4:
            number, one = chance.choice([*artifacts.items(), *enumerate(file.definitions), *enumerate(file.heads)])
        put(one, chance.choice(list(places(one))), chance.choice(STRANGE))
        file.resealed.update({number} if one is acts.get(number) else ())
        file.resigned.update({number} if one is artifacts.get(number) else ())
        try:
            raw = ATTACKERS[4].made(file)
        except (ContextOSError, LookupError, TypeError, ValueError, AttributeError):
            continue  # it cannot be written
        shown += 1
        is_judged(raw)


RUNTIME_PURPOSES = ("export", "head", "act", "pack")


def test_what_nobody_signed_is_named(rich: bytes) -> None:
    assert read_export(rich, RUNTIME).unsigned == ()
    file = Opened.of(rich)
    number = next(number for number, one in enumerate(file.acts) if one["kind"] == "entry.erased")
    file.acts[number]["body"] |= {"assertion": {"kind": "unsafe_local"}, "key": None}
    file.resealed.add(number)
    assert read_export(ALL_KEYS.made(file), RUNTIME).unsigned == ("`entry.erased` of `user_operator_5`",)


def test_an_export_says_of_each_run_whether_it_has_ended_and_is_of_the_tenant_that_is_named(
    initialised: Shop, tmp_path: Path
) -> None:
    open_run = initialised.say("invoke", str(initialised.request("large"))).json["run_id"]
    ended = initialised.say("invoke", str(initialised.request("small"))).json["run_id"]
    file = str(tmp_path / "runs.jsonl")
    said = initialised.say("runs", "export", open_run, ended, "--out", file, *initialised.by)
    assert said.code == 0, said
    verified = initialised.say("verify", file)
    assert {one["stream"]: one["ended"] for one in verified.json["verified"]} == {open_run: False, ended: True}
    tenant = verified.json["tenant"]
    assert initialised.say("verify", file, "--tenant", tenant).code == 0
    keys = [f"--trusted-key={purpose}={key}" for purpose, listed in said.json["public_keys"].items() for key in listed]
    for command in ("verify", "replay"):
        for trusted in ([], keys):
            refused = initialised.say(command, file, "--tenant", "tenant_other_prod", *trusted)
            assert (refused.code, refused.json["error"]["problems"][0]["code"]) == (2, "other_tenant")
    assert initialised.say("verify", file, *keys).json["unproved"] == []
    assert initialised.say("verify", file, keys[0]).json["unproved"] == ["head", "act", "pack"]
    for person, code in ((f"user_operator_5={'00' * 32}", 3), ("user_operator_5", 2), ("=" + "00" * 32, 2), ("a=0", 2)):
        for command in ("verify", "replay"):
            assert initialised.say(command, file, "--person", person).code == code, person
    assert initialised.say("verify", file).json["signers"] == {
        "keys_given": [],
        "keys_from_operator": ["user_operator_5"],
    }
    assert initialised.say("verify", "--person", f"user_1={'00' * 32}").code == 2
    for wrong in ("head=00", "nobody=" + "00" * 32, "=" + "00" * 31, "head=" + "11" * 32):
        assert initialised.say("verify", file, "--trusted-key", wrong).code == 2, wrong


def test_the_text_of_verify_says_that_a_run_has_not_ended_and_what_was_not_checked(
    initialised: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from contextos.cli import run_command_line

    open_run = initialised.say("invoke", str(initialised.request("large"))).json["run_id"]
    file = str(tmp_path / "runs.jsonl")
    said = initialised.say("runs", "export", open_run, "--out", file, *initialised.by)
    assert run_command_line(["verify", file, "--trusted-key", said.json["public_keys"]["export"][0]]) == 0
    text = capsys.readouterr().out
    assert f"{open_run}" in text
    assert "has not ended, DEFERRED" in text
    assert "not checked: the signatures of the keys for head, act, pack" in text


def vectors() -> Any:
    return json.loads(PAGE.read_text("utf-8").split("## Test vectors")[1].split("```json\n")[1].split("```")[0])


def test_the_test_vectors_of_the_page_are_what_both_compute() -> None:
    one = vectors()
    tenant, run, salt, body = one["tenant"], one["run"], bytes.fromhex(one["salt"]), canonical(one["body"])
    assert canonical(one["body"]).decode() == one["canonical"] == export_verifier.canonical(one["body"]).decode()
    assert genesis(tenant, run) == one["genesis"] == export_verifier.genesis(tenant, run)
    assert body_digest(salt, body) == one["body_digest"] == export_verifier.body_digest(salt, body)
    draft = Draft(one["kind"], one["key"], one["at_us"], one["by"], body, salt)
    entry = link(tenant, run, 1, genesis(tenant, run), draft)
    assert entry.hash == one["hash"] == header_hash(entry._replace(body=None, salt=None))
    line = {name: one[name] for name in ("run", "kind", "key", "at_us", "by", "hash", "body", "salt")} | {"seq": 1}
    assert export_verifier.linked(tenant, line, None)["hash"] == one["hash"]
    assert head_payload(tenant, run, 1, entry.hash).decode() == one["head_statement"]
    assert pae(one["pae_type"], b"{}").decode() == one["pae"] == export_verifier.pae(one["pae_type"], b"{}").decode()
    key = bytes.fromhex(one["public_key"])
    assert kid_of(key) == one["key_id"] == export_verifier.key_id(key)
    assert content_address([]) == one["no_policies"] == export_verifier.address([])
    signature = bytes.fromhex(one["head_signature"])
    assert export_verifier.signed([key], one["key_id"], one["head_statement"].encode(), signature)


def test_the_canonical_form_of_the_other_verifier_is_ours() -> None:
    chance = secrets.SystemRandom()
    doubles = [chance.uniform(-1, 1) * 10.0 ** chance.randint(-30, 30) for _ in range(300)]
    for value in (*doubles, 0.0, -0.0, 1e21, 1e20, 1e-6, 1e-7, 5e-324, 1.7976931348623157e308, 123456789.125):
        assert export_verifier.canonical(value) == canonical(value), value
    texts = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\x80": 6, "\u00f6": 7, "é\u2028": '\x07"\\/'}
    assert export_verifier.canonical(texts) == canonical(texts)


def test_another_verifier_uses_nothing_of_this_software() -> None:
    source = Path(export_verifier.__file__).read_text("utf-8")
    imported = set(re.findall(r"^(?:from|import) (\w+)", source, re.M))
    assert imported <= {
        "__future__",
        "base64",
        "hashlib",
        "json",
        "math",
        "pathlib",
        "re",
        "collections",
        "itertools",
        "typing",
        "cryptography",
    }


def test_an_export_is_the_same_bytes_and_holds_no_place_in_control(rich: bytes) -> None:
    for row in rich.splitlines()[1:]:
        [(kind, fields)] = orjson.loads(row).items()
        assert canonical({kind: fields}) == row
        assert kind != "control" or fields.keys() == {"kind", "key", "at_us", "by", "body", "salt"}
    manifest = orjson.loads(base64.b64decode(orjson.loads(rich.splitlines()[0])["manifest"]["payload"]))
    assert manifest["lines"] == ["sha256:" + hashlib.sha256(row).hexdigest() for row in rich.splitlines()[1:]]

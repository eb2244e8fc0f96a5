"""Every change of an export, also under a trusted signature, is refused with a typed error."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import random
from typing import Any

import pytest

from contextos.audit import exported
from contextos.audit.export import EXPORT_TYPE, signed_file
from contextos.audit.exported import read_export, replay_export
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import ChainBroken, ContextOSError, ReplayMismatch
from contextos.trust.seal import seal
from tests.exports import ATTACKERS, RUNTIME, Opened, refunds

KEYS = RUNTIME
HOLDER = ATTACKERS[3]
STRAY: list[Any] = [None, 5, -1, True, 1.5, "", [], {}, "x", [1], {"a": 1}, 2**53 - 1, "run_", [[]]]
DRAWS = 120


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return bytes(asyncio.run(refunds(tmp_path_factory.mktemp("refunds"))))


def mutated(chance: random.Random, value: Any) -> Any:
    """A copy with one value, somewhere in it, gone, added or another."""
    whole = copy.deepcopy(value)
    node, place = whole, None
    while isinstance(node, dict | list) and node and chance.random() < 0.8:
        step = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
        place, node = (node, step), node[step]
    if place is None:
        return chance.choice(STRAY)
    if chance.random() < 0.25:
        del place[0][place[1]]
    else:
        place[0][place[1]] = copy.deepcopy(chance.choice(STRAY))
    return whole


def signed(payload: bytes, raw: bytes) -> bytes:
    """The file with another manifest, which the key for exports signed."""
    sealed = seal(EXPORT_TYPE, payload, KEYS, "export")
    return canonical({"manifest": sealed}) + b"\n" + raw.partition(b"\n")[2]


def manifest_of(raw: bytes) -> Any:
    return json.loads(base64.b64decode(json.loads(raw.partition(b"\n")[0])["manifest"]["payload"]))


def comes_to(raw: bytes) -> str:
    """`equal`, or the name of a typed error; anything else fails the test."""
    try:
        asyncio.run(replay_export(read_export(raw, KEYS)))
    except ContextOSError as refused:
        return type(refused).__name__
    return "equal"


@pytest.mark.parametrize("seed", range(3))
def test_a_signed_manifest_of_any_shape_is_refused_typed(seed: int, raw: bytes) -> None:
    chance, seen = random.Random(seed), set()
    assert comes_to(signed(canonical(manifest_of(raw)), raw)) == "equal"
    for _ in range(DRAWS):
        manifest = mutated(chance, manifest_of(raw))
        if manifest != manifest_of(raw):
            seen.add(comes_to(signed(canonical(manifest), raw)))
    assert seen == {"ChainBroken"}
    for payload in (b"", b"[]", b"null", b"{", json.dumps(manifest_of(raw)).encode()):
        assert comes_to(signed(payload, raw)) == "ChainBroken"


@pytest.mark.parametrize("seed", range(3))
def test_signed_lines_and_bodies_of_any_shape_are_refused_typed(seed: int, raw: bytes) -> None:
    """By the holder of all keys of the runtime, who makes whatever is of the right form fit again."""
    chance, seen = random.Random(seed), set()
    for _ in range(DRAWS):
        file = Opened.of(raw)
        entries = chance.choice(file.runs)
        if chance.random() < 0.5:
            entry = chance.choice([one for one in entries if "body" in one])
            entry["body"] = mutated(chance, entry["body"])
            made = HOLDER.made(file) if isinstance(entry["body"], dict) else signed_file(file.tenant, file.rows(), KEYS)
        else:
            kind = chance.choice(("acts", "artifacts", "definitions", "heads"))
            lines = getattr(file, kind)
            at = chance.randrange(len(lines))
            lines[at] = mutated(chance, lines[at])
            made = signed_file(file.tenant, file.rows(), KEYS)
        seen.add(comes_to(made))
    assert {"ChainBroken", "ReplayMismatch"} <= seen


@pytest.mark.parametrize("name", ["run", "seq", "kind", "key", "at_us", "by", "hash", "body", "salt", "body_digest"])
@pytest.mark.parametrize("stray", STRAY)
def test_a_member_of_another_type_is_no_entry(name: str, stray: Any, raw: bytes) -> None:
    file = Opened.of(raw)
    if file.runs[0][1].get(name) == stray and type(file.runs[0][1].get(name)) is type(stray):
        pytest.skip("this is what stands there")
    file.runs[0][1][name] = stray
    with pytest.raises(ChainBroken) as broken:
        read_export(signed_file(file.tenant, file.rows(), KEYS), KEYS)
    assert broken.value.seq == 2


def resealed(raw: bytes, change: Any) -> bytes:
    sealed = json.loads(raw.partition(b"\n")[0])["manifest"]
    change(sealed)
    return canonical({"manifest": sealed}) + b"\n" + raw.partition(b"\n")[2]


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: sealed.update(note="audited by X"),
        lambda sealed: sealed["signatures"][0].update(note="by X"),
        lambda sealed: sealed["signatures"].append(dict(sealed["signatures"][0])),
        lambda sealed: sealed["signatures"].append({"keyid": "kid_x", "sig": "AAAA"}),
        lambda sealed: sealed["signatures"][0].update(sig=sealed["signatures"][0]["sig"].rstrip("=")),
        lambda sealed: sealed.update(signatures=[]),
        lambda sealed: sealed.update(signatures={}),
        lambda sealed: sealed.update(payloadType=None),
    ],
)
def test_every_byte_of_the_manifest_counts_too(change: Any, raw: bytes) -> None:
    assert comes_to(resealed(raw, lambda sealed: None)) == "equal"
    with pytest.raises(ChainBroken, match="manifest"):
        read_export(resealed(raw, change), KEYS)


def test_an_unsigned_export_is_not_even_split_into_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exported, "_Lines", None)
    with pytest.raises(ChainBroken, match="is not the manifest"):
        read_export(b"x\n" * 1_000_000, KEYS)


def test_a_mismatch_names_the_run_that_it_is_in(raw: bytes) -> None:
    file = Opened.of(raw)
    end = file.runs[1][-1]["body"]
    end["end"] = "rejected" if end["end"] == "completed" else "completed"
    with pytest.raises(ReplayMismatch, match=file.runs[1][0]["run"]):
        asyncio.run(replay_export(read_export(HOLDER.made(file), KEYS)))

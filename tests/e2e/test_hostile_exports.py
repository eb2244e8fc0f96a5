"""Every change of an export, also under a trusted signature, is refused with a typed error."""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from contextos.audit import export
from contextos.audit.export import EXPORT_TYPE, read_export, replay_export
from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.journal import Entry, body_digest, genesis, header_hash
from contextos.errors import ChainBroken, ContextOSError
from contextos.trust.seal import KeyRing, seal

RAW = gzip.decompress((Path(__file__).parents[1] / "golden" / "refunds.jsonl.gz").read_bytes()).split(b"\n")[:-1]
ARTIFACTS = [row for row in RAW if row.startswith(b'{"artifact')]
KEYS = KeyRing.from_seed(b"z" * 32)
STRAY: list[Any] = [None, 5, -1, True, 1.5, "", [], {}, "x", [1], {"a": 1}, 2**53 - 1, "run_", [[]]]
DRAWS = 120


def streams() -> list[list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for row in RAW:
        if row.startswith(b'{"entry'):
            line = json.loads(row)["entry"]
            entry = Entry(**{**line, "body": export._bytes(line["body"]), "salt": export._bytes(line["salt"])})
            found.setdefault(entry.run, []).append(entry)
    return list(found.values())


STREAMS = streams()


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


def relinked(entries: list[Entry]) -> list[Entry]:
    head, made = genesis(entries[0].tenant, entries[0].run), list[Entry]()
    for seq, one in enumerate(entries, start=1):
        fits = one._replace(seq=seq, prev_hash=head, body_digest=body_digest(one.salt or b"", one.body or b""))
        made.append(fits._replace(hash=header_hash(fits)))
        head = made[-1].hash
    return made


def signed(manifest: Any, lines: list[bytes]) -> bytes:
    sealed = seal(EXPORT_TYPE, canonical(manifest), KEYS, "export")
    return b"\n".join([canonical({"manifest": sealed}), *lines]) + b"\n"


def manifest_of(entries: list[Entry], artifacts: list[bytes]) -> dict[str, Any]:
    covered = {"stream": entries[0].run, "entries": len(entries), "head": entries[-1].hash, "erased": []}
    return {"tenant": entries[0].tenant, "streams": [covered], "lines": [digest(line) for line in artifacts]}


def rows(entries: list[Entry]) -> list[bytes]:
    return [canonical({"entry": export._line(entry)}) for entry in entries]


def comes_to(raw: bytes) -> str:
    """`equal`, or the name of a typed error; anything else fails the test."""
    try:
        asyncio.run(replay_export(read_export(raw, KEYS)))
    except ContextOSError as refused:
        return type(refused).__name__
    return "equal"


@pytest.mark.parametrize("seed", range(3))
def test_a_signed_manifest_of_any_shape_is_refused_typed(seed: int) -> None:
    chance, seen = random.Random(seed), set()
    for _ in range(DRAWS):
        entries = chance.choice(STREAMS)
        manifest = mutated(chance, manifest_of(entries, ARTIFACTS))
        seen.add(comes_to(signed(manifest, [*rows(entries), *ARTIFACTS])))
    assert "ChainBroken" in seen
    assert comes_to(signed(manifest_of(STREAMS[0], ARTIFACTS), [*rows(STREAMS[0]), *ARTIFACTS])) == "equal"


@pytest.mark.parametrize("seed", range(3))
def test_signed_artifacts_and_bodies_of_any_shape_are_refused_typed(seed: int) -> None:
    chance, seen = random.Random(seed), set()
    for _ in range(DRAWS):
        entries, artifacts = list(chance.choice(STREAMS)), list(ARTIFACTS)
        if chance.random() < 0.2:
            at = chance.randrange(len(artifacts))
            artifacts[at] = canonical(mutated(chance, json.loads(artifacts[at])))
        else:
            at = chance.randrange(len(entries))
            body = mutated(chance, json.loads(entries[at].body or b""))
            entries = relinked([*entries[:at], entries[at]._replace(body=canonical(body)), *entries[at + 1 :]])
        seen.add(comes_to(signed(manifest_of(entries, artifacts), [*rows(entries), *artifacts])))
    assert "ReplayMismatch" in seen


@pytest.mark.parametrize("name", ["v", "tenant", "run", "seq", "kind", "key", "at_us", "by", "hash", "body", "salt"])
@pytest.mark.parametrize("stray", STRAY)
def test_a_header_of_another_type_is_no_entry(name: str, stray: Any) -> None:
    entries = STREAMS[0]
    line = {"entry": export._line(entries[1]) | {name: stray}}
    if line["entry"] == export._line(entries[1]):
        pytest.skip("this is what stands there")
    raw = signed(manifest_of(entries, ARTIFACTS), [rows(entries)[0], canonical(line), *rows(entries)[2:], *ARTIFACTS])
    with pytest.raises(ChainBroken) as broken:
        read_export(raw, KEYS)
    assert broken.value.seq == 2


def resealed(change: Any) -> bytes:
    sealed = seal(EXPORT_TYPE, canonical(manifest_of(STREAMS[0], ARTIFACTS)), KEYS, "export")
    change(sealed)
    return b"\n".join([canonical({"manifest": sealed}), *rows(STREAMS[0]), *ARTIFACTS]) + b"\n"


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
def test_every_byte_of_the_manifest_counts_too(change: Any) -> None:
    assert comes_to(resealed(lambda sealed: None)) == "equal"
    with pytest.raises(ChainBroken, match="manifest"):
        read_export(resealed(change), KEYS)


def test_an_unsigned_export_is_not_even_split_into_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_read", None)
    with pytest.raises(ChainBroken, match="no manifest"):
        read_export(b"x\n" * 1_000_000, KEYS)


def test_a_mismatch_names_the_run_that_it_is_in() -> None:
    entries = list(STREAMS[1])
    body = json.loads(entries[-1].body or b"") | {"end": "rejected"}
    raw = signed(
        manifest_of(bad := relinked([*entries[:-1], entries[-1]._replace(body=canonical(body))]), ARTIFACTS),
        [*rows(bad), *ARTIFACTS],
    )
    with pytest.raises(ContextOSError, match=entries[0].run):
        asyncio.run(replay_export(read_export(raw, KEYS)))

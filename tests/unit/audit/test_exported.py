"""A reader of an export learns what its keys did not check. The attacks are G64 and G65."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from contextos.audit.exported import PROVING, public_keys, read_export, replay_export
from contextos.errors import ChainBroken
from contextos.trust.seal import KeyRing
from tests.exports import RUNTIME, settled
from tests.world import OPERATOR, OPERATOR_KEY, TENANT, public_key


def test_an_export_says_whose_it_is_who_signed_and_what_was_not_checked(tmp_path: Path) -> None:
    raw = asyncio.run(settled(tmp_path))
    export = read_export(raw, RUNTIME)
    assert (export.tenant, export.unproved, export.unsigned) == (TENANT, (), ())
    assert OPERATOR in export.signers
    assert [one.status for one in asyncio.run(replay_export(export))] == ["DECIDED"]
    given = {name: [bytes.fromhex(key) for key in keys] for name, keys in public_keys(RUNTIME).items()}
    assert read_export(raw, KeyRing({}, given)) == export
    assert read_export(raw, KeyRing({}, {"export": given["export"]})).unproved == PROVING
    theirs = public_key(OPERATOR_KEY).hex()
    assert read_export(raw, RUNTIME, persons={OPERATOR: {theirs}}).streams == export.streams
    with pytest.raises(ChainBroken, match=OPERATOR):
        read_export(raw, RUNTIME, persons={OPERATOR: {"00" * 32}})

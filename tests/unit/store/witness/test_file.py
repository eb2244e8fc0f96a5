"""The file passes what every witness passes, and is read quickly without a line being taken on trust."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.errors import Integrity
from contextos.store.witness.file import FileWitness
from tests.suites.witness_suite import Make, WitnessSuite, head


class TestFileWitness(WitnessSuite):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        return lambda: FileWitness(tmp_path / "witness.jsonl")


@pytest.mark.parametrize("tenant", ["ä", 'a"b', "a\\b", "a\nb", "tenant"])
@pytest.mark.parametrize("spell", [canonical, orjson.dumps, lambda one: orjson.dumps(one, None, orjson.OPT_INDENT_2)])
def test_a_line_says_the_same_in_every_spelling(tmp_path: Path, tenant: str, spell: object) -> None:
    witness = FileWitness(tmp_path / "witness.jsonl")
    raw = spell(head(3, tenant=tenant)._asdict())  # type: ignore[operator]
    witness.path.write_bytes(raw.replace(b"\n", b"") + b"\n")
    assert list(asyncio.run(witness.heads(tenant))) == [head(3, tenant=tenant)]


@pytest.mark.parametrize(
    "spoil",
    [
        (b'"seq":3', b'"seq":3.0'),
        (b'"seq":3', b'"seq":"3"'),
        (b'"seq":3', b'"seq":true'),
        (b'"stream":', b'"streams":'),
        (b'"seq":3', b'"seq":3,"seq":4'),
        (b'"kid":"', b'"more":1,"kid":"'),
    ],
)
def test_a_line_of_another_form_is_refused(tmp_path: Path, spoil: tuple[bytes, bytes]) -> None:
    witness = FileWitness(tmp_path / "witness.jsonl")
    spoilt = canonical(head(3)._asdict()).replace(*spoil)
    witness.path.write_bytes(b'{"x":1,' + spoilt[1:] + b"\n")
    with pytest.raises(Integrity, match="line 1"):
        asyncio.run(witness.heads("tenant_acme_prod"))

"""Answers lose what the pack classifies, and every secret, before they are recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.envelopes.evidence import EvidenceItem, fact_digest
from contextos.runtime.redaction import cleanse_output, cleanse_text, redacted_items
from contextos.trust.redact import redact, scan_unsafe
from contextos.trust.seal import KeyRing
from tests.unit.control.example import pack

CARD, SECRET = "4111 1111 1111 1111", "ghp_" + "a1B2" * 9
KEYS = KeyRing.from_seed(b"k" * 32)
RULES = "/policy_layer/guardrails/redaction_rules"


def item(value: str) -> EvidenceItem:
    return EvidenceItem(
        evidence_ref="kg:order:o_1#snapshot_kg_1",
        subject="order:o_1",
        predicate="note",
        value=value,
        origin="artifact:a#rev_1",
        integrity="trusted",
        classification="INTERNAL",
        observed_at_us=0,
        digest=fact_digest("order:o_1", "note", value),
    )


def test_evidence_that_is_redacted_has_the_digest_of_what_is_left() -> None:
    plain, card, secret = redacted_items([item("a"), item(f"a {CARD}"), item(SECRET)], pack({RULES: ["pan"]}))
    assert plain == item("a")
    assert card == item("a [redacted:pan]")
    assert secret == item("[redacted:secret]")


def test_text_beside_the_output_loses_secrets_too() -> None:
    assert cleanse_text(pack({RULES: []}), (f"a {SECRET}", CARD)) == ["a [redacted:secret]", CARD]


def test_an_output_with_a_secret_is_unsafe_unless_the_pack_redacts_it() -> None:
    assert [one.code for one in cleanse_output(pack({RULES: []}), KEYS, {"a": SECRET})[2]] == ["secret"]
    assert cleanse_output(pack({RULES: ["secret"]}), KEYS, {"a": SECRET}) == (
        {"a": "[redacted:secret]"},
        ("secret",),
        (),
    )


PARTS = st.sampled_from(
    (CARD, SECRET, "bob@example.com", "\x1b[2J", "\u202e", "ord_1", "", 4111111111111111, 12.5, None)
)


@pytest.mark.parametrize("rules", [(), ("pan",), ("email", "secret")])
@given(value=st.recursive(PARTS, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=4), one)))
def test_one_look_at_a_plain_output_finds_what_two_looks_find(rules: tuple[str, ...], value: Any) -> None:
    cleaned, applied = redact(value, rules)
    expected = (cleaned, applied, scan_unsafe(cleaned, declared_text=True))
    ruled: Any = SimpleNamespace(policy_layer=SimpleNamespace(guardrails=SimpleNamespace(redaction_rules=rules)))
    keyless: Any = object()
    assert cleanse_output(ruled, keyless, value) == expected

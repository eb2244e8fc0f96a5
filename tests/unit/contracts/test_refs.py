"""Evidence references: one grammar, taken apart and put together."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from contextos.contracts import refs
from contextos.contracts.ids import sealed_schema
from contextos.contracts.refs import Ref, parse_ref
from contextos.errors import InvalidEnvelope

HEX = "a1b2c3d4e5f60718"
SHA = "sha256:" + "0f" * 32

SEALABLE = {
    "kg:order:ord_881#snapshot_kg_2026_05_03_T0930": Ref("kg", "order:ord_881", "kg_2026_05_03_T0930"),
    "kg:acme:order:ord_881#snapshot_7": Ref("kg", "acme:order:ord_881", "7"),
    f"tool:adp_payments.issue_refund:tool_{HEX}": Ref("tool", "adp_payments.issue_refund", f"tool_{HEX}"),
    "policy:POLICY_RETURNS_V1#R_HIGH": Ref("policy", "POLICY_RETURNS_V1", "R_HIGH"),
    "session:sess_42f1": Ref("session", "sess_42f1"),
    "artifact:art_1#rev:2": Ref("artifact", "art_1", "rev:2"),
    f"attachment:art_invoice_881#{SHA}": Ref("attachment", "art_invoice_881", SHA),
    "memory:mem_9": Ref("memory", "mem_9"),
}
LOOSE_ONLY = {
    "tool:adp_policy.eval:tc_119": Ref("tool", "adp_policy.eval", "tc_119"),
    "tool:adp_payments.issue_refund:tool_118": Ref("tool", "adp_payments.issue_refund", "tool_118"),
    "attachment:art_1#sha256:b2a1...": Ref("attachment", "art_1", "sha256:b2a1..."),
}
NEVER = [
    "",
    "kg",
    "kg:",
    "kg:order:ord_881",
    "kg:order:ord_881#kg_1",
    "kg:order:ord_881#snapshot_",
    "kg:order#snapshot_1",
    "kg:a:b:c:d#snapshot_1",
    "kg:a:b#snapshot_1#snapshot_2",
    "KG:a:b#snapshot_1",
    "tool:a.b",
    "tool:a:tool_1",
    "tool:a.b:118",
    "tool:a.b:pol_1",
    "policy:R_A#R_B",
    "policy:POLICY_A#GATE_B",
    "policy:POLICY_A",
    "session:",
    "session:a b",
    "artifact:a",
    "artifact:#r",
    "artifact:a#",
    "artifact:a#b#c",
    "attachment:a#b2a1",
    "attachment:a#md5:00",
    "memory:",
    "memory:a\n",
    " memory:a",
    "rule:R_A",
    "https://x/y",
    "memory:" + "x" * 129,
    "\u212ag:a:b#snapshot_1",
]


@pytest.mark.parametrize(("text", "ref"), SEALABLE.items())
def test_a_ref_comes_apart_and_together_again(text: str, ref: Ref) -> None:
    assert parse_ref(text) == parse_ref(text, sealed=True) == ref
    assert str(ref) == text


@pytest.mark.parametrize(("text", "ref"), LOOSE_ONLY.items())
def test_the_forms_of_the_examples_are_read_and_never_written(text: str, ref: Ref) -> None:
    assert parse_ref(text) == ref
    with pytest.raises(InvalidEnvelope):
        parse_ref(text, sealed=True)


@pytest.mark.parametrize("text", NEVER)
def test_anything_else_is_refused_and_not_repeated(text: str) -> None:
    for sealed in (False, True):
        with pytest.raises(InvalidEnvelope, match="write it like"):
            parse_ref(text, sealed=sealed)


def test_the_type_has_the_strengths_of_the_parser() -> None:
    adapter: TypeAdapter[str] = TypeAdapter(refs.EvidenceRef)
    sealed = SchemaValidator(sealed_schema(adapter.core_schema))
    for text in SEALABLE:
        assert sealed.validate_python(text) == text
    for text in LOOSE_ONLY:
        assert adapter.validate_python(text) == text
        with pytest.raises(ValidationError):
            sealed.validate_python(text)
    for text in NEVER:
        with pytest.raises(ValidationError):
            adapter.validate_python(text)


def test_the_parser_reads_every_ref_that_a_maker_makes() -> None:
    assert refs.kg_ref("order:ord_881", "kg_1") == "kg:order:ord_881#snapshot_kg_1"
    assert refs.tool_ref("adp.pay", f"tool_{HEX}") == f"tool:adp.pay:tool_{HEX}"
    assert refs.policy_ref("POLICY_A", "R_B") == "policy:POLICY_A#R_B"
    assert refs.artifact_ref("a", "r") == "artifact:a#r"
    assert refs.attachment_ref("a", SHA) == f"attachment:a#{SHA}"
    assert refs.memory_ref("m") == "memory:m"


NAMES = st.text("aZ9_.:-#@ \n", max_size=8)


@given(NAMES, NAMES)
def test_a_made_ref_gives_its_parts_back_or_is_refused(subject: str, version: str) -> None:
    for maker in (refs.kg_ref, refs.artifact_ref, refs.tool_ref, refs.policy_ref, refs.attachment_ref):
        try:
            text = maker(subject, version)
        except InvalidEnvelope:
            continue
        ref = parse_ref(text)
        assert (ref.subject, ref.version) == (subject, version)
        assert str(ref) == text


@given(st.from_regex(refs.EVIDENCE.loose, fullmatch=True))
def test_every_text_of_the_grammar_makes_the_round_trip(text: str) -> None:
    if len(text) <= refs.MAX_REF_CHARS:
        assert str(parse_ref(text)) == text


@given(st.from_regex(refs.EVIDENCE.sealed, fullmatch=True))
def test_every_sealed_ref_is_also_a_loose_one(text: str) -> None:
    if len(text) <= refs.MAX_REF_CHARS:
        assert parse_ref(text, sealed=True) == parse_ref(text)
        assert ":tc_" not in text or not text.startswith("tool:")

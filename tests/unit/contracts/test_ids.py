"""Identifiers: what fits which form, loosely and sealed, and how they are derived."""

import re
from typing import Any

import jsonschema_rs
import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from contextos.contracts import ids, refs
from contextos.contracts.model import Model
from contextos.errors import MalformedJson

HEX = "a1b2c3d4e5f60718"
FORMS: dict[str, ids.Form] = {name: form for name, form in vars(ids).items() if isinstance(form, ids.Form)}
FORMS["EVIDENCE"] = refs.EVIDENCE
TYPES: dict[str, Any] = {
    name: kind
    for name, kind in vars(ids).items()
    if any(isinstance(m, ids.Form) for m in getattr(kind, "__metadata__", ()))
}
PREFIXED = {
    "run_": ids.RUN,
    "tool_": ids.TOOL_CALL,
    "pol_": ids.POLICY_DECISION,
    "rp_": ids.REPLAY_PACKET,
    "plan_": ids.PLAN,
    "route_": ids.ROUTING,
    "mwp_": ids.PROPOSAL,
}


@pytest.mark.parametrize(("prefix", "form"), PREFIXED.items())
def test_an_id_is_held_to_its_prefix_on_the_wire_and_to_sixteen_hex_when_sealed(prefix: str, form: ids.Form) -> None:
    assert form.fits(prefix + "9901")
    assert form.fits(prefix + HEX, sealed=True)
    for broken in ("9901", HEX.upper(), HEX + "0", HEX[1:], HEX + "\n", "g" * 16, "\u0661" * 16):
        assert not form.fits(prefix + broken, sealed=True)
    for broken in ("", "x y", "x\n", "\u00e9", "\x7f", "x" * 200):
        assert not form.fits(prefix + broken)
    assert not form.fits("tc_121")
    assert not form.fits("x" + prefix + HEX)


@pytest.mark.parametrize(
    ("form", "loose", "sealed", "never"),
    [
        (ids.RECORD, ["dr_2026_05_04_a17"], [f"dr_2026_05_04_{HEX}"], [f"rd_2026_05_04_{HEX}", "dr_"]),
        (
            ids.DIGEST,
            ["sha256:...", "sha256:b2a1...", "sha256:9f0b..."],
            ["sha256:" + "0f" * 32],
            ["sha256:", "sha256:b2a1", "sha512:...", "sha256:" + "0F" * 32, "sha256:" + "0f" * 32 + "...", "0f" * 32],
        ),
        (ids.SHA256, ["2f9cc0..."], ["0f" * 32], ["", "sha256:" + "0f" * 32, "0f" * 31]),
    ],
)
def test_the_loose_form_is_refused_where_the_sealed_one_belongs(
    form: ids.Form, loose: list[str], sealed: list[str], never: list[str]
) -> None:
    for value in loose:
        assert form.fits(value)
        assert not form.fits(value, sealed=True)
    for value in sealed:
        assert form.fits(value)
        assert form.fits(value, sealed=True)
    for value in never:
        assert not form.fits(value)
        assert not form.fits(value, sealed=True)


def test_a_sealed_record_id_names_a_month_and_a_day() -> None:
    for date in ("2026_13_01", "2026_00_10", "2026_01_32", "2026_1_1", "2026-01-01"):
        assert not ids.RECORD.fits(f"dr_{date}_{HEX}", sealed=True)


STRICT: list[tuple[ids.Form, list[str], list[str]]] = [
    (ids.RULE, ["R_A", "R_HIGH_VALUE_9"], ["R_", "R_a", "GATE_A", "r_A", "R_A\n", "XR_A", "R_A B"]),
    (ids.GATE, ["GATE_FINANCE_APPROVAL"], ["GATE_", "R_A", "GATE_a", "GATE_A\n", "R_GATE_a"]),
    (ids.BUNDLE, ["POLICY_RETURNS_V4"], ["POLICY_", "POLICY_v4", "POLICY_A@1.0.0"]),
    (
        ids.PIN,
        ["ctxpack.support@5.2.0", "a:b-c_d.e@0.0.0", "x@10.20.30"],
        [
            "x@1.2",
            "x@v1.2.3",
            "x@1.2.3-rc1",
            "x@1.2.3+b",
            "x@^1.2.3",
            "x@~1.2.3",
            "x@1.2.x",
            "x@*",
            "x@latest",
            "x@01.2.3",
            "x@1.02.3",
            "@1.2.3",
            "x@1.2.3 ",
            " x@1.2.3",
            "x@1.2.3\n",
            "x@@1.2.3",
            "x@1.2.\u0663",
            "x",
            "a/b@1.2.3",
        ],
    ),
    (
        ids.CEID,
        ["order:ord_881", "acme:order:ord-8.81"],
        ["order", "order:", ":x", "a:b:c:d", "a::b", "a:b c", "a:b#c", "a:b\n"],
    ),
    (
        ids.IDEMPOTENCY_KEY,
        ["ik_2x9k4j7m1q8w0p3z"],
        ["ik_2x9k4j7m1q8w0p3", "ik_2X9K4J7M1Q8W0P3Z", "ik_2x9k4j7m1q8w0p3z\n", "2x9k4j7m1q8w0p3z"],
    ),
    (
        ids.AGENT_URN,
        ["agent:contextos/support-refund@1.2.0"],
        [
            "urn:agent:a/b@1.2.0",
            "agent:a@1.2.0",
            "agent:/b@1.2.0",
            "agent:a/@1.2.0",
            "agent:a/b@1.2",
            "agent:a/b@1.2.0-rc1",
            "agent:a/b/c@1.2.0",
            "agent:a/../b@1.2.0",
            "agent:a/b",
            "agent:a/b@1.2.0\n",
        ],
    ),
    (
        ids.TRACE,
        ["4bf92f3577b34da6a3ce929d0e0e4736", "1" * 32, "0" * 31 + "1", "a" + "0" * 31],
        ["0" * 32, "4BF92F3577B34DA6A3CE929D0E0E4736", "1" * 31, "1" * 33, "1" * 32 + "\n", "\u0661" * 32],
    ),
    (ids.SPAN, ["00f067aa0ba902b7", "1" * 16], ["0" * 16, "00F067AA0BA902B7", "1" * 15, "1" * 16 + "\n"]),
    (
        ids.TENANT,
        ["tenant_acme_prod", "a", "a.b:c-d_9", "x" * 128],
        ["", "x" * 129, "a b", "a/b", "a\n", "\u00e9", "../x"],
    ),
    (ids.REQUEST, ["req_9f3a12"], ["", "a b", "a\x00"]),
    (ids.SESSION, ["sess_42f1"], ["", "a\tb", "<s>"]),
    (ids.CAPABILITY, ["adp_payments.issue_refund", "a.b.c"], ["a", "a.", ".a", "a..b", "a.b\n", "a-b.c", "a.b:c"]),
    (
        ids.TIMESTAMP,
        ["2026-05-04T09:31:30Z", "2024-02-29T00:00:00.5Z", "2026-05-04T09:31:30.123456789Z"],
        [
            "2026-05-04T09:31:30",
            "2026-05-04T09:31:30+00:00",
            "2026-05-04 09:31:30Z",
            "2026-05-04T09:31:30z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-05-04T24:00:00Z",
            "2026-05-04T09:60:00Z",
            "2026-05-04T09:31:30.Z",
            "0000-01-01T00:00:00Z",
            "2026-05-04T09:31:30Z\n",
            "2026-05-04",
        ],
    ),
    (
        ids.SPIFFE,
        [
            "spiffe://contextos/agents/support",
            "spiffe://td",
            "spiffe://a.b_c-9/x/Y.z/...",
            "spiffe://td/.a/..b",
            "spiffe://" + "a" * 255,
        ],
        [
            "spiffe://",
            "spiffe:///a",
            "spiffe://td/",
            "spiffe://td//a",
            "spiffe://td/a/",
            "spiffe://td/.",
            "spiffe://td/..",
            "spiffe://td/a/../b",
            "spiffe://td/./b",
            "spiffe://TD/a",
            "SPIFFE://td/a",
            "spiffe://td:80/a",
            "spiffe://u@td/a",
            "spiffe://td/a?q",
            "spiffe://td/a#f",
            "spiffe://td/%41",
            "spiffe://t%64/a",
            "http://td/a",
            "spiffe://td/a\n",
            "spiffe://" + "a" * 256,
            "spiffe://td/" + "a" * 2048,
            "spiffe://td/\u00e9",
        ],
    ),
]


@pytest.mark.parametrize(("form", "good", "bad"), STRICT, ids=lambda part: getattr(part, "title", ""))
def test_a_form_of_one_strength_is_the_same_on_the_wire_and_sealed(
    form: ids.Form, good: list[str], bad: list[str]
) -> None:
    for sealed in (False, True):
        assert [value for value in good if not form.fits(value, sealed=sealed)] == []
        assert [value for value in bad if form.fits(value, sealed=sealed)] == []


def test_a_spiffe_id_of_2048_characters_is_supported() -> None:
    value = "spiffe://td/" + "a" * 2036
    assert len(value) == ids.MAX_SPIFFE_CHARS
    assert ids.SPIFFE.fits(value)


@pytest.mark.parametrize("name", FORMS)
def test_every_example_fits_its_own_form(name: str) -> None:
    form = FORMS[name]
    assert form.fits(form.example)
    if name not in ("RECORD", "EVIDENCE"):
        assert form.fits(form.example, sealed=True)


@given(st.sampled_from(sorted(FORMS)), st.text(max_size=30), st.booleans())
def test_a_sealed_id_is_also_a_loose_one_and_no_id_has_space_or_control_characters(
    name: str, tail: str, sealed: bool
) -> None:
    form = FORMS[name]
    value = form.example[: len(form.example) // 2] + tail
    if form.fits(value, sealed=sealed):
        assert form.fits(value)
        assert value.isascii()
        assert value.isprintable()
        assert " " not in value


@pytest.mark.parametrize("name", TYPES)
def test_validation_asks_the_form_and_says_what_to_write(name: str) -> None:
    adapter = TypeAdapter(TYPES[name])
    (form,) = TYPES[name].__metadata__
    sealed = SchemaValidator(ids.sealed_schema(adapter.core_schema))
    assert adapter.validate_python(form.example) == sealed.validate_python(form.example) == form.example
    for wrong in ("~", 7, None, b"x", form.example + " "):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python("\n")
    (error,) = caught.value.errors()
    assert form.example in error["ctx"]["remedy"]


def test_every_type_has_a_form_and_every_form_a_type() -> None:
    used = [kind.__metadata__[0] for kind in TYPES.values()] + [refs.EVIDENCE]
    assert sorted(map(id, used)) == sorted(map(id, FORMS.values()))


class Call(Model):
    tool_call_id: ids.ToolCallId
    rule_id: ids.RuleId | None = None
    at: ids.Timestamp | None = None


def test_one_model_is_loose_from_the_wire_and_strict_when_sealed() -> None:
    loose = Call(tool_call_id="tool_118")
    with pytest.raises(ValidationError):
        loose.sealed()
    assert Call(tool_call_id="tool_" + HEX).sealed().tool_call_id == "tool_" + HEX


def test_a_gate_is_never_in_the_place_of_a_rule() -> None:
    with pytest.raises(ValidationError):
        Call(tool_call_id="tool_118", rule_id="GATE_FINANCE_APPROVAL")


@pytest.mark.parametrize("name", TYPES)
def test_the_published_pattern_agrees_with_validation(name: str) -> None:
    (form,) = TYPES[name].__metadata__
    schema = TypeAdapter(TYPES[name]).json_schema()
    assert schema["description"]
    valid = jsonschema_rs.validator_for(schema).is_valid
    samples = {form.example, form.example + " ", form.example + "\u0661", "", "0" * 32, "0" * 16, "x" * 3000}
    for one, good, bad in STRICT:
        if one is form and form is not ids.TIMESTAMP:  # a pattern knows no calendar
            samples |= {*good, *bad}
    assert [value for value in samples if valid(value) != form.fits(value)] == []


@pytest.mark.parametrize("name", FORMS)
def test_every_pattern_runs_in_a_linear_engine_with_the_same_answer(name: str) -> None:
    form = FORMS[name]
    for pattern in (form.loose, form.sealed):
        linear = re2.compile(pattern).fullmatch
        for value in (form.example, form.example + "x", form.example[1:], form.example + "\n", ""):
            assert bool(linear(value)) == bool(re.fullmatch(pattern, value))


def test_derived_ids_are_the_same_for_ever() -> None:
    assert ids.derive("tool_", "run_a1b2c3d4e5f60718", "tool_call", 1) == "tool_b5be5dd2089d81a5"


@given(
    st.lists(
        st.tuples(
            st.text('ab,"', max_size=4), st.text('ab,"', max_size=4), st.integers(0, 3) | st.text("0123", max_size=2)
        ),
        min_size=2,
        max_size=2,
        unique=True,
    )
)
def test_different_things_get_different_ids(pair: list[tuple[str, str, int | str]]) -> None:
    one, other = (ids.derive("tool_", *thing) for thing in pair)
    assert one != other
    assert ids.TOOL_CALL.fits(one, sealed=True)


ACT: dict[str, Any] = {
    "tenant_id": "tenant_a",
    "scope": "run_1",
    "capability_id": "adp.pay",
    "args": {"order": "o1", "amount": 5},
    "occurrence": 0,
}


def test_an_idempotency_key_is_the_same_for_ever_and_ignores_a_key_among_the_arguments() -> None:
    key = ids.idempotency_key(**ACT)
    assert key == "ik_jtvexiz2ozjm1pse"
    assert ids.IDEMPOTENCY_KEY.fits(key)
    reordered = {"amount": 5.0, "idempotency_key": "ik_0000000000000000", "order": "o1"}
    assert ids.idempotency_key(**ACT | {"args": reordered}) == key


@pytest.mark.parametrize(
    "change",
    [
        {"tenant_id": "tenant_b"},
        {"scope": "run_2"},
        {"capability_id": "adp.refund"},
        {"args": {"order": "o1"}},
        {"occurrence": 1},
        {"args": {"order": "o1", "amount": 5, "nested": {"idempotency_key": "x"}}},
    ],
)
def test_another_act_gets_another_key(change: dict[str, Any]) -> None:
    assert ids.idempotency_key(**ACT | change) != ids.idempotency_key(**ACT)


def test_arguments_that_have_no_canonical_form_get_no_key() -> None:
    with pytest.raises(MalformedJson):
        ids.idempotency_key(**ACT | {"args": {"amount": float("nan")}})

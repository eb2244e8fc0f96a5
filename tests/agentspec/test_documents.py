"""Documents from outside: JSON or YAML, bounded, and read as JSON's data model alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contextos.context.slots.oas import declared_slots, slot_of
from contextos.contracts.encoding.codec import MAX_DEPTH, MAX_NODES
from contextos.contracts.encoding.yaml_text import read_document, write_yaml
from contextos.errors import InvalidInput, MalformedJson
from contextos_agentspec.package import lint_package
from contextos_agentspec.wiring import lint_wiring
from tests.agentspec.planted import EXAMPLE, good

VOICE = Path(__file__).parent / "good" / "voice_writer" / "cinatra" / "oas.yaml"

TEXT = st.text(alphabet="abcynxoe019_.:+-=<~ '\"\n{}", max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
)


@given(JSON)
def test_output_of_the_yaml_writer_is_read_back_unchanged(value: object) -> None:
    assert read_document(write_yaml({"value": value}).encode()) == {"value": value}


def test_the_yaml_example_is_read_as_its_own_reader_reads_it() -> None:
    raw = VOICE.read_bytes()
    assert read_document(raw) == yaml.safe_load(raw)


BILLION = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (BILLION.encode(), "alias"),
        (b"a: !!python/object/apply:os.system [ls]\n", "tag"),
        (b"a: 1\na: 2\n", "duplicate_key"),
        (b"true: 1\n", "not_text"),
        (b"? [a]\n: 1\n", "not_text"),
        (b"at: 2026-01-01\n", "ambiguous"),
        (b"at: .inf\n", "number_not_finite"),
        (b"at: 0x_\n", "ambiguous"),
        (b"at: 99999999999999999999\n", "integer_too_large"),
        (b"a: " + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "too_deep"),
        (b"a: [" + b"1," * 100_001 + b"]", "too_many_nodes"),
        (b"a: " + b"x" * (1 << 20), "too_large"),
        (b"a: [\n", "syntax"),
        (b"a: 1\n---\nb: 2\n", "syntax"),
        (b"\xff\xfe\x00", "not_utf8"),
        (b"a: \x00\n", "syntax"),
        (b'{"a": 1, "a": 2}', "duplicate_key"),
        (b'{"a": ', "syntax"),
    ],
)
@pytest.mark.requirement("W-READ")
def test_a_hostile_document_is_refused_with_the_reason(raw: bytes, code: str) -> None:
    with pytest.raises(MalformedJson) as refused:
        read_document(raw)
    assert refused.value.problems[0].code == code


def test_a_value_beyond_the_limits_is_refused_wherever_it_comes_from() -> None:
    endless: list[object] = []
    endless.append(endless)
    deep: object = {}
    for _ in range(100_000):
        deep = [deep]
    wide = {"component_type": "Flow", "nodes": [{}] * MAX_NODES}
    found = [lint_wiring({"component_type": "Flow", "x": one}) for one in (endless, deep)] + [lint_wiring(wide)]
    assert [[one.code for one in each] for each in found] == [["too_deep"], ["too_deep"], ["too_many_nodes"]]


@given(JSON)
def test_the_lint_handles_every_document_that_the_reader_accepts(value: object) -> None:
    nested = json.loads("[" * (MAX_DEPTH - 4) + json.dumps(value) + "]" * (MAX_DEPTH - 4))
    try:
        read = read_document(json.dumps({"component_type": "Agent", "x": nested}).encode())
    except MalformedJson:
        return
    assert lint_wiring(read) == ()


def test_an_empty_document_is_read_as_nothing() -> None:
    assert read_document(b"") is None
    assert read_document(b"# only a comment\n") is None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        value = read_document(raw)
    except MalformedJson:
        return
    assert json.loads(json.dumps(value)) == value


KEYS = st.sampled_from(
    [
        "metadata",
        "cinatra",
        "contextSlots",
        "slotId",
        "component_type",
        "nodes",
        "id",
        "subflow",
        "$component_ref",
        "$referenced_components",
        "inputs",
        "title",
        "json_schema",
        "default",
        "start_node",
        "tool",
        "name",
        "data_flow_connections",
        "source_node",
        "destination_input",
        "agentDependencies",
        "packageName",
    ]
)
LEAVES = st.sampled_from(["Flow", "FlowNode", "a", "slotId", "contextSlotBindings", "context_resolve", 1, None, ""])
FOREIGN = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6), max_leaves=40
)


@given(FOREIGN, FOREIGN)
@pytest.mark.requirement("W-READ")
def test_no_foreign_document_raises(document: object, package: object) -> None:
    declared_slots(document)
    assert isinstance(lint_wiring(document), tuple)
    assert isinstance(lint_package(document, package), tuple)


@given(st.data())
@pytest.mark.requirement("W-READ")
def test_no_change_of_the_example_raises(data: st.DataObject) -> None:
    document, package = good()
    for _ in range(data.draw(st.integers(1, 4))):
        inside: object = document
        while True:
            keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            key = data.draw(st.sampled_from(keys))
            below = inside[key]
            if not isinstance(below, dict | list) or not below or data.draw(st.booleans()):
                inside[key] = data.draw(FOREIGN)
                break
            inside = below
    for problem in (*lint_wiring(document), *lint_package(document, package)):
        assert problem.code
        assert problem.detail


def test_a_flow_that_runs_itself_is_read_to_an_end() -> None:
    document, _ = good()
    drafts = document["$referenced_components"]["drafts"]
    drafts["subflow"] = {"$component_ref": "drafts"}
    assert isinstance(lint_wiring(document), tuple)
    del drafts["inputs"]
    assert isinstance(lint_wiring(document), tuple)
    flow = document["$referenced_components"]["drafts-flow"]
    flow["nodes"] = [{"$component_ref": "drafts"}]
    drafts["subflow"] = {"$component_ref": "drafts-flow"}
    assert isinstance(lint_wiring(document), tuple)


@pytest.mark.requirement("W-READ")
def test_a_slot_is_found_by_its_id_and_a_missing_one_is_named() -> None:
    document, _ = good()
    assert slot_of(document, "offeringContext").max_items == 5
    with pytest.raises(InvalidInput, match="no slot `voiceContext`; the agent declares `offeringContext`"):
        slot_of(document, "voiceContext")


@pytest.mark.requirement("W-READ")
def test_a_slot_declared_twice_is_refused_and_not_guessed() -> None:
    document, _ = good()
    slots = document["metadata"]["cinatra"]["contextSlots"]
    slots.append({**slots[0], "maxItems": 1})
    with pytest.raises(InvalidInput, match="declared twice"):
        slot_of(document, "offeringContext")


@pytest.mark.requirement("W-READ")
def test_a_slot_that_does_not_hold_is_not_given() -> None:
    document, _ = good()
    document["metadata"]["cinatra"]["contextSlots"][0]["maxItems"] = 0
    with pytest.raises(InvalidInput, match="slot `offeringContext`"):
        slot_of(document, "offeringContext")


def test_an_agent_that_is_no_flow_and_declares_no_slot_is_fine() -> None:
    assert lint_wiring({"component_type": "Agent"}) == ()


def test_a_document_without_slots_is_fine() -> None:
    assert declared_slots({"component_type": "Agent"}).slots == ()
    assert declared_slots(json.loads((EXAMPLE / "package.json").read_text())).problems == ()
    assert declared_slots([1]).problems == ()

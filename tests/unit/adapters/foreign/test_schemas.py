"""Schemas of operations: within the profile, never looser than the document for arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextos.action.schema_profile import profile
from contextos.adapters.openapi.operations import RefusedOperation
from tests.openapi_documents import OK, accepts, document, post, read_one, usable


def arguments(schema: Any, schemas: dict[str, Any] | None = None, version: str = "3.1.0") -> dict[str, Any]:
    return usable(document(post(schema), schemas, version=version)).arguments.schema


def takes(schema: Any, value: Any, schemas: dict[str, Any] | None = None, version: str = "3.1.0") -> bool:
    return accepts(arguments(schema, schemas, version), {"body": value})


NAME = {"type": "object", "properties": {"name": {"type": "string"}}}
CAT = {"type": "object", "properties": {"kind": {"type": "string"}, "lives": {"type": "integer"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"type": "string"}, "tail": {"type": "boolean"}}, "required": ["kind"]}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (NAME, {"name": "a"}, {"name": "a", "admin": True}),
        ({**NAME, "additionalProperties": True}, {"more": 1}, {"name": 1}),
        ({"type": "object"}, {"anything": 1}, []),
        ({"properties": {"a": {}}}, {"a": 1}, "text"),
        ({"type": "object", "properties": {"in": NAME}}, {"in": {"name": "a"}}, {"in": {"x": 1}}),
        ({"type": "array", "items": NAME}, [{"name": "a"}], [{"x": 1}]),
        ({"allOf": [NAME, {"properties": {"b": {}}}]}, {"name": "a", "b": 1}, {"c": 1}),
        ({"allOf": [NAME]}, {"name": "a"}, {"c": 1}),
        ({**NAME, "anyOf": [{"required": ["name"]}]}, {"name": "a"}, {"name": "a", "b": 1}),
        ({"anyOf": [NAME, {"type": "string"}]}, "text", {"b": 1}),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, {"free": 1}, 5),
        ({"type": "integer", "format": "int32"}, 5, 2**31),
        ({"type": "integer", "maximum": 2**63 - 1, "minimum": -(2**63)}, 5, 1.5),
        ({"type": "string", "format": "date"}, "2024-01-01", "soon"),
        ({"type": "string", "format": "uuid-like"}, "any", 5),
        ({"const": "a"}, "a", "b"),
        ({"type": "object", "properties": {"a": {"readOnly": True}, "b": {}}, "required": ["a"]}, {"b": 1}, {"a": 1}),
        ({"type": "object", "patternProperties": {"^x-": {"type": "string"}}}, {"x-a": "b"}, {"y": "b"}),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, ["a"], [1]),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}, **NAME}, {"name": "a"}, {"b": 1}),
        ({"not": {"type": "string"}}, 5, "a"),
        ({"$ref": "#/components/schemas/Name"}, {"name": "a"}, {"x": 1}),
        ({"$ref": "#/components/schemas/Name", "required": ["name"]}, {"name": "a"}, {}),
        ({"$ref": "#/components/schemas/Name", "properties": {"b": {}}}, {"name": "a", "b": 1}, {"c": 1}),
    ],
)
def test_arguments_are_what_the_document_says_and_closed(schema: Any, good: Any, bad: Any) -> None:
    assert takes(schema, good, {"Name": NAME})
    assert not takes(schema, bad, {"Name": NAME})


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "nullable": True}, None, 5),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 2, 1),
        ({"type": "integer", "maximum": 9, "exclusiveMaximum": True}, 8, 9),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": False}, 1, 0),
        ({"type": "string", "nullable": True, "enum": ["a"]}, "a", None),
        ({"$ref": "#/components/schemas/Name", "additionalProperties": True}, {"name": "a"}, {"x": 1}),
    ],
)
def test_schemas_of_version_3_0_are_converted(schema: Any, good: Any, bad: Any) -> None:
    assert takes(schema, good, {"Name": NAME}, "3.0.3")
    assert not takes(schema, bad, {"Name": NAME}, "3.0.3")


@pytest.mark.parametrize("mapping", [{}, {"feline": "#/components/schemas/Cat", "canine": "Dog"}])
def test_a_discriminator_decides_which_branch_counts(mapping: dict[str, str]) -> None:
    refs = [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}]
    schema = {"oneOf": refs, "discriminator": {"propertyName": "kind", "mapping": mapping}}
    cat, dog = ("feline", "canine") if mapping else ("Cat", "Dog")
    schemas = {"Cat": CAT, "Dog": DOG}
    assert takes(schema, {"kind": cat}, schemas)
    assert takes(schema, {"kind": cat, "lives": 9}, schemas)
    assert not takes(schema, {"kind": cat, "tail": True}, schemas)
    assert not takes(schema, {"kind": dog, "lives": 9}, schemas)
    assert not takes(schema, {"lives": 9}, schemas)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "string", "pattern": "(?=a)b"}, "linear"),
        ({"type": "file"}, "not one of JSON"),
        ({"$dynamicRef": "#x"}, "not supported"),
        ({"$id": "https://x.example", "items": {"$ref": "#/x"}}, "not supported"),
        ({"id": "https://x.example", "items": {"$ref": "#/x"}}, "not supported"),
        ({"$ref": "https://x.example/s.json"}, "leads out"),
        ({"$ref": "#/components/schemas/None"}, "leads to nothing"),
        ({"type": "integer", "minimum": 2**60}, "beyond"),
        ({"type": "string", "minLength": -1}, "not valid"),
        ({"type": "string", "minLength": "1"}, "not valid"),
        (
            {"type": "object", "required": ["a"], "additionalProperties": False},
            "no arguments satisfy its schema: it requires `a`, and allows no such property",
        ),
        ({"type": "object", "properties": {"a": True}, "required": True}, "not a list"),
        ({"allOf": [False]}, "no arguments"),
        ({"anyOf": []}, "not a list of schemas"),
        ({"$ref": "#/components/schemas/Loop"}, "nested deeper"),
    ],
)
def test_arguments_that_cannot_be_checked_are_refused_with_a_reason(schema: Any, says: str) -> None:
    loop = {"type": "object", "properties": {"loop": {"$ref": "#/components/schemas/Loop"}}, "required": ["loop"]}
    one = read_one(document(post(schema), {"Loop": loop}))
    assert isinstance(one, RefusedOperation)
    assert says in one.reason


def test_an_optional_part_that_cannot_be_converted_refuses_every_value_and_says_so() -> None:
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)"}, "b": {"type": "string"}}}
    one = usable(document(post(bad)))
    assert any("linear" in note for note in one.arguments.notes)
    assert accepts(one.arguments.schema, {"body": {"b": "x"}})
    assert not accepts(one.arguments.schema, {"body": {"a": "a"}})


TREE = {"type": "object", "properties": {"name": {"type": "string"}, "child": {"$ref": "#/components/schemas/Tree"}}}


def test_arguments_that_come_back_to_themselves_are_written_out_and_end() -> None:
    one = usable(document(post({"$ref": "#/components/schemas/Tree"}), {"Tree": TREE}))
    assert accepts(one.arguments.schema, {"body": {"name": "a", "child": {"name": "b", "child": {"name": "c"}}}})
    deep: dict[str, Any] = {"name": "end"}
    for _ in range(40):
        deep = {"child": deep}
    assert not accepts(one.arguments.schema, {"body": deep})
    assert "`Tree` is refused where it is nested deeper" in one.arguments.notes


def answer(schema: Any, schemas: dict[str, Any] | None = None, version: str = "3.1.0") -> Any:
    responses = {"200": {"description": "ok", "content": {"application/json": {"schema": schema}}}}
    paths = {"/get": {"get": {"operationId": "get", "responses": responses}}}
    return usable(document(paths, schemas, version=version)).output


def test_answers_stay_open_and_what_cannot_be_checked_is_said() -> None:
    made = answer({"$ref": "#/components/schemas/Tree"}, {"Tree": TREE})
    assert accepts(made.schema, {"status": 200, "body": {"name": "a", "new_field": 1}})
    assert not accepts(made.schema, {"status": 200, "body": {"name": 5}})
    assert not accepts(made.schema, {"status": 201, "body": {"name": "a"}})
    assert not accepts(made.schema, {"status": 200})
    assert made.notes == ("`Tree` is not checked where it is nested deeper",)


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ({"type": "string", "format": "uri"}, "no uri {template}"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, 5),
        ({"type": "string", "pattern": "(?=a)b"}, "x"),
        ({"type": "object", "properties": {"a": {"writeOnly": True}}, "required": ["a"]}, {}),
    ],
)
def test_answers_are_not_refused_for_what_documents_only_hint_at(schema: Any, body: Any) -> None:
    assert accepts(answer(schema).schema, {"status": 200, "body": body})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "nullable": True, "enum": ["a"]},
        {"nullable": True, "allOf": [{"$ref": "#/components/schemas/Name"}]},
    ],
)
def test_answers_of_version_3_0_can_be_null_where_they_say_so(schema: Any) -> None:
    assert accepts(answer(schema, {"Name": NAME}, "3.0.3").schema, {"status": 200, "body": None})


def test_a_wide_schema_is_cut_to_what_fits() -> None:
    schemas: dict[str, Any] = {
        f"L{level}": {
            "type": "object",
            "properties": {f"p{n}": {"$ref": f"#/components/schemas/L{level + 1}"} for n in range(20)},
        }
        for level in range(4)
    } | {"L4": {"type": "string"}}
    made = answer({"$ref": "#/components/schemas/L0"}, schemas)
    profile(made.schema, "output")
    assert made.notes
    assert accepts(made.schema, {"status": 200, "body": {"p1": {"p2": {}}}})
    assert not accepts(made.schema, {"status": 200, "body": {"p1": 5}})


def test_two_schemas_of_one_name_stay_apart() -> None:
    raw = document(
        post({"$ref": "#/components/schemas/A"}), {"A": {"type": "object", "properties": {"x": {"$ref": "#/x/A"}}}}
    )
    raw = raw[:-1] + b', "x": {"A": {"type": "integer"}}}'
    one = usable(raw)
    assert accepts(one.arguments.schema, {"body": {"x": 1}})
    assert not accepts(one.arguments.schema, {"body": {"x": {}}})


KEYWORDS = st.recursive(
    st.sampled_from(
        [{"type": "string"}, {"type": "integer"}, {"enum": ["a", 1]}, {"$ref": "#/components/schemas/R"}, True]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2)}
        ),
        st.builds(lambda parts: {"allOf": parts}, st.lists(inner, min_size=1, max_size=2)),
        st.builds(lambda parts: {"anyOf": parts}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=8,
)
VALUES = st.recursive(
    st.sampled_from(["a", "b", 1, None, True]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
    max_leaves=8,
)


@given(schema=KEYWORDS, recursive=KEYWORDS, values=st.lists(VALUES, min_size=1, max_size=10))
@settings(max_examples=150, deadline=None)
def test_no_value_is_accepted_that_the_document_refuses(schema: Any, recursive: Any, values: list[Any]) -> None:
    """The differential test: the document's own schema decides, read by a JSON Schema library with its references."""
    one = read_one(document(post(schema), {"R": recursive}))
    if isinstance(one, RefusedOperation):
        return
    profile(one.arguments.schema, "arguments")
    own = {"$ref": "#/components/schemas/S", "components": {"schemas": {"S": schema, "R": recursive}}}
    for value in values:
        if accepts(one.arguments.schema, {"body": value}):
            assert accepts(own, value), (schema, recursive, value)


def test_every_made_schema_is_in_the_profile() -> None:
    one = usable(
        document({"/a/{id}": {"get": {"parameters": [{"name": "id", "in": "path", "schema": {}}], "responses": OK}}})
    )
    for made in (one.arguments, one.output):
        profile(made.schema, "made")


@pytest.mark.parametrize(
    ("branches", "is_noted"),
    [
        ([{"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"b": {}}}], True),
        ([NAME, {"type": "string"}], False),
        ([{"type": "string", "maxLength": 5}, {"type": "string", "minLength": 3}], False),
        ([{"properties": {"k": {"const": one}}, "required": ["k"], "type": "object"} for one in "ab"], False),
    ],
)
def test_alternatives_that_the_server_may_not_tell_apart_are_a_note(branches: Any, is_noted: bool) -> None:
    """Closed here, a value fits one of them alone; open at the server it can fit two, and `oneOf` refuses it. What is
    not closed here, such as texts, is refused here as there.
    """
    notes = usable(document(post({"oneOf": branches}))).arguments.notes
    assert any("can fit two at the server" in one for one in notes) == is_noted


def test_a_default_that_nothing_can_use_costs_no_operation() -> None:
    """The property is required, so no value lacks it; between alternatives that overlap, nothing could fill it in."""
    of = [
        {"type": "object", "properties": {"k": {"enum": ["a", "b"], "default": "a"}, one: {}}, "required": ["k"]}
        for one in "xy"
    ]
    one = usable(document(post({"anyOf": of})))
    assert accepts(one.arguments.schema, {"body": {"k": "b"}})
    assert not accepts(one.arguments.schema, {"body": {"x": 1}})
    texts = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string", "default": ""}}]}
    needed = {"type": "object", "properties": {"input": texts}, "required": ["input"]}
    assert accepts(usable(document(post(needed))).arguments.schema, {"body": {"input": ["a"]}})
    del of[0]["required"]
    refused = read_one(document(post({"anyOf": of})))
    assert isinstance(refused, RefusedOperation)
    assert "has a default at `/properties/body/anyOf/0/properties/k` that nothing can fill in" in refused.reason


def test_alternatives_within_alternatives_are_looked_at_once() -> None:
    """A look that is made twice for each of two alternatives takes four times as long with each level."""
    deep: Any = {"not": {}}
    for _ in range(7):
        deep = {"anyOf": [deep, deep]}
    wide: Any = {"anyOf": [{"$ref": "#/components/schemas/R1"}] * 2}
    parts = {f"R{at}": {"anyOf": [{"$ref": f"#/components/schemas/R{at + 1}"}] * 2} for at in range(1, 11)}
    for one, named in ((deep, {}), (wide, {**parts, "R11": {"not": {}}})):
        assert isinstance(read_one(document(post(one), named)), RefusedOperation)

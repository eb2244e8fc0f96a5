"""What a call becomes in the Messages protocol: turns that the API takes, and a schema where the API can hold to it."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.models.anthropic_request import MAX_OPTIONAL, MAX_UNIONS, fits_output_format, messages_request
from contextos.contracts.ports.models import ModelCall, ModelMessage, ModelTool, ProposedCall
from contextos.errors import InvalidInput
from tests.messages_words import fault_of
from tests.model_servers import Asked, ModelServer, model_call

HEADERS = {"anthropic-version": "2026-10-21", "content-type": "application/json"}


def a_call(**changes: Any) -> ModelCall:
    return model_call(ModelServer(port=1), "anthropic", **changes)


def body_of(call: ModelCall) -> Any:
    body = messages_request(call).body
    assert fault_of(Asked("/v1/messages", HEADERS, body)) is None
    return body


def test_a_conversation_becomes_turns_that_alternate_with_results_first() -> None:
    made = (ProposedCall("plan/1.0#a", "crm.read", {"id": 1}), ProposedCall("toolu_02", "gone.tool", {}))
    body = body_of(
        a_call(
            messages=(
                ModelMessage("system", "Be short."),
                ModelMessage("user", "One."),
                ModelMessage("user", " "),
                ModelMessage("user", "Two."),
                ModelMessage("assistant", "I look."),
                ModelMessage("assistant", calls=made),
                ModelMessage("system", "Be kind."),
                ModelMessage("user", "Quick!"),
                ModelMessage("tool", "one", call_id="plan/1.0#a"),
                ModelMessage("tool", "", call_id="toolu_02"),
            ),
            tools=(ModelTool("crm.read", "Reads.", {"properties": {}}),),
        )
    )
    assert body["system"] == "Be short.\n\nBe kind."
    first, second, third = body["messages"]
    assert [block["text"] for block in first["content"]] == ["One.", "Two."]
    assert [block["type"] for block in second["content"]] == ["text", "tool_use", "tool_use"]
    assert [block.get("name") for block in second["content"]] == [None, "crm_read", "gone_tool"]
    ids = [block["id"] for block in second["content"][1:]]
    assert ids[1] == "toolu_02"
    assert [(block["type"], block.get("tool_use_id")) for block in third["content"]] == [
        ("tool_result", ids[0]),
        ("tool_result", "toolu_02"),
        ("text", None),
    ]


def test_the_request_states_the_limit_and_the_choice_of_tools() -> None:
    body = body_of(a_call(max_output_tokens=77, streamed=False))
    assert body == {
        "model": "model-1",
        "max_tokens": 77,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "what is the weather?"}]}],
    }
    tools = (ModelTool("a", "", {"type": "object"}),)
    body = body_of(a_call(tools=tools, tool_choice="required"))
    assert (body["stream"], body["tool_choice"]) == (True, {"type": "any"})
    assert body_of(a_call(tools=tools))["tool_choice"] == {"type": "auto"}


@pytest.mark.parametrize(
    "messages",
    [
        (),
        (ModelMessage("system", "Be short."),),
        (ModelMessage("user", "  "),),
        (ModelMessage("assistant", "Yes."), ModelMessage("user", "Why?")),
        (ModelMessage("user", "Is it late?"), ModelMessage("assistant", "It is")),
    ],
)
def test_a_conversation_that_the_protocol_does_not_have_is_refused(messages: tuple[ModelMessage, ...]) -> None:
    with pytest.raises(InvalidInput) as refused:
        messages_request(a_call(messages=messages))
    assert refused.value.problems[0].code == "bad_conversation"


def test_parameters_are_sent_as_stated_and_none_replaces_what_the_call_states() -> None:
    body = messages_request(a_call(profile={"parameters": {"temperature": 0, "effort": "low"}})).body
    assert (body["temperature"], body["output_config"]) == (0, {"effort": "low"})
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    body = messages_request(a_call(profile={"parameters": {"effort": "low"}}, output_schema=schema)).body
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": schema}}
    for name in ("max_tokens", "stream", "reasoning_effort"):
        with pytest.raises(InvalidInput) as refused:
            messages_request(a_call(profile={"parameters": {name: 100_000}}))
        assert refused.value.problems[0].pointer == f"/parameters/{name}"


def test_an_answer_that_is_not_an_object_can_only_be_asked_for_in_the_output_format() -> None:
    assert "output_config" in messages_request(a_call(output_schema={"enum": ["yes", "no"]})).body
    with pytest.raises(InvalidInput) as refused:
        messages_request(a_call(output_schema={"type": "array", "items": {"type": "integer", "maximum": 3}}))
    assert refused.value.problems[0].code == "schema_not_expressible"


def an_object(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    listed = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": listed, "additionalProperties": False, **more}


TEXT = {"type": "string"}
FITS: list[dict[str, Any]] = [
    an_object({}),
    an_object({"a": TEXT, "b": {"type": "string", "format": "date"}, "c": {"type": ["integer", "null"]}}, ["a"]),
    an_object({"a": {"anyOf": [TEXT, {"const": 1}]}, "b": {"enum": ["x", 1, None]}}),
    an_object({"a": {"type": "array", "items": TEXT, "minItems": 1}}),
    an_object({"a": {"$ref": "#/$defs/one"}}, **{"$defs": {"one": an_object({"b": TEXT})}}),
    an_object({str(number): TEXT for number in range(MAX_OPTIONAL)}, []),
    an_object({str(number): {"anyOf": [TEXT]} for number in range(MAX_UNIONS)}),
]
DOES_NOT_FIT: list[Any] = [
    {},
    {"type": "object", "properties": {}},
    an_object({"a": {}}),
    an_object({"a": True}),
    an_object({"a": {"type": "integer", "minimum": 0}}),
    an_object({"a": {"type": "string", "pattern": "^a"}}),
    an_object({"a": {"type": "string", "format": "phone"}}),
    an_object({"a": {"type": "array", "items": TEXT, "minItems": 2}}),
    an_object({"a": {"type": "array", "items": {"type": "string", "maxLength": 3}}}),
    an_object({"a": {"allOf": [TEXT]}}),
    an_object({"a": {"enum": [{"b": 1}]}}),
    an_object({"a": {"const": [1]}}),
    an_object({"a": {"$ref": "https://example.com/schema"}}),
    an_object({"a": {"$ref": "#/$defs/missing"}}),
    an_object({"a": {"$ref": "#"}}),
    an_object({"a": {"$ref": "#/$defs/one"}}, **{"$defs": {"one": {"$ref": "#/$defs/one"}}}),
    an_object({"a": {"$ref": "#/$defs/one"}}, **{"$defs": {"one": {"type": "string", "minLength": 1}}}),
    an_object({str(number): TEXT for number in range(MAX_OPTIONAL + 1)}, []),
    an_object({str(number): {"anyOf": [TEXT]} for number in range(MAX_UNIONS + 1)}),
]


@pytest.mark.parametrize("schema", FITS)
def test_a_schema_in_the_subset_fits(schema: dict[str, Any]) -> None:
    assert fits_output_format(schema)


@pytest.mark.parametrize("schema", DOES_NOT_FIT)
def test_any_other_schema_does_not_fit(schema: Any) -> None:
    assert not fits_output_format(schema)


def test_references_that_double_at_each_step_are_not_followed_to_their_end() -> None:
    steps = {
        f"s{n}": an_object({"a": {"$ref": f"#/$defs/s{n + 1}"}, "b": {"$ref": f"#/$defs/s{n + 1}"}}) for n in range(30)
    }
    assert not fits_output_format(an_object({"a": {"$ref": "#/$defs/s0"}}, **{"$defs": {**steps, "s30": TEXT}}))

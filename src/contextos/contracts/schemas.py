"""The published JSON Schemas (2020-12), generated from the models: closed objects, in the wire form.

A field is described by the docstring below it. Only `field_descriptions` reads these docstrings, from the source of the
model, so that an import of the models costs nothing more.
Some rules are beyond JSON Schema, so only the models check them: an integer spelled `1.0`, a date that does not exist,
an amount with more than four decimals.
Source: Runtime API Schemas, "Published schemas"; docs/design/contracts.md, "Wire and hashing".
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from functools import cache
from itertools import pairwise
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.models import ModelProfile, RoutingRules
from contextos.contracts.envelopes.pack import ContextPack, DecisionCatalog, IntentCatalog, PolicyArtifact
from contextos.contracts.envelopes.plan import Plan
from contextos.contracts.envelopes.record import DecisionOutput, DecisionRecord, ReplayPacket
from contextos.contracts.envelopes.run import InvokeRequest, RunContext
from contextos.contracts.envelopes.slots import AgentContextSlot
from contextos.contracts.envelopes.tool import ToolCallEnvelope, ToolResultEnvelope
from contextos.contracts.model import Model
from contextos.errors import InvalidInput, Problem

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

PUBLISHED: Final[dict[str, tuple[str, tuple[type[Model], ...]]]] = {
    "run-context.v1": ("RunContext", (RunContext,)),
    "invoke-agent.v1": ("invokeAgent", (InvokeRequest,)),
    "context-pack.v2": ("ContextPack", (ContextPack,)),
    "compiled-context.v1": ("CompiledContext", (CompiledContext,)),
    "tool-envelope.v1": ("ToolEnvelope", (ToolCallEnvelope, ToolResultEnvelope)),
    "decision-record.v1": ("DecisionRecord", (DecisionRecord,)),
    "decision-output.v1": ("DecisionOutput", (DecisionOutput,)),
    "replay-packet.v1": ("ReplayPacket", (ReplayPacket,)),
    "plan.v1": ("Plan", (Plan,)),
    "intent-catalog.v1": ("IntentCatalog", (IntentCatalog,)),
    "decision-catalog.v1": ("DecisionCatalog", (DecisionCatalog,)),
    "policy-bundle.v1": ("PolicyBundle", (PolicyArtifact,)),
    "model-profile.v1": ("ModelProfile", (ModelProfile,)),
    "routing-rules.v1": ("RoutingRules", (RoutingRules,)),
    "context-slot.v1": ("AgentContextSlot", (AgentContextSlot,)),
}
"""The title and the models of each schema, by its name; with several models a value fits exactly one of them."""


def published() -> dict[str, dict[str, Any]]:
    """Return every published schema by its name, such as `run-context.v1`."""
    return {name: _published_schema(name, title, models) for name, (title, models) in PUBLISHED.items()}


def file_name(name: str) -> str:
    """Return the last part of a schema's address, which is also its file name in `schemas/`.

    >>> file_name("run-context.v1")
    'run-context.v1.schema.json'
    """
    return f"{name}.schema.json"


def schema_text(schema: dict[str, Any]) -> str:
    """Return a schema as text: sorted keys, an indent of two spaces, and a final newline."""
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


@cache
def field_descriptions(model: type[Model]) -> dict[str, str]:
    """Return the docstrings of a model's fields, inherited ones included, each on one line, by attribute name.

    Raises:
        InvalidInput: the source of the model is not installed.
    """
    descriptions: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        if not issubclass(cls, Model) or cls is Model:
            continue
        (body,) = (
            node.body
            for node in _parse_source(cls.__module__).body
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__
        )
        for statement, next_statement in pairwise(body):
            match statement, next_statement:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    descriptions[name] = " ".join(text.split())
    return descriptions


@cache
def _parse_source(module: str) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        detail = f"the descriptions of fields are in the source of `{module}`, and only its compiled form is installed"
        remedy = "install the package with its `.py` files, or use the published schemas"
        raise InvalidInput(Problem("", "no_source", detail, remedy)) from None


class DescribedSchema(GenerateJsonSchema):
    """The schema of a model; the description of each field comes before the description of the field's type."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        schema_json = super().model_schema(schema)
        model: type[Model] = schema["cls"]
        descriptions = field_descriptions(model)
        for name, field in model.model_fields.items():
            property_schema = schema_json["properties"][field.alias or name]
            texts = (descriptions.get(name), property_schema.get("description"))
            if description := " ".join(text for text in texts if text):
                property_schema["description"] = description
        return schema_json


def _published_schema(name: str, title: str, models: tuple[type[Model], ...]) -> dict[str, Any]:
    references, generated = models_json_schema(
        [(model, "validation") for model in models], by_alias=True, schema_generator=DescribedSchema
    )
    definitions = generated["$defs"]
    alternatives = [references[model, "validation"] for model in models]
    body = definitions.pop(models[0].__name__) if len(models) == 1 else {"oneOf": alternatives}
    address = {"$schema": DIALECT, "$id": f"/schemas/{file_name(name)}"}
    schema: dict[str, Any] = address | _drop_titles(body) | {"title": title, "$defs": _drop_titles(definitions)}
    return schema


def _drop_titles(schema: Any) -> Any:
    """Return the schema without the titles that pydantic makes from names."""
    if isinstance(schema, list):
        return [_drop_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    result = {key: _drop_titles(value) for key, value in kept.items()}
    if "properties" in schema:
        result["properties"] = {key: _drop_titles(value) for key, value in schema["properties"].items()}
    return result

"""The functions of an AgentDojo suite as an adapter, on the environment of the case that runs now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from agentdojo.functions_runtime import Function, FunctionsRuntime, TaskEnvironment
from pydantic_core import to_jsonable_python

from benchmarks.agentdojo.labels import labels_of
from contextos.adapters.function.adapter import BusinessError, FunctionAdapter
from contextos.contracts.envelopes.tool import AdapterDefinition, CallContext


class SuiteTools:
    """The adapter. `environment` is the environment of the case that runs now: cases run one after the other."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self.environment: TaskEnvironment | None = None
        self._runtime = FunctionsRuntime(functions)
        self.definitions = {one.name: _capability(one) for one in functions}
        self.reads = [name for name, one in self.definitions.items() if one["kind"] == "read"]
        self.secret = [name for name, one in self.definitions.items() if one.get("secrets")]
        definition = {
            "adapter_id": "tools",
            "type": "function",
            "version": "1.0.0",
            "capabilities": list(self.definitions.values()),
        }
        calls = {one.name: partial(self._call, one.name) for one in functions}
        self.adapter = FunctionAdapter(AdapterDefinition.model_validate(definition), calls, inline=self.reads)

    def _call(self, name: str, args: Mapping[str, Any], _context: CallContext) -> dict[str, Any]:
        result, error = self._runtime.run_function(self.environment, name, args)
        if error is not None:
            raise BusinessError("refused_by_the_tool", error)
        return {"result": to_jsonable_python(result)}


def texts_of(value: Any) -> Iterator[str]:
    """Yield the texts of a JSON value, and everything else in it as text."""
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for one in value:
            yield from texts_of(one)
    else:
        yield str(value)


def _capability(function: Function) -> dict[str, Any]:
    schema = function.parameters.model_json_schema()
    shared = schema.pop("$defs", {})
    return {
        "name": function.name,
        "description": function.description,
        "input_schema": {**_inlined(schema, shared), "additionalProperties": False},
        "output_schema": {
            "type": "object",
            "properties": {"result": {}},
            "required": ["result"],
            "additionalProperties": False,
        },
        "idempotency": {"strategy": "none"},
        **labels_of(function.name, function.description, schema, function.return_type),
    }


def _inlined(schema: Any, shared: Mapping[str, Any]) -> Any:
    """A schema with each definition in the place of its reference."""
    if isinstance(schema, list):
        return [_inlined(one, shared) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    named = shared.get(str(schema.get("$ref", "")).rpartition("/")[2], {})
    return {name: _inlined(one, shared) for name, one in {**named, **schema}.items() if name != "$ref"}

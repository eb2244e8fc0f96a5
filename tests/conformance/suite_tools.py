"""The tools that the server scenarios of the conformance suite ask for, where a governed tool can be one.

Names and arguments are the suite's. `slow_compute` and `failing_job` wait for a person, so they are tasks.
"""

from typing import Annotated

from pydantic import Field

import contextos
from contextos.adapters.function.adapter import BusinessError
from contextos.contracts.envelopes.tool import AdapterDefinition

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            "additionalProperties": False,
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@contextos.read(integrity="trusted", produces="text")
def test_simple_text() -> str:
    """Return a simple text."""
    return "This is a simple text response for testing."


@contextos.read(integrity="trusted", produces="error")
def test_error_handling() -> str:
    """Return an error of the tool."""
    raise BusinessError("intended", "This tool intentionally returns an error for testing")


@contextos.read(integrity="trusted", produces="progress")
def test_tool_with_progress() -> str:
    """Return a text. A governed tool reports no progress."""
    return "done"


@contextos.read(integrity="trusted", produces="person")
def json_schema_2020_12_tool(name: str) -> str:
    """Return the name of a person."""
    return name


@contextos.read(integrity="trusted", produces="greeting")
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


@contextos.write(risk="reversible", idempotency="none")
def slow_compute(seconds: Annotated[int, Field(ge=0, le=60)], label: str) -> str:
    """Compute, when a person allowed it."""
    return f"{label} took {seconds} s"


@contextos.write(risk="reversible", idempotency="none")
def failing_job() -> str:
    """Fail, when a person allowed it."""
    raise BusinessError("intended", "this job always fails")


class SuiteTools:
    """The functions above as one adapter; the schema of one is the suite's, which no signature can say."""

    def __init__(self) -> None:
        self._functions = contextos.toolset(
            "suite",
            [
                test_simple_text,
                test_error_handling,
                test_tool_with_progress,
                json_schema_2020_12_tool,
                greet,
                slow_compute,
                failing_job,
            ],
        )
        said = self._functions.describe().to_json()
        for one in said["capabilities"]:
            if one["name"] == "json_schema_2020_12_tool":
                one["input_schema"] = SCHEMA
        self._definition = AdapterDefinition.model_validate(said)
        self.call, self.lookup, self.close = self._functions.call, self._functions.lookup, self._functions.close

    def describe(self) -> AdapterDefinition:
        return self._definition


TOOLS = SuiteTools()

"""The tools of AgentDojo's bank as a function adapter, with the labels that their descriptors carry.

The functions, their names, descriptions and arguments are AgentDojo's. What is added is what an author of tools states:
which ones write, whose answers anybody could have written, which arguments say where something goes, and which are
secret. Nothing here knows a task or an attack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from agentdojo.functions_runtime import Function, FunctionsRuntime, TaskEnvironment
from pydantic_core import to_jsonable_python

from contextos.adapters.function.adapter import BusinessError, FunctionAdapter
from contextos.contracts.envelopes.tool import AdapterDefinition, CallContext

READ: Final = {"kind": "read", "risk_level": "read", "approval_mode": "read_only", "output_integrity": "trusted"}
BY_ANYBODY: Final = {**READ, "output_integrity": "untrusted"}
WRITE: Final = {"kind": "write", "risk_level": "write_irreversible", "approval_mode": "destructive"}

LABELS: Final[Mapping[str, Mapping[str, Any]]] = {
    "get_iban": READ,
    "get_balance": READ,
    "get_user_info": READ,
    # Only the account holder writes them, with the writes below, whose every text counts as a destination.
    "get_scheduled_transactions": READ,
    # Whoever sends money writes the subject, and a bill or a letter is by its sender.
    "get_most_recent_transactions": BY_ANYBODY,
    "read_file": BY_ANYBODY,
    # What it writes is read again as untrusted, so only the recipient says where something goes.
    "send_money": {**WRITE, "destinations": ["recipient"]},
    "schedule_transaction": {**WRITE, "destinations": ["date", "recipient", "subject"]},
    "update_scheduled_transaction": {**WRITE, "destinations": ["date", "recipient", "subject"]},
    "update_user_info": WRITE,
    "update_password": {**WRITE, "secrets": ["password"]},
}


class Bank:
    """The adapter. `environment` is the environment of the case that runs now: cases run one after the other."""

    def __init__(self, functions: Sequence[Function]) -> None:
        self.environment: TaskEnvironment | None = None
        self._runtime, self.reads = FunctionsRuntime(functions), _reads(functions)
        definition = {
            "adapter_id": "bank",
            "type": "function",
            "version": "1.0.0",
            "capabilities": [_capability(one) for one in functions],
        }
        calls = {one.name: partial(self._call, one.name) for one in functions}
        self.adapter = FunctionAdapter(AdapterDefinition.model_validate(definition), calls, inline=self.reads)

    def _call(self, name: str, args: Mapping[str, Any], _context: CallContext) -> dict[str, Any]:
        result, error = self._runtime.run_function(self.environment, name, args)
        if error is not None:
            raise BusinessError("refused_by_the_bank", error)
        return {"result": to_jsonable_python(result)}

    def destinations(self, capability_id: str) -> Sequence[str] | None:
        """Return the arguments that say where a call of a write goes, by its descriptor; None: all of them."""
        name = capability_id.partition(".")[2]
        return next(one.destinations for one in self.adapter.describe().capabilities if one.name == name)


def texts_of(value: Any) -> Iterator[str]:
    """Yield the texts of a JSON value, and everything else in it as text."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from texts_of(one)
    else:
        yield str(value)


def _reads(functions: Sequence[Function]) -> list[str]:
    return [one.name for one in functions if LABELS[one.name]["kind"] == "read"]


def _capability(function: Function) -> dict[str, Any]:
    return {
        "name": function.name,
        "description": function.description,
        "input_schema": {**function.parameters.model_json_schema(), "additionalProperties": False},
        "output_schema": {
            "type": "object",
            "properties": {"result": {}},
            "required": ["result"],
            "additionalProperties": False,
        },
        "idempotency": {"strategy": "none"},
        **LABELS[function.name],
    }

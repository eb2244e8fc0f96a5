"""`ServerAdapter`: the part of an adapter of a foreign server that is the same for every protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from contextos.action.foreign_code import CALL_PASSES, ForeignFaults, ignore_fault
from contextos.adapters.foreign.replies import definition_drift
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext, CapabilityDefinition
from contextos.errors import Unavailable

OperationT = TypeVar("OperationT")


class ServerAdapter(Generic[OperationT]):
    """The definition of an adapter, and the operation by which each capability is called."""

    def __init__(self, definition: AdapterDefinition, operations: Mapping[str, OperationT]) -> None:
        self._definition, self._operations = definition, dict(operations)
        self._declared = {capability.name: capability for capability in definition.capabilities}

    def describe(self) -> AdapterDefinition:
        """Return the published definition: the same object every time."""
        return self._definition

    def _find_operation(self, capability: str) -> tuple[OperationT, CapabilityDefinition]:
        """Return the operation and the declaration of a capability. Raises `Unavailable` if there is no such one."""
        operation, declaration = self._operations.get(capability), self._declared.get(capability)
        if operation is None or declaration is None:
            raise Unavailable(self._definition.adapter_id, f"it has no capability `{capability}`")
        return operation, declaration

    def _drift(self, capability: str) -> AdapterReply:
        """Return the reply to a call of a capability whose definition is not the published one."""
        return definition_drift(f"{self._definition.adapter_id}.{capability}", self._definition.type)

    def _faults(
        self, capability: str, context: CallContext, *, is_read: bool, passing: Any = CALL_PASSES
    ) -> ForeignFaults:
        adapter_id = self._definition.adapter_id
        # No fault is reported: its text is the server's.
        return ForeignFaults(adapter_id, capability, context, ignore_fault, is_read=is_read, passing=passing)

"""All operations, by group."""

from __future__ import annotations

from typing import Final

from contextos.contracts.facts import name_remedy
from contextos.errors import NotFound
from contextos.service.operations.adapters import ADAPTER_OPERATIONS
from contextos.service.operations.audits import AUDIT_OPERATIONS
from contextos.service.operations.comparisons import COMPARISON_OPERATIONS
from contextos.service.operations.entries import ENTRY_OPERATIONS
from contextos.service.operations.facts import FACT_OPERATIONS
from contextos.service.operations.memories import MEMORY_OPERATIONS
from contextos.service.operations.models import MODEL_OPERATIONS
from contextos.service.operations.operation import Operation
from contextos.service.operations.packs import PACK_OPERATIONS
from contextos.service.operations.pins import PIN_OPERATIONS
from contextos.service.operations.policies import POLICY_OPERATIONS
from contextos.service.operations.runs import RUN_OPERATIONS
from contextos.service.operations.slots import SLOT_OPERATIONS
from contextos.service.operations.stuck import STUCK_OPERATIONS

OPERATION_TABLE: Final[tuple[Operation, ...]] = (
    *RUN_OPERATIONS,
    *SLOT_OPERATIONS,
    *AUDIT_OPERATIONS,
    *COMPARISON_OPERATIONS,
    *ENTRY_OPERATIONS,
    *STUCK_OPERATIONS,
    *PACK_OPERATIONS,
    *PIN_OPERATIONS,
    *POLICY_OPERATIONS,
    *FACT_OPERATIONS,
    *MEMORY_OPERATIONS,
    *MODEL_OPERATIONS,
    *ADAPTER_OPERATIONS,
)


def named_operation(name: str) -> Operation:
    """Return the operation with this name. Raises `NotFound` if there is none."""
    operations = {operation.name: operation for operation in OPERATION_TABLE}
    if name not in operations:
        raise NotFound(f"there is no operation `{name[:64]}`; {name_remedy(name, operations)}")
    return operations[name]

"""Keys of operations, denials and circuits: a denial holds for one definition, an operation for every one."""

from __future__ import annotations

import pytest

from contextos.contracts.documents.operations import (
    APPROVALS,
    OPERATIONS,
    ApprovalDocument,
    OperationDocument,
    OperationState,
    circuit_key,
    denial_key,
    operation_key,
)


def test_a_changed_definition_is_asked_anew_and_is_the_same_operation() -> None:
    assert denial_key("a.b", "sha256:1", "k") != denial_key("a.b", "sha256:2", "k")
    assert operation_key("a.b", "k") == "a.b/k"
    assert circuit_key("adp", "pay") == "adp.pay"


@pytest.mark.parametrize(("state", "kept"), [("claimed", False), ("released", False), ("completed", True)])
def test_an_output_is_stored_only_after_the_effect(state: OperationState, kept: bool) -> None:
    write = OPERATIONS.write("k", 0, OperationDocument("run_1", "tool_1", "sha256:f", state, {"id": 1}, ("m",)))
    assert write.body is not None
    assert (b'"output"' in write.body) is kept


def test_an_open_approval_names_no_approver() -> None:
    write = APPROVALS.write("a", 0, ApprovalDocument("a", "G", "lead", 1, "sha256:b", "run_1", "open"))
    assert write.body is not None
    assert b"approver" not in write.body

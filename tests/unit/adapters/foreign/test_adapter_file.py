"""`AdapterFile`: what a reviewed file must be."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contextos.adapters.foreign.adapter_file import ADAPTER_FILE_FORMAT, read_adapter_file
from contextos.errors import InvalidArtifact, InvalidInput

CAPABILITY: dict[str, Any] = {
    "name": "say",
    "kind": "write",
    "risk_level": "write_irreversible",
    "approval_mode": "destructive",
    "input_schema": {"type": "object", "additionalProperties": False},
    "output_schema": {"type": "object", "additionalProperties": False, "properties": {"texts": {}, "omitted": {}}},
    "idempotency": {"strategy": "none"},
}


def file(**changed: Any) -> dict[str, Any]:
    definition = {"adapter_id": "lab", "type": "mcp", "version": "1", "capabilities": [CAPABILITY]}
    return {
        "format": ADAPTER_FILE_FORMAT,
        "connection": {"kind": "mcp", "command": ["server"]},
        "definition": definition | changed.pop("definition", {}),
        "operations": {"say": {"tool": "say", "digest": "sha256:" + "0" * 64, "output": "text"}},
        **changed,
    }


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "another format": (file(format="contextos.adapter_file.v2"), "invalid_envelope"),
    "an unknown member": (file(more=1), "invalid_envelope"),
    "another kind": (file(connection={"kind": "openapi"}), "another_kind"),
    "no kind": (file(connection={}), "another_kind"),
    "no operation": (file(operations={}), "misfit"),
    "no capability": (file(operations={**file()["operations"], "other": {}}), "misfit"),
    "no endpoint": (file(definition={"external": True}), "no_egress_list"),
    "an open schema": (
        file(definition={"capabilities": [CAPABILITY | {"input_schema": {"type": "object"}}]}),
        "schema_open",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_with_a_reason(name: str) -> None:
    said, code = WRONG[name]
    with pytest.raises(InvalidInput) as error:
        read_adapter_file(json.dumps(said).encode())
    assert code in {error.value.code, error.value.problems[0].code}
    assert isinstance(error.value, InvalidArtifact) == (code == "schema_open")

"""A drafted capability is at its strictest, and a draft is a file that the reader of adapter files takes."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.foreign.adapter_file import read_adapter_file
from contextos.adapters.foreign.drafting import (
    MAX_DRAFTED_CHARS,
    TEXT_OUTPUT,
    FileDraft,
    check_drafted,
    drafted_capability,
    require_listed,
)
from contextos.adapters.mcp.definitions import McpConnection
from contextos.contracts.encoding.jcs import canonical
from contextos.errors import InvalidInput

CLOSED = {"type": "object", "additionalProperties": False}


def declared(*, reads: bool = False, leaves: bool = True, **changed: Any) -> dict[str, Any]:
    said: dict[str, Any] = {"input_schema": CLOSED, "output_schema": TEXT_OUTPUT, "description": "", **changed}
    return drafted_capability("say", reads=reads, leaves=leaves, **said)


def test_a_capability_is_a_write_that_cannot_be_undone_until_a_person_states_a_read() -> None:
    def shown(**how: bool) -> tuple[str, str, str]:
        made = declared(**how)
        return made["kind"], made["risk_level"], made["approval_mode"]

    assert shown() == shown(leaves=False) == ("write", "write_irreversible", "destructive")
    assert shown(reads=True) == ("read", "read", "network")
    assert shown(reads=True, leaves=False) == ("read", "read", "read_only")
    assert declared()["idempotency"] == {"strategy": "none"}


def test_a_description_is_bounded_and_a_schema_is_checked() -> None:
    assert len(declared(description="d" * 9_000)["description"]) == MAX_DRAFTED_CHARS
    check_drafted(declared(), {})
    with pytest.raises(InvalidInput):
        check_drafted(declared(input_schema={"type": "object"}), {})


def test_a_draft_becomes_a_file_that_can_be_read() -> None:
    draft = FileDraft(external=True)
    draft.add("say", declared(), {"tool": "say"}, "unknown")
    draft.leave_out("other", "it is broken")
    file = draft.to_file("lab", McpConnection(kind="mcp", url="https://x.example/mcp"), {"x.example:443"})
    assert read_adapter_file(canonical(file)).definition.egress == ("x.example:443",)
    assert file["connection"] == {"kind": "mcp", "url": "https://x.example/mcp"}
    assert [(row.capability, row.why) for row in draft.rows] == [("say", "unknown"), ("", "left out: it is broken")]


def test_a_draft_of_nothing_is_refused_with_the_reason_of_the_first_tool() -> None:
    draft = FileDraft(external=True)
    named = McpConnection(kind="mcp", url="https://x.example/mcp")
    with pytest.raises(InvalidInput, match="it lists none"):
        draft.to_file("lab", named, ())
    draft.leave_out("say", "it is broken")
    with pytest.raises(InvalidInput, match="it is broken"):
        draft.to_file("lab", named, ())


def test_a_read_of_what_is_not_listed_is_refused() -> None:
    require_listed(["a"], ["a", "b"], "skill")
    with pytest.raises(InvalidInput, match="no skill `c`"):
        require_listed(["c"], ["a", "b"], "skill")

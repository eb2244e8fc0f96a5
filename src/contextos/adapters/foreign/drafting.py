"""The draft of an adapter file, whatever the server: each capability at its strictest, and one row about each.

A capability is a write that cannot be undone and that a person approves, until a person states that it only reads.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.action.registry import Registry
from contextos.adapters.foreign.adapter_file import ADAPTER_FILE_FORMAT
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition
from contextos.contracts.model import Model
from contextos.errors import InvalidInput, Problem

MAX_DRAFTED_CHARS: Final = 2_000
MAX_MODEL_NAME_CHARS: Final = 64
"""How long a name is that models take: that of the adapter, two characters between, and that of the capability."""
MIN_NAME_CHARS: Final = 34
"""How long a capability's own name can be, however long that of its adapter is."""

TEXT_OUTPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["omitted", "texts"],
    "properties": {
        "texts": {"type": "array", "items": {"type": "string"}},
        "omitted": {"type": "integer", "minimum": 0, "description": "How many parts are no text."},
    },
}
"""The output of a capability whose answer is texts."""


@dataclass(frozen=True, slots=True)
class DraftRow:
    """One tool of a draft: `capability` is "" if it is left out; `why` says why it is what it is."""

    tool: str
    capability: str
    kind: str
    mode: str
    why: str


@dataclass(slots=True)
class FileDraft:
    """A draft in the making. `external`: calls leave the machine."""

    external: bool
    capabilities: dict[str, dict[str, Any]] = field(default_factory=dict)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: list[DraftRow] = field(default_factory=list)

    def add(self, tool: str, declared: dict[str, Any], operation: dict[str, Any], why: str) -> None:
        """Add the capability of a tool."""
        name = declared["name"]
        self.capabilities[name], self.operations[name] = declared, operation
        self.rows.append(DraftRow(tool, name, declared["kind"], declared["approval_mode"], why))

    def leave_out(self, tool: str, why: str) -> None:
        """Add a row about a tool that becomes no capability."""
        self.rows.append(DraftRow(tool, "", "", "", f"left out: {why}"))

    def to_file(self, name: str, connection: Model, egress: Collection[str]) -> dict[str, Any]:
        """Return the adapter file of the kind of the connection.

        Raises:
            InvalidInput: no tool can be a capability, or the name is none.
        """
        if not self.capabilities:
            why = self.rows[0].why if self.rows else "it lists none"
            raise InvalidInput(
                Problem("", "no_tools", f"no tool of the server can be used: {why}", "use another server")
            )
        said = connection.to_json()
        definition = {
            "adapter_id": name,
            "type": said["kind"],
            "version": "1",
            "external": self.external,
            "egress": sorted(egress),
            "capabilities": list(self.capabilities.values()),
        }
        parse(AdapterDefinition, definition)
        used = {member: value for member, value in said.items() if value not in ("", [], None, False)}
        return {
            "format": ADAPTER_FILE_FORMAT,
            "connection": used,
            "definition": definition,
            "operations": self.operations,
        }


def drafted_capability(
    name: str,
    *,
    reads: bool,
    leaves: bool,
    input_schema: Mapping[str, Any],
    output_schema: Mapping[str, Any],
    description: str,
) -> dict[str, Any]:
    """Return the declaration of a capability: a read where a person stated that (`reads`), else at its strictest.

    `leaves` says whether a read leaves the machine.
    """
    read_mode = "network" if leaves else "read_only"
    return {
        "name": name,
        "kind": "read" if reads else "write",
        "risk_level": "read" if reads else "write_irreversible",
        "approval_mode": read_mode if reads else "destructive",
        "input_schema": dict(input_schema),
        "output_schema": dict(output_schema),
        "idempotency": {"strategy": "none"},
        "timeout_s": 30,
        "output_integrity": "untrusted",
        "description": description[:MAX_DRAFTED_CHARS],
    }


def check_drafted(declared: Mapping[str, Any]) -> None:
    """Refuse a capability that the registry refuses. Raises `InvalidInput`."""
    capability = parse(CapabilityDefinition, dict(declared))
    Registry().register(
        (AdapterDefinition(adapter_id="draft", type="custom", version="1", capabilities=(capability,)),)
    )


def require_listed(reads: Collection[str], listed: Collection[str], what: str) -> None:
    """Raise `InvalidInput` where a person stated that something reads which the server does not list."""
    if missing := sorted(set(reads) - set(listed)):
        detail = f"the server lists no {what} `{missing[0][:80]}`"
        raise InvalidInput(Problem("", f"no_such_{what}", detail, "name one that it lists"))


def capability_name(tool: str, adapter: str, taken: Collection[str] = ()) -> str:
    """Return the name of a tool as a capability of `adapter` can have it. Where it is taken, or models take no name
    that is so long together with that of the adapter, a part of it is a digest of the whole.

    >>> capability_name("read-file", "lab"), capability_name("read.file", "lab", ["read_file"])
    ('read_file', 'read_file_ef19f3ab')
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", tool)
    room = max(MAX_MODEL_NAME_CHARS - len(adapter) - 2, MIN_NAME_CHARS)
    if len(plain) <= room and plain not in taken:
        return plain
    digest = hashlib.sha256(tool.encode(errors="replace")).hexdigest()
    sizes = (8, 16, 32)
    return next((name for size in sizes if (name := f"{plain[: room - size - 1]}_{digest[:size]}") not in taken), "")

"""Drafts an adapter file for any kind of server: each capability is as strict as possible, and has one row about it.

A capability is a write that cannot be undone and that a person approves, until a person states that it only reads.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.action.registry import Registry
from contextos.adapters.foreign.adapter_file import ADAPTER_FILE_FORMAT, refuse_hidden
from contextos.adapters.foreign.texts import Patterns
from contextos.contracts.encoding.codec import MAX_BYTES, parse
from contextos.contracts.encoding.display_escape import without_hidden
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition
from contextos.contracts.model import MAX_KEYS, Model
from contextos.errors import InvalidInput, Problem

MAX_NOTES: Final = 4
"""The most notes about the schemas of a tool that are written into its row."""
MAX_DRAFTED_CHARS: Final = 2_000
MAX_MODEL_NAME_CHARS: Final = 64
"""The most characters of a name that models take: the adapter's name, two characters, and the capability's name."""
MIN_NAME_CHARS: Final = 34
"""The characters that a capability's own name can always have, however long the adapter's name is."""

TEXT_OUTPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["omitted", "texts"],
    "properties": {
        "texts": {"type": "array", "items": {"type": "string"}},
        "omitted": {"type": "integer", "minimum": 0, "description": "How many parts are no text."},
    },
}
"""The output schema of a capability whose answer is texts."""


@dataclass(frozen=True, slots=True)
class DraftRow:
    """One tool of a draft. `capability` is "" if it is left out; `why` is the reason for its classification."""

    tool: str
    capability: str
    kind: str
    mode: str
    why: str


@dataclass(slots=True)
class FileDraft:
    """A draft in the making. `external`: calls leave the machine. `patterns` counts the patterns of all its schemas."""

    external: bool
    capabilities: dict[str, dict[str, Any]] = field(default_factory=dict)
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: list[DraftRow] = field(default_factory=list)
    size: int = 0
    patterns: Patterns = field(default_factory=Patterns)

    def add(self, tool: str, declared: dict[str, Any], operation: dict[str, Any], why: str) -> None:
        """Add the capability of a tool, or leave it out if the adapter file has no room for it."""
        name = declared["name"]
        size = len(canonical([name, declared, operation]))
        if self.size + size > MAX_BYTES // 2 or len(self.capabilities) >= MAX_KEYS:
            self.leave_out(tool, "an adapter file holds no more; draft those that are needed with `--only`")
            return
        self.size += size
        self.capabilities[name], self.operations[name] = declared, operation
        self.rows.append(DraftRow(tool, name, declared["kind"], declared["approval_mode"], why))

    def leave_out(self, tool: str, why: str) -> None:
        """Add a row about a tool that becomes no capability."""
        self.rows.append(DraftRow(tool, "", "", "", f"left out: {why}"))

    def to_file(self, name: str, connection: Model, egress: Collection[str]) -> dict[str, Any]:
        """Return the adapter file of the kind of the connection.

        Raises:
            InvalidInput: no tool can be a capability, or the name is not valid.
        """
        if not self.capabilities:
            reason = self.rows[0].why if self.rows else "it lists none"
            raise InvalidInput(
                Problem("", "no_tools", f"no tool of the server can be used: {reason}", "use another server")
            )
        fields = connection.to_json()
        definition = {
            "adapter_id": name,
            "type": fields["kind"],
            "version": "1",
            "external": self.external,
            "egress": sorted(egress),
            "capabilities": list(self.capabilities.values()),
        }
        parse(AdapterDefinition, definition)
        members = {member: value for member, value in fields.items() if value not in ("", [], None, False)}
        return {
            "format": ADAPTER_FILE_FORMAT,
            "connection": members,
            "definition": definition,
            "operations": self.operations,
        }


def noted(why: str, notes: Sequence[str]) -> str:
    """Return why a tool is drafted as it is, with the first notes on its schemas and how many more there are."""
    remainder = [f"and {len(notes) - MAX_NOTES} more"] if len(notes) > MAX_NOTES else []
    return "; ".join([why, *notes[:MAX_NOTES], *remainder])


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
        "description": without_hidden(description[:MAX_DRAFTED_CHARS]),
    }


def check_drafted(declared: Mapping[str, Any], operation: Mapping[str, Any]) -> None:
    """Raise `InvalidInput` for a capability that the registry refuses, or that has hidden characters."""
    refuse_hidden({"operation": operation, **declared})
    capability = parse(CapabilityDefinition, dict(declared))
    Registry().register(
        (AdapterDefinition(adapter_id="draft", type="custom", version="1", capabilities=(capability,)),)
    )


def require_listed(reads: Collection[str], listed: Collection[str], what: str) -> None:
    """Raise `InvalidInput` if `reads` has a name that the server does not list. `what` is the word for such a name."""
    if missing := sorted(set(reads) - set(listed)):
        detail = f"the server lists no {what} `{missing[0][:80]}`"
        raise InvalidInput(Problem("", f"no_such_{what}", detail, "name one that it lists"))


def capability_names(tools: Mapping[str, str], adapter: str) -> dict[str, str]:
    """Return the name of a capability for each tool of an adapter. `tools` maps the server's name of a tool to the name
    in letters that a capability can have (`plain_name`). The result is this plain name, unless another tool has it too,
    or it is too long for models together with the adapter's name. Then it is cut and ends with a digest of the server's
    name. The order of the tools does not count.

    >>> capability_names({"read_file": "read_file", "read.file": "read_file"}, "lab")
    {'read_file': 'read_file', 'read.file': 'read_file_dd32cdf5'}
    """
    room, count = max(MAX_MODEL_NAME_CHARS - len(adapter) - 2, MIN_NAME_CHARS), Counter(tools.values())
    names = {
        tool: plain for tool, plain in tools.items() if 0 < len(plain) <= room and (tool == plain or count[plain] == 1)
    }
    used = {*names.values()}
    for tool in sorted(tools.keys() - names.keys()):
        digest = hashlib.sha256(tool.encode(errors="replace")).hexdigest()
        candidates = (f"{tools[tool][: room - size - 1]}_{digest[:size]}" for size in (8, 16, 32))
        names[tool] = next((name for name in candidates if name not in used), "")
        used.add(names[tool])
    return {tool: names[tool] for tool in tools}


def plain_name(tool: str) -> str:
    """Return the name of a tool in the letters that a capability can have."""
    return re.sub(r"[^A-Za-z0-9_]", "_", tool)

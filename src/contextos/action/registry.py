"""The adapter registry: capabilities, their compiled schemas, and what of them a caller may be shown.

Source: Reference Architecture, "Action plane"; contextos-facts.md, section 13; standards.md, A13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

import jsonschema_rs

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition, capability_id
from contextos.contracts.scope import Capability
from contextos.errors import InvalidArtifact, Problem

MAX_SCHEMA_DEPTH: Final = 32
MAX_SUBSCHEMAS: Final = 2_000
MAX_REGISTERED: Final = 256


def _refuse_remote(uri: str) -> NoReturn:
    raise ValueError(f"`{uri}` is not in the schema; inline it")


class Registry:
    """Compiles each capability's schemas once. Refuses a schema that is open, remote, or larger than its bounds."""

    def __init__(self) -> None:
        self._validators: dict[tuple[str, str, str], jsonschema_rs.Draft202012Validator] = {}
        self._known: dict[int, tuple[tuple[AdapterDefinition, ...], dict[str, Capability]]] = {}

    def register(self, definitions: tuple[AdapterDefinition, ...]) -> dict[str, Capability]:
        """Capabilities by id; the same tuple again is answered from memory.

        Raises:
            InvalidArtifact: a schema does not fit the profile, or a capability is declared twice.
        """
        known = self._known.get(id(definitions))
        if known is not None and known[0] is definitions:
            return known[1]
        if len(self._known) >= MAX_REGISTERED:
            self._known.clear()
        found = self._register(definitions)
        self._known[id(definitions)] = (definitions, found)
        return found

    def _register(self, definitions: tuple[AdapterDefinition, ...]) -> dict[str, Capability]:
        found: dict[str, Capability] = {}
        for adapter in definitions:
            digest = content_address(adapter.to_json())
            for definition in adapter.capabilities:
                name = capability_id(adapter, definition)
                if name in found:
                    raise InvalidArtifact(
                        Problem("", "duplicate", f"capability `{name}` is declared twice", "name it once")
                    )
                found[name] = Capability(name, adapter, definition, digest)
                self._compile(digest, name, definition)
        return found

    def _compile(self, digest: str, name: str, definition: CapabilityDefinition) -> None:
        for side, schema in (("input", definition.input_schema), ("output", definition.output_schema)):
            if (digest, name, side) in self._validators:
                continue
            profile(schema, f"{name}.{side}_schema")
            try:
                self._validators[digest, name, side] = jsonschema_rs.Draft202012Validator(
                    schema, retriever=_refuse_remote, pattern_options=jsonschema_rs.RegexOptions()
                )
            except ValueError as error:
                why = str(error).splitlines()[0]
                raise InvalidArtifact(
                    Problem("", "bad_schema", f"`{name}` {side} schema: {why}", "mend the schema")
                ) from None

    def check(self, capability: Capability, side: str, value: Any) -> Problem | None:
        """The first violation of the `input` or `output` schema; None when the value fits. Values are never echoed."""
        validator = self._validators[capability.definition_digest, capability.capability_id, side]
        for error in validator.iter_errors(value):
            where = pointer(error.instance_path)
            rule = "/".join(str(part) for part in error.schema_path) or "schema"
            return Problem(
                where,
                "schema_mismatch",
                f"does not satisfy `{rule}`",
                f"see the {side} schema of `{capability.capability_id}`",
            )
        return None


def profile(schema: Mapping[str, Any], name: str) -> None:
    """Hold a schema to the registry's profile: closed object root, no remote references, bounded.

    Raises:
        InvalidArtifact: it does not fit.
    """

    def refuse(code: str, detail: str, remedy: str) -> NoReturn:
        raise InvalidArtifact(Problem("", code, f"`{name}` {detail}", remedy))

    if schema.get("type") != "object":
        refuse("schema_root", "is not an object at its root", "set `type` to `object`")
    if schema.get("additionalProperties") is not False and schema.get("unevaluatedProperties") is not False:
        refuse("schema_open", "accepts properties that it does not name", "set `additionalProperties` to false")
    count, stack = 0, [(schema, 1)]
    while stack:
        node, depth = stack.pop()
        count += 1
        if depth > MAX_SCHEMA_DEPTH or count > MAX_SUBSCHEMAS:
            refuse(
                "schema_bounds", f"is larger than depth {MAX_SCHEMA_DEPTH} or {MAX_SUBSCHEMAS} nodes", "make it smaller"
            )
        reference = node.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            refuse("schema_remote", f"refers to `{reference[:80]}`", "inline what it refers to")
        for value in node.values():
            children = value if isinstance(value, list) else [value]
            stack.extend((child, depth + 1) for child in children if isinstance(child, dict))


def surface(
    pack: ContextPack, capabilities: Mapping[str, Capability], roles: frozenset[str], scopes: frozenset[str]
) -> tuple[SurfaceCapability, ...]:
    """Registry ∩ permissions − prohibitions for these roles and scopes.

    Every capability is listed, granted or withheld with its reason.
    """
    listed = {
        f"{entry.adapter_id}.{name}" for entry in pack.tooling_layer.adapter_registry for name in entry.capabilities
    }
    shown = []
    for name in sorted(capabilities):
        capability = capabilities[name]
        definition = capability.definition
        permissions = [
            p
            for p in pack.tooling_layer.permissions
            if f"{p.adapter_id}.{p.capability}" == name and roles.intersection(p.roles)
        ]
        withheld = None
        if name not in listed:
            withheld = "not_in_pack"
        elif name in pack.tooling_layer.prohibitions:
            withheld = "prohibited"
        elif not permissions or not all(p.allow for p in permissions):
            withheld = "no_permission"
        elif not scopes.issuperset(definition.required_scopes):
            withheld = "scope_missing"
        constraints: dict[str, Any] = {}
        for permission in permissions:
            for argument, bound in permission.arg_constraints.items():
                constraints[argument] = (*constraints.get(argument, ()), bound)
        shown.append(
            SurfaceCapability.construct_trusted(
                {
                    "capability_id": name,
                    "kind": definition.kind,
                    "risk_level": definition.risk_level,
                    "approval_mode": definition.approval_mode,
                    "description": definition.description,
                    "lifecycle": "active",
                    "granted": withheld is None,
                    "withheld": withheld,
                    "constraints": constraints,
                    "definition_digest": capability.definition_digest,
                }
            )
        )
    return tuple(shown)

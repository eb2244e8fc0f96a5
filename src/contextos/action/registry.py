"""Register the capabilities of all adapters, compile their schemas, and list the capabilities that a caller can use.

A schema that violates `action.schema_profile` is refused. The validators enforce `format`.
Source: Reference Architecture, "Action plane"; docs/design/standards.md, "JSON Schema".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Final

import jsonschema_rs

from contextos.action.broken_rules import broken_rule, in_words
from contextos.action.schema_profile import misfit_default, profile, refuse_remote, refuse_unfilled_defaults
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.encoding.redacted import SECRET_ARGUMENT
from contextos.contracts.envelopes.compiled import SurfaceCapability
from contextos.contracts.envelopes.pack import ContextPack, Permission
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition, capability_id
from contextos.contracts.facts import property_type
from contextos.contracts.scope import Capability, withheld_from
from contextos.errors import InvalidArtifact, Problem

MAX_FAULTS_SHOWN: Final = 8


def _refuse_bad_volatile(name: str, definition: CapabilityDefinition) -> None:
    """Raise `InvalidArtifact` if a tool that produces no evidence has `volatile`, or if a place in it is not a number
    of the output or has a tolerance that is not above 0.
    """
    for place, tolerance in definition.volatile.items():
        value_type = property_type(definition.output_schema, place.split("/")[1:]) if place.startswith("/") else None
        if value_type != "number" or tolerance <= 0 or definition.kind == "write" or not definition.produces:
            detail = f"`volatile` of `{name}` names `{place[:80]}`: {tolerance}"
            remedy = "name a number of the output of a read that `produces` evidence, and a tolerance above 0"
            raise InvalidArtifact(Problem("", "bad_volatile", detail, remedy))


class Registry:
    """Compiles and caches the input and output schemas of the tools (capabilities) of all adapters."""

    def __init__(self) -> None:
        self._validators: dict[tuple[str, str, str], jsonschema_rs.Draft202012Validator] = {}

    def register(
        self, definitions: Iterable[AdapterDefinition], permissions: Iterable[Permission] = ()
    ) -> dict[str, Capability]:
        """Compile the schemas of these adapters; return their tools by id, each with the `permissions` for the tool. A
        schema is compiled once.

        Raises:
            InvalidArtifact: a schema, a default or `volatile` is not valid, or a tool is declared twice.
        """
        permitted: dict[str, tuple[Permission, ...]] = {}
        for permission in permissions:
            name = f"{permission.adapter_id}.{permission.capability}"
            permitted[name] = (*permitted.get(name, ()), permission)
        capabilities: dict[str, Capability] = {}
        for adapter in definitions:
            digest = content_address(adapter.to_json())
            for definition in adapter.capabilities:
                name = capability_id(adapter, definition)
                if name in capabilities:
                    raise InvalidArtifact(
                        Problem("", "duplicate", f"capability `{name}` is declared twice", "name it once")
                    )
                capabilities[name] = Capability(name, adapter, definition, digest, permitted.get(name, ()))
                self._compile(digest, name, definition)
                _refuse_bad_volatile(name, definition)
        return capabilities

    def _compile(self, digest: str, name: str, definition: CapabilityDefinition) -> None:
        sides = {"input": definition.input_schema, "output": definition.output_schema}
        if definition.secrets:
            sides |= {"input": _with_marks(definition), "asked": definition.input_schema}
        for side, schema in sides.items():
            if (digest, name, side) in self._validators:
                continue
            profile(schema, f"{name}.{side}_schema", answers=side == "output")
            try:
                self._validators[digest, name, side] = jsonschema_rs.Draft202012Validator(
                    schema,
                    retriever=refuse_remote,
                    pattern_options=jsonschema_rs.RegexOptions(),
                    validate_formats=True,
                    ignore_unknown_formats=False,
                )
            except ValueError as error:
                reason = str(error).splitlines()[0]
                raise InvalidArtifact(
                    Problem("", "bad_schema", f"`{name}` {side} schema: {reason}", "correct the schema")
                ) from None
            if side != "output" and (misfit := misfit_default(schema)) is not None:
                detail = f"`{name}` has a default at `{misfit[:200]}` that its own schema refuses"
                raise InvalidArtifact(Problem("", "bad_default", detail, "correct the default, or remove it"))
            if side != "output":
                refuse_unfilled_defaults(schema, name)

    def check(self, capability: Capability, side: str, value: Any) -> Problem | None:
        """Check `value` against a schema of a tool (`side`); return the first violation, or None. `side` is `input`,
        `output` or `asked`. For a tool with `secrets`, `asked` accepts the secrets, and `input` the marks for them.

        The problem never contains the value.
        """
        validator = self._validators[capability.definition_digest, capability.capability_id, side]
        errors = list(islice(validator.iter_errors(value), MAX_FAULTS_SHOWN))
        if not errors:
            return None
        definition, path = capability.definition, errors[0].instance_path
        if side == "input" and path[:1] and path[0] in definition.secrets:
            remedy = "call it from a session, whose agent sends the secret"
            detail = "is a secret argument, and this is not the mark of one"
            return Problem(pointer(path), "schema_mismatch", detail, remedy)
        schema = definition.output_schema if side == "output" else definition.input_schema
        faults = (
            f"{in_words(error.instance_path) or 'the call'} "
            f"{broken_rule(schema, error.schema_path, value, error.instance_path)}"
            for error in errors
        )
        remedy = f"see the {side} schema of `{capability.capability_id}`"
        return Problem(pointer(path), "schema_mismatch", "; and ".join(dict.fromkeys(faults)), remedy)


def _with_marks(definition: CapabilityDefinition) -> dict[str, Any]:
    """Return the input schema of a tool for recorded calls, which have a mark in place of each secret argument."""
    properties = definition.input_schema["properties"]
    pattern = f"^{SECRET_ARGUMENT.pattern}$"
    marks = {name: {"type": "string", "pattern": pattern} for name in definition.secrets}
    return {**definition.input_schema, "properties": {**properties, **marks}}


def surface(
    pack: ContextPack,
    capabilities: Mapping[str, Capability],
    roles: frozenset[str],
    scopes: frozenset[str],
    platform: frozenset[str],
    *,
    acts_for_user: bool,
    asked_for: Collection[str] | None = None,
) -> tuple[SurfaceCapability, ...]:
    """Return every tool, each marked as granted, or as withheld with the reason, for these roles and scopes.

    `platform` are the platform scopes of the agent. `asked_for` are the tools to which the request limits itself; None
    means all.

    A tool is granted if the pack lists and permits it, does not prohibit it, and `withheld_from` finds no other reason
    to withhold it.
    """
    pack_tools = {
        f"{entry.adapter_id}.{name}" for entry in pack.tooling_layer.adapter_registry for name in entry.capabilities
    }
    surfaced = []
    for name in sorted(capabilities):
        capability = capabilities[name]
        definition = capability.definition
        permissions = [permission for permission in capability.permissions if roles.intersection(permission.roles)]
        withheld = None
        if name not in pack_tools:
            withheld = "not_in_pack"
        elif name in pack.tooling_layer.prohibitions:
            withheld = "prohibited"
        elif not permissions or not all(permission.allow for permission in permissions):
            withheld = "no_permission"
        else:
            withheld = withheld_from(capability, scopes, platform, acts_for_user=acts_for_user, asked_for=asked_for)
        constraints: dict[str, Any] = {}
        for permission in permissions:
            for argument, bound in permission.arg_constraints.items():
                constraints[argument] = (*constraints.get(argument, ()), bound)
        surfaced.append(
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
    return tuple(surfaced)

"""`AdapterFile`: the adapter of a foreign server, as a file of the workspace that a person reviewed.

A command drafts the file, a person edits it, and the settings pin the digest of its bytes. It says how the server is
reached, what the registry, packs and policies see of it (`definition`), and how each capability is called. Hidden
characters are refused, because a reviewer does not see them and a model reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, Protocol, runtime_checkable

from contextos.action.registry import Registry
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.display_escape import hidden_character
from contextos.contracts.encoding.pointer import pointer, texts_in
from contextos.contracts.envelopes.tool import AdapterDefinition, Authentication, CapabilityDefinition
from contextos.contracts.model import Map, Model, OpenObject
from contextos.errors import InvalidInput, Problem

ADAPTER_FILE_FORMAT: Final = "contextos.adapter_file.v1"


class AdapterFile(Model):
    """The adapter of one foreign server: how it is reached, what it declares, and how each capability is called.

    `connection` has a `kind`, which is also the type of the definition; `operations` has an entry for each capability.
    The module of the kind checks the members of both.
    """

    format: Literal["contextos.adapter_file.v1"]
    connection: OpenObject
    definition: AdapterDefinition
    operations: Map[OpenObject]


@runtime_checkable
class PinnedAdapter(Protocol):
    """An adapter of a foreign server whose definitions are pinned."""

    async def drifted(self) -> frozenset[str]:
        """Ask the server, and return the capabilities whose definition is not the pinned one. Raises `Unavailable`."""
        ...


def read_adapter_file(raw: bytes) -> AdapterFile:
    """Read an adapter file, and check everything except the members that the module of its kind checks.

    Raises:
        InvalidInput: it is not of the format, hides text, or declares something that nothing can enforce.
    """
    file = parse(AdapterFile, raw)
    refuse_hidden(file.to_json())
    kind, definition = file.connection.get("kind"), file.definition
    if kind != definition.type:
        detail = f"the connection is of the kind `{str(kind)[:40]}`, and the definition of `{definition.type}`"
        raise InvalidInput(Problem("/definition/type", "another_kind", detail, "make them the same"))
    names = {capability.name for capability in definition.capabilities}
    for name in sorted(names ^ file.operations.keys()):
        lacks = "operation" if name in names else "capability"
        detail = f"`{name[:80]}` has no {lacks}"
        raise InvalidInput(Problem("/operations", "misfit", detail, f"add the {lacks}, or remove it from both"))
    if definition.external and not definition.egress:
        detail = "it leaves the machine and names no endpoint"
        remedy = "list its endpoints in `egress`, or set `external` to false if it reaches nothing outside"
        raise InvalidInput(Problem("/definition/egress", "no_egress_list", detail, remedy))
    Registry().register((definition,))
    return file


def refuse_hidden(value: Any) -> None:
    """Raise `InvalidInput` if a text in a JSON value has a character that a reader does not see."""
    for path, text in texts_in(value):
        if character := hidden_character(text, prose=bool(path) and path[-1] in ("description", "title", "summary")):
            detail = f"a text has the character `{character}`, which a reader does not see"
            raise InvalidInput(Problem(pointer(path)[:200], "hidden_character", detail, "remove it"))


_SHARED_ENV: Final = frozenset({"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"})
"""The environment variables of a command that do not differ between tenants."""


def credential_names(file: AdapterFile) -> frozenset[str]:
    """Return the variables and files with the secrets of a connection, and the variables of its command that can differ
    between tenants (all but `_SHARED_ENV`).
    """
    connection = file.connection
    sources = [source for source in dict(connection.get("credentials") or {}).values() if isinstance(source, Mapping)]
    names = [connection.get("token_env"), *(source.get(place) for source in sources for place in ("env", "file"))]
    variables = dict(connection.get("env_from") or {})
    environment = [name for name in connection.get("env") or () if variables.get(name, name) not in _SHARED_ENV]
    return frozenset(str(name) for name in (*names, *environment) if name)


def with_credentials(file: AdapterFile, names: Mapping[str, str]) -> AdapterFile:
    """Return the file with the variables and files of `credential_names` renamed: `names` maps old names to new."""
    connection = dict(file.connection)
    if connection.get("token_env") in names:
        connection["token_env"] = names[connection["token_env"]]
    if variables := {name: names[name] for name in connection.get("env") or () if name in names}:
        connection["env_from"] = {**(connection.get("env_from") or {}), **variables}
    if connection.get("credentials"):
        connection["credentials"] = {
            name: {member: names.get(ref, ref) if member in ("env", "file") else ref for member, ref in source.items()}
            for name, source in connection["credentials"].items()
        }
    return file.model_copy(update={"connection": connection})


def unlisted_member(schema: Mapping[str, Any], members: Iterable[str]) -> str | None:
    """Return the first of `members` that objects of a schema are not allowed to have, or None.

    >>> unlisted_member({"properties": {"status": {}}, "additionalProperties": False}, ("status", "body"))
    'body'
    """
    is_closed, properties = schema.get("additionalProperties") is False, schema.get("properties", {})
    return next((member for member in members if is_closed and member not in properties), None)


def output_misfit(capability: CapabilityDefinition, *members: str) -> tuple[str, str] | None:
    """Return why an output with these members is never accepted, with the remedy, or None.

    Without this check the fault would show only after a call, whose effect nobody then reads.
    """
    member = unlisted_member(capability.output_schema, members)
    detail = f"it has `{member}` in its output, which its output schema does not list"
    return (detail, "use `structured`, or correct the schema") if member else None


def with_auth(definition: AdapterDefinition, modes: Mapping[str, Authentication]) -> AdapterDefinition:
    """Return the definition with the authentication of each capability (`modes`) that the connection of its file has.

    Raises:
        InvalidInput: the definition itself states another authentication, or a token would have no scopes.
    """
    capabilities = []
    for capability in definition.capabilities:
        mode = modes.get(capability.name, Authentication(mode="none"))
        if "auth" in capability.model_fields_set and capability.auth != mode.model_copy(
            update={"credentials": capability.auth.credentials}
        ):
            detail = f"`{capability.name}` states `{capability.auth.mode}`, and its connection says `{mode.mode}`"
            remedy = "remove `auth` from the definition; the connection says it"
            raise InvalidInput(
                Problem(f"/definition/capabilities/{capability.name}/auth", "another_auth", detail, remedy)
            )
        auth = {} if mode.mode == "none" else {"auth": mode.to_json()}
        capabilities.append({**capability.to_json(), **auth})
    return parse(AdapterDefinition, {**definition.to_json(), "capabilities": capabilities})

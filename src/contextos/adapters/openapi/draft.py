"""Drafts an adapter file from an OpenAPI document, for a person to review.

It is as strict as possible: every operation is an irreversible write that can reach the mode `destructive`, without
idempotency, unless a person states that it only reads. A document lowers nothing, not even by its methods: servers
exist that delete on GET.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.adapters.foreign.adapter_file import refuse_hidden
from contextos.adapters.foreign.drafting import capability_names, drafted_capability
from contextos.adapters.foreign.texts import plain_text
from contextos.adapters.openapi.calls import OpenApiConnection, OpenApiOperation
from contextos.adapters.openapi.document import OpenApiDocument
from contextos.adapters.openapi.operations import Operations, ReadOperation, RefusedOperation
from contextos.adapters.outbound import destination
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.errors import InvalidInput, Problem

MAX_SUMMARY_CHARS: Final = 500


@dataclass(frozen=True)
class OpenApiDraft:
    """A draft, with the operations that were refused. `notes` has, by capability, the remarks for its reviewer."""

    connection: OpenApiConnection
    definition: AdapterDefinition
    operations: Mapping[str, OpenApiOperation]
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: tuple[RefusedOperation, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    """The name of each capability's operation in the document, which `only` and `reads` take."""

    def to_json(self) -> dict[str, Any]:
        """Return the members of the adapter file, without its format."""
        return {
            "connection": self.connection.to_json(),
            "definition": self.definition.to_json(),
            "operations": {name: one.to_json() for name, one in self.operations.items()},
        }


def draft_openapi(
    name: str,
    raw: bytes,
    *,
    server: str = "",
    internal: bool = False,
    only: Collection[str] = (),
    reads: Collection[str] = (),
    bearer_env: str = "",
) -> OpenApiDraft:
    """Draft the adapter `name` from the bytes of a document.

    `only` and `reads` name operations by their `operationId`, or as `get /path` where they have none. `reads` are the
    operations of which a person states that they change nothing. `bearer_env` is the environment variable with the
    token of a server whose document names no security.

    Raises:
        InvalidInput: the document, the server or a name is refused, or no operation of the document can be used.
    """
    document = OpenApiDocument(raw)
    server = _server(document, server, internal=internal)
    operations = Operations(document, server, has_token=bool(bearer_env))
    _refuse_unknown({*only, *reads} - operations.names())
    known = [_shown(one) for one in _named_once([*operations.read(frozenset(only))])]
    read = [one for one in known if isinstance(one, ReadOperation)]
    refused = tuple(one for one in known if isinstance(one, RefusedOperation))
    if not read:
        detail = f"no operation of the document can be used: {refused[0].reason if refused else 'it has none'}"
        raise InvalidInput(Problem("/paths", "no_operations", detail, "use another document"))
    _refuse_reads_left_out({*reads} - {one.name for one in read}, refused)
    plain = {one.name: re.sub(r"[^A-Za-z0-9]+", "_", one.name).strip("_") or "operation" for one in read}
    names = capability_names(plain, name)
    version = document.root.get("info", {}).get("version") if isinstance(document.root.get("info"), dict) else None
    declared = {
        "adapter_id": name,
        "type": "openapi",
        "version": plain_text(str(version), 100) or "1",
        "external": True,
        "egress": [destination(server).endpoint],
        "capabilities": [_capability(names[one.name], one, is_read=one.name in reads) for one in read],
    }
    definition = parse(AdapterDefinition, declared)
    return OpenApiDraft(
        _connection(name, server, read, internal=internal, bearer_env=bearer_env),
        definition,
        {
            names[one.name]: one.call.model_copy(
                update={
                    "credentials": ("bearer",) if bearer_env else one.call.credentials,
                    "stated_read": one.name in reads,
                }
            )
            for one in read
        },
        {names[one.name]: notes for one in read if (notes := _notes(one))},
        refused,
        {made: stated for stated, made in names.items()},
    )


def _connection(
    name: str, server: str, read: Collection[ReadOperation], *, internal: bool, bearer_env: str
) -> OpenApiConnection:
    # A document must not choose which variable of the environment is sent to its server.
    credentials = {
        key: {**one.to_json(), "env": f"{name.upper()}_{one.env}"}
        for operation in read
        for key, one in operation.credentials.items()
    }
    if bearer_env:
        credentials["bearer"] = {"place": "bearer", "env": bearer_env}
    said = {"kind": "openapi", "server": server, "internal": internal, "credentials": credentials}
    return parse(OpenApiConnection, said)


def _notes(read: ReadOperation) -> tuple[str, ...]:
    """Return the remarks for the reviewer of an operation: headers for a key, and parts that were cut or left out."""
    headers = [one.name for one in read.call.parameters if one.place == "header" and "idempotency" in one.name.lower()]
    keys = (f"a model chooses `{name}`, unless it is made the `idempotency_header`" for name in headers)
    return (*keys, *read.notes, *read.arguments.notes, *read.output.notes)


def _capability(name: str, read: ReadOperation, *, is_read: bool) -> dict[str, Any]:
    if is_read and read.call.method not in ("GET", "HEAD"):
        detail = f"`{read.name[:100]}` is sent by {read.call.method}, so it is no read"
        raise InvalidInput(Problem("", "no_read", detail, "leave it out of `--read`"))
    return drafted_capability(
        name,
        reads=is_read,
        leaves=True,
        input_schema=read.arguments.schema,
        output_schema=read.output.schema,
        description=plain_text(read.description, MAX_SUMMARY_CHARS),
    )


def _named_once(known: Sequence[ReadOperation | RefusedOperation]) -> list[ReadOperation | RefusedOperation]:
    """Refuse operations that share a name, because the name does not say which of them is meant."""
    count = Counter(one.name for one in known)
    why = "another operation of the document has its name"
    return [one if count[one.name] == 1 else RefusedOperation(one.name, why) for one in known]


def _shown(one: ReadOperation | RefusedOperation) -> ReadOperation | RefusedOperation:
    """Refuse an operation with hidden characters, because of which the whole file would be refused later."""
    if isinstance(one, ReadOperation):
        try:
            refuse_hidden([one.arguments.schema, one.output.schema, one.call.to_json()])
        except InvalidInput as hidden:
            return RefusedOperation(one.name, hidden.problems[0].detail)
    return one


def _server(document: OpenApiDocument, stated: str, *, internal: bool) -> str:
    """Return the URL of the server, checked. Only a person can name an internal server, and not the document."""
    if not stated:
        servers = document.root.get("servers")
        first = servers[0] if isinstance(servers, list) and servers else None
        url = first.get("url") if isinstance(first, dict) else None
        if not isinstance(url, str) or "{" in url or internal:
            detail = "the document names no server that can be used as it is"
            if internal:
                detail = "with `--internal` a person names the server, and not the document"
            there = plain_text(url, 100) if isinstance(url, str) and "{" not in url else "https://…"
            raise InvalidInput(Problem("/servers", "no_server", detail, f"name it with `--server {there}`"))
        stated = url
    to = destination(stated)
    if "?" in to.target:
        raise InvalidInput(Problem("/servers", "bad_server", "the server has a query", "name it without"))
    if to.scheme == "http" and not internal:
        detail = f"`{to.endpoint}` is asked without TLS"
        remedy = f"use `https://`, or write `--server {plain_text(stated, 100)} --internal` if it is on this machine"
        raise InvalidInput(Problem("/servers", "not_https", detail, remedy))
    return stated.rstrip("/")


def _refuse_unknown(unknown: Collection[str]) -> None:
    if unknown:
        detail = f"the document has no operation `{min(unknown)[:100]}`"
        raise InvalidInput(Problem("/paths", "unknown_operation", detail, "name it as the document does"))


def _refuse_reads_left_out(reads: Collection[str], refused: Collection[RefusedOperation]) -> None:
    """Refuse a name in `reads` whose operation is not in the draft, because the statement would have no effect."""
    if reads:
        name = min(reads)
        why = next((one.reason for one in refused if one.name == name), "`--only` names others")
        detail = f"`{name[:100]}` is left out of the draft, so it cannot be stated as a read: {why}"
        raise InvalidInput(Problem("/paths", "read_left_out", detail, "leave it out of `--read`"))

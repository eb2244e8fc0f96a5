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
            "operations": {name: operation.to_json() for name, operation in self.operations.items()},
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
    server = _server_url(document, server, internal=internal)
    operations = Operations(document, server, has_token=bool(bearer_env))
    _refuse_unknown({*only, *reads} - operations.names())
    entries = [_refuse_hidden_texts(entry) for entry in _refuse_duplicates([*operations.read(frozenset(only))])]
    accepted = [entry for entry in entries if isinstance(entry, ReadOperation)]
    refusals = tuple(entry for entry in entries if isinstance(entry, RefusedOperation))
    if not accepted:
        detail = f"no operation of the document can be used: {refusals[0].reason if refusals else 'it has none'}"
        raise InvalidInput(Problem("/paths", "no_operations", detail, "use another document"))
    _refuse_reads_left_out({*reads} - {entry.name for entry in accepted}, refusals)
    plain = {entry.name: re.sub(r"[^A-Za-z0-9]+", "_", entry.name).strip("_") or "operation" for entry in accepted}
    names = capability_names(plain, name)
    version = document.root.get("info", {}).get("version") if isinstance(document.root.get("info"), dict) else None
    fields = {
        "adapter_id": name,
        "type": "openapi",
        "version": plain_text(str(version), 100) or "1",
        "external": True,
        "egress": [destination(server).endpoint],
        "capabilities": [_capability(names[entry.name], entry, is_read=entry.name in reads) for entry in accepted],
    }
    definition = parse(AdapterDefinition, fields)
    return OpenApiDraft(
        _connection(name, server, accepted, internal=internal, bearer_env=bearer_env),
        definition,
        {
            names[entry.name]: entry.call.model_copy(
                update={
                    "credentials": ("bearer",) if bearer_env else entry.call.credentials,
                    "stated_read": entry.name in reads,
                }
            )
            for entry in accepted
        },
        {names[entry.name]: notes for entry in accepted if (notes := _notes(entry))},
        refusals,
        {capability: operation for operation, capability in names.items()},
    )


def _connection(
    name: str, server: str, operations: Collection[ReadOperation], *, internal: bool, bearer_env: str
) -> OpenApiConnection:
    # A document must not choose which variable of the environment is sent to its server.
    credentials = {
        key: {**source.to_json(), "env": f"{name.upper()}_{source.env}"}
        for operation in operations
        for key, source in operation.credentials.items()
    }
    if bearer_env:
        credentials["bearer"] = {"place": "bearer", "env": bearer_env}
    fields = {"kind": "openapi", "server": server, "internal": internal, "credentials": credentials}
    return parse(OpenApiConnection, fields)


def _notes(entry: ReadOperation) -> tuple[str, ...]:
    """Return the remarks for the reviewer of an operation: headers for a key, and parts that were cut or left out."""
    headers = [arg.name for arg in entry.call.parameters if arg.place == "header" and "idempotency" in arg.name.lower()]
    keys = (f"a model chooses `{name}`, unless it is made the `idempotency_header`" for name in headers)
    return (*keys, *entry.notes, *entry.arguments.notes, *entry.output.notes)


def _capability(name: str, entry: ReadOperation, *, is_read: bool) -> dict[str, Any]:
    if is_read and entry.call.method not in ("GET", "HEAD"):
        detail = f"`{entry.name[:100]}` is sent by {entry.call.method}, so it is not a read"
        raise InvalidInput(Problem("", "no_read", detail, "leave it out of `--read`"))
    return drafted_capability(
        name,
        reads=is_read,
        leaves=True,
        input_schema=entry.arguments.schema,
        output_schema=entry.output.schema,
        description=plain_text(entry.description, MAX_SUMMARY_CHARS),
    )


def _refuse_duplicates(entries: Sequence[ReadOperation | RefusedOperation]) -> list[ReadOperation | RefusedOperation]:
    """Refuse operations that share a name, because the name does not say which of them is meant."""
    count = Counter(entry.name for entry in entries)
    reason = "another operation of the document has its name"
    return [entry if count[entry.name] == 1 else RefusedOperation(entry.name, reason) for entry in entries]


def _refuse_hidden_texts(entry: ReadOperation | RefusedOperation) -> ReadOperation | RefusedOperation:
    """Refuse an operation with hidden characters, because of which the whole file would be refused later."""
    if isinstance(entry, ReadOperation):
        try:
            refuse_hidden([entry.arguments.schema, entry.output.schema, entry.call.to_json()])
        except InvalidInput as hidden:
            return RefusedOperation(entry.name, hidden.problems[0].detail)
    return entry


def _server_url(document: OpenApiDocument, server: str, *, internal: bool) -> str:
    """Return the URL of the server, checked. Only a person can name an internal server, and not the document."""
    if not server:
        servers = document.root.get("servers")
        first = servers[0] if isinstance(servers, list) and servers else None
        url = first.get("url") if isinstance(first, dict) else None
        if not isinstance(url, str) or "{" in url or internal:
            detail = "the document names no server that can be used as it is"
            if internal:
                detail = "with `--internal` a person names the server, and not the document"
            suggestion = plain_text(url, 100) if isinstance(url, str) and "{" not in url else "https://…"
            raise InvalidInput(Problem("/servers", "no_server", detail, f"name it with `--server {suggestion}`"))
        server = url
    address = destination(server)
    if "?" in address.target:
        raise InvalidInput(Problem("/servers", "bad_server", "the server has a query", "name it without"))
    if address.scheme == "http" and not internal:
        detail = f"`{address.endpoint}` is asked without TLS"
        remedy = f"use `https://`, or write `--server {plain_text(server, 100)} --internal` if it is on this machine"
        raise InvalidInput(Problem("/servers", "not_https", detail, remedy))
    return server.rstrip("/")


def _refuse_unknown(unknown: Collection[str]) -> None:
    if unknown:
        detail = f"the document has no operation `{min(unknown)[:100]}`"
        raise InvalidInput(Problem("/paths", "unknown_operation", detail, "name it as the document does"))


def _refuse_reads_left_out(reads: Collection[str], refusals: Collection[RefusedOperation]) -> None:
    """Refuse a name in `reads` whose operation is not in the draft, because the statement would have no effect."""
    if reads:
        name = min(reads)
        reason = next((entry.reason for entry in refusals if entry.name == name), "`--only` names others")
        detail = f"`{name[:100]}` is left out of the draft, so it cannot be stated as a read: {reason}"
        raise InvalidInput(Problem("/paths", "read_left_out", detail, "leave it out of `--read`"))

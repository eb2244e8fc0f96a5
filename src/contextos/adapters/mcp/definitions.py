"""Holds the members of an adapter file for an MCP server, and computes the digest of a tool as the server lists it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field

from contextos.adapters.foreign.adapter_file import output_misfit
from contextos.adapters.foreign.server_url import (
    VariableName,
    authentication,
    bad_connection,
    check_server_url,
    is_remote_url,
)
from contextos.adapters.outbound import destination
from contextos.contracts.encoding.jcs import MAX_INT, content_address
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.tool import Authentication, CapabilityDefinition
from contextos.contracts.ids import Digest
from contextos.contracts.model import Map, Model, Name, Seq
from contextos.errors import InvalidInput

MAX_AGE_S: Final = 300
PINNED_MEMBERS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""The members of a listed tool that its digest covers. No model sees the other members, such as icons."""

_SECRET_NAME: Final = re.compile(r"AUTH|CREDENTIAL|KEY|PASS|SECRET|TOKEN", re.IGNORECASE)


class McpConnection(Model):
    """How an MCP server is reached: a command that speaks stdio, or the URL of streamable HTTP.

    `env` names the environment variables that the command gets, and it gets no other. `env_from` maps such a variable
    to the variable of the runtime with its value, where the names differ. `token_env` names the variable with the
    bearer token for the URL, which is the same for every user; or a token is issued for each call to `audience`.
    `internal`: a person said that the URL is at a loopback or private address.
    """

    kind: Literal["mcp"]
    command: Seq[Name] = ()
    env: Seq[VariableName] = ()
    env_from: Map[VariableName] = {}
    url: str = Field(default="", max_length=2048)
    token_env: VariableName | None = None
    audience: Name | None = None
    internal: bool = False

    def check(self) -> None:
        """Refuse a connection that is not either a command or a URL, or that others on the way can read.

        Raises:
            InvalidInput: the connection is refused; the error names the member and the remedy.
        """
        if bool(self.command) == bool(self.url):
            raise bad_connection("", "it has not exactly one of `command` and `url`", "name one of both")
        if self.url and self.env:
            raise bad_connection("/env", "a server at a URL gets no environment", "remove `env`")
        if unknown := self.env_from.keys() - set(self.env):
            raise bad_connection("/env_from", f"`{min(unknown)}` is not in `env`", "name it there, or remove it")
        if self.command and self.token_env:
            raise bad_connection("/token_env", "a command gets no token", "name the variable in `env`")
        if self.audience and (self.command or self.token_env):
            detail = "a command, or a server with a token of its own, has no `audience`"
            raise bad_connection("/audience", detail, "remove it")
        if self.command and not self.command[0]:
            raise bad_connection("/command", "the command is empty", "name a program")
        if self.command and self.internal:
            raise bad_connection("/internal", "a command has no address", "remove `internal`")
        if self.url:
            check_server_url(self.url, internal=self.internal)

    def secrets(self, environment: Mapping[str, str]) -> list[str]:
        """Return the values of the token, and of the variables of the command whose names say that they are secret."""
        names = [*map(self.source, self.secret_names), self.token_env or ""]
        return [environment[name] for name in names if name in environment]

    def source(self, name: str) -> str:
        """Return the variable of the runtime from which the variable `name` of the command gets its value."""
        return self.env_from.get(name, name)

    @property
    def secret_names(self) -> list[str]:
        """Return the variables of the command whose names say that they are secret."""
        return [name for name in self.env if _SECRET_NAME.search(name)]

    @property
    def auth(self) -> Authentication:
        """How calls authenticate. A command has its secrets in its environment."""
        tokens = [self.token_env] if self.token_env else []
        return authentication(self.audience, tokens + [self.source(name) for name in self.secret_names])

    @property
    def is_remote(self) -> bool:
        """Return whether the server is on another machine, as far as its name says."""
        return bool(self.url) and is_remote_url(self.url)

    def endpoint(self) -> str:
        """Return `host:port` of the URL, as `egress` lists it; "" for a command."""
        return destination(self.url).endpoint if self.url else ""


class ToolOperation(Model):
    """A capability that is a tool of the server. `digest` is the digest of its published definition.

    `output`: `structured` is the structured content as it is, `text` an object with the texts. `key_argument` names the
    argument of the tool that carries the idempotency key; the capability itself has no such argument. `stated_read`: a
    person stated that the tool only reads; without it the capability is a write. `definition_max_age_s`: a read needs
    no new list of tools if the server was asked for one less than this many seconds ago. Without it the server is asked
    before each call.
    """

    tool: Name
    digest: Digest
    output: Literal["structured", "text"]
    key_argument: Name | None = None
    stated_read: bool = False
    definition_max_age_s: int | None = Field(default=None, ge=1, le=MAX_AGE_S)


class ResourceOperation(Model):
    """The capability that reads resources of the server. Its input schema lists them."""

    resources: Literal[True]


McpOperation = ToolOperation | ResourceOperation


def tool_digest(listed: Mapping[str, Any]) -> str:
    """Return the digest of a tool as the server lists it: SHA-256 over the JCS form of `PINNED_MEMBERS`. Integers that
    JCS does not write exactly become texts. Their places are part of the digest, so that no real text can replace them.

    Raises:
        InvalidInput: the definition is not I-JSON, apart from such integers.
    """
    places: list[str] = []
    members = {name: _with_integer_texts(listed[name], (name,), places) for name in PINNED_MEMBERS if name in listed}
    return content_address({"integers": places, "tool": members} if places else members)


def is_as_published(operation: ToolOperation, listed: list[dict[str, Any]]) -> bool:
    """Return whether a server lists the tool of an operation once, with the definition that was published."""
    name = operation.tool
    matches = [tool for tool in listed if tool.get("name") == name]
    try:
        return len(matches) == 1 and tool_digest(matches[0]) == operation.digest
    except InvalidInput:
        return False


def _with_integer_texts(value: Any, path: tuple[str | int, ...], places: list[str]) -> Any:
    """Return a value with its large integers as texts, and add the JSON Pointers of these to `places`."""
    if isinstance(value, dict):
        return {name: _with_integer_texts(item, (*path, name), places) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_integer_texts(item, (*path, index), places) for index, item in enumerate(value)]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MAX_INT:
        places.append(pointer(path))
        return str(value)
    return value


def misfit(
    operation: McpOperation, capability: CapabilityDefinition, *, own_sessions: bool = False
) -> tuple[str, str] | None:
    """Return why an operation does not fulfil the declaration of its capability, and the remedy, both as texts; None if
    it does. With `own_sessions` each call has a session of its own.
    """
    rule, properties = capability.idempotency, capability.input_schema.get("properties", {})
    if rule.strategy == "lookup" or rule.honours_not_after:
        return (
            "MCP cannot look a call up, and sends no time after which it is void",
            "use the strategy `none` or `keyed`",
        )
    if isinstance(operation, ResourceOperation):
        if capability.kind != "read" or not isinstance(properties.get("uri", {}).get("enum"), list):
            return "it is not a read of listed resources", "make it a read whose argument `uri` has an `enum`"
        return output_misfit(capability, "contents", "omitted")
    if operation.stated_read != (capability.kind == "read"):
        remedy = "a read has `stated_read` true, and a write false"
        return "nobody stated that it only reads, or it is not a read", remedy
    if operation.definition_max_age_s is not None and (own_sessions or not operation.stated_read):
        scope = "each call with a token of its own" if own_sessions else "each write"
        return f"the server is asked for its tools before {scope}", "remove `definition_max_age_s`"
    sends_key = operation.key_argument is not None
    if sends_key != (rule.strategy == "keyed" and capability.kind == "write"):
        return "nothing sends the key of its strategy, or no key is made", "a keyed write names its `key_argument`"
    if operation.key_argument in properties:
        return "the argument of the key is also one of the capability", "remove it from the input schema"
    return output_misfit(capability, "texts", "omitted") if operation.output == "text" else None

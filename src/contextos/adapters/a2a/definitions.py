"""Holds the members of an adapter file for an A2A agent, and computes the digest of a skill in the agent's card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

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
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.envelopes.tool import Authentication, CapabilityDefinition
from contextos.contracts.ids import Digest
from contextos.contracts.model import Model, Name

CARD_MEMBERS: Final = (
    "name",
    "provider",
    "supportedInterfaces",
    "capabilities",
    "securitySchemes",
    "securityRequirements",
    "defaultInputModes",
    "defaultOutputModes",
)
"""The members of a card that say who runs the agent, where a call goes, and how the call is made."""
SKILL_MEMBERS: Final = ("id", "name", "description", "tags", "inputModes", "outputModes", "securityRequirements")
"""The members of a skill that its digest covers. No model sees the other members, such as examples."""

Url = Annotated[str, Field(min_length=1, max_length=2048)]


class A2aConnection(Model):
    """How an A2A agent is reached: the URLs of its JSON-RPC interface and of its card, at the same endpoint.

    `tenant` is the tenant that the interface states, or "". `token_env` names the environment variable with the bearer
    token, which is the same for every user; or a token is issued for each call to `audience`. `internal`: a person said
    that the agent is at a loopback or private address. `hop_claim`: each message says who calls, signed (ADR 0070).
    """

    kind: Literal["a2a"]
    url: Url
    card_url: Url
    tenant: str = Field(default="", max_length=256)
    token_env: VariableName | None = None
    audience: Name | None = None
    internal: bool = False
    hop_claim: bool = False

    def check(self) -> None:
        """Refuse a connection that others on the way can read, or that has two endpoints.

        Raises:
            InvalidInput: the connection is refused; the error names the member and the remedy.
        """
        check_server_url(self.url, internal=self.internal)
        if destination(self.card_url).endpoint != self.endpoint():
            raise bad_connection("/card_url", f"the card is not at `{self.endpoint()}`", "name the card of that agent")
        check_server_url(self.card_url, internal=self.internal)
        if self.audience and self.token_env:
            raise bad_connection("/audience", "an agent with a token of its own has no `audience`", "remove it")

    def secrets(self, environment: Mapping[str, str]) -> list[str]:
        """Return the token of the connection, if it has one."""
        return [environment[self.token_env]] if self.token_env and self.token_env in environment else []

    @property
    def auth(self) -> Authentication:
        """How calls authenticate."""
        return authentication(self.audience, [self.token_env] if self.token_env else ())

    @property
    def is_remote(self) -> bool:
        """Return whether the agent is on another machine, as far as its name says."""
        return is_remote_url(self.url)

    def endpoint(self) -> str:
        """Return `host:port` of the URL, as `egress` lists it."""
        return destination(self.url).endpoint


class SkillOperation(Model):
    """A capability that is a skill of the agent. `digest` is the digest of its published definition.

    `input`: `data` sends the arguments as one data part, `text` sends the argument `text` as a text part. `output`:
    `structured` is the one data part of the answer, `text` is an object with its texts. `stated_read`: a person stated
    that the skill only reads. `stated_idempotent`: a person stated that the agent treats a message with a `messageId`
    that it knows as the same message.
    """

    skill: Name
    digest: Digest
    input: Literal["data", "text"]
    output: Literal["structured", "text"]
    stated_read: bool = False
    stated_idempotent: bool = False


def skill_digest(card: Mapping[str, Any], skill: Mapping[str, Any]) -> str:
    """Return the digest of a skill: SHA-256 over the JCS form of `SKILL_MEMBERS`, and of `CARD_MEMBERS` of its card.

    Raises:
        InvalidInput: the card is not I-JSON.
    """
    members = {name: skill[name] for name in SKILL_MEMBERS if name in skill}
    return content_address({"card": {name: card[name] for name in CARD_MEMBERS if name in card}, "skill": members})


def is_pinned(operation: SkillOperation, card: Mapping[str, Any]) -> bool:
    """Return whether a card shows the skill of an operation exactly once, with its published definition."""
    matches = [skill for skill in card["skills"] if skill.get("id") == operation.skill]
    return len(matches) == 1 and skill_digest(card, matches[0]) == operation.digest


def skill_misfit(operation: SkillOperation, capability: CapabilityDefinition) -> tuple[str, str] | None:
    """Return why an operation does not fulfil the declaration of its capability, and the remedy; None if it does."""
    strategy, writes = capability.idempotency.strategy, capability.kind == "write"
    if capability.idempotency.honours_not_after:
        return "A2A sends no time after which a call is void", "set `honours_not_after` to false"
    if operation.stated_read == writes:
        remedy = "a read has `stated_read` true, and a write false"
        return "nobody stated that it only reads, or it is not a read", remedy
    if strategy != "none" and not writes:
        return "a read has no key, and is not looked up", "use the strategy `none`"
    if operation.stated_idempotent != (strategy == "keyed"):
        remedy = "a keyed write has `stated_idempotent` true, and everything else false"
        return "nobody stated that the agent takes a message once, or it is not `keyed`", remedy
    if operation.input == "text":
        properties, required = capability.input_schema.get("properties", {}), capability.input_schema.get("required")
        if set(properties) != {"text"} or properties["text"].get("type") != "string" or required != ["text"]:
            return "its arguments are more than a text", "require the one argument `text`, or set `input` to `data`"
    return output_misfit(capability, "texts", "omitted") if operation.output == "text" else None

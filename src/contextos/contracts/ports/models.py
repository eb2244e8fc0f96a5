"""The `ModelProvider` port: one call of a model goes out, and the reply that comes back has one of several outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from contextos.contracts.envelopes.models import ModelOutcome, ModelProfile, TokenKind

MAX_PROPOSED_CALLS: Final = 100
"""The most calls of tools in one answer."""
MAX_USAGE_COUNT: Final = 1_000_000_000
"""The highest count of tokens or requests that is believed."""
OnText = Callable[[str], None]
"""A function that is called with each piece of text as it arrives. Before the end the pieces are not an answer."""

Vector = tuple[float, ...]
"""The meaning of a text, as numbers that float32 can hold. Only vectors of the same model can be compared."""


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A call of a tool that a model proposes. `args` is a JSON object. The model itself cannot make a call."""

    call_id: str
    tool: str
    args: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message of a conversation. An `assistant` has text, `calls` or both; a `tool` answers the call `call_id`."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    calls: tuple[ProposedCall, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ModelTool:
    """A tool that a model can propose to call. `input_schema` is a JSON Schema of an object."""

    name: str
    description: str
    input_schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model. `profile` says which model is called at which endpoint, and how.

    `output_schema` is a JSON Schema that the answer has to satisfy as JSON; None for free text or calls of tools.
    `tool_choice` says whether the model can (`auto`) or has to (`required`) propose a call of a tool. `timeout_ms`
    limits the whole call to the last byte, and `first_token_ms` the time to the first piece. `egress` lists the
    endpoints that can be reached. `key` is the secret of the profile's credential, or None. `headers` are the trace
    headers. A call of a profile that embeds has `texts` and no messages; with `as_query` the texts are search queries,
    otherwise the texts to be found.
    """

    profile: ModelProfile
    messages: tuple[ModelMessage, ...] = field(repr=False)
    max_output_tokens: int
    timeout_ms: int
    first_token_ms: int
    egress: tuple[str, ...]
    key: str | None = field(default=None, repr=False)
    tools: tuple[ModelTool, ...] = ()
    tool_choice: Literal["auto", "required"] = "auto"
    output_schema: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    texts: tuple[str, ...] = field(default=(), repr=False)
    as_query: bool = False


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """The usage that the provider says it bills, by kind, with each token counted in one kind only. `tier` is the
    service tier that the provider names, or empty. `reported` is the provider's own object, as it was sent.
    """

    counts: Mapping[TokenKind, int]
    tier: str = ""
    reported: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """The outcome of one call.

    `model` is the name and version that the provider states, and `reply_id` its id of the answer. `usage` is None if
    the provider stated no usage. `billed`: whether the provider can have billed something; False if nothing was sent or
    the provider refused the call. `retry_after_ms` is the time after which an overloaded provider asks to be called
    again; 0 if it states none. `detail` is a sentence for people, without any text of the prompt, the key or the
    provider. `vectors` has one vector for each embedded text, in the order of the texts.
    """

    outcome: ModelOutcome
    text: str = ""
    calls: tuple[ProposedCall, ...] = ()
    model: str = ""
    reply_id: str = ""
    usage: ModelUsage | None = None
    billed: bool = True
    retry_after_ms: int = 0
    detail: str = ""
    vectors: tuple[Vector, ...] = field(default=(), repr=False)


class ModelProvider(Protocol):
    """One protocol of model providers. It sends each call once, and never repeats a call on its own."""

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        """Send one call and return its outcome, whatever it is: a failure of a provider is not an exception.

        The profile says whether the answer is streamed; `on_text` gets its text as it arrives.

        Raises:
            InvalidInput: the call cannot be expressed in this protocol, or its endpoint is not in `egress`; nothing
                was sent.
        """
        ...

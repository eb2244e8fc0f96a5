"""The `ModelProvider` port: one call of a language model goes out, and what came back has one of several outcomes."""

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
"""Is called with each piece of text as it arrives. What it got before the end is not an answer."""

Vector = tuple[float, ...]
"""What a text means, as numbers that float32 can hold. Only vectors of one model can be compared."""


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A call of a tool that a model proposes. `args` is a JSON object. The model can make none itself."""

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
    """One call of a model. `profile` says where and how.

    `output_schema` is a JSON Schema that the answer has to satisfy as JSON; None for free text or calls of tools.
    `tool_choice`: whether the model can propose a call or has to. `timeout_ms` holds for all of it, to the last byte,
    and `first_token_ms` to its first piece. `egress` lists the endpoints that can be reached. `key` is the secret of
    the profile's credential, or None. `headers` are those of the trace. A call of a profile that embeds has `texts` and
    no messages; `as_query`: they are what is looked for, and not what is found.
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
    """What the provider says that it bills, by kind, each token counted in one kind only. `tier` is the service tier
    that it names, or empty. `reported` is the provider's own object, as it was sent.
    """

    counts: Mapping[TokenKind, int]
    tier: str = ""
    reported: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What became of one call.

    `model` is the name and version that the provider states, and `reply_id` its id of the answer. `usage` is None where
    the provider stated none. `billed`: whether the provider can have billed something; False where nothing was sent, or
    it refused the call. `retry_after_ms` is when an overloaded provider says to come again; 0 where it does not say.
    `detail` is a sentence for people, without anything of the prompt, of the key or of what the provider wrote.
    `vectors` has one vector for each text that was embedded, in their order.
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
    """One protocol of model providers. It sends what it is given once, and never on its own a second time."""

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        """Send one call and return what became of it, whatever that is: no failure of a provider is an exception.

        The profile says whether the answer is streamed; `on_text` gets its text as it arrives.

        Raises:
            InvalidInput: the call cannot be expressed in this protocol, or its endpoint is not in `egress`; nothing
                was sent.
        """
        ...

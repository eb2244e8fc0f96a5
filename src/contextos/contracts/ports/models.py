"""The `Models` port: language models behind one request and one answer, whichever provider serves them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from contextos.contracts.encoding.codec import JsonValue


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message of a conversation with a language model: who says it, and its text."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One request to a language model. `route` names a configured model, never a provider's URL or key.

    `output_schema` is a JSON Schema that the answer must satisfy as JSON, or None for free text. `seed` makes sampling
    repeatable with providers that support it.
    """

    tenant_id: str
    run_id: str
    route: str
    messages: tuple[ModelMessage, ...]
    max_output_tokens: int
    timeout_ms: int
    output_schema: Mapping[str, JsonValue] | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The complete answer of a language model. `model` is the provider's name and version of it; costs are in US
    cents.
    """

    text: str
    model: str
    finish: Literal["stop", "length", "refused"]
    input_tokens: int
    output_tokens: int
    cost_cents: float


class Models(Protocol):
    """Calls language models. A model sees the request's messages only and cannot call anything."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Return the complete answer to one request.

        Raises:
            InvalidInput: the route does not exist, or the request does not fit it.
            Unavailable: the model did not answer within `timeout_ms`; a retry is safe.
            Overloaded: the provider accepts no more requests now; retry after `retry_after_ms`.
        """
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        """Yield pieces of the answer's text as they arrive, and finally the whole `ModelAnswer`.

        Closing the iterator early cancels the request. Iteration raises the same errors as `complete`; text received
        before an error must not be used as an answer.
        """
        ...

"""The `Models` port: language models behind one request and one answer, whichever provider serves them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from contextos.contracts.encoding.codec import JsonValue


@dataclass(frozen=True, slots=True)
class ModelMessage:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One completion. `route` names a configured model, never a provider's URL or key.

    `output_schema` is a JSON Schema that the answer's text has to satisfy as JSON, or None for free text. `seed` is
    passed on where the provider takes one.
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
    """A finished completion. `model` is the provider's own name and version; costs are in US cents."""

    text: str
    model: str
    finish: Literal["stop", "length", "refused"]
    input_tokens: int
    output_tokens: int
    cost_cents: float


class Models(Protocol):
    """Completes a conversation, whole or piece by piece. A model sees what its request holds and can call nothing."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """The whole answer.

        Raises:
            InvalidInput: no such route, or the request does not fit it.
            Unavailable: the model did not answer within `timeout_ms`; asking again is safe.
            Overloaded: the provider takes no more for now; ask after `retry_after_ms`.
        """
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        """Pieces of text as they come, and last the `ModelAnswer` that holds all of it.

        A consumer that stops early closes the iterator; the request is then cancelled. Raises, while it is iterated,
        as `complete`; text that came before an error is not an answer.
        """
        ...

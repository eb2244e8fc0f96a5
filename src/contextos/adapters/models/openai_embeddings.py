"""Makes embeddings with OpenAI and every server that speaks its protocol, as a part of the wire `openai`.

The protocol does not say whether a text is a query. A parameter `dimensions` of the profile is sent, for models that
shorten their vectors.
Source: OpenAI API reference, "Embeddings"; docs/design/models.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from contextos.adapters.models.openai_wire import OPENAI, a_list, a_mapping, keep_usage, whole_answer
from contextos.adapters.models.transport import Answer, NotTheProtocol, exchange, parameters, request_json
from contextos.adapters.outbound import OutboundClient
from contextos.contracts.ports.models import ModelCall, ModelReply, Vector

_PATH: Final = "/embeddings"


async def embeddings(client: OutboundClient, call: ModelCall) -> ModelReply:
    """Make one call that embeds its texts, and return its reply.

    Raises:
        InvalidInput: the endpoint is not allowed, or the protocol has no such parameter; nothing was sent.
    """
    body = parameters(call, {"dimensions": lambda value: {"dimensions": value}})
    body |= {"model": call.profile.model, "input": list(call.texts), "encoding_format": "float"}
    raw = request_json(body)

    async def read(answer: Answer) -> ModelReply:
        answer_body = await whole_answer(_PATH, raw)
        answer.named(answer_body.get("model"), None)
        keep_usage(answer, answer_body.get("usage"), None, ("prompt_tokens", "completion_tokens"), answers=False)
        vectors = sorted(_vector(entry) for entry in a_list(answer_body.get("data"), "`data`"))
        if [index for index, _ in vectors] != list(range(len(call.texts))):
            raise NotTheProtocol(f"it has not one vector for each of the {len(call.texts)} texts")
        ordered = tuple(vector for _, vector in vectors)
        return ModelReply(
            "answered", model=answer.model, usage=answer.usage, detail=answer.usage_fault, vectors=ordered
        )

    return await exchange(client, call, OPENAI, read, path=_PATH)


def _vector(entry: Any) -> tuple[int, Vector]:
    """Return the index of a text, and its vector. Raises `NotTheProtocol` if the entry is not valid."""
    item: Mapping[str, Any] = a_mapping(entry, "a vector")
    index, numbers = item.get("index"), a_list(item.get("embedding"), "a vector")
    if type(index) is not int or not {type(number) for number in numbers} <= {int, float}:
        raise NotTheProtocol("a vector has no index, or something in it is not a number")
    try:
        return index, tuple(map(float, numbers))
    except OverflowError:
        raise NotTheProtocol("a number of a vector is too large") from None

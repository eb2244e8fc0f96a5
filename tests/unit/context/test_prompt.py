"""The three plain texts hold published text alone: nothing of a request reaches them."""

from __future__ import annotations

from contextos.context import prompt
from contextos.contracts.envelopes.pack import ToneAndComms
from tests.unit.context import samples


def test_the_system_text_has_the_reading_rules_and_the_tone() -> None:
    text = prompt.system(ToneAndComms(voice="calm", do=("listen",), do_not=("shout",)))
    assert text.splitlines() == [*prompt.READING_RULES, "Voice: calm", "Do:", "- listen", "Do not:", "- shout"]
    assert "Do:" not in prompt.system(ToneAndComms(voice="calm"))


def test_the_task_text_lists_the_steps_and_nothing_of_the_request() -> None:
    text = prompt.task(samples.intent(), samples.template())
    assert all(step.tool in text for step in samples.template().steps)
    assert samples.request().input.message not in text


def test_non_negotiables_are_named_only_where_there_are_some() -> None:
    pack = samples.pack()
    bare = pack.model_copy(
        update={"business_context": pack.business_context.model_copy(update={"non_negotiables": ()})}
    )
    assert "never up for discussion" in prompt.developer(pack, pack.pin)
    assert "never up for discussion" not in prompt.developer(bare, pack.pin)

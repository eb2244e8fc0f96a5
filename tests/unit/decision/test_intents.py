"""An intent is named by the caller and never guessed; every limit is the lowest that anybody set."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.envelopes.policy import APPROVAL_MODES, ApprovalMode
from contextos.contracts.envelopes.verdicts import Failure
from contextos.decision.intents import ResolvedIntent, lowest_mode, resolve_intent
from tests.unit.context import samples

INTENT, TEMPLATE = samples.intent(), samples.template()
TEMPLATES = dict.fromkeys(INTENT.eligible_task_templates, TEMPLATE)


def resolved(intent: Any = INTENT, templates: Any = TEMPLATES) -> tuple[ResolvedIntent | None, tuple[Failure, ...]]:
    return resolve_intent(samples.request(), {INTENT.intent_id: intent} if intent else {}, templates)


def test_a_known_intent_has_its_templates_in_the_catalogs_order() -> None:
    assert resolved() == (ResolvedIntent(INTENT, tuple(TEMPLATES.values())), ())


@pytest.mark.parametrize("gone", ["intent", "templates"])
def test_an_intent_that_is_unknown_or_has_no_template_is_refused(gone: str) -> None:
    intent, [refused] = resolved(**{gone: None if gone == "intent" else {}})
    assert intent is None
    assert (refused.code, refused.pointer) == ("unknown_intent", "/input/intent")


@given(st.lists(st.sampled_from(APPROVAL_MODES), min_size=1))
def test_a_caller_never_raises_the_ceiling(modes: list[ApprovalMode]) -> None:
    lowest = lowest_mode(modes)
    assert all(APPROVAL_MODES.index(lowest) <= APPROVAL_MODES.index(mode) for mode in modes)
    assert lowest_mode([*modes, "destructive"]) == lowest

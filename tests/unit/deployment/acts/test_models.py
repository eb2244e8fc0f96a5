"""A check of a model is one call, on record before it is sent, within the cost that the operator signs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from contextos.contracts.journal import CONTROL, Entry
from contextos.contracts.ports.models import ModelCall, ModelReply, ModelUsage, OnText
from contextos.deployment.acts.models import PROMPT, CheckedModel, check_model
from contextos.deployment.deployment import Deployment
from contextos.errors import ApprovalRefused, InvalidInput, NotFound
from contextos.testing import TEST_OPERATOR, Person
from tests.modelled import PROFILE, RULES, Modelled, embedder, modelled, profile, rules
from tests.world import TENANT

READY = {"text": "ready", "usage": {"input": 12, "output": 1}}


def check(world: Modelled, ref: str = PROFILE, max_cost_cents: float = 5, **of: Any) -> CheckedModel:
    by = Person(TEST_OPERATOR).actor()
    act = (check_model, world.app.deployment, TENANT, ref)
    found: CheckedModel = world.app.call(*act, by=by, max_cost_cents=max_cost_cents, **of)
    return found


def acts(world: Modelled) -> list[Entry]:
    read = world.app.call(world.app.deployment.ports.stores.tenant(TENANT).read, CONTROL)
    return [one for one in read if one.kind == "model.checked"]


def test_a_check_is_one_small_call_and_says_what_the_model_reports() -> None:
    with modelled(READY) as world:
        checked = check(world)
        (call,) = world.models.asked
        assert len(acts(world)) == 1
    assert ([one.text for one in call.messages], call.max_output_tokens, call.tools) == ([PROMPT], 256, ())
    assert (checked.reply.outcome, checked.reply.model, checked.profile.pin) == ("answered", "large", PROFILE)
    assert (checked.cost_units, checked.most_cost_units) == (51, 7_680)


def test_a_model_that_embeds_is_sent_the_sentence_as_a_text() -> None:
    answers = {"vectors": [{"vectors": [[1.0, 0.0, 0.0]], "usage": {"input": 15, "output": 0}}, {"vectors": [[1.0]]}]}
    with modelled(script=answers, artifacts=[embedder(), profile(), rules()]) as world:
        fine, wrong = (check(world, "model.vectors@1.0.0") for _ in range(2))
        call = world.models.asked[0]
    assert (call.texts, call.messages, call.max_output_tokens) == ((PROMPT,), (), 0)
    assert (fine.reply.outcome, fine.cost_units, wrong.reply.outcome) == ("answered", 15, "malformed")


@pytest.mark.parametrize(
    ("answer", "cost_units"),
    [
        ({"outcome": "unauthorized", "usage": None, "billed": False}, 0),
        ({"outcome": "timed_out", "usage": None}, None),
        ({"outcome": "answered", "text": "ready", "usage": {"cache_write": 5}}, None),
    ],
)
def test_a_cost_that_nobody_reports_is_not_made_up(answer: Mapping[str, Any], cost_units: int | None) -> None:
    with modelled(answer) as world:
        checked = check(world)
    assert (checked.reply.outcome, checked.cost_units) == (answer["outcome"], cost_units)


def test_what_is_not_a_published_profile_is_not_called() -> None:
    with modelled(READY) as world:
        for ref, error in ((RULES, InvalidInput), ("model.other@1.0.0", NotFound), ("x", NotFound)):
            with pytest.raises(error):
                check(world, ref)
        assert (world.models.asked, acts(world)) == ([], [])


def test_a_call_that_can_cost_more_than_is_signed_is_not_sent() -> None:
    dear = profile(prices={"currency": "USD", "as_of": "2026-11-01", "prices": {"input": "3", "output": "900"}})
    with modelled(READY, artifacts=[dear, rules()]) as world:
        with pytest.raises(InvalidInput, match=r"can cost 23\.424 US cents, and 5 are allowed"):
            check(world)
        assert (world.models.asked, acts(world)) == ([], [])
        assert check(world, max_cost_cents=24).reply.outcome == "answered"


def test_a_statement_is_for_one_call() -> None:
    with modelled(READY, READY) as world:
        at_us = world.clock.now_us()
        check(world, at_us=at_us)
        with pytest.raises(ApprovalRefused, match="was used"):
            check(world, at_us=at_us)
        assert len(world.models.asked) == len(acts(world)) == 1


def test_a_statement_that_is_proposed_twice_is_for_one_call() -> None:
    with modelled(READY, READY) as world:
        world.app.call(_checked_twice, world.app.deployment, world.clock.now_us())
        assert len(world.models.asked) == 1


async def _checked_twice(deployment: Deployment, at_us: int) -> None:
    by = Person(TEST_OPERATOR).actor()
    first, second = [
        await check_model.propose(deployment, TENANT, PROFILE, by=by, max_cost_cents=5, at_us=at_us) for _ in range(2)
    ]
    await first.signed()
    with pytest.raises(ApprovalRefused, match="was used"):
        await second.signed()


@pytest.mark.parametrize("amount", [-1, float("inf"), float("nan"), 1e300, 5.00004, "5", True])
def test_what_is_no_amount_of_money_is_refused(amount: Any) -> None:
    with modelled(READY) as world:
        with pytest.raises(InvalidInput, match="is not an amount"):
            check(world, max_cost_cents=amount)
        assert (world.models.asked, acts(world)) == ([], [])


def test_nothing_is_sent_before_the_act_is_on_record_or_without_a_signature() -> None:
    with modelled(models=Looking(), egress={TENANT: ["models.example"]}) as world:
        world.app.call(_looks, world.models, world.app.deployment)
        deployment, by = world.app.deployment, Person(TEST_OPERATOR).actor()
        proposed = world.app.call(check_model.propose, deployment, TENANT, PROFILE, by=by, max_cost_cents=5)
        with pytest.raises(ApprovalRefused):
            proposed.commit(["no assertion"])
        assert world.models.seen == []
        check(world)
        assert world.models.seen == [(1, ("models.example",))]


class Looking:
    """A provider that notes how many checks are on record when it is called, and where a call may go."""

    unsafe = ("unsafe_scripted_models",)

    def __init__(self) -> None:
        self.seen: list[tuple[int, tuple[str, ...]]] = []
        self.store: Any = None

    async def complete(self, call: ModelCall, _on_text: OnText | None = None) -> ModelReply:
        recorded = [one for one in await self.store.read(CONTROL) if one.kind == "model.checked"]
        self.seen.append((len(recorded), tuple(call.egress)))
        return ModelReply("answered", "ready", usage=ModelUsage({"input": 1, "output": 1}))


async def _looks(models: Looking, deployment: Deployment) -> None:
    models.store = deployment.ports.stores.tenant(TENANT)


def test_a_deployment_without_models_says_so() -> None:
    with modelled(READY) as world, pytest.raises(InvalidInput, match="calls no models"):
        world.app.call(_checked_without_models, world.app.deployment)


async def _checked_without_models(deployment: Deployment) -> None:
    deployment.ports = replace(deployment.ports, models=None)
    await check_model(deployment, TENANT, PROFILE, by=Person(TEST_OPERATOR).actor(), max_cost_cents=5)

"""H16: profiles and rules are withdrawn while runs go on: no call is sent to them, and no approval outlives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.models.scripted import ScriptedModels
from contextos.contracts.ports.models import ModelCall, ModelReply, ModelUsage, OnText, ProposedCall
from contextos.deployment.acts.governance import withdraw_artifact
from contextos.deployment.deployment import Deployment
from contextos.errors import ApprovalRefused
from contextos.testing import Person
from contextos.workspace.application import App
from contextos.workspace.in_memory import TEST_OPERATOR
from tests.attacks.modelled import (
    CHECK,
    FINISH,
    GOOD,
    LOOKUP,
    OTHER,
    PAY,
    RULES,
    deployed,
    entries,
    failures,
    good_plan,
    planned_pack,
    profile,
    refund,
    require_sound,
    rules,
    session_pack,
)
from tests.world import TENANT

BOTH = (profile(GOOD), profile(OTHER), rules(GOOD, OTHER))


def withdraw(app: App, ref: str) -> Callable[[], Any]:
    """Return what withdraws a ref as the operator of the deployment, on the loop of the app."""
    bare: list[Deployment] = []
    app.call(bare.append, app.deployment)

    async def act() -> None:
        expected = (await bare[0].catalog(TENANT).active()).version
        by = Person(TEST_OPERATOR).actor()
        await withdraw_artifact(bare[0], TENANT, ref, reason="leaked", expected=expected, by=by)

    return act


class Answering:
    """A provider that does something before it answers a call, by its number."""

    unsafe = ("unsafe_scripted_models",)

    def __init__(self, answers: list[Any], before: dict[int, Callable[[], Any]]) -> None:
        self.asked: list[ModelCall] = []
        self.before = before
        self._answers = answers

    async def complete(self, call: ModelCall, _: OnText | None = None) -> ModelReply:
        self.asked.append(call)
        if (act := self.before.get(len(self.asked))) is not None:
            await act()
        answer = self._answers[len(self.asked) - 1]
        return answer if isinstance(answer, ModelReply) else ModelReply("answered", calls=(answer,), usage=USED)


USED = ModelUsage({"input": 100, "output": 20})
STEPS = [ProposedCall(f"c{at}", one["tool"], one["args"]) for at, one in enumerate((LOOKUP, CHECK, PAY, FINISH))]


@pytest.mark.parametrize("ref", [GOOD, RULES])
def test_after_a_withdrawal_no_call_is_sent_and_nothing_is_done(tmp_path: Path, ref: str) -> None:
    models = Answering([*STEPS], {})
    with deployed(tmp_path, session_pack(), models, profile(GOOD), rules(GOOD)) as app:
        models.before = {1: withdraw(app, ref)}
        view = refund(app)
        assert (view.state, len(models.asked)) == ("escalated", 1)
        assert "withdrawn after the run was admitted" in failures(view)[0]["detail"]
        assert entries(app, view.run_id, "tool.dispatching") == []
        require_sound(app, view.run_id)


def test_after_a_withdrawal_another_candidate_is_asked(tmp_path: Path) -> None:
    unavailable = ModelReply("unavailable", billed=False)
    script = ModelReply("answered", text="?", usage=USED)
    models = Answering([unavailable, script, script, script], {})
    with deployed(tmp_path, planned_pack(), models, *BOTH) as app:
        models.before = {1: withdraw(app, GOOD)}
        view = refund(app)
        assert [one.profile.pin for one in models.asked] == [GOOD, OTHER, OTHER]
        routed = entries(app, view.run_id, "model.routed")
        reasons = {one["profile"]: (one["reason"], one.get("detail")) for one in routed[-1][2]["candidates"]}
        assert reasons[GOOD] == ("unknown", "withdrawn after the run was admitted")
        require_sound(app, view.run_id)


@pytest.mark.parametrize("ref", [GOOD, RULES])
def test_an_approval_does_not_outlive_the_model_that_asked_for_it(tmp_path: Path, ref: str) -> None:
    dear = {**PAY, "args": {**PAY["args"], "amount_inr": 4_200}}
    asked = [LOOKUP, {**CHECK, "args": {**CHECK["args"], "amount_inr": 4_200}}, dear, FINISH]
    models = ScriptedModels({"good": [{"calls": [one]} for one in asked]})
    with deployed(tmp_path, session_pack(), models, profile(GOOD), rules(GOOD)) as app:
        view = refund(app, 4_200)
        assert view.waiting is not None, failures(view)
        app.call(withdraw(app, ref))
        with pytest.raises(ApprovalRefused, match=f"the question is void: `{ref}` changed or was withdrawn"):
            app.call(Person("user_finance_lead_77").answer, app, view)
        assert [one for one in entries(app, view.run_id, "tool.dispatching") if "issue_refund" in str(one)] == []
    assert len(models.asked) == 3


@pytest.mark.parametrize("ref", [GOOD, RULES])
def test_a_new_run_does_not_begin_with_what_is_withdrawn(tmp_path: Path, ref: str) -> None:
    models = ScriptedModels({"good": [{"text": good_plan()}] * 2})
    with deployed(tmp_path, planned_pack(), models, profile(GOOD), rules(GOOD)) as app:
        assert refund(app).state == "completed"
        app.call(withdraw(app, ref))
        again = refund(app, request_id="req_again")
        assert again.state == "rejected"
        assert f"`{ref}` is not published in this tenant or is withdrawn" in failures(again)[0]["detail"]
    assert len(models.asked) == 1


def test_a_run_that_used_what_is_withdrawn_replays(tmp_path: Path) -> None:
    models = ScriptedModels({"good": [{"text": good_plan()}]})
    with deployed(tmp_path, planned_pack(), models, profile(GOOD), rules(GOOD)) as app:
        view = refund(app)
        app.call(withdraw(app, GOOD))
        require_sound(app, view.run_id)
        assert len(models.asked) == 1

"""A fixed plan binds what the author leaves out to the request, in order, and decides before its first write."""

from __future__ import annotations

from typing import Any

import pytest

from contextos import read, toolset
from contextos.contracts.encoding.codec import parse
from contextos.errors import InvalidArtifact
from contextos.packs.declaration import PackDeclaration
from contextos.packs.expansion import expand
from tests.unit.packs.deploying import PLAN, TENANT, expanded


def template(**intent: Any) -> dict[str, Any]:
    document = expanded(intents={"deploy.change": {"steps": PLAN, **intent}}).document
    found: dict[str, Any] = document["decision_layer"]["task_templates"][0]
    return found


def test_steps_follow_each_other_and_are_bound_to_the_request() -> None:
    steps = template()["steps"]
    assert [step["id"] for step in steps] == ["ci_status_1", "rollback_2", "scale_3"]
    assert [step["depends_on"] for step in steps] == [[], ["ci_status_1"], ["rollback_2"]]
    assert steps[1]["params"]["env"] == {"from": "request", "pointer": "/input/context/env"}
    assert template()["decision_checkpoints"] == [{"decision_id": "deploy.change", "after_step": "ci_status_1"}]


def test_written_arguments_and_ids_are_kept() -> None:
    bound = {"from": "step", "pointer": "/ci/blast_radius"}
    steps = [{"tool": "ci_status", "id": "ci"}, {"tool": "scale", "args": {"service": "api", "replicas": bound}}]
    intents = {"deploy.change": {"steps": steps, "tools": ["ci_status", "scale"]}}
    expansion = expanded(intents=intents, tools=["ci_status", "scale"])
    made = expansion.document["decision_layer"]["task_templates"][0]["steps"]
    assert made[1]["params"] == {"service": "api", "replicas": bound}
    assert made[1]["depends_on"] == ["ci"]
    assert expansion.pack.tooling_layer.permissions[1].agrees_with == {}


def test_a_write_that_takes_its_arguments_from_the_request_has_to_agree_with_it() -> None:
    rollback = expanded().pack.tooling_layer.permissions[1]
    assert rollback.agrees_with == {"service": "/input/context/service", "env": "/input/context/env"}


def test_without_steps_an_agent_chooses_its_calls() -> None:
    made = template(steps=[])
    assert made["chosen_by"] == "agent"
    assert [step["tool"] for step in made["steps"]] == ["deploy.ci_status", "deploy.rollback", "deploy.scale"]
    assert all("params" not in step and "depends_on" not in step for step in made["steps"])
    assert made["decision_checkpoints"] == [{"decision_id": "deploy.change"}]


def test_two_plans_take_an_argument_from_one_place() -> None:
    other = {"tool": "scale", "args": {"service": {"from": "request", "pointer": "/input/context/other"}}}
    intents = {"deploy.change": {"steps": PLAN}, "deploy.other": {"steps": [PLAN[0], PLAN[1], other]}}
    with pytest.raises(InvalidArtifact) as caught:
        expanded(intents=intents)
    assert caught.value.problems[0].code == "two_places"
    stated = {"deploy.scale": {"agrees_with": {"service": "/input/context/service"}}}
    assert expanded(intents=intents, permissions=stated).pack.tooling_layer.permissions[2].agrees_with["service"]


def test_a_tool_with_a_long_name_has_a_step() -> None:
    @read(integrity="trusted", name="x" * 64)
    def look() -> bool:
        """Look."""
        return True

    adapter = toolset("box", [look]).describe()
    for intent in ({}, {"steps": [{"tool": "x" * 64}]}):
        body = {"name": "a", "version": "1.0.0", "tenant": TENANT, "who": ["a"], "intents": {"a": intent}}
        made = expand(parse(PackDeclaration, body), [adapter]).document["decision_layer"]["task_templates"][0]
        assert made["steps"][0]["id"] == "x" * 50 + "_1"


def test_without_intents_there_is_one_of_the_packs_own_name() -> None:
    expansion = expanded(intents={})
    assert [one.intent_id for one in expansion.pack.decision_layer.intents] == ["deploy"]
    assert expansion.origins["/decision_layer/intents/0/intent_id"] == "derived"


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([PLAN[1], PLAN[0], PLAN[2]], "write_first"),
        ([{"tool": "ci_status"}, {"tool": "rollbak"}], "unknown_tool"),
        ([*PLAN, {"tool": "ci_status", "id": "rollback_2"}], "duplicate"),
        ([{"tool": "ci_status", "args": {"sevice": "a"}}, *PLAN[1:]], "unknown_edge"),
        ([{"tool": "ci_status", "args": {"service": {"from": "nowhere", "pointer": "/a"}}}, *PLAN[1:]], "unknown_edge"),
    ],
    ids=["a write first", "an unknown tool", "one id twice", "an unknown argument", "an unknown source"],
)
def test_a_plan_that_cannot_run_is_refused(steps: list[dict[str, Any]], code: str) -> None:
    with pytest.raises(InvalidArtifact) as caught:
        template(steps=steps)
    assert code in {one.code for one in caught.value.problems}

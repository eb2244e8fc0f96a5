"""Independent reads: which steps of a plan form one group."""

from types import SimpleNamespace
from typing import Any

import pytest

from contextos.decision.critic import _ancestors, _closure, _governing
from contextos.decision.parallel_reads import MAX_PARALLEL_READS, independent_reads


def tools() -> Any:
    def capability(kind: str, *produces: str) -> SimpleNamespace:
        return SimpleNamespace(definition=SimpleNamespace(kind=kind, produces=produces))

    return SimpleNamespace(
        capabilities={"crm.read": capability("read", "customer/tier"), "crm.pay": capability("write")}
    )


def step(name: str, *after: str, tool: str = "crm.read", mode: str = "read_only", **params: Any) -> SimpleNamespace:
    return SimpleNamespace(id=name, depends_on=after, tool=tool, approval_mode=mode, params=params)


def group(*steps: SimpleNamespace, checked: tuple[str, ...] = (), done: tuple[str, ...] = ()) -> Any:
    points = [SimpleNamespace(after_step=name) for name in checked]
    plan: Any = SimpleNamespace(steps=steps, decision_checkpoints=points)
    return [one.id for one in independent_reads(plan, tools(), 0, done)]


def test_reads_without_dependencies_form_one_group() -> None:
    assert group(step("a"), step("b", value="literal"), step("c")) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "second",
    [
        step("b", "a"),
        step("b", tool="crm.pay"),
        step("b", mode="destructive"),
        step("b", tool="crm.unknown"),
        step("b", value={"from": "step", "pointer": "/a/name"}),
        step("b", value={"from": "evidence", "pointer": "/customer~1tier/value"}),
    ],
)
def test_a_step_that_needs_a_member_or_is_no_read_ends_the_group(second: SimpleNamespace) -> None:
    assert group(step("a"), second) == ["a"]


def test_a_first_step_that_is_no_read_runs_alone() -> None:
    assert group(step("a", tool="crm.pay"), step("b")) == ["a"]


def test_a_dependency_that_is_done_does_not_end_the_group() -> None:
    assert group(step("a"), step("b", "before"), done=("before",)) == ["a", "b"]


def test_a_decision_checkpoint_ends_the_group_after_its_step() -> None:
    assert group(step("a"), step("b"), step("c"), checked=("b",)) == ["a", "b"]


def test_a_group_is_bounded() -> None:
    many = [step(f"s{number}") for number in range(MAX_PARALLEL_READS + 2)]
    assert len(group(*many)) == MAX_PARALLEL_READS


def test_what_was_found_of_one_plan_is_no_answer_for_another() -> None:
    """The step ids are the same, and the dependencies or the checkpoints differ."""
    for depends in ((("a", ()), ("b", ("a",)), ("c", ("b",))), (("a", ()), ("b", ("a",)), ("c", ("a",)))):
        direct = dict(depends)
        assert _ancestors(depends) == _ancestors.__wrapped__(depends) == {one: _closure(direct, one) for one in direct}
        for checkpoints in ((("d", "b"),), (("d", None),), (("d", "a"), ("e", "b"))):
            assert _governing(depends, checkpoints) == _governing.__wrapped__(depends, checkpoints)
    assert _ancestors(depends)["c"] == {"a"}

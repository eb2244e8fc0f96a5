"""A planner of others: its name, and what of its answer is recorded."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.concurrency import Sequential
from contextos.decision.planners.foreign import MAX_PLAN_BYTES, ask_planner, plan_of_answer, planner_name
from contextos.decision.planners.template import PLANNER
from contextos.errors import InvalidSettings, Unavailable

NAME = "acme.planner@1.2.0"


def planner(answer: Any = None, name: Any = NAME) -> Any:
    async def propose(_request: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return SimpleNamespace(name=name, propose=propose)


def ask(which: Any) -> dict[str, Any]:
    request: Any = None
    return asyncio.run(ask_planner(which, NAME, request, Sequential(), 1_000))


@pytest.mark.parametrize("name", [PLANNER, "acme", "", "acme@1@2", 7])
def test_a_planner_without_a_name_of_its_own_is_refused(name: Any) -> None:
    with pytest.raises(InvalidSettings):
        planner_name(planner(name=name))


def test_no_planner_is_the_template_planner() -> None:
    assert (planner_name(None), planner_name(planner())) == (PLANNER, NAME)


@pytest.mark.parametrize("answer", [None, [], "plan", {"a": object()}, {"a": "x" * MAX_PLAN_BYTES}])
def test_an_answer_that_cannot_be_recorded_is_refused(answer: Any) -> None:
    assert set(ask(planner(answer))) == {"refused"}


def test_an_answer_is_recorded_as_plain_json() -> None:
    assert ask(planner({"steps": [1, 2]})) == {"proposal": {"steps": [1, 2]}}


@pytest.mark.parametrize(
    "which", [None, planner(name="other@1"), planner(RuntimeError("secret")), planner(TimeoutError())]
)
def test_a_planner_that_is_absent_or_fails_is_unavailable(which: Any) -> None:
    with pytest.raises(Unavailable) as raised:
        ask(which)
    assert "secret" not in str(raised.value)


def test_a_timeout_of_the_planner_itself_does_not_read_as_a_late_answer() -> None:
    with pytest.raises(Unavailable, match="it raised `TimeoutError`"):
        ask(planner(TimeoutError("secret")))


@pytest.mark.parametrize("answer", [{"refused": "it is too large"}, {"proposal": {"steps": 1}}])
def test_an_answer_that_is_no_plan_is_a_schema_mismatch(answer: dict[str, Any]) -> None:
    failure = plan_of_answer(answer, NAME, "run_1", (), 0)
    assert isinstance(failure, Failure)
    assert failure.code == "schema_mismatch"

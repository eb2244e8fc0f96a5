"""`contextos.testing`: the real runtime in memory, with people who answer and a clock that a test moves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from contextos import pack
from contextos.adapters.function.loading import load_function_adapters
from contextos.errors import ApprovalRefused, InvalidArtifact, InvalidInput, InvalidSettings
from contextos.testing import MovableClock, Person, in_memory
from tests.world import EXAMPLE, TENANT, example, request

UNSAFE = ["unsafe_local_directory", "unsafe_local_keys", "unsafe_memory_store", "unsafe_test_clock"]


@pytest.fixture
def parts(tmp_path: Any) -> dict[str, Any]:
    """What a test of the refund pack hands over: the shop's adapters, the pack, the people and the facts."""
    loaded = load_function_adapters("shop.py:adapters", None, root=EXAMPLE, workspace=tmp_path)
    return {
        "packs": [example("pack.json")],
        "adapters": loaded.adapters,
        "directory": example("directory.json"),
        "facts": example("graph.json"),
    }


def test_a_pack_is_tested_in_a_few_lines(parts: dict[str, Any]) -> None:
    with in_memory(**parts) as app:
        small = app.deployment.invoke(request(900, "req_1"))
        large = app.deployment.invoke(request(4200, "req_2"))
        paid = app.call(Person("user_finance_lead_77").answer, app, large)
    assert (small.state, large.state, paid.state) == ("completed", "waiting", "completed")
    assert small.record["lineage"]["unsafe"] == UNSAFE
    assert paid.record["approvals"][0]["assertion"] == "jws", "the person signed it"


def test_the_same_with_an_event_loop(parts: dict[str, Any]) -> None:
    async def go() -> str:
        async with in_memory(**parts) as app:
            view = await app.deployment.invoke(request(4200, "req_1"))
            denied = await Person("user_finance_lead_77").answer(app, view, "denied", reason="not ours")
            return denied.state

    assert asyncio.run(go()) == "rejected"


def test_a_person_without_the_role_cannot_answer(parts: dict[str, Any]) -> None:
    with in_memory(**parts) as app:
        view = app.deployment.invoke(request(4200, "req_1"))
        with pytest.raises(ApprovalRefused):
            app.call(Person("user_support_lead_5").answer, app, view)
        with pytest.raises(ApprovalRefused):
            app.call(Person("nobody").answer, app, view)
        small = app.deployment.invoke(request(900, "req_2"))
        with pytest.raises(InvalidInput, match="waits for no approval"):
            app.call(Person("user_finance_lead_77").answer, app, small)


def test_a_question_expires_when_the_test_moves_the_clock(parts: dict[str, Any]) -> None:
    clock = MovableClock()
    with in_memory(**parts, clock=clock) as app:
        view = app.deployment.invoke(request(4200, "req_1"))
        clock.advance(30 * 86_400)
        app.drive_due_runs()
        late = app.deployment.view(TENANT, view.run_id)
    assert (view.state, late.ended) == ("waiting", True)
    assert late.state != "completed"
    for seconds in (-1, float("nan"), float("inf"), 1e300):
        with pytest.raises(InvalidInput, match="moves its clock forward"):
            clock.advance(seconds)


def test_each_entering_begins_with_nothing(parts: dict[str, Any]) -> None:
    deployment, seen = in_memory(**parts), []
    for _ in range(2):
        with deployment as app:
            assert app.deployment.invoke(request(900, "req_1")).state == "completed"
            seen.append(app.call(app.deployment.ports.stores.tenant(TENANT).length, "control"))
    assert seen[0] == seen[1] > 0


FAILS: dict[str, tuple[Callable[[dict[str, Any]], object], type[Exception]]] = {
    "a pack is malformed": (
        lambda parts: parts["packs"][0]["decision_layer"]["intents"][0].update(eligible_templates=["nowhere"]),
        InvalidInput,
    ),
    "lint refuses a pack": (
        lambda parts: parts["packs"][0]["decision_layer"]["intents"][0].update(eligible_task_templates=["nowhere"]),
        InvalidArtifact,
    ),
    "an adapter comes twice": (lambda parts: parts.update(adapters=[*parts["adapters"]] * 2), InvalidSettings),
    "a fact is malformed": (lambda parts: parts.update(facts={"edges": [{"src": "a"}]}), InvalidInput),
}


@pytest.mark.parametrize("why", FAILS)
def test_an_entering_that_fails_says_why_each_time_and_leaves_nothing_open(why: str, parts: dict[str, Any]) -> None:
    change, error = FAILS[why]
    change(parts)
    deployment, before, said = in_memory(**parts), {*threading.enumerate()}, []
    for _ in range(2):
        with pytest.raises(error) as refused, deployment:
            raise AssertionError("it is not open")
        said.append(str(refused.value))
        assert [one.name for one in threading.enumerate() if one not in before] == []
    assert said[0] == said[1]


@pytest.mark.parametrize("directory", [{"t": {}}, {"t": []}, {"t": {"users": [{}], "agents": [], "approvers": []}}])
def test_a_directory_that_is_none_is_refused(parts: dict[str, Any], directory: Any) -> None:
    with pytest.raises(InvalidInput):
        in_memory(**{**parts, "directory": directory})


def test_each_one_begins_with_nothing(parts: dict[str, Any]) -> None:
    ids = []
    for _ in range(2):
        with in_memory(**parts) as app:
            ids.append(app.deployment.invoke(request(900, "req_1")).run_id)
    assert ids[0] != ids[1]


def test_a_declared_pack_brings_its_tools() -> None:
    from tests.unit.packs.deploying import INTENT, TENANT, TOOLS

    declared = pack(
        "deploy", version="1.0.0", tenant=TENANT, who=("deployer",), tools=[TOOLS], intents={"deploy.change": INTENT}
    )
    people = {TENANT: {"users": [], "agents": [], "approvers": []}}
    with in_memory(packs=[declared], directory=people, lint=False) as app:
        assert app.tenants() == (TENANT,)
        assert TOOLS.describe().adapter_id in app.deployment.ports.adapters(TENANT)


def test_it_needs_no_test_of_this_project_and_is_imported_on_demand() -> None:
    code = (
        "import sys, contextos.testing; sys.exit(any(one.split('.')[0] in ('tests', 'pytest') for one in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    code = "import sys, contextos; sys.exit('contextos.testing' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

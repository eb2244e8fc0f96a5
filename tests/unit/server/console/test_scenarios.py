"""The scenarios of the playground are the examples of the repository, and a form is read as what is tried.

After an example changed, write them anew: `.venv/bin/python -m tests.unit.server.console.test_scenarios --write`.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from contextos.action.foreign_code import describe_adapter
from contextos.adapters.function.loading import load_function_adapters
from contextos.errors import Problem
from contextos.server.console import scenarios
from contextos.server.console.scenarios import EXAMPLES, Unreadable, example_scenario, placed, pretty, sandbox_request

SHIPPED = Path(scenarios.__file__).parent / "examples"
REFUND, DEPLOY = (
    Path(__file__).resolve().parents[4] / "examples" / name for name in ("support_refund", "deploy_rollback")
)
FIRST = ("input", "runtime", "mode", "context_pack_refs", "user", "agent")
"""The members of a request that a person reads first."""


def definitions(folder: Path, entry: str) -> str:
    with tempfile.TemporaryDirectory() as place:
        for data in folder.glob("cluster.json"):
            shutil.copy(data, place)
        loaded = load_function_adapters(entry, None, root=folder, workspace=Path(place))
        return pretty([describe_adapter(one.describe().adapter_id, one).to_json() for one in loaded.adapters])


def people(folder: Path, tenant: str, user: str) -> str:
    listed = json.loads((folder / "directory.json").read_text("utf-8"))[tenant]
    [found] = [one for one in listed["users"] if one["user_id"] == user]
    return pretty({"user": found, "agent": listed["agents"][0], "delegation": listed["delegations"][f"tok_{user}"]})


def request_text(request: dict[str, Any]) -> str:
    return pretty({**{name: request[name] for name in FIRST}, **request})


def refund() -> dict[str, str]:
    """The request of the specification, with the short form of its pack."""
    request = json.loads((REFUND / "request.json").read_text("utf-8"))
    request |= {"mode": "batch", "context_pack_refs": ["support.refund@1.0.0"]}
    del request["trace"]
    graph = json.loads((REFUND / "graph.json").read_text("utf-8"))
    subjects = ("order:ord_881", "customer:cus_77")
    facts = {
        "nodes": [one for one in graph["nodes"] if one["ceid"] in subjects],
        "edges": [one for one in graph["edges"] if one["src"] in subjects],
    }
    order = {"order_id": "ord_881", "customer_id": "cus_77", "total_inr": 9900, "currency": "INR"}
    outputs = {
        "adp_orders.lookup": {**order, "status": "delivered"},
        "adp_policy.eval": {"eligible": True, "refundable_inr": 9900, "policy_version": "returns-4"},
    }
    return {
        "document": (REFUND / "short.yaml").read_text("utf-8"),
        "request": request_text(request),
        "people": people(REFUND, "tenant_acme_prod", "usr_771"),
        "facts": pretty(facts),
        "outputs": pretty(outputs),
        "adapters": definitions(REFUND, "shop.py:adapters"),
    }


def deploy() -> dict[str, str]:
    where = {"service": "checkout", "env": "prod"}
    delegation = {"auth_type": "oauth2", "scopes": [], "subject": "ana", "token_ref": "tok_ana"}
    request = {
        "request_id": "req_rollback",
        "tenant_id": "acme",
        "user": {"user_id": "ana", "delegation": delegation},
        "agent": {"agent_id": "agt_deploy", "workload_identity": "spiffe://acme/agents/deploy"},
        "context_pack_refs": ["acme.deploy@1.0.0"],
        "input": {
            "intent": "acme.deploy",
            "message": "The newest build of checkout fails. Roll it back.",
            "context": {},
        },
        "mode": "batch",
        "runtime": {},
    }
    calls = [
        {"tool": "deploy.ci_status", "args": {"service": "checkout"}},
        {"tool": "deploy.impact", "args": where},
        {"tool": "deploy.rollback", "args": where},
    ]
    outputs = {
        "deploy.ci_status": {"newest": "b42", "green": False, "before": "b41"},
        "deploy.impact": {"customers": 900, "frozen": False},
    }
    return {
        "document": (DEPLOY / "packs" / "deploy.yaml").read_text("utf-8"),
        "request": request_text(request),
        "people": people(DEPLOY, "acme", "ana"),
        "calls": pretty(calls),
        "outputs": pretty(outputs),
        "adapters": definitions(DEPLOY, "deploy.py:TOOLS"),
    }


MADE = {"refund": refund, "deploy": deploy}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_shipped_scenario_is_the_example(name: str) -> None:
    assert json.loads((SHIPPED / f"{name}.json").read_text("utf-8")) == MADE[name]()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_of_the_tenant_of_its_reader(name: str) -> None:
    read = sandbox_request(example_scenario(name, "tenant_mine"))
    assert "tenant: tenant_mine\n" in read.document
    assert read.request["tenant_id"] == "tenant_mine"


def test_fields_that_are_filled_in_replace_what_the_request_says() -> None:
    text = '{"input": {"intent": "a", "context": {"x": 1}}, "mode": "batch"}'
    filled = {"request": text, "safety_mode": "read_only", "total_tokens": "900", "mode": "stream"}
    assert sandbox_request(filled).request == {
        "input": {"intent": "a", "context": {"x": 1}},
        "mode": "stream",
        "runtime": {"safety_mode": "read_only", "total_tokens": 900},
    }


def test_every_text_that_cannot_be_read_is_named() -> None:
    with pytest.raises(Unreadable) as found:
        sandbox_request({"request": "{", "facts": "[1", "total_tokens": "1"})
    assert found.value.faults.keys() == {"request", "facts"}
    with pytest.raises(Unreadable) as found:
        sandbox_request({"request": "{}", "total_tokens": "many"})
    assert found.value.faults.keys() == {"total_tokens"}
    with pytest.raises(Unreadable) as found:
        sandbox_request({"request": "{}", "answer": "yes", "people": "{}"})
    assert found.value.faults.keys() == {"answer", "people"}


def test_a_problem_is_put_to_the_field_that_has_it() -> None:
    faults = placed([Problem("/request/mode", "a", "b"), Problem("/facts/edges/0", "a", "c"), Problem("", "a", "d")])
    assert {name: [(one.pointer, one.detail) for one in problems] for name, problems in faults.items()} == {
        "request": [("/mode", "b"), ("", "d")],
        "facts": [("/edges/0", "c")],
    }


def test_json_for_people_is_the_same_value() -> None:
    value = {"a": [{"b": "x" * 60, "c": [1, 2, 3]}, {}], "d": {}, "e": "é", "f": [["y" * 80]]}
    assert json.loads(pretty(value)) == value
    assert max(map(len, pretty({"a": list(range(8)), "b": {"c": 1}}).splitlines())) <= 76


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    for written, make in MADE.items():
        (SHIPPED / f"{written}.json").write_text(json.dumps(make(), indent=1, ensure_ascii=False) + "\n", "utf-8")

"""A bound that allows every value of its argument bounds nothing: lint says so, and the deploy example has none."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

import contextos
from contextos.contracts.envelopes.identity import HeldRoles
from contextos.contracts.ports.gates import Done, Waiting
from contextos.errors import Problem
from contextos.packs.checking import KnownHere, artifact_problems
from tests.attacks.test_g77_apply_lints_first import deployed

__all__ = ["deployed"]

TENANT = "acme"


@contextos.write(risk="irreversible", idempotency="none", destinations=[])
def roll(
    env: Literal["staging", "prod"],
    fast: bool,
    replicas: Annotated[int, Field(ge=1, le=20)],
    zone: Literal["a", "b"] | None = None,
) -> str:
    """Roll back."""
    return "done"


TOOLS = contextos.toolset("deploy", [roll])
FREE = {"env": {"any": True}, "fast": {"any": True}, "replicas": {"min": 1, "max": 3}, "zone": {"any": True}}


def linted(**bounds: Any) -> list[Problem]:
    pack = contextos.pack(
        "acme.deploy",
        version="1.0.0",
        tenant=TENANT,
        tools=[TOOLS],
        who=["clerk"],
        approver="boss",
        auto_approve=[{"tools": ["roll"], "bounds": FREE | bounds}],
    )
    definition = TOOLS.describe()
    held = HeldRoles(users=("clerk",), approvers=("boss",))
    known = KnownHere({definition.adapter_id: definition}, {TENANT: held}, {})
    return list(pack.expansion.placed(artifact_problems(pack.expansion.pack, (), known)))


@pytest.mark.parametrize(
    ("argument", "bound"),
    [
        ("env", {"enum": ["prod", "staging"]}),
        ("fast", {"enum": [True, False]}),
        ("zone", {"enum": ["a", "b"]}),
        ("replicas", {"min": 1, "max": 20}),
        ("replicas", {"max": 25}),
    ],
)
def test_lint_names_a_bound_that_allows_everything(argument: str, bound: dict[str, Any]) -> None:
    [problem] = linted(**{argument: bound})
    assert (problem.pointer, problem.code) == (f"/auto_approve/0/bounds/{argument}", "bounds_nothing")


@pytest.mark.parametrize(
    ("argument", "bound"),
    [
        ("env", {"enum": ["staging"]}),
        ("fast", {"enum": [False]}),
        ("zone", {"enum": ["a"]}),
        ("replicas", {"max": 19}),
        ("replicas", {"enum": [1, 2]}),
    ],
)
def test_a_bound_that_excludes_something_is_one(argument: str, bound: dict[str, Any]) -> None:
    assert linted(**{argument: bound}) == []


def test_the_deploy_example_asks_about_a_small_rollback_in_prod_that_it_does_not_name(deployed: Any) -> None:
    cluster = Path("cluster.json")
    cluster.write_text(cluster.read_text("utf-8").replace('"customers": 900', '"customers": 1'), "utf-8")
    assert deployed("apply", "--by", "otto", "--key", "keys/otto.key").code == 0
    answers = {}
    with contextos.open(".") as app:
        for service in ("newsletter", "checkout"):
            gate = app.gate(session=service, user="ana", token="tok_ana", agent="agt_deploy")
            where = {"service": service, "env": "prod"}
            gate.call("deploy.ci_status", {"service": service}, call_id="ci")
            gate.call("deploy.impact", where, call_id="impact")
            answers[service] = gate.call("deploy.rollback", where, call_id="rollback")
    assert (type(answers["newsletter"]), type(answers["checkout"])) == (Done, Waiting)

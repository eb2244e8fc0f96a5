"""Whatever leaves the machine is listed by its adapter, the pack and the tenant, or it is found."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.artifacts import merge
from contextos.control.lint.egress import lint_egress
from tests.unit.control.example import adapters, pack

AT = "/tooling_layer/adapter_registry/2/capabilities/0"


def found(declares: dict[str, Any], listed: list[str], tenant: list[str] | None = None) -> list[tuple[str, str]]:
    known = adapters()
    known["adp_payments"] = AdapterDefinition.model_validate(known["adp_payments"].to_json() | declares)
    merged = merge(pack({"/tooling_layer/egress": listed}))
    return [(problem.pointer, problem.code) for problem in lint_egress(merged, known, tenant)]


def test_what_stays_on_the_machine_needs_no_list() -> None:
    assert found({}, [], []) == []


@pytest.mark.parametrize("declares", [{"external": True}, {"external": True, "egress": []}])
def test_an_adapter_that_leaves_names_its_endpoints(declares: dict[str, Any]) -> None:
    assert found(declares, ["a.example"], ["a.example"]) == [(AT, "no_egress_list")]


def test_every_endpoint_is_allowed_by_pack_and_tenant() -> None:
    both = {"egress": ["a.example", "b.example:443"]}
    assert found(both, ["a.example", "b.example:443"], ["a.example", "b.example:443", "c.example"]) == []
    assert found(both, ["a.example"]) == [(AT, "egress_not_allowed")]
    assert found(both, ["a.example", "b.example:443"], ["b.example:443"]) == [(AT, "egress_not_allowed")]


def test_a_step_that_states_network_needs_the_list_before_the_adapters_are_known() -> None:
    step = "/decision_layer/task_templates/0/steps/0/approval_mode"
    assert [one.pointer for one in lint_egress(merge(pack({step: "network"})), None)] == [step]
    listed = pack({step: "network", "/tooling_layer/egress": ["a.example"]})
    assert list(lint_egress(merge(listed), None)) == []

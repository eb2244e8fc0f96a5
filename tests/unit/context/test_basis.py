"""What compiles have in common is found only where all that it follows from is the same."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.context.basis import Basis
from contextos.context.compiler import compile_context
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.entries.linked import RecentlyUsed
from tests.unit.context import samples


class OneEach:
    """An estimator in whose terms every text has one token."""

    name = "one_each"

    def count(self, _text: str) -> int:
        return 1


LOOKUP, REFUND = samples.refund()["surface"][1], samples.refund()["surface"][0]
DECIDED = samples.refund()["decisions"]
OTHERS: list[dict[str, Any]] = [
    {"request": samples.request(request_id="req_other"), "run": samples.run(session_id=None)},
    {"run": samples.run(safety_mode="read_only")},
    {"run": samples.run(tokens={"tool": 1})},
    {"template": samples.template(version="1.0.1")},
    {"surface": [LOOKUP]},
    {"surface": [LOOKUP, REFUND.model_copy(update={"granted": False, "withheld": "prohibited"})]},
    {"surface": [samples.capability(constraints={"order_id": [{"enum": [1]}]})]},
    {"surface": [samples.capability(constraints={"order_id": [{"enum": [True]}]})]},
    {"surface": [LOOKUP.model_copy(update={"lifecycle": "killed"}), REFUND]},
    {"surface": [LOOKUP, REFUND.model_copy(update={"granted": False, "withheld": "not_delegated"})]},
    {"surface": [LOOKUP.model_copy(update={"definition_digest": content_address("another")}), REFUND]},
    {"announced": [samples.decision(matched_rule_ids=["R_NOT_MATCHED"], bundle_ids=["POLICY_RETURNS_V4"])]},
    {"estimator": OneEach()},
    {"decisions": {**DECIDED, "adp_orders.lookup": samples.decision(must_escalate=["R"])}},
    {"decisions": {**DECIDED, "adp_orders.lookup": samples.decision(allowed=False, denying_rule_ids=["R_DENIES"])}},
    {"decisions": {}},
    {"decisions": {**DECIDED, "adp_orders.lookup": samples.decision(allowed=False)}},
    {"decisions": {**DECIDED, "adp_orders.lookup": samples.decision(must_refuse=["R"])}},
    {"decisions": {**DECIDED, "adp_orders.lookup": samples.decision(gates=["GATE_FINANCE_APPROVAL"])}},
    {"decisions": {**DECIDED, "adp_orders.lookup": samples.decision(arg_constraints={"order_id": [{"max": 1}]})}},
    {"decisions": {**DECIDED, "adp_orders.lookup": samples.decision(matched_rule_ids=["R_UNKNOWN"])}},
]


@pytest.mark.requirement("C-DETERMINISTIC")
def test_what_compiles_have_in_common_is_found_by_all_that_it_follows_from() -> None:
    kept = RecentlyUsed[Basis]()
    for changes in ({}, *OTHERS, *OTHERS, {}):
        made = compile_context(samples.compile_input(**changes), kept)
        assert made == compile_context(samples.compile_input(**changes)), changes
        if isinstance(made, dict):
            assert canonical(made) == canonical(compile_context(samples.compile_input(**changes))), changes

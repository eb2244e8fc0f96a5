"""A reference leads to the page of what it names, if the reader's roles open that page."""

from __future__ import annotations

import pytest

from contextos.server.console.references import reference_address
from contextos.service.operations.operation import READER_ROLES

READER = frozenset(READER_ROLES)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kg:order:ord_881#snapshot_kg_1", "/console/ask/facts.list?subject=order%3Aord_881"),
        ("tool:adp_orders.lookup:tool_0f1e2d3c4b5a6978", "/console/runs/run_1/entries?call=tool_0f1e2d3c4b5a6978"),
        ("policy:POLICY_RETURNS_V4#R_REFUND", "/console/ask/policies.list"),
        ("artifact:icp#rev_0f1e2d3c4b5a6978", "/console/ask/slots.selections?run=run_1"),
        ("memory:mem_1", "/console/ask/memories.list"),
        ("ctxpack.support@5.2.0", "/console/ask/packs.list"),
        ("session:sess_1", None),
        ("order:ord_881", None),
        ("", None),
        ("kg:order:ord_881#snapshot_kg_1<script>", None),
    ],
)
def test_what_a_reference_leads_to(text: str, address: str | None) -> None:
    assert reference_address(text, "run_1", READER) == address


def test_without_the_role_or_the_run_there_is_no_link() -> None:
    assert reference_address("kg:order:ord_881#snapshot_kg_1", "run_1", frozenset()) is None
    assert reference_address("tool:adp_orders.lookup:tool_0f1e2d3c4b5a6978", "", READER) is None

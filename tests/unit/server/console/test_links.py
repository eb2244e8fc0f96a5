"""The links to forms and pages, which roles and the state of a thing decide."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from contextos.server.console.links import acts_on, form_address, may_sign, reference_address
from contextos.service.operations.operation import READER_ROLES
from contextos.service.operations.table import named_operation

READER = frozenset(READER_ROLES)
EVERYTHING = frozenset({"operator", "policy_admin", "memory_reviewer", "knowledge_writer", "publisher", "auditor"})


def test_a_role_decides_which_forms_are_linked() -> None:
    item = {"ref": "a@1.0.0", "withdrawn": False}
    assert [link.label for link in acts_on("packs.list", item, EVERYTHING)] == ["withdraw"]
    assert acts_on("packs.list", item, frozenset({"operator"})) == []
    assert acts_on("packs.list", {**item, "withdrawn": True}, EVERYTHING) == []
    assert acts_on("breakers.list", {"capability_id": "a.b"}, EVERYTHING) == []


def test_a_link_fills_in_what_the_item_says() -> None:
    [link] = acts_on("pins.list", {"refs": ["a@1.0.0", "b&=c"], "intents": ["i"], "environment": "dev"}, EVERYTHING)
    assert parse_qs(urlsplit(link.address).query) == {
        "refs": ["a@1.0.0\nb&=c"],
        "intents": ["i"],
        "environment": ["dev"],
    }
    promote, reject = acts_on("memories.list", {"proposal_id": "mwp_1"}, EVERYTHING)
    assert promote.address == "/console/do/memories.review?of=mwp_1&verdict=promote"
    assert reject.address.endswith("verdict=reject")


def test_an_address_has_no_empty_field() -> None:
    assert form_address("facts.set", subject="") == "/console/do/facts.set"


def test_an_operation_without_roles_is_decided_by_the_server_alone() -> None:
    assert may_sign(named_operation("runs.cancel"), frozenset())
    assert not may_sign(named_operation("runs.retry"), frozenset({"auditor"}))
    assert not may_sign(named_operation("pins.list"), EVERYTHING)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("kg:order:ord_881#snapshot_kg_1", "/console/facts?subject=order%3Aord_881"),
        ("tool:adp_orders.lookup:tool_0f1e2d3c4b5a6978", "/console/runs/run_1/entries?call=tool_0f1e2d3c4b5a6978"),
        ("policy:POLICY_RETURNS_V4#R_REFUND", "/console/policies"),
        ("artifact:icp#rev_0f1e2d3c4b5a6978", "/console/ask/slots.selections?run=run_1"),
        ("memory:mem_1", "/console/ask/memories.list"),
        ("ctxpack.support@5.2.0", "/console/packs/ctxpack.support@5.2.0"),
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

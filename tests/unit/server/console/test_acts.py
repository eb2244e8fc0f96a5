"""The links to forms, which roles and the state of a thing decide."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

from contextos.server.console.acts import acts_on, form_address, may_sign
from contextos.service.operations.table import named_operation

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

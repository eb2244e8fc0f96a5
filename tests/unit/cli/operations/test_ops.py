"""`contextos ops` says of each operation where it is, who may ask it, and whether it is signed."""

from __future__ import annotations

from contextos.service.operations.table import OPERATION_TABLE


def test_the_table_is_printed_as_text_and_as_json(say) -> None:
    listed = say("ops", "--json").json["operations"]
    assert [(one["name"], one["method"], one["path"], one["roles"], one["signed"]) for one in listed] == [
        (one.name, one.address[0], "/v1" + one.address[1], list(one.roles), bool(one.signs)) for one in OPERATION_TABLE
    ]
    shown = say("ops").out
    assert "facts.set  POST /v1/facts  signed\n  Write a fact that nothing contradicts yet." in shown
    assert "facts.list  GET /v1/facts\n" in shown

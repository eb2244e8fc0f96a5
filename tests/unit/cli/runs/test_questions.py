"""`approvals list`: everybody who has to answer finds their question, and nobody else's."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest


@pytest.fixture
def asked(shop: Any) -> str:
    """A refund of the demo's shop that waits for a finance lead; its run id."""
    said = shop.say("invoke", shop.request("next"), "--json")
    assert said.code == 5
    return str(said.json["run_id"])


def test_a_question_is_listed_until_it_is_answered(shop: Any, asked: str) -> None:
    said = shop.say("approvals", "list")
    assert said.code == 0
    assert asked in said.out
    assert "adp_payments.issue_refund" in said.out
    [one] = shop.say("approvals", "list", "--role", "finance_lead", "--json").json["questions"]
    assert (one["run_id"], one["required_role"], one["args"]["amount_inr"]) == (asked, "finance_lead", 5000)
    assert ["--binding", one["binding_digest"]] == shop.binding("req_next"), "what `approve` takes"
    assert shop.say("approvals", "deny", "req_next", *shop.key, *shop.binding("req_next")).code == 1
    assert shop.say("approvals", "list").out == "nobody is asked anything\n"


def test_a_question_to_another_role_is_left_out(shop: Any, asked: str) -> None:
    assert shop.say("approvals", "list", "--role", "support_lead", "--json").json["questions"] == []
    said = shop.say("approvals", "list", "--role", "finance_laed")
    assert (said.code, "no approver holds the role `finance_laed`; did you mean `finance_lead`?" in said.out) == (
        0,
        True,
    )


def test_a_list_goes_on_at_its_cursor(shop: Any, asked: str) -> None:
    assert shop.say("invoke", shop.request("deny")).code == 5
    first = shop.say("approvals", "list", "--limit", "1", "--json").json
    assert f"--cursor {first['cursor']}" in shop.say("approvals", "list", "--limit", "1").out
    second = shop.say("approvals", "list", "--cursor", first["cursor"], "--json").json
    assert [one["run_id"] for one in second["questions"]] == [asked]
    assert second["cursor"] is None


def test_a_run_that_was_altered_is_marked_and_not_a_question(shop: Any, asked: str) -> None:
    with closing(sqlite3.connect(shop.path / "contextos.db")) as store, store:
        changed = store.execute(
            "UPDATE documents SET version = version + 1, body = "
            "CAST(replace(CAST(body AS TEXT), 'GATE_FINANCE_APPROVAL', 'GATE_FINANCE_APPROVED') AS BLOB) "
            "WHERE collection = 'approvals'"
        ).rowcount
    assert changed
    said = shop.say("approvals", "list")
    assert (said.code, "DOES NOT VERIFY" in said.out) == (3, True)
    assert shop.say("approvals", "list", "--json").json["questions"] == []

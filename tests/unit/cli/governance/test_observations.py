"""`pack observations`, `pack mine` and `pack test` over a workspace in which sessions were observed."""

from __future__ import annotations

import json
from typing import Any

import pytest

import contextos
from contextos.contracts.envelopes.identity import UserClaims
from contextos.contracts.ports.gates import Done
from contextos.deployment.acts.act import Actor
from contextos.packs.building import DeclaredPack
from contextos.packs.expansion import expand
from contextos.packs.reading import read_declaration
from contextos.workspace import read_seed
from tests.sessions import EVAL, LOOKUP, REFUND
from tests.world import example

WATCH = """\
name: mini.watch
version: 1.0.0
tenant: tenant_acme_prod
who: [support_agent]
approver: finance_lead
mode: observe
tools: [adp_orders.lookup, adp_policy.eval, adp_payments.issue_refund]
budget: {max_cost_cents: 25}
permissions:
  issue_refund: {without_sum: an observing pack stops no call}
"""
OPERATOR = "user_operator_5"


@pytest.fixture
def observed(shop: Any) -> Any:
    """A workspace in which an agent looked an order up, asked the policy and refunded it, twice, observed."""
    request = example("request.json")
    with contextos.open(shop.path, dev=True) as app:
        definitions = [one.describe() for one in app.deployment.ports.adapters("tenant_acme_prod").values()]
        declaration = read_declaration(WATCH.encode())
        by = Actor.with_key(OPERATOR, read_seed(shop.path / "keys" / f"{OPERATOR}.key"))
        app.install(DeclaredPack(declaration, expand(declaration, definitions), ()), by=by)
        for number, amount in enumerate((1100, 1700)):
            gate = app.gate(
                session=f"ses_{number}",
                user=UserClaims.model_validate(request["user"]),
                agent=request["agent"]["agent_id"],
                intent="mini.watch",
            )
            refund = {"order_id": "ord_881", "amount_inr": amount}
            for call_id, tool, args in (
                ("look", LOOKUP, {"order_id": "ord_881"}),
                ("check", EVAL, refund),
                ("pay", REFUND, {**refund, "currency": "INR"}),
            ):
                assert isinstance(gate.call(tool, args, call_id=call_id), Done)
            gate.finish("approved")
    return shop


def test_what_would_have_been_asked_is_listed_by_rule(observed: Any) -> None:
    said = observed.say("pack", "observations")
    assert said.code == 0, said.err
    assert "    2  ask    GATE_MINI_WATCH_ADP_PAYMENTS_ISSUE_REFUND_ASK" in said.out.splitlines()
    assert "6 calls of 2 sessions; nothing would have stopped 4" in said.out
    (rule,) = observed.say("pack", "observations", "ses_1", "--json").json["rules"]
    assert (rule["count"], rule["verdict"], rule["calls"][0][1]) == (1, "ask", "pay")
    shown = observed.say("runs", "show", "ses_1").out
    assert "observed, not enforced" in shown


def test_a_mined_pack_expands_and_the_recording_passes_it(observed: Any, tmp_path: Any) -> None:
    file = tmp_path / "mined.yaml"
    mined = observed.say("pack", "mine", "mini.mined", "--approver", "finance_lead", "--out", str(file))
    assert mined.code == 0, mined.err
    assert "from 6 calls of 2 sessions" in mined.out
    text = file.read_text("utf-8")
    assert "# amount_inr: 1100 in run_" in text
    assert "# a person is asked about each call" in text
    assert observed.say("pack", "expand", str(file)).code == 0
    tested = observed.say("pack", "test", str(file))
    assert tested.code == 0, tested.out + tested.err
    assert tested.out.splitlines()[:3] == ["4 allowed", "2 asked about", "0 denied"]


def test_sessions_are_chosen_by_intent_and_the_newest_runs_by_a_limit(observed: Any, tmp_path: Any) -> None:
    assert "6 calls of 2 sessions" in observed.say("pack", "observations", "--intent", "mini.watch").out
    near = observed.say("pack", "mine", "mini.mined", "--intent", "mini.wacht", "--out", str(tmp_path / "no.yaml"))
    assert (near.code, (tmp_path / "no.yaml").exists()) == (2, False)
    assert "did you mean `mini.watch`?" in near.err
    one = observed.say("pack", "mine", "mini.mined", "--limit", "1", "--out", str(tmp_path / "one.yaml"))
    assert "from 3 calls of 1 sessions" in one.out
    assert "older runs were not read; read more with --limit" in one.out
    assert observed.say("pack", "observations", "--limit", "1", "--json").json["older_runs"] is True
    assert observed.say("pack", "observations", "--json").json["older_runs"] is False
    both = observed.say("pack", "test", str(tmp_path / "one.yaml"), "ses_1", "--limit", "1", "--json")
    assert (both.code, both.json["error"]["problems"][0]["code"]) == (2, "usage")


def test_a_pack_that_denies_what_was_done_fails_the_test(observed: Any, tmp_path: Any) -> None:
    file = tmp_path / "narrow.yaml"
    assert observed.say("pack", "mine", "mini.mined", "--out", str(file)).code == 0
    file.write_text(file.read_text("utf-8").replace("max: 1700", "max: 1200"), "utf-8")
    said = observed.say("pack", "test", str(file), "--json")
    assert said.code == 1
    assert said.json["deny"] == 2
    assert {one["tool"] for one in said.json["calls"] if one["verdict"] == "deny"} == {EVAL, REFUND}


def test_there_is_nothing_to_mine_or_test_without_observed_sessions(shop: Any, tmp_path: Any) -> None:
    assert shop.say("pack", "observations").out.startswith("calls  would  rule\n0 calls of 0 sessions")
    mined = shop.say("pack", "mine", "mini.mined", "--out", str(tmp_path / "none.yaml"))
    assert (mined.code, (tmp_path / "none.yaml").exists()) == (2, False)
    assert "no recorded call can be mined" in mined.err
    tested = shop.say("pack", "test", str(shop.path / "packs" / "support.json"))
    assert tested.code == 2
    assert "no call is recorded" in tested.err


def test_a_run_that_is_no_session_is_refused_by_name(shop: Any) -> None:
    said = shop.say("pack", "observations", "req_small")
    assert said.code == 2
    assert "not a session" in said.err


def test_an_existing_file_is_not_overwritten(observed: Any, tmp_path: Any) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("mine", "utf-8")
    said = observed.say("pack", "mine", "mini.mined", "--out", str(file))
    assert (said.code, file.read_text("utf-8")) == (2, "mine")
    assert json.dumps("name another file")[1:-1] in said.err

"""`resolve`, `reopen` and `close` as an operator types them, and what `show` and `runs` say afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextos.cli.runs.escalations import decision_document, decision_line
from contextos.deployment.queries.decisions import DecisionView


def exhausted(shop: Any, request_id: str, *, calls: int = 1) -> str:
    body = json.loads(Path(shop.request("next")).read_text().replace("5000", "800")) | {"request_id": request_id}
    body["runtime"]["max_tool_calls"] = calls
    path = shop.path / f"{request_id}.json"
    path.write_text(json.dumps(body))
    said = shop.say("invoke", str(path), "--json")
    assert (said.code, said.json["state"]) == (1, "exhausted")
    return str(said.json["run_id"])


def test_an_exhausted_run_is_reopened_with_more(shop: Any) -> None:
    run_id = exhausted(shop, "req_more")
    by = ["--reason", "agreed", *shop.by]
    few = shop.say("runs", "reopen", run_id, *by, "--json")
    assert (few.code, few.json["error"]["problems"][0]["pointer"]) == (2, "/to")
    said = shop.say("runs", "reopen", run_id, "--to", "8", *by, "--json")
    assert (said.code, said.json["state"]) == (0, "completed")
    shown = shop.say("runs", "show", run_id, "--json").json
    assert shown["decision"] == {"status": "DECIDED", "by": None, "reason": None}
    told = [one["text"] for one in shown["story"]["What came of it"]]
    assert told[0] == "it ended as exhausted"
    assert "reopened it with `max_tool_calls` 8: agreed" in told[1]
    assert told[2].startswith("DECIDED, approved")
    assert "3 of 8 tool calls" in shown["story"]["What it cost"][0]["text"]
    assert shop.say("replay", run_id).code == 0


def test_a_resolution_and_a_closing_are_shown_and_final(shop: Any) -> None:
    run_id = exhausted(shop, "req_by_hand")
    by = ["--reason", "paid by hand", *shop.by]
    assert shop.say("runs", "resolve", run_id, *by).code == 2, (
        "it says neither what was decided nor that it was rejected"
    )
    said = shop.say("runs", "resolve", run_id, "--decided", *by, "--json")
    assert said.json["decision"] == {"status": "DECIDED", "by": "user_operator_5", "reason": "paid by hand"}
    listed = {one["run_id"]: one for one in shop.say("runs", "list", "--limit", "100", "--json").json["runs"]}
    assert (listed[run_id]["state"], listed[run_id]["status"]) == ("exhausted", "DECIDED")
    assert "the decision is CLOSED by user_operator_5: paid by hand" in shop.say("runs", "close", run_id, *by).out
    for again in (
        ["runs", "close", run_id],
        ["runs", "resolve", run_id, "--rejected"],
        ["runs", "reopen", run_id, "--to", "9"],
    ):
        assert shop.say(*again, *by).code == 1
    assert shop.say("verify").code == 0


@pytest.mark.parametrize(
    ("decision", "line"),
    [
        (DecisionView(None), "the decision is erased"),
        (DecisionView("IN_FLIGHT"), "the decision is IN_FLIGHT"),
        (DecisionView("CLOSED", "user_5", "a\x1bb"), "the decision is CLOSED by user_5: a\\u001bb"),
    ],
)
def test_a_decision_is_one_line_and_one_object(decision: DecisionView, line: str) -> None:
    assert decision_line(decision) == line
    assert decision_document(decision)["status"] == decision.status

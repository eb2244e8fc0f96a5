"""`why` over HTTP says what the command says."""

from __future__ import annotations

import json

import pytest

from contextos.cli import run_command_line
from tests.http_face import OPERATOR, TENANT, HttpFace

TOOL = "adp_payments.issue_refund"


def test_the_reasons_are_those_of_the_command(face: HttpFace, capsys: pytest.CaptureFixture[str]) -> None:
    run = face.waiting_run()
    answer = face.send("GET", f"/v1/runs/{run}/why", by=OPERATOR, params={"tool": TOOL})
    assert answer.status_code == 200
    assert answer.json()["fault"] is None
    assert "GATE_FINANCE_APPROVAL has to approve" in answer.text
    assert {one["tool"] for one in answer.json()["reasons"]} == {TOOL, None}
    where = ["--workspace", str(face.path), "--tenant", TENANT]
    assert run_command_line(["why", run, "--tool", TOOL, *where, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == answer.json()


def test_a_tool_that_no_entry_is_about_is_refused(face: HttpFace) -> None:
    run = face.waiting_run()
    answer = face.send("GET", f"/v1/runs/{run}/why", params={"tool": "adp_payments.issue_refnd"})
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "unknown_tool")

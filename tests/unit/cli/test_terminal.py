"""The terminal gets one JSON document or plain lines, and never a raw control character of somebody else."""

from __future__ import annotations

import json

import pytest

from contextos.cli.terminal import defect, fail, misused, print_result
from contextos.errors import ApprovalRefused, InvalidInput, Overloaded, Problem

HOSTILE = "x\x1b[2J\u202ey"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_hostile_detail_is_escaped_in_both_forms(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(InvalidInput(Problem("/a", "bad", HOSTILE, HOSTILE)), as_json=as_json) == 2
    assert misused(HOSTILE, as_json=as_json) == 2
    assert defect(RuntimeError(HOSTILE), as_json=as_json) == 70
    shown = "".join(capsys.readouterr())
    assert not {"\x1b", "\u202e"} & set(shown)


def test_an_error_as_json_has_its_reason_or_its_retry_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(Overloaded("t", "full", retry_after_ms=9), as_json=True) == 4
    assert json.loads(capsys.readouterr().out)["error"]["retry_after_ms"] == 9
    assert fail(ApprovalRefused("self_approval", "no"), as_json=True) == 1
    assert json.loads(capsys.readouterr().out)["error"]["reason"] == "self_approval"


def test_a_document_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_result({"a": "ü"}, ["not this"], as_json=True)
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"a": "ü"}

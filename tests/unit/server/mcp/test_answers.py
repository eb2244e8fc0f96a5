"""Answers of a gate as MCP results: what was not done is an error that says what to do next."""

from __future__ import annotations

import pytest

from contextos.contracts.envelopes.artifacts import RecordedArtifact
from contextos.contracts.envelopes.tool import ToolError
from contextos.contracts.ports.gates import Done, Reason, Refused, Waiting
from contextos.errors import Integrity, InvalidInput, OtherEnvironment, Problem, Unavailable
from contextos.server.mcp.answers import HOW_IT_ENDS, call_result, error_result, for_client, utc_text


def test_a_tool_that_failed_is_an_error_and_no_refusal() -> None:
    failed = call_result(Done("mcp_1", None, ToolError(code="no_such_order", message="it is gone")), "run_1")
    assert (failed.is_error, failed.structured_content["status"]) == (True, "failed")
    assert "no_such_order" in failed.content[0].text


def test_an_answer_of_an_earlier_call_says_so() -> None:
    again = call_result(Done("mcp_1", {"x": 1}, replayed=True), "run_1")
    assert not again.is_error
    assert again.structured_content == {"x": 1}
    assert again.meta["io.contextos/replayed"] == "true"


def test_a_refusal_names_the_tools_as_the_client_sees_them() -> None:
    reason = Reason("tool_not_in_manifest", "`pay` is not a tool of this session", "use one of shop.refund")
    refused = call_result(Refused("mcp_1", (reason,)), "run_1", ["shop__refund"])
    assert refused.content[0].text == "refused: `pay` is not a tool of this session; use one of shop__refund"
    reason = Reason("tool_not_in_manifest", "`refnd` is not a tool of this session", "did you mean `shop.refund`?")
    refused = call_result(Refused("c", (reason,)), "r", ["shop__look", "shop__refund"])
    assert refused.content[0].text == "refused: `refnd` is not a tool of this session; did you mean `shop__refund`?"


@pytest.mark.parametrize("waits_for", HOW_IT_ENDS)
def test_whatever_a_session_waits_for_the_same_call_is_the_way_on(waits_for: str) -> None:
    waits = call_result(Waiting("mcp_2", waits_for, "mcp_1", {}), "run_1")
    assert waits.is_error
    assert waits.structured_content["this_call"] is False
    text = waits.content[0].text
    assert "{run}" not in text
    for told in ("which is not final", "no other call does the same", "make exactly the same call again"):
        assert told in text
    assert "make exactly the same call again" in waits.structured_content["remedy"]
    assert ("nothing is done yet" in text) is (waits_for != "settlement"), "an uncertain effect may be done"


@pytest.mark.parametrize("waits_for", HOW_IT_ENDS)
def test_a_person_finds_the_question_at_the_link(waits_for: str) -> None:
    page = "https://approve.acme.example/runs/run_1"
    waits = call_result(Waiting("mcp_2", waits_for, "mcp_2", {}), "run_1", link=page)
    of_person = waits_for != "engine"
    assert (waits.structured_content.get("link") == page) is of_person
    assert (page in waits.content[0].text) is of_person
    assert "link" not in call_result(Waiting("mcp_2", waits_for, "mcp_2", {}), "run_1").structured_content


def test_an_error_of_the_runtime_is_a_result_with_a_remedy() -> None:
    silent = error_result(Unavailable("store", "it does not answer"))
    assert silent.structured_content["reasons"][0]["remedy"] == "make exactly the same call again"
    assert (silent.structured_content["status"], silent.structured_content["waits_for"]) == ("waiting", "engine")
    broken = error_result(Integrity("the row is not believed"))
    assert (broken.is_error, broken.structured_content["status"]) == (True, "failed")
    elsewhere = error_result(OtherEnvironment("`run_1`", "dev", "prod"))
    assert elsewhere.structured_content["status"] == "failed"
    assert elsewhere.structured_content["reasons"][0]["remedy"] == "ask the operator of this server"
    for unknown in (silent, broken, elsewhere):
        assert "a call may have been made" in unknown.content[0].text
    wrong = error_result(InvalidInput(Problem("/x", "bad", "it is wrong", "correct it")))
    assert wrong.content[0].text == "refused: it is wrong; correct it"


def test_only_the_log_of_the_server_names_another_environment(caplog: pytest.LogCaptureFixture) -> None:
    error = OtherEnvironment("`run_1`", "dev", "prod")
    said = for_client(error)
    assert ("of another environment" in said, "run_1" in said, "prod" in said) == (True, False, False)
    assert error_result(error).structured_content["reasons"][0]["detail"] == said
    assert all("`run_1` is of the environment `dev`" in one.getMessage() for one in caplog.records)
    assert len(caplog.records) == 2
    assert for_client(Unavailable("store", "it does not answer")) == str(Unavailable("store", "it does not answer"))


def test_times_are_in_utc() -> None:
    assert utc_text(1_793_003_600_122_000) == "2026-10-26T08:33:20Z"


def test_artifacts_are_embedded_resources_and_a_withheld_one_is_only_named() -> None:
    named = {"name": "rows.csv", "media_type": "text/csv", "evidence_ref": "artifact:a#b"}
    kept = [{"content": "a,b"}, {"content": {"a": 1}, "media_type": "application/json"}]
    kept += [{"content": "/w==", "encoding": "base64"}]
    found = [named | one | {"artifact_id": f"art_{at}"} for at, one in enumerate(kept)]
    made = [RecordedArtifact.model_validate(one) for one in found]
    withheld = {"code": "unsafe_output", "detail": "it is a key"}
    made.append(RecordedArtifact(artifact_id="art_3", name="key.pem", media_type="text/plain", withheld=withheld))  # type: ignore[arg-type]
    done = call_result(Done("mcp_1", {"rows": 1}, artifacts=tuple(made)), "run_1")
    assert done.structured_content == {"rows": 1}
    said, *embedded = done.content
    assert said.text == '{"rows":1}\nmade beside it, and not shown here: key.pem (text/plain)'
    assert [(one.resource.uri, one.resource.mime_type) for one in embedded] == [
        ("artifact:art_0", "text/csv"),
        ("artifact:art_1", "application/json"),
        ("artifact:art_2", "text/csv"),
    ]
    assert [getattr(one.resource, "text", None) or one.resource.blob for one in embedded] == ["a,b", '{"a":1}', "/w=="]

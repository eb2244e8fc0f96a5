"""The gate of a session over HTTP gives the answers that the gate in the same process gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.client import connect
from contextos.contracts.ports.gates import Done, Refused, Waiting
from contextos.errors import ConflictingRequest, InvalidInput, NotFound
from contextos.frameworks.offers import ask
from tests.http_face import HttpFace, begin_deploys, http_face, served_url
from tests.unit.contracts.ports.test_gates import NO_CALLS

WHERE = {"service": "checkout", "env": "prod"}


@pytest.fixture(scope="module")
def deploys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpFace, str]]:
    with http_face(tmp_path_factory.mktemp("deploys"), begin_deploys) as face, served_url(face) as url:
        yield face, url


def opened(client: Any, session: str) -> Any:
    return client.gate(session=session, agent="agt_deploy", delegation="tok_ana")


def test_calls_are_done_refused_and_wait_for_a_person(deploys: tuple[HttpFace, str]) -> None:
    face, url = deploys
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex((face.path / "keys" / "olga.key").read_text("utf-8")))
    with connect(url, face.token("ana", "acme")) as ana, connect(url, face.token("olga", "acme")) as olga:
        gate = opened(ana, "s1")
        assert gate.session == "s1"
        assert "deploy.rollback" in gate.tools
        assert set(gate.described_tools()) == set(gate.tools)
        assert gate.described_tools()["deploy.rollback"].input_schema["required"] == ["service", "env"]
        early = gate.call("deploy.rollback", WHERE, call_id="too_early")
        assert isinstance(early, Refused)
        assert early.reasons[0].code == "policy_eval_error"
        assert "read the missing facts first" in early.reasons[0].remedy
        assert isinstance(gate.call("deploy.ci_status", {"service": "checkout"}, call_id="ci"), Done)
        assert isinstance(gate.call("deploy.impact", WHERE, call_id="impact"), Done)
        waiting = gate.call("deploy.rollback", WHERE, call_id="rollback")
        assert isinstance(waiting, Waiting)
        assert (waiting.waits_for, waiting.about) == ("approval", "rollback")
        assert waiting.question["required_role"] == "oncall"
        olga.answer(olga.question(gate.run_id), "approved", sign=key.sign)
        done = gate.call("deploy.rollback", WHERE, call_id="rollback", wait_s=20)
        assert isinstance(done, Done)
        assert done.error is None
        assert opened(ana, "s1").call("deploy.rollback", WHERE, call_id="rollback") == done
        with pytest.raises(ConflictingRequest):
            gate.call("deploy.ci_status", {"service": "other"}, call_id="rollback")
        ended = gate.finish("approved", "done")
        assert (ended.ended, ended.record.outcome) == (True, "approved")
        assert gate.view().record == ended.record


def test_a_call_that_is_no_call_is_refused_and_a_session_of_another_is_not_there(deploys: tuple[HttpFace, str]) -> None:
    face, url = deploys
    with connect(url, face.token("ana", "acme")) as ana, connect(url, face.token("olga", "acme")) as olga:
        gate = opened(ana, "s2")
        for args, call_id in (([], "c"), ({}, ""), ({}, "é")):
            with pytest.raises(InvalidInput):
                gate.call("deploy.ci_status", args, call_id=call_id)
        with pytest.raises(InvalidInput, match="twice"):
            gate.call("deploy.rollback", '{"service": "a", "service": "b"}', call_id="c")
        detail = gate.finish("approved").record.rationale.failures[0].detail
        assert "the last call of `deploy.rollback` was not done" in detail
        with pytest.raises(NotFound):
            olga.run(gate.run_id)
        with pytest.raises(InvalidInput):
            gate.finish("done")


@pytest.mark.parametrize(("name", "args", "call_id", "at"), NO_CALLS.values(), ids=NO_CALLS)
def test_what_a_model_may_write_is_refused_for_it_to_read_as_in_one_process(
    deploys: tuple[HttpFace, str], name: Any, args: Any, call_id: Any, at: str
) -> None:
    """A framework's loop goes on after a refusal, and ends with every other error."""
    face, url = deploys
    with connect(url, face.token("ana", "acme")) as ana:
        gate = opened(ana, "s_no_calls")
        assert isinstance(ana.call(ask, gate, {}, name, args, call_id), Refused)
        local = face.call(face.app.gate(session="l", user="ana", agent="agt_deploy", token="tok_ana", tenant="acme"))
        assert isinstance(face.call(ask(local, {}, name, args, call_id)), Refused)
        assert at


def test_a_call_is_held_longer_than_the_limit_for_one_answer(deploys: tuple[HttpFace, str]) -> None:
    face, url = deploys
    with connect(url, face.token("ana", "acme"), timeout_s=2) as ana:
        gate = opened(ana, "s_held")
        gate.call("deploy.ci_status", {"service": "checkout"}, call_id="ci")
        gate.call("deploy.impact", WHERE, call_id="impact")
        assert isinstance(gate.call("deploy.rollback", WHERE, call_id="rollback", wait_s=4), Waiting)

"""An agent that chooses its own calls, over HTTP: its calls are governed, answered once, and its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from contextos.adapters.key_files import KeyFiles
from contextos.cli.demo.workspace import example_operator, make_workspace, seed_graph
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.server.rates import Places
from contextos.store.shared.clock import SystemClock
from contextos.trust.seal import seal
from contextos.workspace import open_unchecked
from contextos.workspace.settings import Settings
from tests.http_face import REQUESTER, TENANT, HttpFace, begin_deploys, http_face
from tests.modelled import EVALUATE, LOOKUP, REFUND, calls, finish, pack, sealed_models

ACME: dict[str, str] = {"by": "ana", "tenant": "acme"}
OLGA: dict[str, str] = {"by": "olga", "tenant": "acme"}
WHERE = {"service": "checkout", "env": "prod"}


@pytest.fixture(scope="module")
def deploys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("deploys"), begin_deploys) as made:
        yield made


def opened(face: HttpFace, session: str, **who: str) -> httpx.Response:
    body = {"session": session, "agent": "agt_deploy", "delegation": "tok_ana"}
    return face.send("POST", "/v1/sessions", json=body, **(who or ACME))  # type: ignore[arg-type]


def call(face: HttpFace, session: str, tool: str, args: dict[str, Any], call_id: str, **more: Any) -> httpx.Response:
    body = {"call_id": call_id, "tool": f"deploy.{tool}", "args": args}
    return face.send("POST", f"/v1/sessions/{session}/calls", json=body, **ACME, **more)


def asked(face: HttpFace, session: str) -> str:
    """Open a session that waits for the person on call; return its run."""
    run = opened(face, session).json()["run_id"]
    call(face, session, "ci_status", {"service": "checkout"}, "ci")
    call(face, session, "impact", WHERE, "impact")
    waiting = call(face, session, "rollback", WHERE, "rollback")
    assert (waiting.status_code, waiting.json()["status"], waiting.json()["waits_for"]) == (202, "waiting", "approval")
    assert waiting.json()["question"]["required_role"] == "oncall"
    return str(run)


def answer(face: HttpFace, run: str, verdict: str) -> None:
    said = face.send("POST", f"/v1/approvals/{run}/statement", json={"verdict": verdict}, **OLGA).json()
    [signed] = said["statements"][0]["signing_inputs"].values()
    body = {"verdict": verdict, "tokens": [face.signature(signed, "olga")]}
    assert face.send("POST", f"/v1/approvals/{run}/answer", json=body, **OLGA).status_code == 200


def test_a_run_in_flight_has_no_record_or_decision_yet_and_says_so(deploys: HttpFace) -> None:
    run = opened(deploys, "s_flight").json()["run_id"]
    assert deploys.send("GET", f"/v1/runs/{run}", **ACME).json()["ended"] is False
    for part in ("record", "decision"):
        early = deploys.send("GET", f"/v1/runs/{run}/{part}", **ACME)
        assert (early.status_code, early.json()["code"]) == (409, "not_ended")
        assert "`GET /v1/runs/{run}`" in early.json()["detail"]
        for nobody in (f"/v1/runs/run_0000000000000000/{part}", f"/v1/runs/s_nothing/{part}"):
            assert deploys.send("GET", nobody, **ACME).status_code == 404
        assert deploys.send("GET", f"/v1/runs/{run}/{part}", by="ivan", tenant="acme").status_code == 404
    assert deploys.send("POST", "/v1/sessions/s_flight/finish", json={"outcome": "denied"}, **ACME).status_code == 200
    for part in ("record", "decision"):
        assert deploys.send("GET", f"/v1/runs/{run}/{part}", **ACME).status_code == 200
    waits = asked(deploys, "s_waits")
    assert deploys.send("GET", f"/v1/runs/{waits}/record", **ACME).json()["status"] == "DEFERRED"
    assert deploys.send("GET", f"/v1/runs/{waits}/decision", **ACME).json()["code"] == "not_ended"


def test_a_session_waits_for_a_person_goes_on_and_is_decided(deploys: HttpFace) -> None:
    run = asked(deploys, "s1")
    answer(deploys, run, "approved")
    done = call(deploys, "s1", "rollback", WHERE, "rollback", headers={"Prefer": "wait=20"})
    assert (done.status_code, done.json()["status"]) == (200, "done")
    assert call(deploys, "s1", "rollback", WHERE, "rollback").json() == done.json()
    ended = deploys.send("POST", "/v1/sessions/s1/finish", json={"outcome": "approved"}, **ACME).json()
    assert (ended["run_id"], ended["ended"], ended["record"]["outcome"]) == (run, True, "approved")
    assert ended["record"]["approvals"][0]["approver"] == "olga"


def test_a_tenant_that_holds_as_many_calls_as_it_may_is_answered_at_once(
    deploys: HttpFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A held call is asked for again and again, so held calls of one tenant would take the server from others."""
    asked(deploys, "s9")
    places = Places("calls that wait", 2, 1)
    monkeypatch.setattr(deploys.api.state, "held", places)

    async def never(_us: int) -> None:
        raise AssertionError("it was held")

    with places.place("acme"), monkeypatch.context() as patched:
        patched.setattr(deploys.app.deployment, "ports", replace(deploys.app.deployment.ports, pause=never))
        answered = call(deploys, "s9", "rollback", WHERE, "rollback", headers={"Prefer": "wait=30"})
    assert (answered.status_code, answered.json()["status"], answered.headers["retry-after"]) == (202, "waiting", "1")
    call(deploys, "s9", "rollback", WHERE, "rollback", headers={"Prefer": "wait=1"})
    places.take("acme")


def test_a_denied_call_is_refused_with_what_to_do(deploys: HttpFace) -> None:
    run = asked(deploys, "s2")
    answer(deploys, run, "denied")
    refused = call(deploys, "s2", "rollback", WHERE, "rollback", headers={"Prefer": "respond-async, wait=20"}).json()
    assert (refused["status"], [one["code"] for one in refused["reasons"]]) == ("refused", ["approval_denied"])
    assert refused["reasons"][0]["remedy"] == "a person said no; do not ask again"


def test_a_session_is_found_again_with_its_tools_and_a_tool_of_nobody_is_refused(deploys: HttpFace) -> None:
    first, again = opened(deploys, "s3"), opened(deploys, "s3")
    assert (first.status_code, first.json()) == (201, again.json())
    assert first.headers["location"] == "/v1/sessions/s3"
    assert deploys.send("GET", "/v1/sessions/s3", **ACME).json() == first.json()
    assert "deploy.rollback" in first.json()["tools"]
    unknown = call(deploys, "s3", "format_disk", {}, "x").json()
    assert (unknown["status"], unknown["reasons"][0]["code"]) == ("refused", "tool_not_in_manifest")
    conflicting = call(deploys, "s3", "impact", WHERE, "x")
    assert (conflicting.status_code, conflicting.json()["code"]) == (422, "conflicting_request")


def test_a_session_that_is_opened_otherwise_names_what_differs_as_the_body_names_it(deploys: HttpFace) -> None:
    opened(deploys, "s9")
    body = {"session": "s9", "agent": "agt_deploy", "delegation": "tok_ana", "message": "m", "context": {"a/b": 1}}
    refused = deploys.send("POST", "/v1/sessions", json=body, **ACME)
    assert (refused.status_code, refused.json()["code"]) == (422, "conflicting_request")
    assert [(one["pointer"], "absent" in one["detail"]) for one in refused.json()["errors"]] == [
        ("/context/a~1b", True),
        ("/message", False),
    ]


def test_the_session_of_somebody_else_is_not_there(deploys: HttpFace) -> None:
    opened(deploys, "s4")
    for who in (OLGA, {"by": "otto", "tenant": "acme"}):
        for method, path, body in (
            ("GET", "/v1/sessions/s4", None),
            ("POST", "/v1/sessions/s4/calls", {"call_id": "1", "tool": "deploy.ci_status"}),
            ("POST", "/v1/sessions/s4/finish", {"outcome": "denied"}),
        ):
            sent = deploys.send(method, path, **who, **({"json": body} if body else {}))  # type: ignore[arg-type]
            nowhere = deploys.send(method, path.replace("s4", "s0"), **who, **({"json": body} if body else {}))  # type: ignore[arg-type]
            assert (sent.status_code, sent.content, sent.headers) == (404, nowhere.content, nowhere.headers)


@pytest.mark.parametrize("name", ["ana:s4", "a b", "", "../s4", "s" * 65])
def test_a_name_that_is_none_names_no_session(deploys: HttpFace, name: str) -> None:
    assert deploys.send("GET", f"/v1/sessions/{name}", **ACME).status_code == 404
    sent = deploys.send("POST", "/v1/sessions", json={"session": name, "agent": "agt_deploy"}, **ACME)
    assert (sent.status_code, sent.json()["code"]) == (422, "invalid_envelope")


async def begin_models(path: Path) -> None:
    """Make a workspace of refunds whose calls a model chooses, which answers from a script."""
    made = make_workspace(path)
    sealed = seal(PACK_TYPE, canonical(pack(chosen_by="model")), KeyFiles(path / "keys", SystemClock()), "pack")
    (path / "packs" / "support.json").write_text(json.dumps(sealed))
    script = {"large": [calls(LOOKUP), calls(EVALUATE), calls(REFUND), finish()]}
    (path / "script.json").write_text(json.dumps(script))
    toml = path / "contextos.toml"
    text = toml.read_text("utf-8").replace("unsafe = [", 'unsafe = ["unsafe_scripted_models", ')
    toml.write_text(text + '\n[models]\nscript = "script.json"\n', "utf-8")
    for one in await asyncio.to_thread(sealed_models, path):
        one.rename(path / "packs" / one.name)
    app = await open_unchecked(Settings.read(path))
    await app.initialise(TENANT, by=example_operator(path))
    await seed_graph(app, made)
    app.close()


def test_a_program_is_not_heard_by_a_run_whose_calls_a_model_chooses(tmp_path: Path) -> None:
    with http_face(tmp_path, begin_models) as face:
        body = face.request("small", request_id=f"{REQUESTER}:s_model")
        run = face.send("POST", "/v1/runs", json=body).json()
        assert run["state"] == "completed", run
        said = {"call_id": "c1", "tool": "adp_orders.lookup", "args": {"order_id": "ord_881"}}
        for method, path, sent in (
            ("POST", "/calls", said),
            ("POST", "/finish", {"outcome": "denied"}),
            ("GET", "", None),
        ):
            refused = face.send(method, f"/v1/sessions/s_model{path}", json=sent)
            assert refused.status_code == 422, refused.text
            assert refused.json()["errors"][0]["code"] == "no_session"

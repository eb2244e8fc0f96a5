"""A refused request says at once all that is wrong with it, with the place and what to write, at each door."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contextos.cli import run_command_line
from contextos.errors import InvalidInput
from tests.http_face import TENANT, HttpFace, http_face

SHAPE = {
    "/context_pack_refs": [],
    "/request_id": "",
    "/session_id": 5,
    "/mode": "fast",
    "/modee": "batch",
    "/input/intent": 3,
}
UNTOLD = {"unknown_ref", "unpinned_ref", "unknown_intent", "other_environment", "parameter_missing"}


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("shop") / "shop") as served:
        yield served


def changed(right: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The request with these values at these places; None removes the member."""
    made = copy.deepcopy(right)
    for place, value in changes.items():
        *above, last = place.split("/")[1:]
        within = made
        for step in above:
            within = within[step]
        within[last] = value
        if value is None:
            del within[last]
    return made


WRONG: dict[str, tuple[dict[str, Any], list[tuple[str, str, str]]]] = {
    "identity": (
        {
            "/user/role": "nobody",
            "/agent/role": "x",
            "/agent/agent_urn": "agent:x/y@1.0.0",
            "/context_pack_refs": ["ctxpack.none@1.0.0"],
            "/input/intent": "support.refnd",
            "/environment": "staging",
        },
        [
            ("identity_refused", "/user/role", "send what is registered"),
            ("identity_refused", "/agent/agent_urn", "send what is registered"),
            ("identity_refused", "/agent/role", "send what is registered"),
        ],
    ),
    "artifacts": (
        {
            "/environment": "staging",
            "/context_pack_refs": ["ctxpack.support@5.2.9", "ctxpack.support"],
            "/input/intent": "support.refnd",
        },
        [
            ("other_environment", "/environment", "name `dev`"),
            ("unknown_ref", "/context_pack_refs/0", "publish it"),
            ("unpinned_ref", "/context_pack_refs/1", "use the form `"),
            ("unknown_intent", "/input/intent", "did you mean `support.refund`?"),
        ],
    ),
    "intent": (
        {
            "/environment": "staging",
            "/input/channel": "fax",
            "/input/locale": "xx",
            "/input/message": "refund it",
            "/input/context/order_id": None,
            "/user/delegation": None,
        },
        [
            ("other_environment", "/environment", "name `dev`"),
            ("unknown_intent", "/input/channel", "name one of `app_chat`, `email`, `voice`"),
            ("unknown_intent", "/input/locale", "name one of `en-IN`"),
            ("parameter_missing", "/input/context/order_id", "send `input.context.order_id`"),
            ("tool_not_in_manifest", "/user/delegation", "has delegated nothing to the agent; state their"),
        ],
    ),
    "parameters": (
        {"/input/message": "refund it", "/input/context/order_id": None, "/user/delegation": None},
        [
            ("parameter_missing", "/input/context/order_id", "send `input.context.order_id`"),
            ("tool_not_in_manifest", "/user/delegation", "has delegated nothing to the agent; state their"),
        ],
    ),
}


def told(failures: list[dict[str, Any]], expected: list[tuple[str, str, str]]) -> None:
    assert [(one["code"], one["pointer"]) for one in failures] == [(code, place) for code, place, _ in expected]
    for one, (_, _, remedy) in zip(failures, expected, strict=True):
        assert remedy in one["detail"]


@pytest.mark.parametrize("name", WRONG)
def test_a_run_that_is_not_admitted_has_every_failure(
    face: HttpFace, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, expected = WRONG[name]
    right = face.request()

    inside = face.call(face.app.deployment.invoke(changed({**right, "request_id": f"{name}_inside"}, changes)))
    told(inside.record["rationale"]["failures"], expected)

    sent = face.send("POST", "/v1/runs", json=changed(right, changes))
    assert sent.status_code in (200, 201), sent.text
    record = face.send("GET", f"/v1/runs/{sent.json()['run_id']}/record").json()
    told(record["rationale"]["failures"], expected)

    file = tmp_path / "request.json"
    file.write_text(json.dumps(changed({**right, "request_id": f"{name}_cli"}, changes)), "utf-8")
    for command in ("invoke", "compile"):
        assert run_command_line([command, str(file), "-w", str(face.path)]) == 1
        lines = [line for line in capsys.readouterr().out.splitlines() if " at /" in line]
        assert len(lines) == len(expected)
        for line, (code, place, remedy) in zip(lines, expected, strict=True):
            assert f"{code} at {place}: " in line
            assert remedy in line

    replayed = ["replay", inside.run_id, "--tenant", TENANT, "-w", str(face.path)]
    assert run_command_line(replayed) == 0
    # Corrected once, under its own id, it is taken.
    again = face.send("POST", "/v1/runs", json=right)
    assert again.status_code in (200, 201)
    assert again.json()["run_id"] != sent.json()["run_id"]
    assert face.send("GET", f"/v1/runs/{again.json()['run_id']}").json()["state"] == "completed"


def test_a_request_that_has_not_the_shape_names_every_member(
    face: HttpFace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right = face.request()
    wrong = changed(right, SHAPE)
    with pytest.raises(InvalidInput) as inside:
        face.call(face.app.deployment.invoke(wrong))
    assert sorted(one.pointer for one in inside.value.problems) == sorted(SHAPE)
    assert all(one.remedy and "tuple" not in one.detail for one in inside.value.problems)

    sent = face.send("POST", "/v1/runs", json=wrong)
    assert sent.status_code in (400, 422)
    assert sorted(one["pointer"] for one in sent.json()["errors"]) == sorted(SHAPE)

    file = tmp_path / "request.json"
    file.write_text(json.dumps(wrong), "utf-8")
    assert run_command_line(["invoke", str(file), "-w", str(face.path)]) == 2
    said = capsys.readouterr().err
    assert all(f"at `{place}`" in said for place in SHAPE)
    assert face.send("POST", "/v1/runs", json=right).status_code in (200, 201)


def test_who_is_not_known_learns_nothing_else(face: HttpFace) -> None:
    changes = {**WRONG["artifacts"][0], "/user/user_id": "usr_nobody", "/user/delegation": None}
    view = face.call(face.app.deployment.invoke(changed(face.request(), changes)))
    [failure] = view.record["rationale"]["failures"]
    assert failure["code"] == "identity_refused"
    assert "pointer" not in failure  # whether the user or the agent is unknown stays untold
    known = face.call(face.app.deployment.invoke(changed(face.request(), WRONG["identity"][0])))
    assert not UNTOLD & {one["code"] for one in known.record["rationale"]["failures"]}

"""Context slots over HTTP: a run asks its user alone, and takes what they sign of what it offers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from contextos.cli.demo import workspace
from contextos.cli.demo.workspace import example_operator, make_workspace, seed_graph
from contextos.contracts.envelopes.artifacts import ExtensionManifest
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.acts.curation import add_artifact, add_revision, classify_artifact, register_extension
from contextos.trust.seal import listed_key
from contextos.workspace import open_unchecked
from contextos.workspace.settings import Settings
from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace, http_face
from tests.unit.cli.slots.test_slots import ICP, SEED, picked_in_a_run

ORG = "org_acme"
SLOT = {
    "slotId": "icp",
    "acceptedArtifactExtensions": [ICP],
    "selectionMode": "interactive",
    "resolutionMode": "accumulate",
}


async def begin_slots(path: Path) -> None:
    """A workspace of refunds whose pack asks the requester for an artifact; there is one that all may see."""
    sealed = workspace._seal
    asking = lambda kind, made, keys: sealed(kind, picked_in_a_run(made) if kind == PACK_TYPE else made, keys)  # noqa: E731
    with patch.object(workspace, "_seal", asking):
        made = make_workspace(path)
    directory = json.loads((path / "directory.json").read_text("utf-8"))
    for user in directory[TENANT]["users"]:
        user["organization_id"] = ORG
    (path / "keys" / f"{REQUESTER}.key").write_text(SEED.hex(), encoding="ascii")
    keyed = {"approver_id": REQUESTER, "roles": [], "granted_by": {}, "keys": [listed_key(SEED)]}
    directory[TENANT]["approvers"].append(keyed)
    (path / "directory.json").write_text(json.dumps(directory), encoding="utf-8")
    app, by = await open_unchecked(Settings.read(path)), example_operator(path)
    await app.initialise(TENANT, by=by)
    await seed_graph(app, made)
    about = {"artifact_id": "icp", "org_id": ORG}
    shown = {"title": "<script>", "owner_level": "organization", "owner_id": ORG, "visibility": "org"}
    await register_extension(app.deployment, TENANT, ExtensionManifest(extension=ICP), by=by)
    await add_artifact(app.deployment, TENANT, {**about, **shown}, by=by)
    content = {"mime": "text/plain", "content": "whom to write to"}
    await add_revision(app.deployment, TENANT, {**about, **content}, by=by)
    await classify_artifact(app.deployment, TENANT, {**about, "extension": ICP, "asserted_by": "user"}, by=by)
    app.close()


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("slots"), begin_slots) as made:
        yield made


def waiting(face: HttpFace) -> str:
    """A run that waits for its user's selection."""
    sent = face.send("POST", "/v1/runs", json=face.request())
    assert sent.json()["waits_for"] == "slot", sent.text
    return str(sent.json()["run_id"])


def chosen(face: HttpFace, run: str) -> dict[str, Any]:
    offer = face.send("GET", f"/v1/runs/{run}/slot").json()["offer"]
    answer = {"slotId": "icp", "resolutionMode": "accumulate", "selectedRefs": offer["refs"]}
    return {"answer": answer, "at_us": time.time_ns() // 1_000}


def test_the_user_of_a_run_selects_by_signature_and_the_run_goes_on(asking: HttpFace) -> None:
    run = waiting(asking)
    assert asking.send("GET", f"/v1/runs/{run}/slot").json()["slot"]["slotId"] == "icp"
    path = f"/v1/runs/{run}/slot"
    body = {**chosen(asking, run)}
    said = asking.send("POST", f"/v1/runs/{run}/slot/statement", json=body).json()
    [signing_input] = said["statements"][0]["signing_inputs"].values()
    body["tokens"] = [asking.signature(signing_input, REQUESTER)]
    for changed, status in (
        ({**body, "at_us": body["at_us"] - 1}, 403),
        ({**body, "at_us": 0}, 422),
        ({**body, "answer": {**body["answer"], "selectedRefs": []}}, 403),
        ({**body, "answer": {**body["answer"], "slotId": "other"}}, 422),
        ({**body, "tokens": [asking.token(REQUESTER)]}, 403),
    ):
        assert asking.send("POST", path, json=changed).status_code == status, changed
    done = asking.send("POST", path, json=body)
    assert done.status_code == 200, done.text
    assert asking.ended(run)["status"] == "DECIDED"
    again = asking.send("POST", path, json=body)
    assert (again.status_code, again.json()["code"]) == (409, "not_waiting")
    [one] = asking.send("GET", f"/v1/runs/{run}/selections").json()["items"]
    assert one["act"]["slot_id"] == "icp"
    assert [(pin["title"], pin["revision"], pin["content"]) for pin in one["pinned"]] == [("<script>", 1, None)]
    [shown] = asking.send("GET", f"/v1/runs/{run}/selections", params={"content": True}).json()["items"]
    assert shown["pinned"][0]["content"] == "whom to write to"


def test_nobody_but_its_user_answers_a_run(asking: HttpFace) -> None:
    run = waiting(asking)
    body = {**chosen(asking, run), "tokens": ["a.b.c"]}
    for by, status in ((OPERATOR, 403), (LEAD, 404), ("usr_772", 404)):
        assert asking.send("GET", f"/v1/runs/{run}/slot", by=by).status_code == status
        assert asking.send("POST", f"/v1/runs/{run}/slot", by=by, json=body).status_code == status
    for by in (LEAD, "usr_772"):
        assert asking.send("GET", f"/v1/runs/{run}/selections", by=by).status_code == 404
    assert asking.send("GET", f"/v1/runs/{run}/selections").json() == {"items": [], "cursor": None}


def test_the_slots_of_pinned_packs_are_listed(asking: HttpFace) -> None:
    page = asking.send("GET", "/v1/slots", by=OPERATOR).json()
    assert {(one["ref"], one["slot"]["slotId"]) for one in page["items"]} == {("ctxpack.support@5.2.0", "icp")}
    assert asking.send("GET", "/v1/slots").status_code == 403

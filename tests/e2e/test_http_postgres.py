"""The HTTP API over PostgreSQL, where workers share the runs: from a request to its record and its audit."""

from __future__ import annotations

from pathlib import Path

from tests.http_face import LEAD, OPERATOR, begin_refunds, http_face
from tests.postgres import Database


def test_a_request_is_approved_and_decided_over_postgresql(database: Database, tmp_path: Path) -> None:
    async def begin(path: Path) -> None:
        await begin_refunds(path, store=database.app)

    with http_face(tmp_path, begin) as face:
        assert face.anonymous("GET", "/v1/ready").status_code == 200
        run = face.waiting_run()
        listed = face.send("GET", "/v1/approvals", by=LEAD).json()["items"]
        assert [one["run_id"] for one in listed] == [run]
        answer = face.signed_answer(run)
        assert face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=answer).status_code == 200
        assert face.ended(run)["status"] == "DECIDED"
        accepted = face.send("POST", "/v1/runs", json=face.request(mode="long_running"))
        assert accepted.status_code == 202
        assert face.ended(accepted.json()["run_id"])["ended"] is True
        union: list[str] = []
        while (
            cut := face.send("GET", f"/v1/runs/{run}/events", headers={"Last-Event-ID": union[-1] if union else ""})
        ).status_code != 204:
            union.append(next(line.removeprefix("id: ") for line in cut.text.splitlines() if line.startswith("id: ")))
        events = face.send("GET", f"/v1/runs/{run}/events").text
        ids = [line.removeprefix("id: ") for line in events.splitlines() if line.startswith("id: ")]
        assert len(ids) == len(set(ids)) > 3
        assert union == ids
        assert events.rstrip().splitlines()[-2] == "event: RUN_FINISHED"
        for name in ("%00", "run_%00", "req_%FF"):
            assert face.send("GET", f"/v1/runs/{name}").status_code == 404
        # Long work has an event loop of its own, and so connections of its own.
        for _ in range(3):
            assert face.send("POST", f"/v1/runs/{run}/replay").json()["equal"] is True
            verified = face.send("POST", "/v1/verifications", by=OPERATOR, json={}).json()
            assert (verified["fault"], verified["streams"]) == (None, 4)
        said = face.send("POST", "/v1/exports/statement", by=OPERATOR, json={"runs": [run]}).json()
        [signing_input] = said["statements"][0]["signing_inputs"].values()
        body = {"runs": [run], "tokens": [face.signature(signing_input, OPERATOR)]}
        exported = face.send("POST", "/v1/exports", by=OPERATOR, json=body)
        assert (exported.status_code, run in exported.text) == (200, True)
        found = face.send("GET", "/v1/runs", by=OPERATOR, params={"approver": LEAD}).json()["items"]
        assert [one["run_id"] for one in found] == [run]

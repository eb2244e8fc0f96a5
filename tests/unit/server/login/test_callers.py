"""Who a request is from. Sessions of browsers are in `tests/attacks/test_f51_browser_sessions.py`."""

from __future__ import annotations

from tests.http_face import LEAD, REQUESTER, TENANT, HttpFace


def test_a_caller_reads_who_they_are(face: HttpFace) -> None:
    said = face.send("GET", "/v1/caller").json()
    expires_at = said.pop("expires_at")
    assert said == {
        "kind": "user",
        "tenant_id": TENANT,
        "subject": REQUESTER,
        "agents": None,
        "roles": [],
        "csrf_token": None,
    }
    assert expires_at > face.app.deployment.ports.clock.now_us() / 1e6
    assert face.send("GET", "/v1/caller", by=LEAD).json()["roles"] == ["finance_lead"]

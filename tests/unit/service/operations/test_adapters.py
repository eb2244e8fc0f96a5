"""Tools over HTTP: their definitions, and a quarantine that an operator ends by signature."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.action.registry import Registry
from contextos.contracts.documents.operations import DRIFT_INCIDENTS, DriftIncident, quarantine_key
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.journal import CONTROL, Batch
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace
from tests.unit.service.operations.test_packs import signed

TOOL = "adp_orders.lookup"
RELEASE = f"/v1/adapters/{TOOL}/release"


def put_in_quarantine(face: HttpFace, tool: str = TOOL) -> str:
    """Put a tool in quarantine as a call that finds another definition does, and return the incident."""
    deployment = face.app.deployment
    adapter = deployment.ports.adapters(TENANT)[tool.partition(".")[0]]
    registered = Registry().register((adapter.describe(),))[tool]
    code = deployment.ports.code.adapter(adapter) or ""
    key = f"{quarantine_key(tool, registered.definition_digest, code)}tool_1"
    known = face.call(DRIFT_INCIDENTS.one(face.app.stores.tenant(TENANT), key))
    row = DRIFT_INCIDENTS.write(key, known.version if known else 0, DriftIncident("run_1", "tool_1", 1))
    face.call(face.app.stores.tenant(TENANT).commit(Batch(run=CONTROL, writes=(row,))))
    return key


def tools(face: HttpFace, tenant: str = TENANT) -> dict[str, Any]:
    items = face.send("GET", "/v1/adapters", by=OPERATOR, tenant=tenant).json()["items"]
    return {one["capability_id"]: one for one in items}


def test_every_tool_is_listed_with_its_definition(face: HttpFace) -> None:
    listed = tools(face)
    adapters = face.app.deployment.ports.adapters(TENANT)
    described = [one.describe() for one in adapters.values()]
    assert [*listed] == sorted(f"{one.adapter_id}.{tool.name}" for one in described for tool in one.capabilities)
    [orders] = [one for one in described if one.adapter_id == "adp_orders"]
    found = listed[TOOL]
    assert found["definition"] == orders.capabilities[0].to_json()
    assert found["adapter_digest"] == content_address(orders.to_json())


def test_tools_come_in_pages(face: HttpFace) -> None:
    found, cursor = list[str](), ""
    while cursor is not None:
        page = face.send("GET", "/v1/adapters", by=OPERATOR, params={"limit": 1, "cursor": cursor}).json()
        found += [one["capability_id"] for one in page["items"]]
        cursor = page["cursor"]
    assert found == [*tools(face)]
    assert face.send("GET", "/v1/adapters", by=OPERATOR, params={"cursor": "x.y"}).status_code == 422


def test_an_operator_ends_a_quarantine_by_signature(face: HttpFace) -> None:
    key = put_in_quarantine(face)
    assert tools(face)[TOOL]["quarantine"] == {"run_id": "run_1", "at_us": 1, "incidents": [key]}
    assert tools(face, OTHER_TENANT)[TOOL]["quarantine"] is None
    body = signed(face, RELEASE, {"reason": "the server was put back"})
    for by, changed, status in (
        (OPERATOR, {**body, "reason": "another reason"}, 403),
        (OPERATOR, {**body, "reason": ""}, 422),
        (OPERATOR, {**body, "tokens": []}, 422),
        (LEAD, body, 403),
        (REQUESTER, body, 403),
    ):
        assert face.send("POST", RELEASE, by=by, json=changed).status_code == status
    assert tools(face)[TOOL]["quarantine"] is not None
    done = face.send("POST", RELEASE, by=OPERATOR, json=body)
    assert (done.status_code, done.json()) == (200, {"capability_id": TOOL, "incidents": [key]})
    assert tools(face)[TOOL]["quarantine"] is None
    assert face.send("POST", f"{RELEASE}/statement", by=OPERATOR, json={"reason": "x"}).status_code == 404


@pytest.mark.parametrize("name", ["nothing", "a.b", "%2e%2e", "adp_orders", "a" * 200])
def test_a_tool_that_is_not_in_quarantine_is_not_found(face: HttpFace, name: str) -> None:
    path = f"/v1/adapters/{name}/release/statement"
    assert face.send("POST", path, by=OPERATOR, json={"reason": "x"}).status_code == 404


@pytest.mark.parametrize("by", [REQUESTER, LEAD])
def test_who_has_no_role_sees_no_tool(face: HttpFace, by: str) -> None:
    assert face.send("GET", "/v1/adapters", by=by).json()["code"] == "not_allowed"

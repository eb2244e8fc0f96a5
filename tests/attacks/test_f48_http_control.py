"""F48: what a tenant governs is read and changed over HTTP by its own people alone, by signature, within bounds.

Attacks: the same person of another tenant, who governs nothing, a bearer token in place of a signature, the signature
of another act, a text that costs, names files or code, and a server that is asked for everything at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from contextos.server.bodies import MAX_BODY_BYTES
from contextos.server.control import children, work
from contextos.server.control.groups import CONTROL_ROUTES, GOVERNED_BODIES
from contextos.server.operations import operation_bodies, operation_routes
from contextos.service.operations.operation import OF_RUN
from contextos.service.operations.table import OPERATION_TABLE
from contextos.workspace.logins.development_tokens import development_token
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face
from tests.unit.service.operations.test_adapters import TOOL, put_in_quarantine
from tests.unit.service.operations.test_packs import PACK, SHORT, signed, version_of

NOWHERE: dict[str, str] = {"ref": "ctxpack.nothing@1.0.0", "proposal": "mwp_0000000000000000", "capability": "a.b"}
NOW_US = time.time_ns() // 1_000
FACT: dict[str, Any] = {
    "subject": "customer:cus_77",
    "predicate": "attacked",
    "value": True,
    "source": "artifact:crm_1#rev_1",
    "integrity": "trusted",
    "classification": "INTERNAL",
    "observed_at_us": 1,
}
GONE: dict[str, Any] = {"subject": "customer:cus_77", "predicate": "identity_verified", "source": FACT["source"]}
EDGE: dict[str, Any] = {
    "src": "customer:cus_77",
    "predicate": "attacked",
    "dst": "customer:cus_77",
    "value": True,
    "evidence_ref": FACT["source"],
    "observed_at": 1,
    "integrity": "trusted",
    "classification": "INTERNAL",
}
SLOT = {
    "slotId": "icp",
    "acceptedArtifactExtensions": ["@acme/icp"],
    "selectionMode": "interactive",
    "resolutionMode": "accumulate",
}
BODIES: dict[str, dict[str, Any]] = {
    "Publication": {"envelope": {}},
    "Withdrawal": {"expected": 0},
    "PinDraft": {"refs": [PACK], "intents": ["support.refund"], "expected": 0},
    "PackDraft": {"name": "a", "who": ["support_agent"]},
    "PackDeclarationText": {"declaration": SHORT},
    "LintRequest": {"document": SHORT},
    "PackTrial": {"document": SHORT},
    "MinedDraft": {"name": "a.b"},
    "SessionChoice": {},
    "SandboxRequest": {"request": {}},
    "PolicyList": {"policies": [], "expected": 0},
    "StatedFact": FACT,
    "Retraction": GONE,
    "GraphDraft": {"nodes": [], "edges": [EDGE]},
    "ReviewDraft": {"verdict": "reject", "at_us": NOW_US},
    "ModelCheckDraft": {"max_cost_cents": 1, "at_us": NOW_US},
    "ReasonDraft": {},
    "ReleaseDraft": {"reason": "same"},
    "Nothing": {},
    "ErasureDraft": {"seq": 1},
    "SettlementDraft": {"happened": False, "evidence_ref": FACT["source"]},
    "ExportDraft": {"runs": ["run_1"]},
    "SlotQuery": {"slot": SLOT, "agent": "agt_support"},
    "SlotAnswer": {"answer": {}, "at_us": NOW_US},
    "FlowAnswer": {"answer": {}},
}
"""A valid body of each model. `Signed<model>` has it too, with tokens."""
FOR_ANY_CALLER = {"/v1/packs/compile", "/v1/slots/resolve", "/v1/slots/questions", "/v1/slots/questions/{selection}"}
"""Routes that need no role, because they are about the caller. Those of a run are in `test_f45_http_tenants.py`.
The questions of flows are in `tests/unit/service/test_slot_questions.py`.
"""
QUERY = {"/v1/facts": "?subject=customer:cus_77"}
"""A query of each read that is refused without one."""


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("control")) as made:
        yield made


@pytest.fixture(scope="module")
def there(face: HttpFace) -> dict[str, str]:
    """By the name of a parameter, a thing of the first tenant."""
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    face.ended(run)
    proposal = face.send("GET", "/v1/memories", by=OPERATOR).json()["items"][0]["proposal_id"]
    put_in_quarantine(face)
    return {"ref": PACK, "proposal": proposal, "capability": TOOL}


def control_routes(face: HttpFace) -> list[tuple[str, str, dict[str, Any] | None]]:
    """Method, path and body of each route of this part of the API."""
    ours = {f"/v1{one.path}" for routes in (operation_routes(), *CONTROL_ROUTES) for one in routes.routes}  # type: ignore[attr-defined]
    found = []
    for path, operations in face.api.openapi()["paths"].items():
        for method, operation in operations.items():
            if path in ours and path not in FOR_ANY_CALLER and "{run}" not in path:
                stated = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
                found.append((method.upper(), path, valid_body(stated["$ref"].rpartition("/")[2]) if stated else None))
    return found


def valid_body(model: str) -> dict[str, Any]:
    unsigned = model.removeprefix("Signed")
    return BODIES[unsigned] | ({} if model == unsigned else {"tokens": ["a.b.c"]})


def ask(face: HttpFace, method: str, path: str, body: Any, names: dict[str, str], **who: str) -> httpx.Response:
    """The answer of a route, whose parameters are filled with `names`."""
    filled = path.format_map(names) + (QUERY.get(path, "") if method == "GET" else "")
    return face.send(method, filled, **who, **({"json": body} if body is not None else {}))  # type: ignore[arg-type]


def test_every_body_of_this_part_is_attacked_here() -> None:
    models = {one.__name__ for one in (*operation_bodies(), *GOVERNED_BODIES)}
    assert {one.removeprefix("Signed") for one in models} == BODIES.keys()
    reads = [one for one in OPERATION_TABLE if not one.signs and one.about is not OF_RUN]
    needing = [one for one in reads if any(field.is_required() for field in one.input.model_fields.values())]
    assert {f"/v1{one.address[1]}" for one in needing} == QUERY.keys()


@pytest.mark.parametrize("by", [REQUESTER, "usr_772"])
def test_who_governs_nothing_learns_nothing_from_any_route(face: HttpFace, there: dict[str, str], by: str) -> None:
    routes = control_routes(face)
    assert len(routes) >= 28
    for method, path, body in routes:
        for tenant in (TENANT, OTHER_TENANT):
            answers = [ask(face, method, path, body, names, by=by, tenant=tenant) for names in (there, NOWHERE)]
            assert {(one.status_code, one.json()["code"]) for one in answers} == {(403, "not_allowed")}, (method, path)
            assert answers[0].content == answers[1].content
            assert answers[0].headers == answers[1].headers


def test_a_thing_of_another_tenant_does_not_exist(face: HttpFace, there: dict[str, str]) -> None:
    for method, path, body in control_routes(face):
        if "{" in path:
            foreign, nowhere = (
                ask(face, method, path, body, names, by=OPERATOR, tenant=OTHER_TENANT) for names in (there, NOWHERE)
            )
            assert foreign.status_code == 404, (method, path, foreign.text)
            assert (foreign.content, foreign.headers) == (nowhere.content, nowhere.headers), (method, path)
            # Else it would pass for a route that answers nobody.
            own = ask(face, method, path, body, there, by=OPERATOR)
            assert own.status_code != 404, (method, path)


def test_lists_of_another_tenant_show_nothing_and_take_no_cursor(face: HttpFace) -> None:
    for path in ("/v1/packs", "/v1/pins", "/v1/facts?subject=customer:cus_77", "/v1/memories"):
        own = face.send("GET", path, by=OPERATOR).json()["items"]
        assert own
        assert face.send("GET", path, by=OPERATOR, tenant=OTHER_TENANT).json()["items"] == []
        bare = path.partition("?")[0]
        params = {"limit": 1, **({"subject": "customer:cus_77"} if bare == "/v1/facts" else {})}
        cursor = face.send("GET", bare, by=OPERATOR, params=params).json()["cursor"]
        assert (cursor is None) is (len(own) == 1)
        for made_up in (cursor or PACK, "1", "x" * 100, "\x00", "😀"):
            foreign = face.send("GET", bare, by=OPERATOR, tenant=OTHER_TENANT, params={**params, "cursor": made_up})
            assert (foreign.status_code, foreign.json()["errors"][0]["pointer"]) == (422, "/cursor"), made_up


def test_an_act_signed_for_one_tenant_changes_nothing_in_another(face: HttpFace) -> None:
    """The same people govern both, with the same keys."""
    body = {"reason": "", "expected": version_of(face)}
    tokens = signed(face, f"/v1/packs/{PACK}/withdraw", body)["tokens"]
    answer = face.send(
        "POST",
        f"/v1/packs/{PACK}/withdraw",
        by=OPERATOR,
        tenant=OTHER_TENANT,
        json={**body, "expected": 0, "tokens": tokens},
    )
    assert answer.status_code == 404
    assert face.send("GET", f"/v1/packs/{PACK}", by=OPERATOR).json()["withdrawn"] is False


def test_every_body_is_bounded_and_strict(face: HttpFace, there: dict[str, str]) -> None:
    json_type = {"Content-Type": "application/json"}
    for method, path, body in control_routes(face):
        if body is None:
            continue
        address = path.format_map(there)
        for content, headers, status in (
            (b"{", json_type, 400),
            (b'{"a": 1, "a": 2}', json_type, 400),
            (b"[" * 50_000, json_type, 400),
            (b"[]", json_type, 422),
            (json.dumps({**body, "also": 1}).encode(), json_type, 422),
            (b"a=b", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
            (b" " * (MAX_BODY_BYTES + 1), json_type, 413),
        ):
            answer = face.send(method, address, by=OPERATOR, content=content, headers=headers)
            assert answer.status_code == status, (path, content[:20], answer.text)
            assert answer.headers["content-type"] == "application/problem+json"


def test_no_act_is_done_without_the_signature_of_exactly_it(face: HttpFace, there: dict[str, str]) -> None:
    """A token in place of a signature, and the signature of an approval, are recorded as no act."""
    approval = face.signed_answer(face.waiting_run(), by=LEAD)["tokens"][0]
    before = len(face.call(face.app.stores.tenant(TENANT).read("control")))
    acts = [one for one in control_routes(face) if one[2] is not None and "tokens" in one[2]]
    assert len(acts) >= 10
    for method, path, body in acts:
        fields = {**(body or {})}
        if "expected" in fields:
            fields["expected"] = version_of(face)
        if path == "/v1/policies":
            # The list that is in force needs no signature, because it changes nothing.
            fields["policies"] = [{"level": "tenant", "ref": PACK}]
        for token in ("", "a.b.c", face.token(OPERATOR), approval):
            answer = ask(face, method, path, {**fields, "tokens": [token]}, there, by=OPERATOR)
            assert answer.status_code in (403, 404, 422), (path, answer.text)
    assert len(face.call(face.app.stores.tenant(TENANT).read("control"))) == before


def test_an_agent_governs_nothing_for_anybody(face: HttpFace, there: dict[str, str]) -> None:
    made = development_token(
        face.app.settings, face.app.deployment.ports, TENANT, user=None, agent="agt_support", delegation=None, ttl_s=600
    )
    token, _ = face.call(made)
    for method, path, body in control_routes(face):
        answer = ask(face, method, path, body, there, token=token)
        assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed"), (method, path)
    query = face.send("POST", "/v1/slots/resolve", token=token, json=BODIES["SlotQuery"])
    assert (query.status_code, query.json()["code"]) == (403, "no_person")


def test_of_two_acts_on_one_version_one_is_done(face: HttpFace) -> None:
    draft = {"refs": [PACK], "intents": ["support.refund"], "environment": "dev", "expected": version_of(face)}
    body = signed(face, "/v1/pins", draft)
    headers = {"Authorization": f"Bearer {face.token(OPERATOR)}"}

    async def both() -> list[int]:
        sent = [face.client.post("/v1/pins", json=body, headers=headers) for _ in range(2)]
        return [one.status_code for one in await asyncio.gather(*sent)]

    statuses = face.call(both())
    assert sorted(statuses)[0] == 201
    assert sorted(statuses)[1] in (409, 422)
    assert version_of(face) == draft["expected"] + 1


def test_a_request_that_is_cancelled_ends_its_child(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    script, told = tmp_path / "waits.py", tmp_path / "told"
    os.mkfifo(told)
    script.write_text(f"import os, time\nopen({str(told)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n")
    monkeypatch.setattr(children, "CHILD", ("-I", str(script)))

    async def cancelled() -> int:
        connected = asyncio.Event().wait
        working = asyncio.create_task(children.Children(children.child_places(), connected).do("lint", TENANT))
        child = int(await asyncio.to_thread(told.read_text))
        working.cancel()
        await asyncio.wait({working})
        return child

    with pytest.raises(ProcessLookupError):
        os.kill(face.call(cancelled()), 0)


@pytest.mark.parametrize(
    "text",
    [
        "name: !!python/object/apply:os.system ['touch /tmp/owned']\n",
        "a: &a [1]\nb: *a\n",
        "[" * 5_000,
        "{" * 5_000,
        SHORT + "summary: " + "x" * 700_000,
        SHORT + "who: [" + "a," * 150_000 + "]\n",
        SHORT.replace("adp_orders.lookup", "os.system"),
        SHORT.replace("adp_orders.lookup", "../../etc/passwd"),
        SHORT + "deny:\n  - {when: \"__import__('os').system('id')\", because: x}\n",
        "/etc/passwd",
        "file:///etc/passwd",
        '{"payloadType": "application/vnd.contextos.pack+json"}',
        '{"payloadType": "application/vnd.contextos.pack+json", "payload": "!!"}',
        '{"payloadType": ["x"], "payload": 5}',
        "\x00",
        "",
    ],
    ids=[
        "a tag",
        "an alias",
        "lists",
        "objects",
        "long",
        "wide",
        "code",
        "a path",
        "a call",
        "file",
        "url",
        "an envelope of nothing",
        "an envelope that is no Base64",
        "an envelope of numbers",
        "nul",
        "empty",
    ],
)
@pytest.mark.parametrize(("path", "field"), [("expand", "declaration"), ("lint", "document"), ("test", "document")])
def test_a_hostile_text_is_refused_and_reads_nothing_of_the_machine(
    face: HttpFace, path: str, field: str, text: str
) -> None:
    answer = face.send("POST", f"/v1/packs/{path}", by=OPERATOR, json={field: text})
    found = answer.json().get("problems") or answer.json().get("errors")
    assert answer.status_code in (200, 400, 422), answer.text
    assert found, answer.text
    assert "root:" not in answer.text
    assert "Traceback" not in answer.text


def test_work_that_takes_too_long_is_killed_and_others_are_served(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "MAX_WALL_S", 0.01)
    slow = face.send("POST", "/v1/packs/lint", by=OPERATOR, json={"document": SHORT})
    assert (slow.status_code, slow.json()["code"]) == (503, "too_slow")
    assert slow.headers["retry-after"]
    monkeypatch.undo()
    assert face.send("POST", "/v1/packs/lint", by=OPERATOR, json={"document": SHORT}).status_code == 200


def test_a_tenant_takes_no_more_than_its_places_and_another_tenant_has_its_own(face: HttpFace) -> None:
    async def crowd() -> list[int]:
        headers = {"Authorization": f"Bearer {own}"}
        sent = [face.client.post("/v1/packs/lint", json={"document": SHORT}, headers=headers) for _ in range(6)]
        other = face.client.post(
            "/v1/packs/lint", json={"document": SHORT}, headers={"Authorization": f"Bearer {foreign}"}
        )
        return [one.status_code for one in await asyncio.gather(*sent, other)]

    own, foreign = face.token(OPERATOR), face.token(OPERATOR, OTHER_TENANT)
    *ours, theirs = face.call(crowd())
    assert (ours.count(200), ours.count(429)) == (children.MAX_CHILDREN_PER_TENANT, 4)
    assert theirs == 200
    assert face.send("POST", "/v1/packs/lint", by=OPERATOR, json={"document": SHORT}).status_code == 200


@pytest.mark.parametrize(
    ("cost", "status"),
    [("while True: pass", 422), ("x = bytearray(8 << 30)", 422), ("raise RuntimeError('secret')", 500)],
    ids=["time", "memory", "defect"],
)
def test_a_child_has_limits_of_its_own_and_its_defect_says_nothing(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, cost: str, status: int
) -> None:
    script = tmp_path / "costly.py"
    # The imports count, too: on a slow machine they alone may take a second.
    cpu_s = 1 if cost.startswith("while") else work.MAX_CPU_S
    script.write_text(
        f"""
from contextos.server.control import work

def costly(task):
    {cost}

work.MAX_CPU_S = {cpu_s}
work.answered = costly
raise SystemExit(work.do_one_task())
"""
    )
    monkeypatch.setattr(children, "CHILD", ("-I", str(script)))
    answer = face.send("POST", "/v1/packs/lint", by=OPERATOR, json={"document": SHORT})
    assert (answer.status_code, answer.json()["code"]) == (status, "defect" if status == 500 else "too_much_work")
    assert "secret" not in answer.text
    assert work.MAX_DATA_BYTES < 8 << 30

"""F48: what a tenant governs is read and changed over HTTP by its own people alone, by signature, within bounds.

Attacks: the same person of another tenant, who governs nothing, a bearer token in place of a signature, the signature
of another act, a text that costs, names files or code, and a server that is asked for everything at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from contextos.http_api.control import children, work
from contextos.http_api.control.groups import CONTROL_ROUTES, GOVERNED_BODIES
from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face
from tests.unit.http_api.control.test_packs import PACK, SHORT, signed, version_of

THERE: dict[str, str] = {"ref": PACK}
"""By name of a parameter, a thing of the first tenant."""
NOWHERE: dict[str, str] = {"ref": "ctxpack.nothing@1.0.0"}
BODIES: dict[str, dict[str, Any]] = {
    "Publication": {"envelope": {}},
    "SignedPublication": {"envelope": {}, "tokens": ["a.b.c"]},
    "Withdrawal": {"expected": 0},
    "SignedWithdrawal": {"expected": 0, "tokens": ["a.b.c"]},
    "PinDraft": {"refs": [PACK], "intents": ["support.refund"], "expected": 0},
    "SignedPin": {"refs": [PACK], "intents": ["support.refund"], "expected": 0, "tokens": ["a.b.c"]},
    "PackDraft": {"name": "a", "who": ["support_agent"]},
    "PackDeclarationText": {"declaration": SHORT},
    "LintRequest": {"document": SHORT},
    "PackTrial": {"document": SHORT},
}
"""A valid body of each model."""
FOR_ANY_CALLER = {"/v1/packs/compile"}
"""Routes that need no role: what they do, a caller may do with a request of their own."""


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("control")) as made:
        yield made


def control_routes(face: HttpFace) -> list[tuple[str, str, dict[str, Any] | None]]:
    """Method, path and body of each route of this part of the API."""
    ours = {f"/v1{one.path}" for routes in CONTROL_ROUTES for one in routes.routes}  # type: ignore[attr-defined]
    found = []
    for path, operations in face.api.openapi()["paths"].items():
        for method, operation in operations.items():
            if path in ours and path not in FOR_ANY_CALLER:
                stated = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
                found.append((method.upper(), path, BODIES[stated["$ref"].rpartition("/")[2]] if stated else None))
    return found


def ask(face: HttpFace, method: str, path: str, body: Any, names: dict[str, str], **who: str) -> httpx.Response:
    """The answer of a route, whose parameters are filled with `names`."""
    filled = path.format_map(names)
    return face.send(method, filled, **who, **({"json": body} if body is not None else {}))  # type: ignore[arg-type]


def test_every_body_of_this_part_is_attacked_here() -> None:
    assert {one.__name__ for one in GOVERNED_BODIES} == BODIES.keys()


@pytest.mark.parametrize("by", [REQUESTER, "usr_772"])
def test_who_governs_nothing_learns_nothing_from_any_route(face: HttpFace, by: str) -> None:
    routes = control_routes(face)
    assert len(routes) >= 12
    for method, path, body in routes:
        for tenant in (TENANT, OTHER_TENANT):
            answers = [ask(face, method, path, body, names, by=by, tenant=tenant) for names in (THERE, NOWHERE)]
            assert {(one.status_code, one.json()["code"]) for one in answers} == {(403, "not_allowed")}, (method, path)
            assert answers[0].content == answers[1].content
            assert answers[0].headers == answers[1].headers


def test_a_thing_of_another_tenant_is_answered_as_one_that_does_not_exist(face: HttpFace) -> None:
    for method, path, body in control_routes(face):
        if "{" in path:
            there, nowhere = (
                ask(face, method, path, body, names, by=OPERATOR, tenant=OTHER_TENANT) for names in (THERE, NOWHERE)
            )
            assert there.status_code == 404, (method, path, there.text)
            assert (there.content, there.headers) == (nowhere.content, nowhere.headers), (method, path)
            # Else it would pass for a route that answers nobody.
            own = ask(face, method, path, body, THERE, by=OPERATOR)
            assert own.status_code != 404, (method, path)


def test_lists_of_another_tenant_show_nothing_and_take_no_cursor(face: HttpFace) -> None:
    for path in ("/v1/packs", "/v1/pins"):
        assert face.send("GET", path, by=OPERATOR).json()["items"]
        assert face.send("GET", path, by=OPERATOR, tenant=OTHER_TENANT).json()["items"] == []
    foreign = face.send("GET", "/v1/packs", by=OPERATOR, tenant=OTHER_TENANT, params={"cursor": PACK})
    assert (foreign.status_code, foreign.json()["errors"][0]["code"]) == (422, "unknown_cursor")


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


def test_no_act_is_done_by_a_bearer_token(face: HttpFace) -> None:
    """Nothing but a signature makes an act that is recorded."""
    before = len(face.call(face.app.stores.tenant(TENANT).read("control")))
    for method, path, body in control_routes(face):
        if body is not None and "tokens" in body:
            fields = {**body, **({"expected": version_of(face)} if "expected" in body else {})}
            for token in ("", "a.b.c", face.token(OPERATOR), face.signed_answer(face.waiting_run(), by=LEAD)):
                answer = ask(face, method, path, {**fields, "tokens": [token]}, THERE, by=OPERATOR)
                assert answer.status_code in (403, 422), (path, answer.text)
    assert len(face.call(face.app.stores.tenant(TENANT).read("control"))) == before


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
    script.write_text(
        f"""
from contextos.http_api.control import work

def costly(task):
    {cost}

work.MAX_CPU_S = 1
work.answered = costly
raise SystemExit(work.do_one_task())
"""
    )
    monkeypatch.setattr(children, "CHILD", ("-I", str(script)))
    answer = face.send("POST", "/v1/packs/lint", by=OPERATOR, json={"document": SHORT})
    assert (answer.status_code, answer.json()["code"]) == (status, "defect" if status == 500 else "too_much_work")
    assert "secret" not in answer.text
    assert work.MAX_DATA_BYTES < 8 << 30

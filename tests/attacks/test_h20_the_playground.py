"""H18: who tries a pack in the sandbox changes nothing, calls nobody, and learns nothing that they may not see.

Attacks: another tenant's pack, a person without the role, another page, texts that cost, hostile strings in each field,
and drafts, tools and requests that would call out.
"""

from __future__ import annotations

import asyncio
import html
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from contextos.server.console.playground import MAX_SCENARIO_BYTES
from contextos.server.console.scenarios import TEXTS, example_scenario, sandbox_request
from tests.attacks.test_h14_the_console import HOSTILE, is_harmless
from tests.http_face import OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face
from tests.unit.service.operations.test_packs import PACK

HIDDEN = "[\u200b\u202e\u2066\ufeff\U000e0041]"


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("playground")) as made:
        yield made


def csrf_of(face: HttpFace, by: str = OPERATOR, tenant: str = TENANT) -> str:
    found = re.search(r'data-csrf="([^"]+)"', face.page("/inbox", by, tenant=tenant).text)
    assert found is not None
    return found[1]


def post(face: HttpFace, form: dict[str, str], by: str = OPERATOR, tenant: str = TENANT, **more: Any) -> Any:
    fields = {"csrf": csrf_of(face, by, tenant), **form}
    headers = {"Sec-Fetch-Site": "same-origin", **more.pop("headers", {})}
    return face.page("/playground", by, "POST", tenant=tenant, data=fields, headers=headers, **more)


def refund(**changes: Any) -> dict[str, str]:
    """The scenario of the example, with other members of the input of its request."""
    scenario = example_scenario("refund", TENANT)
    request = json.loads(scenario["request"])
    return {**scenario, "request": json.dumps(request | {"input": request["input"] | changes})}


def sandboxed(face: HttpFace, **changes: Any) -> Any:
    body = sandbox_request(refund()).to_json() | changes
    return face.send("POST", "/v1/packs/sandbox", by=OPERATOR, json=body)


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_in_a_field_is_a_text(face: HttpFace, hostile: str) -> None:
    """In fields that cannot be read, so that nothing of them is run."""
    page = post(face, dict.fromkeys((*TEXTS, "mode", "safety_mode", "answer", "total_tokens", "before"), hostile))
    assert page.status_code == 200
    assert is_harmless(page.text)
    fields = re.sub(r"(?s)<textarea.*?</textarea>", "", page.text)
    assert not re.search(HIDDEN, re.sub(r'value="[^"]*"', "", fields)), "outside of what the person edits"


def test_hostile_texts_in_all_that_is_tried_are_texts(face: HttpFace) -> None:
    scenario = refund(message=" ".join(HOSTILE), context={**{str(n): one for n, one in enumerate(HOSTILE)}})
    facts = json.loads(scenario["facts"])
    facts["edges"] += [
        {**facts["edges"][0], "predicate": f"told_{n}", "dst": f"check:told_{n}", "value": one}
        for n, one in enumerate(HOSTILE)
    ]
    page = post(face, {**scenario, "facts": json.dumps(facts), "outputs": json.dumps({"adp_orders.lookup": {}})})
    assert page.status_code == 200
    assert is_harmless(page.text)
    result = page.text.partition('id="result"')[2]
    assert 'class="verdict"' in result, html.unescape(page.text)[-3_000:]
    assert not re.search(HIDDEN, result)


def test_only_a_page_of_this_session_tries_something(face: HttpFace) -> None:
    scenario = refund()
    for form, headers, status in (
        ({"csrf": ""}, {}, 403),
        ({"csrf": csrf_of(face, REQUESTER)}, {}, 403),
        ({}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({}, {"Content-Type": "text/plain"}, 415),
    ):
        assert post(face, {**scenario, **form}, headers=headers).status_code == status
    assert face.page("/playground?example=refund", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert post(face, {"document": "a" * (MAX_SCENARIO_BYTES + 1)}).status_code == 413


def test_who_governs_nothing_tries_nothing(face: HttpFace) -> None:
    assert face.page("/playground", REQUESTER).status_code == 403
    assert post(face, refund(), REQUESTER).status_code == 403
    assert face.send("POST", "/v1/packs/sandbox", by=REQUESTER, json={"request": {}}).status_code == 403


def test_a_pack_of_another_tenant_does_not_exist(face: HttpFace) -> None:
    assert face.page(f"/playground?pack={PACK}", OPERATOR).status_code == 200
    assert face.page(f"/playground?pack={PACK}", OPERATOR, tenant=OTHER_TENANT).status_code == 404
    request = {"context_pack_refs": [PACK]}
    answers = [
        face.send("POST", "/v1/packs/sandbox", by=OPERATOR, tenant=OTHER_TENANT, json={"request": one})
        for one in (request, {**request, "tenant_id": TENANT})
    ]
    assert [one.json()["errors"][0]["code"] for one in answers] == ["unknown_ref", "other_tenant"]
    page = post(face, refund(), tenant=OTHER_TENANT)
    assert "another tenant" in page.text
    assert 'class="verdict"' not in page.text


def test_who_may_not_read_runs_does_not_learn_the_roles_of_others(face: HttpFace) -> None:
    listed = json.loads((face.path / "directory.json").read_text("utf-8"))
    publisher = {"approver_id": "publisher_1", "roles": ["publisher"], "granted_by": {"publisher": "cto"}, "keys": []}
    listed[TENANT]["approvers"].append(publisher)
    (face.path / "directory.json").write_text(json.dumps(listed), "utf-8")
    body = {"request": face.request()}
    facts = face.send("POST", "/v1/packs/sandbox", by="publisher_1", json=body | {"facts_of": ["order:ord_881"]})
    assert facts.status_code == 403, "nor what is known of a customer"
    unseen = face.send("POST", "/v1/packs/sandbox", by="publisher_1", json=body)
    assert unseen.status_code == 200, unseen.text
    assert "compiled" not in unseen.json()["run"] or unseen.json()["run"]["compiled"] is None
    assert "support_agent" not in unseen.text
    assert "support_agent" in face.send("POST", "/v1/packs/sandbox", by=OPERATOR, json=body).text


def test_nothing_is_stored(face: HttpFace) -> None:
    def stored() -> list[str]:
        reads = ("/v1/runs", "/v1/packs", "/v1/pins", "/v1/policies", "/v1/facts?subject=order:ord_881", "/v1/memories")
        return [face.send("GET", path, by=OPERATOR).text for path in reads]

    before = stored()
    assert sandboxed(face, answer="approved").json()["run"]["state"] == "completed"
    assert stored() == before


@contextmanager
def listening(face: HttpFace) -> Iterator[tuple[str, list[str]]]:
    """A server that nobody may ask, and what asked it."""
    asked: list[str] = []

    async def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append("asked")
        writer.close()

    server = face.call(asyncio.start_server(note, "127.0.0.1", 0))
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked
    server.close()


def test_a_scenario_that_would_call_out_does_not(face: HttpFace) -> None:
    scenario = sandbox_request(refund()).to_json()
    with listening(face) as (address, asked):
        tools = [
            {**one, "type": "mcp", "external": True, "egress": [address.removeprefix("http://")]}
            for one in scenario["adapters"]
        ]
        attached = {"artifact_id": "a1", "media_type": "text/plain", "sha256": "0" * 64, "uri": f"{address}/a"}
        for changes in (
            {"adapters": tools, "answer": "approved"},
            {"request": scenario["request"] | {"attachments": [attached]}},
            {"document": scenario["document"].replace("finance_lead", f"{address}/lead")},
        ):
            answer = sandboxed(face, **changes)
            assert answer.status_code in (200, 422), answer.text
        assert asked == []


@pytest.mark.parametrize(
    "document",
    [
        "a: &a [x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n",
        "[" * 50_000,
        "{" * 50_000,
        "a:\n" + "".join(" " * depth + "- x:\n" for depth in range(900)),
        "name: " + "a" * 900_000,
        "!!python/object/apply:os.system ['id']",
        "- " * 100_000,
        "\x00\ud7ff",
        '{"pack_meta": {}}',
    ],
    ids=range(9),
)
def test_a_draft_that_costs_is_refused_with_its_place(face: HttpFace, document: str) -> None:
    answer = sandboxed(face, document=document)
    found = answer.json()
    assert answer.status_code in (200, 422), answer.text[:1_000]
    assert found.get("problems") or found.get("errors") or found["code"] == "too_much_work"
    assert "run" not in found


def test_a_deep_or_hostile_world_is_refused(face: HttpFace) -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    for changes in (
        {"request": {"input": deep}},
        {"facts": {"edges": [deep]}},
        {"outputs": {"adp_orders.lookup": deep}},
        {"adapters": [{"adapter_id": "x"}]},
        {"request": {"context_pack_refs": {"a": 1}}},
        {"request": {"context_pack_refs": [["a"]]}},
        {"request": {"context_pack_refs": ["../../etc/passwd"]}, "document": ""},
        {"calls": [{"tool": "x" * 600}]},
        {"answer": "yes"},
    ):
        answer = sandboxed(face, **changes)
        assert answer.status_code in (400, 422), (changes, answer.text[:500])
        assert answer.json()["detail"]

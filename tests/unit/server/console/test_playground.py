"""The playground shows what a scenario compiles to and what becomes of it, beside the scenario."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from contextos.server.console.playground import STAGE_NAMES
from contextos.server.console.scenarios import example_scenario
from tests.http_face import OPERATOR, TENANT, HttpFace
from tests.unit.service.operations.test_packs import PACK


def tried(face: HttpFace, **fields: str) -> str:
    csrf = re.search(r'name="csrf" value="([^"]+)"', face.page("/playground", OPERATOR).text)
    assert csrf is not None
    form = {"csrf": csrf[1], **example_scenario("refund", TENANT), **fields}
    answer = face.page("/playground", OPERATOR, "POST", data=form, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 200
    return answer.text


def result_of(page: str) -> str:
    result = page.partition('id="result"')[2]
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", result)).split())


def test_an_example_is_opened_and_not_tried(face: HttpFace) -> None:
    page = face.page("/playground?example=refund", OPERATOR).text
    assert "Refund order ord_881 for INR 4200." in html.unescape(page)
    assert "Nothing was tried yet." in page
    assert face.page("/playground?example=nothing", OPERATOR).status_code == 404


def test_a_published_pack_is_opened_by_its_ref(face: HttpFace) -> None:
    page = html.unescape(face.page(f"/playground?pack={PACK}", OPERATOR).text)
    assert f'"context_pack_refs": ["{PACK}"]' in page
    assert '"intent": "support.refund"' in page
    assert face.page("/playground?pack=nothing@1.0.0", OPERATOR).status_code == 404


def test_the_result_has_what_the_request_implies_and_why(face: HttpFace) -> None:
    result = result_of(tried(face))
    for told in (
        "waiting for approval",
        "Context hash sha256:",
        "Safety mode destructive It may also do what cannot be undone.",
        "adp_payments.issue_refund was shown: it is permitted, and policy allows it",
        "asked a finance_lead about",
        "of 1200",
        "ev_identity_verified",
        "support.refund",
        '"request_id":"req_9f3a12"',
    ):
        assert told in result.replace('": "', '":"'), told


def test_what_changed_the_hash_is_marked(face: HttpFace) -> None:
    first = tried(face)
    before = re.search(r'name="before" form="scenario" value="([^"]*)"', first)
    assert before is not None
    digests = html.unescape(before[1])
    assert tuple(json.loads(digests)) == STAGE_NAMES
    assert "Unchanged since the last try." in result_of(tried(face, before=digests))
    lowered = tried(face, before=digests, safety_mode="read_only")
    moved = re.findall(r'<li class="moved"[^>]*>([^<]+)<', lowered)
    assert moved == ["Tools", "Token budget", "Blocks", "Whole context"]
    assert "was hidden: its approval mode is above the highest one of this run" in result_of(lowered)


def test_too_few_tokens_drop_blocks_by_name(face: HttpFace) -> None:
    scenario = example_scenario("refund", TENANT)
    long = scenario["request"].replace("Refund order", "Refund " + "please " * 400 + "order")
    result = result_of(tried(face, request=long, total_tokens="1500"))
    assert "over_budget" in result
    assert "dropped" in result
    few = result_of(tried(face, total_tokens="1000"))
    assert "its required blocks need" in few
    assert "refused before a context was compiled" in few


def test_a_fault_is_at_its_field_and_keeps_the_texts(face: HttpFace) -> None:
    scenario = example_scenario("refund", TENANT)
    misspelt = scenario["document"].replace("approver: finance_lead", "aprover: finance_lead")
    page = tried(face, document=misspelt, facts="[")
    assert "It was not tried" in result_of(page)
    assert "aprover" in html.unescape(page)
    faults = dict(re.findall(r'<ul class="faults" id="faults-(\w+)" data-live>(.+?)</ul>', page))
    assert faults.keys() == {"facts"}
    linted = tried(face, document=misspelt)
    faults = dict(re.findall(r'<ul class="faults" id="faults-(\w+)" data-live>(.+?)</ul>', linted))
    assert "<code>/aprover</code> line 6" in faults["document"]


def test_an_answer_of_a_person_is_tried_too(face: HttpFace) -> None:
    def state(**fields: Any) -> str:
        return result_of(tried(face, **fields)).partition("Context hash")[0]

    assert "completed" in state(answer="approved")
    assert "rejected" in state(answer="denied")

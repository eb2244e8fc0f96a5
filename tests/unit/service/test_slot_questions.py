"""A paused flow asks one person, who answers once what is offered to them; its runtime reads the answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from contextos.errors import InvalidInput, NotFound
from contextos.server.console.selector import SELECTOR
from contextos.service.slot_questions import MAX_FLOW_QUESTIONS
from tests.e2e.selections import begin_selections, paused_flow, selecting_run
from tests.http_face import LEAD, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face

PAGE = SELECTOR.removeprefix("/console")


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("flows"), begin_selections) as made:
        yield made


def waiting(face: HttpFace, run: str, person: str = REQUESTER, tenant: str = TENANT) -> list[str]:
    found = face.call(face.app.slot_questions.waiting(tenant, person))
    return [one.selection_id for one in found if one.question.origin.parent_run_id == run]


def answered(face: HttpFace, run: str) -> str | None:
    found: str | None = face.call(face.app.slot_questions.answered(TENANT, REQUESTER, run))
    return found


def pick(face: HttpFace, asked: str, count: int, **changes: Any) -> dict[str, Any]:
    offered = face.send("GET", f"/v1/slots/questions/{asked}").json()
    refs = offered["offer"]["refs"][:count]
    of = {"slotId": offered["slot"]["slotId"], "resolutionMode": offered["slot"]["resolutionMode"]}
    return {"answer": {**of, "selectedRefs": refs, **changes}}


def test_the_first_answer_counts_and_is_what_the_flow_resumes_with(face: HttpFace) -> None:
    session, call, act_key = paused_flow(face, "flow_first")
    [asked] = waiting(face, "flow_first")
    assert answered(face, "flow_first") is None
    listed = face.send("GET", "/v1/slots/questions").json()["items"]
    assert asked in [one["selection_id"] for one in listed]
    sent = pick(face, asked, 2)
    assert face.send("POST", f"/v1/slots/questions/{asked}", json=sent).status_code == 202
    again = face.send("POST", f"/v1/slots/questions/{asked}", json=sent)
    assert (again.status_code, again.json()["code"]) == (409, "not_waiting")
    assert waiting(face, "flow_first") == []
    text = answered(face, "flow_first")
    assert text is not None
    assert json.loads(text) == sent["answer"]
    done = face.call(session.finalize(call, act_key, text))
    assert (done.act.selection_id, len(done.act.refs)) == (asked, 2)


def test_the_next_slot_of_a_flow_is_a_question_of_its_own(face: HttpFace) -> None:
    paused_flow(face, "flow_two")
    [first] = waiting(face, "flow_two")
    face.send("POST", f"/v1/slots/questions/{first}", json=pick(face, first, 1))
    assert answered(face, "flow_two") is not None
    paused_flow(face, "flow_two", "voice")
    assert answered(face, "flow_two") is None
    [second] = waiting(face, "flow_two")
    empty = pick(face, second, 0)
    assert face.send("POST", f"/v1/slots/questions/{second}", json=empty).status_code == 202, "nothing is an answer"
    assert json.loads(answered(face, "flow_two") or "") == empty["answer"]


def test_a_pick_that_is_refused_says_why_and_the_question_stays(face: HttpFace) -> None:
    paused_flow(face, "flow_refused")
    [asked] = waiting(face, "flow_refused")
    for count, changes, code in (
        (0, {}, "below_min_items"),
        (3, {}, "above_max_items"),
        (1, {"slotId": "voice"}, "slot_mismatch"),
        (1, {"resolutionMode": "override"}, "resolution_mode_mismatch"),
        (1, {"selectedRefs": "all"}, "bad_envelope"),
    ):
        refused = face.send("POST", f"/v1/slots/questions/{asked}", json=pick(face, asked, count, **changes))
        assert (refused.status_code, refused.json()["errors"][0]["code"]) == (422, code)
    assert waiting(face, "flow_refused") == [asked]


def test_asked_again_it_is_open_again(face: HttpFace) -> None:
    paused_flow(face, "flow_again")
    [asked] = waiting(face, "flow_again")
    face.send("POST", f"/v1/slots/questions/{asked}", json=pick(face, asked, 1))
    paused_flow(face, "flow_again")
    assert (waiting(face, "flow_again"), answered(face, "flow_again")) == ([asked], None)


def test_nobody_else_sees_or_answers_it(face: HttpFace) -> None:
    paused_flow(face, "flow_mine")
    [asked] = waiting(face, "flow_mine")
    body = pick(face, asked, 1)
    for person, tenant in ((LEAD, TENANT), (REQUESTER, OTHER_TENANT)):
        assert face.send("GET", f"/v1/slots/questions/{asked}", by=person, tenant=tenant).status_code == 404
        sent = face.send("POST", f"/v1/slots/questions/{asked}", by=person, tenant=tenant, json=body)
        assert sent.status_code == 404
        assert face.send("GET", "/v1/slots/questions", by=person, tenant=tenant).json() == {"items": []}
        assert face.page(f"{PAGE}?flow={asked}", person, tenant=tenant).status_code == 404
        assert asked not in face.page("/inbox", person, tenant=tenant).text
    with pytest.raises(NotFound):
        face.call(face.app.slot_questions.answer(TENANT, LEAD, asked, b"{}"))


def test_another_site_cannot_answer_with_the_cookie_of_a_person(face: HttpFace) -> None:
    paused_flow(face, "flow_csrf")
    [asked] = waiting(face, "flow_csrf")
    csrf = re.search(r'data-csrf="([^"]+)"', face.page("/inbox").text)
    assert csrf is not None
    cookie = {"Host": "127.0.0.1:8765", "Cookie": face.cookie(REQUESTER)}
    body = pick(face, asked, 1)
    for headers, status in (
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "X-CSRF-Token": csrf[1]}, 202),
    ):
        sent = face.anonymous("POST", f"/v1/slots/questions/{asked}", headers={**cookie, **headers}, json=body)
        assert sent.status_code == status


def test_a_question_of_a_governed_run_or_of_nobody_is_refused(face: HttpFace) -> None:
    with pytest.raises(InvalidInput, match="its own journal"):
        paused_flow(face, selecting_run(face))
    paused_flow(face, "flow_other")
    question = face.call(face.app.slot_questions.waiting(TENANT, REQUESTER))[-1].question
    other = question.model_copy(update={"actor": question.actor.model_copy(update={"principal_id": "ann"})})
    with pytest.raises(InvalidInput, match="another person"):
        face.call(face.app.slot_questions.ask(TENANT, other))


def test_a_person_has_so_many_open_questions_and_an_answered_one_makes_room(face: HttpFace) -> None:
    open_now = len(face.call(face.app.slot_questions.waiting(TENANT, REQUESTER)))
    for number in range(MAX_FLOW_QUESTIONS - open_now):
        paused_flow(face, f"flow_many_{number}")
    with pytest.raises(InvalidInput, match="are open"):
        paused_flow(face, "flow_room")
    [asked] = waiting(face, "flow_many_0")
    face.send("POST", f"/v1/slots/questions/{asked}", json=pick(face, asked, 1))
    paused_flow(face, "flow_room")
    assert len(face.call(face.app.slot_questions.waiting(TENANT, REQUESTER))) == MAX_FLOW_QUESTIONS
    assert answered(face, "flow_many_0") is None, "it made room"

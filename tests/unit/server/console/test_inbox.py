"""The inbox shows to whom a question is put exactly that question, and to nobody else anything of it."""

from __future__ import annotations

import html
import re

from tests.http_face import LEAD, OPERATOR, OTHER_TENANT, REQUESTER, HttpFace


def test_a_question_is_in_the_inbox_of_its_role_alone(face: HttpFace) -> None:
    run = face.waiting_run()
    assert f"/console/inbox/{run}" in face.page("/inbox", LEAD).text
    assert run not in face.page("/inbox", REQUESTER).text
    assert run not in face.page("/inbox", LEAD, tenant=OTHER_TENANT).text
    assert face.page(f"/inbox/{run}", REQUESTER).status_code == 404
    assert face.page(f"/inbox/{run}", LEAD, tenant=OTHER_TENANT).status_code == 404


def test_a_question_says_why_what_on_which_evidence_and_for_whom(face: HttpFace) -> None:
    run = face.waiting_run()
    question = face.send("GET", f"/v1/approvals/{run}", by=LEAD).json()
    text = html.unescape(re.sub(r"<[^>]+>", " ", face.page(f"/inbox/{run}", LEAD).text))
    for argument in question["args"]:
        assert argument["name"] in text
        assert str(argument["value"]) in text
    for item in question["evidence"]:
        assert item["ref"] in text
    assert "GATE_FINANCE_APPROVAL has to approve" in text
    assert text.index("asks for it") < text.index("What would be done") < text.index("What it rests on")
    assert " → ".join(question["requester"]) in text
    assert f"--binding {question['binding_digest']}" in text


def test_an_answered_question_is_gone_and_says_so(face: HttpFace) -> None:
    run = face.waiting_run()
    face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=face.signed_answer(run, "denied"))
    face.ended(run)
    answer = face.page(f"/inbox/{run}", LEAD)
    assert (answer.status_code, run in face.page("/inbox", LEAD).text) == (409, False)


def test_an_operator_opens_the_run_and_not_the_question(face: HttpFace) -> None:
    run = face.waiting_run()
    assert face.page(f"/inbox/{run}", OPERATOR).status_code == 404
    assert f"/console/inbox/{run}" not in face.page(f"/runs/{run}", OPERATOR).text

"""Each governed operation has a form that is made from its input, and prints the command that does the same."""

from __future__ import annotations

import html
import re
import shlex

import pytest

from contextos.server.console.signing import fields_of
from contextos.service.operations.operation import OF_RUN, Operation
from contextos.service.operations.table import OPERATION_TABLE, named_operation
from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace
from tests.unit.service.operations.test_adapters import TOOL, put_in_quarantine
from tests.unit.service.operations.test_packs import PACK, version_of
from tests.unit.service.operations.test_stuck import dead_run

SIGNED = [one for one in OPERATION_TABLE if one.signs]


def command_of(text: str) -> str:
    """The command that a page prints."""
    found = re.findall(r'<pre class="command" tabindex="0">([^<]*)</pre>', text)
    return html.unescape(found[-1])


@pytest.mark.parametrize("operation", SIGNED, ids=lambda one: one.name)
def test_a_signed_operation_has_a_form_with_its_fields(face: HttpFace, operation: Operation) -> None:
    of = ""
    if operation.about is OF_RUN:
        of = face.waiting_run()
    elif operation.about is not None:
        face.ended(face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])
        proposals = face.send("GET", "/v1/memories", by=OPERATOR).json()["items"]
        put_in_quarantine(face)
        of = {"ref": PACK, "proposal": proposals[0]["proposal_id"], "capability": TOOL}[operation.about.name]
    page = face.page(f"/do/{operation.name}", OPERATOR, params={"of": of} if of else {})
    assert page.status_code == 200, page.text
    for name in operation.input.model_fields:
        assert f'name="{name}"' in page.text
    _, path = operation.address
    if operation.about is not None:
        path = path.replace(f"{{{operation.about.name}}}", of.replace("@", "%40"))
    assert f'data-path="/v1{path}"' in page.text
    words = shlex.split(command_of(page.text))
    assert words[:2] == ["contextos", "runs" if operation.name == "runs.settle" else "ask"]
    assert words[words.index("--tenant") + 1] == TENANT


@pytest.mark.parametrize("operation", [one for one in SIGNED if one.roles], ids=lambda one: one.name)
def test_who_lacks_the_role_has_no_form(face: HttpFace, operation: Operation) -> None:
    mine = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    of = mine if operation.about is OF_RUN else PACK
    for person in (REQUESTER, LEAD):
        status = face.page(f"/do/{operation.name}", person, params={"of": of}).status_code
        assert status == (404 if person == LEAD and operation.about is OF_RUN else 403)


@pytest.mark.parametrize("name", ["facts.list", "runs.replay", "nothing", "packs.publish"])
def test_what_is_not_signed_has_no_form(face: HttpFace, name: str) -> None:
    assert face.page(f"/do/{name}", OPERATOR).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        "runs.cancel",
        "runs.cancel?of=run_nothing",
        "packs.withdraw",
        "packs.withdraw?of=a@1.0.0",
        "memories.review?of=x",
    ],
)
def test_a_thing_that_is_not_there_has_no_form(face: HttpFace, path: str) -> None:
    assert face.page(f"/do/{path}", OPERATOR).status_code == 404


def test_the_version_of_what_is_in_force_is_filled_in_and_seen(face: HttpFace) -> None:
    page = face.page("/do/policies.activate", OPERATOR).text
    assert f'name="expected" value="{version_of(face)}"' in page
    seen = re.search(r'data-seen="(sha256:\w+)"', page)
    assert seen is not None
    assert seen[0] in face.page("/do/policies.activate", OPERATOR).text, "it is the same as long as nothing changes"


def test_what_is_seen_of_a_run_changes_with_it(face: HttpFace) -> None:
    run = face.waiting_run()
    before = re.findall(r'data-seen="\S+"', face.page(f"/do/runs.cancel?of={run}", OPERATOR).text)
    face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=face.signed_answer(run, "denied"))
    face.ended(run)
    assert before != re.findall(r'data-seen="\S+"', face.page(f"/do/runs.cancel?of={run}", OPERATOR).text)


def test_a_dead_letter_says_why_it_failed(face: HttpFace) -> None:
    page = html.unescape(face.page(f"/do/runs.retry?of={dead_run(face)}", OPERATOR).text)
    assert "`crm` does not answer" in page


def test_a_field_is_of_the_kind_of_its_value() -> None:
    kinds = {one.name: one.kind for one in fields_of(named_operation("facts.set").input, {})}
    assert kinds == {
        "subject": "text",
        "predicate": "text",
        "value": "json",
        "source": "text",
        "integrity": "choice",
        "classification": "choice",
        "observed_at_us": "time",
    }
    pin = {one.name: (one.kind, one.required) for one in fields_of(named_operation("pins.set").input, {})}
    assert pin["refs"] == ("lines", True)
    assert pin["environment"] == ("text", False)
    [verdict, *_, at] = fields_of(named_operation("memories.review").input, {"verdict": "reject"})
    assert (verdict.choices, verdict.value, at.kind) == (("promote", "reject"), "reject", "now")


def test_a_command_has_what_is_filled_in_as_one_word_each(face: HttpFace) -> None:
    filled = {
        "subject": "customer:a",
        "predicate": "x; rm -rf / $(id) `id`",
        "value": '{"a":\n "b\\\\c"}',
        "source": "s",
    }
    words = shlex.split(command_of(face.page("/do/facts.set", OPERATOR, params=filled).text))
    assert words[2:6] == [
        "facts.set",
        "subject=customer:a",
        "predicate=x; rm -rf / $(id) `id`",
        'value={"a":  "b\\\\c"}',
    ]
    hidden = command_of(face.page("/do/facts.set", OPERATOR, params={"predicate": "pay\u202e"}).text)
    assert "predicate=…" in hidden
    pin = command_of(face.page("/do/pins.set", OPERATOR, params={"refs": "a@1.0.0\r\nb@1.0.0"}).text)
    assert 'refs=["a@1.0.0", "b@1.0.0"]' in shlex.split(pin)
    run = face.waiting_run()
    settle = command_of(face.page("/do/runs.settle", OPERATOR, params={"of": run, "happened": "false"}).text)
    assert settle.startswith(f"contextos runs settle {run} --did-not --evidence REF --as {OPERATOR} --key FILE")
    assert command_of(face.page("/do/exports.make", OPERATOR).text).endswith("> FILE")

"""The forms of governed operations add no power: nothing is done without the signature of who may do it.

Each form and statement is asked by another tenant, without the role, from another page and with hostile texts. A value
of a statement that differs from the form is in `tests/e2e/test_console_signing.py`, as is a role that was taken away.
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.deployment.dead_letters import add
from contextos.service.operations.operation import OF_RUN
from contextos.service.operations.table import OPERATION_TABLE
from contextos.trust.seal import seal
from tests.attacks.test_h14_the_console import HOSTILE, is_harmless
from tests.http_face import OPERATOR, OTHER_TENANT, REQUESTER, TENANT, HttpFace, http_face
from tests.unit.service.operations.test_adapters import TOOL, put_in_quarantine
from tests.unit.service.operations.test_facts import KNOWN
from tests.unit.service.operations.test_packs import PACK, signed

SIGNED = [one for one in OPERATION_TABLE if one.signs]
HIDDEN = re.compile("[\u200b\u202e\u2066\ufeff\U000e0041]")


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("forms")) as made:
        yield made


def is_safe(text: str) -> bool:
    """A field has what is sent, to the letter; the statement shows it before it is signed."""
    beside_fields = re.sub(r'value="[^"]*"|<textarea.*?</textarea>', "", text, flags=re.DOTALL)
    return is_harmless(text) and not HIDDEN.search(beside_fields)


@pytest.mark.parametrize("operation", SIGNED, ids=lambda one: one.name)
def test_a_form_is_sent_to_no_page_of_the_console(face: HttpFace, operation: Any) -> None:
    of = face.waiting_run() if operation.about is OF_RUN else PACK
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert face.page(f"/do/{operation.name}?of={of}", OPERATOR, method=method).status_code == 405


@pytest.mark.parametrize("operation", SIGNED, ids=lambda one: one.name)
def test_another_page_states_and_does_nothing_with_a_cookie(face: HttpFace, operation: Any) -> None:
    method, path = operation.address
    path = re.sub(r"\{\w+\}", face.waiting_run() if operation.about is OF_RUN else "x", path)
    cookie = {"Host": "127.0.0.1:8765", "Cookie": f"contextos-session={face.token(OPERATOR)}"}
    token = re.search(r'data-csrf="([^"]+)"', face.page("/inbox", OPERATOR).text)
    assert token is not None
    for headers in (
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "same-origin", "X-CSRF-Token": "x"},
        {"Sec-Fetch-Site": "cross-site", "X-CSRF-Token": token[1]},
        {"Origin": "https://evil.example", "X-CSRF-Token": token[1]},
    ):
        for address in (path, f"{path}/statement"):
            answer = face.anonymous(method, f"/v1{address}", headers={**cookie, **headers}, json={})
            assert answer.status_code == 403, (address, answer.text)


@pytest.mark.parametrize("operation", [one for one in SIGNED if one.about], ids=lambda one: one.name)
def test_a_thing_of_another_tenant_has_no_form(face: HttpFace, operation: Any) -> None:
    face.ended(face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])
    proposal = face.send("GET", "/v1/memories", by=OPERATOR).json()["items"][0]["proposal_id"]
    put_in_quarantine(face)
    things = {"run": face.waiting_run(), "ref": PACK, "proposal": proposal, "capability": TOOL}
    of = things[operation.about.name]
    assert face.page(f"/do/{operation.name}?of={of}", OPERATOR).status_code == 200
    answer = face.page(f"/do/{operation.name}?of={of}", OPERATOR, tenant=OTHER_TENANT)
    assert (answer.status_code, TENANT in answer.text) == (404, False)


def test_a_person_has_no_form_about_the_run_of_another(face: HttpFace) -> None:
    run = face.waiting_run()
    assert face.page(f"/do/runs.cancel?of={run}", REQUESTER).status_code == 200
    assert face.page(f"/do/runs.cancel?of={run}", "usr_772").status_code == 404


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_in_a_link_is_text_in_the_form(face: HttpFace, hostile: str) -> None:
    for operation in SIGNED:
        if operation.about is None:
            fields = dict.fromkeys(operation.input.model_fields, hostile)
            page = face.page(f"/do/{operation.name}", OPERATOR, params=fields)
            assert is_safe(page.text), operation.name
            if page.status_code == 414:
                continue
            [command] = re.findall(r'<pre class="command" tabindex="0">([^<]*)</pre>', page.text)
            words = shlex.split(html.unescape(command))
            assert words[:3] == ["contextos", "ask", operation.name]
            names = [word.partition("=")[0] for word in words[3:] if not word.startswith("--")]
            assert {*names} <= {*operation.input.model_fields, OPERATOR, "FILE", TENANT, ">"}, command
    assert is_safe(face.page("/facts", OPERATOR, params={"subject": hostile, "predicate": hostile}).text)
    for path in (f"/packs/{PACK}/changes", "/drafts"):
        assert is_safe(face.page(path, OPERATOR, params={"before": hostile[:500], "of": hostile[:500]}).text)


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_that_is_stored_is_text_on_every_page(face: HttpFace, hostile: str) -> None:
    number = HOSTILE.index(hostile)
    subject = f"customer:hostile_{number}"
    fact = {"subject": subject, "predicate": "note", "value": {hostile: hostile}, **KNOWN}
    said = face.send("POST", "/v1/facts/statement", by=OPERATOR, json=fact)
    if said.status_code == 200:
        face.send("POST", "/v1/facts", by=OPERATOR, json=signed(face, "/v1/facts", fact))
        other = {**fact, "value": "x"}
        for path in ("/do/facts.replace", "/facts"):
            page = face.page(path, OPERATOR, params={"subject": subject, "predicate": "note"})
            assert (page.status_code, is_safe(page.text)) == (200, True), path
        face.send("POST", "/v1/facts/replace", by=OPERATOR, json=signed(face, "/v1/facts/replace", other))
        assert is_safe(face.page("/facts", OPERATOR, params={"subject": subject}).text)
    run = face.waiting_run()
    store = face.app.stores.tenant(TENANT)
    seen = face.call(store.length(run))
    face.call(add(store, run, ("unavailable", hostile[:900]), 1_700_000_000_000_000, seen=seen))
    for path in (f"/do/runs.retry?of={run}", f"/runs/{run}", "/ask/dead-letters.list"):
        assert is_safe(face.page(path, OPERATOR).text), path
    document = face.send("GET", f"/v1/packs/{PACK}", by=OPERATOR).json()["document"]
    document["pack_meta"]["pack_version"] = f"6.{number}.0"
    document["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"][0]["rationale"] = hostile
    envelope = {"envelope": seal(PACK_TYPE, canonical(document), face.app.keys, "pack")}
    if face.send("POST", "/v1/packs/statement", by=OPERATOR, json=envelope).status_code == 200:
        ref = face.send("POST", "/v1/packs", by=OPERATOR, json=signed(face, "/v1/packs", envelope)).json()["ref"]
        for path in (f"/packs/{ref}", f"/packs/{ref}/changes?before={PACK}", f"/drafts?of={ref}", "/packs"):
            page = face.page(path, OPERATOR)
            assert (page.status_code, is_safe(page.text)) == (200, True), path

"""Signed operations in Debian's Chromium: a form is filled in, its statement is read, signed and done."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.conftest import LogIn
from tests.http_face import LEAD, OPERATOR, REQUESTER, TENANT, HttpFace
from tests.unit.service.operations.test_adapters import put_in_quarantine, tools
from tests.unit.service.operations.test_packs import published, signed
from tests.unit.service.operations.test_policies import HOUSE
from tests.unit.service.operations.test_stuck import dead_run

pytestmark = pytest.mark.slow

SUBJECT = "customer:cus_console"


def read_statement(page: Page, face: HttpFace, by: str = OPERATOR) -> str:
    """Choose the key, ask for the statement, and return it."""
    page.set_input_files("#key", face.path / "keys" / f"{by}.key")
    page.click("[data-asks]")
    expect(page.locator(".statement")).to_be_visible()
    return page.locator(".statement pre").inner_text()


def sign(page: Page) -> None:
    page.click("[data-sign=key]")
    expect(page.locator(".result")).to_contain_text("It is done")


def alter_statements(page: Page, change: Callable[[dict[str, Any]], None]) -> None:
    """Alter what the server gives to sign, on its way to the page."""

    def altered(route: Route) -> None:
        answer = route.fetch()
        document = answer.json()
        for one in document["statements"]:
            for kid, text in one["signing_inputs"].items():
                head, payload = text.split(".")
                said = json.loads(base64.urlsafe_b64decode(payload + "=="))
                change(said)
                raw = json.dumps(said, separators=(",", ":"), sort_keys=True).encode()
                one["signing_inputs"][kid] = f"{head}.{base64.urlsafe_b64encode(raw).decode().rstrip('=')}"
        route.fulfill(response=answer, json=document)

    page.route("**/statement", altered)


def facts(face: HttpFace, subject: str = SUBJECT) -> dict[str, Any]:
    items = face.send("GET", "/v1/facts", by=OPERATOR, params={"subject": subject}).json()["items"]
    return {one["predicate"]: one["value"] for one in items}


def fill_fact(page: Page, predicate: str, value: str) -> None:
    filled = {"subject": SUBJECT, "predicate": predicate, "value": value, "source": "artifact:crm_1#rev_1"}
    for name, text in filled.items():
        page.fill(f"#field-{name}", text)
    page.select_option("#field-integrity", "trusted")
    page.select_option("#field-classification", "INTERNAL")


def test_a_fact_is_set_replaced_and_ended_from_the_list(face: HttpFace, log_in: LogIn) -> None:
    page = log_in(OPERATOR, "/sections/govern")
    page.get_by_role("link", name="facts.set").click()
    fill_fact(page, "tier", '{"name": "gold", "limit": 1.50}')
    said = read_statement(page, face)
    assert ("graph.written" in said, TENANT in said) == (True, True)
    assert re.search(r"predicate +tier\n", said), "what a digest covers is below it"
    assert re.search(r"value.limit +1\.5\n", said)
    assert facts(face) == {}, "nothing is done before it is signed"
    sign(page)
    assert facts(face) == {"tier": {"name": "gold", "limit": 1.5}}
    url = page.url.partition("/console")[0]
    page.goto(f"{url}/console/ask/facts.list?subject={SUBJECT}")
    page.get_by_role("link", name="Replace").click()
    expect(page.locator("main")).to_contain_text("gold")
    page.fill("#field-value", '"silver"')
    page.fill("#field-source", "artifact:crm_2#rev_1")
    assert "graph.withdrawn" in read_statement(page, face)
    sign(page)
    assert facts(face) == {"tier": "silver"}
    page.goto(f"{url}/console/ask/facts.list?subject={SUBJECT}")
    page.locator(".acts").get_by_role("link", name="End").click()
    page.fill("#field-source", "artifact:crm_3#rev_1")
    read_statement(page, face)
    sign(page)
    assert facts(face) == {}


def test_the_facts_that_end_are_shown_also_if_they_were_typed(face: HttpFace, log_in: LogIn) -> None:
    fact = {"predicate": "note", "value": "a note", "source": "artifact:crm_1#rev_1", "observed_at_us": 1}
    fact |= {"subject": f"{SUBJECT}_typed", "integrity": "trusted", "classification": "INTERNAL"}
    face.send("POST", "/v1/facts", by=OPERATOR, json=signed(face, "/v1/facts", fact))
    page = log_in(OPERATOR, "/do/facts.retract")
    page.fill("#field-subject", f"{SUBJECT}_typed")
    page.fill("#field-predicate", "note")
    page.fill("#field-source", "artifact:crm_2#rev_1")
    read_statement(page, face)
    expect(page.locator(".about")).to_contain_text("a note")
    face.send("POST", "/v1/facts/replace", by=OPERATOR, json=signed(face, "/v1/facts/replace", {**fact, "value": "b"}))
    page.click('[data-sign=""]')
    page.click("[data-asks]")
    expect(page.locator(".result")).to_contain_text("This changed")


def test_a_dead_letter_is_driven_again(face: HttpFace, log_in: LogIn) -> None:
    run = dead_run(face)
    page = log_in(OPERATOR, "/ask/dead-letters.list")
    page.locator(f'a[href*="of={run}"]').click()
    expect(page.locator("main")).to_contain_text("`crm` does not answer")
    assert run in read_statement(page, face)
    sign(page)
    assert run not in face.send("GET", "/v1/dead-letters", by=OPERATOR).text


def test_a_run_is_stopped_from_its_page(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    page = log_in(OPERATOR, f"/runs/{run}")
    page.get_by_role("link", name="Stop it").click()
    page.fill("#field-reason", "sent twice")
    assert "sent twice" in read_statement(page, face)
    sign(page)
    assert face.ended(run)["state"] == "cancelled"


def test_a_memory_is_promoted_from_the_queue(face: HttpFace, log_in: LogIn) -> None:
    face.ended(face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])
    [first, *_] = face.send("GET", "/v1/memories", by=OPERATOR).json()["items"]
    page = log_in(OPERATOR, "/ask/memories.list")
    page.locator(f'a[href*="of={first["proposal_id"]}"]', has_text="Promote").click()
    expect(page.locator("#field-verdict")).to_have_value("promote")
    assert first["proposal_id"] in read_statement(page, face)
    sign(page)
    expect(page.locator(".answered")).to_contain_text("promote")
    assert first["proposal_id"] not in face.send("GET", "/v1/memories", by=OPERATOR).text


def test_policies_are_put_in_force_and_a_swapped_level_is_not_signed(face: HttpFace, log_in: LogIn) -> None:
    envelope = {"envelope": json.loads((face.path / "policies" / "house.json").read_text("utf-8"))}
    face.send("POST", "/v1/packs", by=OPERATOR, json=signed(face, "/v1/packs", envelope))
    page = log_in(OPERATOR, "/do/policies.activate")
    expect(page.locator("#field-policies")).to_have_value("[]")
    page.fill("#field-policies", json.dumps([HOUSE]))

    def swapped(said: dict[str, Any]) -> None:
        said["arguments"]["policies"][0][0] = "platform"

    alter_statements(page, swapped)
    page.set_input_files("#key", face.path / "keys" / f"{OPERATOR}.key")
    page.click("[data-asks]")
    expect(page.locator(".result")).to_contain_text("not what you filled in: policies")
    page.unroute("**/statement")
    assert "policies.activated" in read_statement(page, face)
    sign(page)
    assert face.send("GET", "/v1/policies", by=OPERATOR).json()["items"] == [HOUSE]
    page.goto(page.url.partition("/console")[0] + "/console/policies")
    expect(page.locator("main")).to_contain_text(HOUSE["ref"])


def test_nodes_and_edges_are_loaded(face: HttpFace, log_in: LogIn) -> None:
    page = log_in(OPERATOR, "/do/facts.load")
    labels = {"integrity": "trusted", "classification": "INTERNAL", "evidence_ref": "artifact:crm_1#rev_1"}
    subject = f"{SUBJECT}_loaded"
    edge = {"src": subject, "dst": subject, "predicate": "tier", "value": "gold", "observed_at": 1, **labels}
    page.fill("#field-nodes", json.dumps([{"ceid": subject, "type": "customer", "properties": {"name": "Ann"}}]))
    page.fill("#field-edges", json.dumps([edge]))
    assert "Ann" in read_statement(page, face), "a digest hides what it covers"
    sign(page)
    assert facts(face, subject) == {"tier": "gold"}


def test_the_content_of_an_entry_is_erased(face: HttpFace, log_in: LogIn) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    face.ended(run)
    page = log_in(OPERATOR, f"/runs/{run}")
    page.get_by_role("link", name="Erase an entry").click()
    page.fill("#field-seq", "1")
    page.fill("#field-reason", "the customer asked")
    assert "entry.erased" in read_statement(page, face)
    sign(page)
    expect(page.locator(".answered")).to_contain_text(run)


def test_a_quarantine_is_ended_from_the_page_of_adapters(face: HttpFace, log_in: LogIn) -> None:
    put_in_quarantine(face)
    page = log_in(OPERATOR, "/adapters")
    page.get_by_role("link", name="End the quarantine").click()
    page.fill("#field-reason", "the server was put back")
    assert "capability.released" in read_statement(page, face)
    sign(page)
    assert all(one["quarantine"] is None for one in tools(face).values())


def test_a_published_version_is_withdrawn(face: HttpFace, log_in: LogIn) -> None:
    ref = published(face, "5.8.0")
    page = log_in(OPERATOR, f"/packs/{ref}")
    page.get_by_role("link", name="Withdraw").click()
    page.fill("#field-reason", "it was a test")
    assert ref in read_statement(page, face)
    sign(page)
    assert face.send("GET", f"/v1/packs/{ref}", by=OPERATOR).json()["withdrawn"] is True


def test_an_export_is_signed_and_downloaded(face: HttpFace, log_in: LogIn) -> None:
    run = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    page = log_in(OPERATOR, "/sections/audit")
    page.get_by_role("link", name="exports.make").click()
    page.fill("#field-runs", run)
    read_statement(page, face)
    sign(page)
    with page.expect_download() as download:
        page.click(".answered a")
    assert run in download.value.path().read_text("utf-8")


def test_a_thing_that_changed_meanwhile_is_not_signed(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    page = log_in(OPERATOR, f"/do/runs.cancel?of={run}", expected=(409,))
    face.send("POST", f"/v1/approvals/{run}/answer", by=LEAD, json=face.signed_answer(run, "denied"))
    face.ended(run)
    page.set_input_files("#key", face.path / "keys" / f"{OPERATOR}.key")
    page.click("[data-asks]")
    expect(page.locator(".result")).to_contain_text("This changed")
    expect(page.locator(".statement")).to_be_hidden()


def test_who_lost_the_role_meanwhile_signs_nothing(face: HttpFace, log_in: LogIn) -> None:
    page = log_in(OPERATOR, "/do/facts.set", expected=(403,))
    listed = json.loads((face.path / "directory.json").read_text("utf-8"))
    kept = json.dumps(listed)
    [person] = [one for one in listed[TENANT]["approvers"] if one["approver_id"] == OPERATOR]
    person["roles"].remove("knowledge_writer")
    del person["granted_by"]["knowledge_writer"]
    fill_fact(page, "vip", "true")
    said = read_statement(page, face)
    assert "vip" in said or "graph.written" in said
    (face.path / "directory.json").write_text(json.dumps(listed), "utf-8")
    try:
        page.click("[data-sign=key]")
        expect(page.locator(".result")).to_contain_text("Nothing was sent")
        page.click('[data-sign=""]')
        page.click("[data-asks]")
        expect(page.locator(".result")).to_contain_text("you may no longer do it")
    finally:
        (face.path / "directory.json").write_text(kept, "utf-8")
    assert "vip" not in facts(face)


@pytest.mark.parametrize(
    ("member", "value"),
    [("actor", LEAD), ("tenant_id", "tenant_other"), ("reason", "other"), ("request_id", "other_request")],
)
def test_a_statement_that_differs_from_the_form_is_not_signed(
    face: HttpFace, log_in: LogIn, member: str, value: str
) -> None:
    run = face.waiting_run()
    page = log_in(OPERATOR, f"/do/runs.cancel?of={run}", expected=(403,))

    def change(said: dict[str, Any]) -> None:
        (said if member in said else said["arguments"])[member] = value

    alter_statements(page, change)
    page.fill("#field-reason", "sent twice")
    page.set_input_files("#key", face.path / "keys" / f"{OPERATOR}.key")
    page.click("[data-asks]")
    if member == "request_id":
        # The person sees what they sign, and the server refuses what it did not state.
        expect(page.locator(".statement pre")).to_contain_text("arguments.request_id  other_request")
        page.click("[data-sign=key]")
        expect(page.locator(".result")).to_contain_text("Nothing was sent")
    else:
        expect(page.locator(".result")).to_contain_text(f"not what you filled in: {member}")
    assert face.send("GET", f"/v1/runs/{run}", by=OPERATOR).json()["state"] == "waiting"


def test_without_scripts_the_form_writes_the_command(face: HttpFace, log_in: LogIn) -> None:
    page = log_in(OPERATOR, "/do/pins.withdraw", java_script_enabled=False)
    page.fill("#field-refs", "a@1.0.0\nb@1.0.0; rm -rf /")
    page.fill("#field-intents", "refund")
    page.get_by_role("button", name="Write the command").click()
    said = page.locator("main pre.command").last.inner_text()
    assert said.startswith('contextos ask pins.withdraw refs=\'["a@1.0.0", "b@1.0.0; rm -rf /"]\'')
    assert f"--by {OPERATOR} --key FILE" in said


def test_a_person_without_a_key_signs_nothing(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    page = log_in(REQUESTER, f"/do/runs.cancel?of={run}")
    page.set_input_files("#key", face.path / "keys" / f"{OPERATOR}.key")
    page.click("[data-asks]")
    expect(page.locator(".result")).to_contain_text("not a key that the directory has of you")

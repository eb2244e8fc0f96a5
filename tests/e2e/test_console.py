"""The console in Debian's Chromium (`make browser`): people answer, follow and read, by hand and by keyboard.

No page violates its policy, sends a request elsewhere or raises an error; axe finds nothing serious in both themes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.e2e import conftest
from tests.e2e.conftest import LogIn
from tests.http_face import LEAD, OPERATOR, REQUESTER, HttpFace

pytestmark = pytest.mark.slow

THEMES, WIDTHS = ("light", "dark"), (390, 1_280)
browser, face, log_in, url = conftest.browser, conftest.face, conftest.log_in, conftest.url
"""The fixtures, by the names that other tests of the console import from here."""


def answer(page: Page, face: HttpFace, verdict: str, reason: str = "") -> None:
    """Answer the open question with the lead's key."""
    page.fill("#reason", reason)
    page.set_input_files("#key", face.path / "keys" / f"{LEAD}.key")
    page.click(f"[data-verdict={verdict}]")
    page.click("[data-sign=key]")


def serious_faults(page: Page) -> list[str]:
    """What axe finds on a page that keeps people out, with the first elements of each."""
    found = Axe().run(page).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    return [f"{one['id']}: {[node['html'] for node in one['nodes']][:4]}" for one in serious]


def test_a_refund_is_approved_in_one_window_and_followed_in_another(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    watching = log_in(OPERATOR, f"/runs/{run}")
    expect(watching.locator("h1")).to_contain_text("waiting")
    page = log_in(LEAD, "/inbox")
    page.locator(f'a[href="/console/inbox/{run}"]').click()
    page.set_input_files("#key", face.path / "keys" / f"{LEAD}.key")
    page.fill("#reason", "checked the order")
    page.click("[data-verdict=approved]")
    said = page.locator(".statement pre")
    expect(said).to_contain_text("reason     checked the order")
    assert face.send("GET", f"/v1/runs/{run}", by=OPERATOR).json()["waits_for"] == "approval", "nothing is sent yet"
    page.click("[data-sign=key]")
    expect(page.locator(".result")).to_contain_text("Your answer is recorded")
    expect(watching.locator("h1")).to_contain_text("completed", timeout=30_000)
    expect(watching.locator("#run")).to_contain_text("checked the order")
    watching.get_by_role("link", name="Replay it now").click()
    expect(watching.locator("main")).to_contain_text("Every entry is as recorded")


def test_a_denial_is_the_end_of_the_run(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    page = log_in(LEAD, f"/inbox/{run}")
    answer(page, face, "denied", "paid before")
    expect(page.locator(".result")).to_contain_text("recorded")
    assert face.ended(run)["state"] == "rejected"


def test_of_two_windows_that_answer_one_counts(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    first = log_in(LEAD, f"/inbox/{run}")
    second = log_in(LEAD, f"/inbox/{run}", expected=(403, 404, 409))
    for page in (first, second):
        page.set_input_files("#key", face.path / "keys" / f"{LEAD}.key")
        page.click("[data-verdict=denied]")
    first.click("[data-sign=key]")
    expect(first.locator(".result")).to_contain_text("recorded")
    second.click("[data-sign=key]")
    expect(second.locator(".result")).to_contain_text("changed or was answered")


def test_a_question_that_becomes_void_while_it_is_open_is_not_sent(face: HttpFace, log_in: LogIn) -> None:
    void, other = face.waiting_run(), face.waiting_run()
    page = log_in(LEAD, f"/inbox/{void}", expected=(409,))
    # The refund of the other run leaves less that can be refunded, so the evidence of this question is no longer true.
    face.send("POST", f"/v1/approvals/{other}/answer", by=LEAD, json=face.signed_answer(other))
    face.ended(other)
    page.set_input_files("#key", face.path / "keys" / f"{LEAD}.key")
    page.click("[data-verdict=approved]")
    expect(page.locator(".result")).to_contain_text("changed or was answered")
    page.reload()
    expect(page.locator("main")).to_contain_text("This question is void")
    expect(page.locator("[data-verdict=approved]")).to_be_disabled()


@pytest.mark.parametrize("content", ["00" * 32, "not a key"])
def test_another_key_signs_nothing(face: HttpFace, log_in: LogIn, tmp_path: Path, content: str) -> None:
    run, key = face.waiting_run(), tmp_path / "other.key"
    key.write_text(content, "utf-8")
    page = log_in(LEAD, f"/inbox/{run}", expected=(403,))
    page.set_input_files("#key", key)
    page.click("[data-verdict=denied]")
    page.click("[data-sign=key]")
    expect(page.locator(".result")).to_contain_text("Nothing was sent")
    assert face.send("GET", f"/v1/runs/{run}", by=OPERATOR).json()["waits_for"] == "approval"


def test_a_search_is_a_form_and_then_a_link(face: HttpFace, log_in: LogIn) -> None:
    run, ended = face.waiting_run(), face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    page = log_in(OPERATOR, "/runs")
    page.select_option("select[name=state]", "waiting")
    page.get_by_role("button", name="Search").click()
    expect(page).to_have_url(re.compile(r"/console/runs\?state=waiting$"))
    expect(page.locator("main")).to_contain_text("waiting")
    links = page.locator("tbody th a").evaluate_all("links => links.map(link => link.getAttribute('href'))")
    assert (f"/console/runs/{run}" in links, f"/console/runs/{ended}" in links) == (True, False)


def test_a_page_that_is_followed_stays_when_the_server_answers_an_error(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    page = log_in(OPERATOR, f"/runs/{run}", expected=(503,))
    page.locator("summary", has_text="Every field").click()
    page.route("**/console/runs/*", lambda route: route.fulfill(status=503, body="no"))
    expect(page.locator("#stale")).to_be_visible(timeout=15_000)
    expect(page.locator("h1")).to_contain_text("waiting")
    page.unroute("**/console/runs/*")
    expect(page.locator("#stale")).to_be_hidden(timeout=15_000)
    assert page.locator("details", has_text="Every field").get_attribute("open") is not None, (
        "what was opened stays open"
    )


def test_enter_in_the_reason_sends_nothing_and_keeps_the_page(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    page = log_in(LEAD, f"/inbox/{run}")
    page.fill("#reason", "because")
    page.press("#reason", "Enter")
    expect(page).to_have_url(re.compile(f"/console/inbox/{run}$"))
    page.click("[data-verdict=approved]")
    expect(page.locator(".result")).to_contain_text("Choose the file with your key first")


def test_all_of_it_is_reached_by_keys(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    page = log_in(OPERATOR, "/inbox")
    page.keyboard.press("r")
    expect(page.locator("h1")).to_have_text("Runs")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator(".trail")).to_contain_text(run)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement !== document.body")


def test_without_scripts_everything_is_read_and_the_command_is_printed(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    page = log_in(LEAD, f"/inbox/{run}", java_script_enabled=False)
    expect(page.locator(".command")).to_contain_text(f"contextos approvals approve {run}")
    expect(page.locator("main")).to_contain_text("GATE_FINANCE_APPROVAL")
    expect(page.locator("[data-verdict=approved]")).to_be_hidden()
    expect(page.locator("time").first).to_contain_text("UTC")


def test_a_time_is_shown_in_the_zone_of_the_reader(face: HttpFace, log_in: LogIn) -> None:
    run = face.waiting_run()
    page = log_in(OPERATOR, f"/runs/{run}", timezone_id="Pacific/Kiritimati", locale="en-GB")
    shown = page.locator(".facts time").first
    expect(shown).to_have_attribute("title", re.compile("UTC$"))
    assert shown.inner_text() not in (shown.get_attribute("title") or "")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_nothing_keeps_people_out_and_nothing_is_cut_off(face: HttpFace, log_in: LogIn, theme: str, width: int) -> None:
    waits = face.waiting_run()
    ended = face.send("POST", "/v1/runs", json=face.request()).json()["run_id"]
    of: dict[str, Any] = {"color_scheme": theme, "viewport": {"width": width, "height": 900}}
    pages = {
        LEAD: ("/inbox", f"/inbox/{waits}"),
        OPERATOR: (
            "/runs",
            f"/runs/{ended}",
            f"/runs/{waits}",
            "/sections/govern",
            "/ask/pins.list",
            "/ask/models.cost",
        ),
        REQUESTER: ("/inbox", "/sections/operate", "/runs/run_nothing"),
    }
    for person, paths in pages.items():
        page = log_in(person, "/inbox", expected=(404,), bypass_csp=True, **of)
        for path in paths:
            page.goto(page.url.partition("/console")[0] + f"/console{path}")
            assert serious_faults(page) == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path

"""Runs looked at closer in Debian's Chromium: compared, derived again, entry by entry, exported and printed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.e2e.test_console import THEMES, WIDTHS, LogIn, browser, face, log_in, url  # noqa: F401
from tests.http_face import OPERATOR, HttpFace

pytestmark = pytest.mark.slow


def begun(face: HttpFace) -> str:  # noqa: F811
    return str(face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])


def test_two_runs_are_compared_from_the_page_of_one(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run, other = begun(face), face.waiting_run()
    page = log_in(OPERATOR, f"/runs/{run}")
    page.get_by_role("link", name="Compare", exact=True).click()
    page.get_by_label("With the run or request").fill(other)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/console/runs/{run}/compare\\?other={other}$"))
    first = page.locator(".first")
    expect(first).to_contain_text("/input/context/order_id")
    expect(first).to_contain_text("ord_881")
    first.get_by_role("link", name="entry 1").first.click()
    expect(page.locator("main")).to_contain_text("run.received")


def test_a_line_of_the_story_opens_its_entry_and_a_reference_what_it_names(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    page = log_in(OPERATOR, f"/runs/{begun(face)}")
    page.locator("summary", has_text="Every field").click()
    page.locator("#run a", has_text="kg:customer:cus_77#snapshot").first.click()
    expect(page.locator("main")).to_contain_text("identity_verified")
    page.go_back()
    page.locator(".part", has_text="What it did").locator("a.seq").first.click()
    expect(page.locator("main")).to_contain_text("tool.dispatching")


def test_the_compact_story_stays_compact_while_the_run_goes_on(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    page = log_in(OPERATOR, f"/runs/{face.waiting_run()}")
    page.get_by_role("link", name="compact").click()
    expect(page.locator(".part[open]")).to_have_count(0)
    with page.expect_response(re.compile(r"\?.*view=compact")):
        pass
    expect(page.locator(".part[open]")).to_have_count(0)


def test_a_record_is_exported_and_printed_whole(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run = begun(face)
    page = log_in(OPERATOR, f"/runs/{run}?view=compact")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export the record").click()
    assert '"record_hash"' in download.value.path().read_text("utf-8")
    page.emulate_media(media="print")
    expect(page.locator(".bar")).to_be_hidden()
    expect(page.locator(".timeline li").first).to_be_visible()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_nothing_keeps_people_out_and_nothing_is_cut_off(face: HttpFace, log_in: LogIn, theme: str, width: int) -> None:  # noqa: F811
    run, other = begun(face), face.waiting_run()
    of: dict[str, Any] = {"color_scheme": theme, "viewport": {"width": width, "height": 900}, "bypass_csp": True}
    page = log_in(OPERATOR, "/inbox", **of)
    base = page.url.partition("/console")[0]
    for path in (
        f"{run}/compare?other={other}",
        f"{run}/compare",
        f"{run}/replay",
        f"{run}/entries",
        f"{run}/entries?seq=14",
        f"{run}?view=compact",
    ):
        page.goto(f"{base}/console/runs/{path}")
        found = Axe().run(page).response["violations"]
        serious = [one["id"] for one in found if one["impact"] in ("serious", "critical")]
        assert serious == [], f"{path}: {[node['html'] for one in found for node in one['nodes']][:4]}"
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path

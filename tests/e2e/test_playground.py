"""The playground in Debian's Chromium: a person changes something and sees at once what follows from it.

A link fills the fields and does nothing else. Screenshots of the page are beside the test's temporary files.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Request, expect

from tests.attacks.test_h14_the_console import HOSTILE
from tests.e2e.test_console import THEMES, WIDTHS, LogIn, browser, face, log_in, url  # noqa: F401 - fixtures
from tests.http_face import OPERATOR

pytestmark = pytest.mark.slow

PATIENCE_MS = 30_000


def link_of(scenario: Any) -> str:
    text = scenario if isinstance(scenario, str) else json.dumps(scenario)
    return "#scenario=" + base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def verdict(page: Page, state: str) -> None:
    expect(page.locator(".verdict .badge")).to_have_text(state, timeout=PATIENCE_MS)


def posts(page: Page) -> list[str]:
    """The requests of a page that send something, as they happen."""
    sent: list[str] = []

    def note(request: Request) -> None:
        if request.method == "POST":
            sent.append(request.url)

    page.on("request", note)
    return sent


def test_each_change_shows_what_follows_from_it(log_in: LogIn) -> None:  # noqa: F811 - a fixture
    page = log_in(OPERATOR, "/playground")
    sent = posts(page)
    page.get_by_role("link", name="A refund that may need an approval").click()
    page.select_option("[name=safety_mode]", "destructive")
    page.wait_for_timeout(900)
    assert sent == [], "nothing is tried before the person asks"
    page.get_by_role("button", name="Try it").click()
    verdict(page, "waiting")
    hash_before = page.locator(".hash code").inner_text()
    request = page.input_value("[name=request]")
    page.fill("[name=request]", request.replace('"refund_amount": 4200', '"refund_amount": 2500'))
    verdict(page, "completed")
    assert page.locator(".hash code").inner_text() != hash_before
    expect(page.locator(".stages .moved").first).to_be_visible()
    page.select_option("[name=safety_mode]", "read_only")
    verdict(page, "refused")
    expect(page.locator(".surface")).to_contain_text("hidden")
    page.select_option("[name=safety_mode]", "")
    verdict(page, "completed")
    page.fill("[name=document]", page.input_value("[name=document]").replace("max: 3000", "max: 300"))
    verdict(page, "waiting")
    page.select_option("[name=answer]", "approved")
    verdict(page, "completed")
    page.fill("[name=document]", "name: x\nwho: 1\n")
    expect(page.locator("#faults-document li").first).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator("#result")).to_contain_text("It was not tried")


def test_an_agent_that_chooses_its_calls_is_tried_too(log_in: LogIn) -> None:  # noqa: F811 - a fixture
    page = log_in(OPERATOR, "/playground?example=deploy")
    page.get_by_role("button", name="Try it").click()
    verdict(page, "waiting")
    page.fill("[name=outputs]", page.input_value("[name=outputs]").replace('"frozen": false', '"frozen": true'))
    expect(page.locator("#result")).to_contain_text("refused", timeout=PATIENCE_MS)


def test_a_link_has_the_scenario_and_only_fills_the_fields(log_in: LogIn) -> None:  # noqa: F811 - a fixture
    page = log_in(OPERATOR, "/playground?example=refund")
    page.select_option("[name=safety_mode]", "delegated")
    page.get_by_role("button", name="Copy a link").click()
    expect(page.locator("#playground-note")).to_be_visible()
    link, request = page.url, page.input_value("[name=request]")
    other = page.context.new_page()
    sent = posts(other)
    other.goto(link)
    expect(other.locator("#playground-note")).to_contain_text("Nothing was tried or sent")
    assert other.input_value("[name=request]") == request
    assert other.input_value("[name=safety_mode]") == "delegated"
    other.fill("[name=facts]", "")
    other.wait_for_timeout(900)
    assert sent == []
    other.get_by_role("button", name="Try it").click()
    verdict(other, "refused")


@pytest.mark.parametrize(
    "hostile",
    [
        "not json",
        "[]",
        "null",
        '{"csrf": "mine", "before": "x", "action": "//evil.example", "__proto__": {"x": 1}}',
        {"request": 7, "mode": "evil", "answer": ["approved"]},
        {name: " ".join(HOSTILE) for name in ("request", "document", "facts", "mode", "answer", "total_tokens")},
        {"request": "A" * 300_000},
    ],
    ids=range(7),
)
def test_a_hostile_link_does_nothing(log_in: LogIn, hostile: Any) -> None:  # noqa: F811 - a fixture
    page = log_in(OPERATOR, "/playground")
    sent, csrf = posts(page), page.input_value("[name=csrf]")
    page.goto(page.url.partition("#")[0] + link_of(hostile))
    page.reload()
    expect(page.locator("#playground-note")).to_be_visible()
    page.wait_for_timeout(900)
    assert sent == []
    assert page.input_value("[name=csrf]") == csrf
    assert (page.get_attribute("#scenario", "action"), page.input_value("[name=mode]")) == ("/console/playground", "")
    assert page.evaluate("({}).x") is None


def test_without_scripts_it_is_a_form(log_in: LogIn) -> None:  # noqa: F811 - a fixture
    page = log_in(OPERATOR, "/playground?example=refund", java_script_enabled=False)
    page.get_by_role("button", name="Try it").click()
    verdict(page, "waiting")
    page.select_option("[name=safety_mode]", "read_only")
    page.get_by_role("button", name="Try it").click()
    verdict(page, "refused")
    expect(page.locator(".stages .moved").first).to_be_visible()


def test_it_is_reached_and_used_by_keys(log_in: LogIn) -> None:  # noqa: F811 - a fixture
    page = log_in(OPERATOR, "/playground?example=refund")
    page.locator("[name=max_cost_cents]").focus()
    page.keyboard.press("Enter")
    verdict(page, "waiting")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Try it"


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_nothing_keeps_people_out_and_nothing_is_cut_off(
    log_in: LogIn,  # noqa: F811 - a fixture
    theme: str,
    width: int,
    tmp_path: Path,
) -> None:
    of: dict[str, Any] = {"color_scheme": theme, "viewport": {"width": width, "height": 900}}
    page = log_in(OPERATOR, "/playground?example=refund", bypass_csp=True, **of)
    for is_tried in (False, True):
        if is_tried:
            page.get_by_role("button", name="Try it").click()
            verdict(page, "waiting")
        found = Axe().run(page).response["violations"]
        serious = [one["id"] for one in found if one["impact"] in ("serious", "critical")]
        assert serious == [], [node["html"] for one in found for node in one["nodes"]][:4]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.screenshot(path=tmp_path / f"{theme}_{width}_{is_tried}.png")

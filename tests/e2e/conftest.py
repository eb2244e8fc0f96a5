"""Debian's Chromium (`make browser`) before a served workspace, for the tests of the console.

A page that violates its policy, sends a request elsewhere or raises an error fails the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.http_face import HttpFace, http_face, served_url

if TYPE_CHECKING:
    # Only the tests of the console need Playwright.
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = Path("/usr/bin/chromium")
QUIET = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
LogIn = Callable[..., "Page"]


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("console")) as made:
        yield made


@pytest.fixture(scope="module")
def url(face: HttpFace) -> Iterator[str]:
    with served_url(face) as address:
        yield address.replace("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    assert CHROMIUM.is_file(), "run `make browser`, which installs Debian's Chromium"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield launched
        launched.close()


@pytest.fixture
def log_in(face: HttpFace, url: str, browser: Browser) -> Iterator[LogIn]:
    """Log a person in, in a window of their own, and open a page. A fault that the browser reports fails the test."""
    from playwright.sync_api import expect

    faults, contexts = list[str](), list["BrowserContext"]()

    def logged_in(person: str, path: str, *, expected: tuple[int, ...] = (), **of: Any) -> Page:
        context = browser.new_context(**of)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if is_fault(said.text, expected) else None)
        page.on("request", lambda sent: None if sent.url.startswith(url) else faults.append(sent.url))
        page.goto(f"{url}/console{path}")
        page.fill("#token", face.token(person))
        page.click("button.primary")
        expect(page.locator(".me")).to_contain_text(person)
        return page

    yield logged_in
    for context in contexts:
        context.close()
    assert faults == []


def is_fault(text: str, expected: tuple[int, ...]) -> bool:
    return not any(f"status of {status}" in text for status in expected)

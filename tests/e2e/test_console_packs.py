"""Packs in Debian's Chromium: a pack is edited, linted, published and pinned, and versions are compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from contextos.control.artifacts import PACK_TYPE
from contextos.trust.seal import seal
from tests.e2e.conftest import LogIn
from tests.e2e.test_console import THEMES, WIDTHS, serious_faults
from tests.e2e.test_console_signing import read_statement, sign
from tests.http_face import OPERATOR, HttpFace

pytestmark = pytest.mark.slow

PACK = "ctxpack.support@5.2.0"


def author_key(face: HttpFace) -> Path:
    """The file of the key that this workspace trusts for packs."""
    [made] = seal(PACK_TYPE, b"{}", face.app.keys, "pack")["signatures"]  # type: ignore[union-attr]
    return face.path / "keys" / f"{made['keyid']}.key"  # type: ignore[index,call-overload]


def edited(page: Page, change: Any) -> None:
    """Change the document in the editor, and wait for what lint says of it."""
    document = json.loads(page.input_value("#text"))
    change(document)
    page.fill("#text", json.dumps(document, indent=2))


def test_a_pack_is_edited_linted_published_and_pinned(face: HttpFace, log_in: LogIn) -> None:
    page = log_in(OPERATOR, "/packs")
    page.get_by_role("link", name=PACK).click()
    page.get_by_role("link", name="Edit as a new version").click()
    expect(page.locator(".checked")).to_contain_text("it can be published", timeout=20_000)

    def with_another_name(document: dict[str, Any]) -> None:
        rule = document["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"][0]
        rule["if"] = {"==": [{"var": "user.rolle"}, "support_agent"]}

    edited(page, with_another_name)
    expect(page.locator(".findings li").first).to_contain_text("user.rolle", timeout=20_000)
    page.locator(".findings a").first.click()
    selected = page.evaluate("text.value.slice(text.selectionStart, text.selectionEnd)")
    line = int(page.locator(".findings a").first.inner_text().removeprefix("line "))
    assert selected == page.input_value("#text").split("\n")[line - 1], "a finding leads to its line"

    def mended(document: dict[str, Any]) -> None:
        rule = document["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"][0]
        rule["if"] = {"in": [{"var": "user.role"}, ["support_lead"]]}
        rule["rationale"] = "leads alone may work on refunds"

    edited(page, mended)
    expect(page.locator(".checked")).to_contain_text("it can be published", timeout=20_000)
    page.set_input_files("#author", author_key(face))
    said = read_statement(page, face)
    assert ("artifact.published" in said, "ctxpack.support@5.3.0" in said) == (True, True)
    assert "leads alone may work on refunds" in said, "the change that is signed is shown"
    sign(page)
    published = face.send("GET", "/v1/packs/ctxpack.support@5.3.0", by=OPERATOR).json()
    assert published["publisher"] == OPERATOR
    page.get_by_role("link", name="Pin it").click()
    expect(page.locator("#field-refs")).to_have_value("ctxpack.support@5.3.0")
    assert "packs.pinned" in read_statement(page, face)
    sign(page)
    pins = face.send("GET", "/v1/pins", by=OPERATOR).json()["items"]
    assert ["ctxpack.support@5.3.0"] in [pin["refs"] for pin in pins]
    page.goto(page.url.partition("/console")[0] + "/console/packs")
    expect(page.locator("tr", has_text="5.3.0")).to_contain_text("support.refund")
    page.get_by_role("link", name="Compare").first.click()
    expect(page.locator("main")).to_contain_text("leads alone may work on refunds")
    expect(page.locator("del").first).to_be_visible()


def test_a_first_draft_over_the_tools_is_linted(face: HttpFace, log_in: LogIn) -> None:
    page = log_in(OPERATOR, "/drafts")
    page.fill("[name=name]", "ctxpack.first")
    page.fill("[name=who]", "support_agent")
    page.fill("[name=approver]", "finance_lead")
    page.get_by_role("button", name="Write a first draft").click()
    expect(page.locator("#text")).to_have_value(re.compile("name: ctxpack.first"), timeout=20_000)
    expect(page.locator(".checked")).not_to_contain_text("Not checked", timeout=20_000)


def test_text_that_runs_is_text_in_the_findings(face: HttpFace, log_in: LogIn) -> None:
    page = log_in(OPERATOR, "/drafts", expected=(422,))
    page.fill("#text", "name: <img src=x onerror=alert(1)>\nversion: 1\n'<script>': \u202e")
    page.click("#check")
    expect(page.locator(".findings li").first).to_be_visible(timeout=20_000)
    assert page.locator(".findings img, .findings script").count() == 0
    assert "\u202e" not in page.locator(".findings").inner_text()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_nobody_is_kept_out_of_the_forms_and_packs(face: HttpFace, log_in: LogIn, theme: str, width: int) -> None:
    run = face.waiting_run()
    page = log_in(OPERATOR, "/packs", bypass_csp=True, color_scheme=theme, viewport={"width": width, "height": 900})
    paths = (
        "/packs",
        f"/packs/{PACK}",
        f"/drafts?of={PACK}",
        "/drafts",
        "/policies",
        "/adapters",
        "/facts?subject=customer:cus_77",
        "/ask/memories.list",
        f"/packs/{PACK}/changes?before={PACK}",
    )
    for path in (*paths, "/do/pins.set", "/do/facts.set", f"/do/runs.cancel?of={run}", f"/do/runs.settle?of={run}"):
        page.goto(page.url.partition("/console")[0] + f"/console{path}")
        assert serious_faults(page) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path

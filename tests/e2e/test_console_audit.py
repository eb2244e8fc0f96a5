"""The audit pages in Debian's Chromium: an export is verified in the browser's form, and a broken one names where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.e2e.test_console import THEMES, WIDTHS, LogIn, browser, face, log_in, url  # noqa: F401
from tests.http_face import OPERATOR, HttpFace
from tests.unit.service.operations.test_audits import ended_run, export

pytestmark = pytest.mark.slow


def exported(face: HttpFace, path: Path) -> list[bytes]:  # noqa: F811
    """The lines of an export of a run, which is written to `path`."""
    raw = export(face, [ended_run(face)["run_id"]]).content
    path.write_bytes(raw)
    return raw.splitlines(keepends=True)


def test_an_export_verifies_and_a_broken_one_names_the_first_broken_link(
    face: HttpFace,  # noqa: F811
    log_in: LogIn,  # noqa: F811
    tmp_path: Path,
) -> None:
    file = tmp_path / "runs.jsonl"
    lines = exported(face, file)
    before = face.call(face.app.runs.position("tenant_acme_prod"))
    page = log_in(OPERATOR, "/sections/audit")
    page.set_input_files("#export-file", file)
    page.locator("#export button").click()
    expect(page.locator("#export .result")).to_contain_text("Everything in this file verifies: 1 runs")
    file.write_bytes(b"".join([*lines[:3], lines[3].replace(b'"seq":3', b'"seq":4'), *lines[4:]]))
    page.set_input_files("#export-file", file)
    page.locator("#export button").click()
    expect(page.locator("#export .result")).to_contain_text("The first broken link: `export` entry 4")
    file.write_text("nonsense", "utf-8")
    page.set_input_files("#export-file", file)
    page.locator("#export button").click()
    expect(page.locator("#export .result")).to_contain_text("`export` entry 1: is not the manifest")
    assert face.call(face.app.runs.position("tenant_acme_prod")) == before, "nothing is stored"


def test_the_tenant_is_verified_and_a_chain_is_drawn_by_keys_alone(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run = ended_run(face)["run_id"]
    page = log_in(OPERATOR, "/sections/audit")
    page.locator('input[name="run"]').focus()
    page.keyboard.type(run)
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("verifies")
    expect(page.locator(".chain li").first).to_contain_text("run.received")
    page.goto(page.url.partition("/console")[0] + "/console/audit/verification")
    expect(page.locator("h1")).to_contain_text("verifies")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
def test_the_audit_pages_keep_nobody_out(face: HttpFace, log_in: LogIn, theme: str, width: int) -> None:  # noqa: F811
    run = ended_run(face)["run_id"]
    of: dict[str, Any] = {"color_scheme": theme, "viewport": {"width": width, "height": 900}}
    page = log_in(OPERATOR, "/inbox", bypass_csp=True, **of)
    for path in ("/sections/audit", f"/audit/chain?run={run}", "/audit/verification"):
        page.goto(page.url.partition("/console")[0] + f"/console{path}")
        found = Axe().run(page).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path

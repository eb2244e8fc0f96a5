"""`docs/service.md`: its commands, typed in one bash session, reach a decided run with an approval over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.cli.operations.serving import DEFAULT_PORT
from tests.docs.pages import ROOT
from tests.service_pages import PORT, type_page

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "service.md").read_text("utf-8")


def test_every_command_of_the_page_ends_and_says_what_it_shows(tmp_path: Path) -> None:
    assert "Authorization: Bearer" in PAGE, "the page has no curl lines"
    type_page(PAGE, tmp_path)


def test_the_page_names_the_default_port() -> None:
    assert int(PORT) == DEFAULT_PORT
    assert Path(ROOT / "mkdocs.yml").read_text("utf-8").count("service.md") == 1

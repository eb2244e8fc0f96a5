"""`docs/service.md`: its commands, typed in one bash session, reach a decided run with an approval over HTTP."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Typed, blocks, make_shim, typed
from tests.terminal import check_session, play

PAGE = (ROOT / "docs" / "service.md").read_text("utf-8")
PORT = "8765"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def free_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Typed], list[tuple[int, str]]]:
    place = tmp_path_factory.mktemp("reader")
    (place / "empty").mkdir()
    port = free_port()
    page = PAGE.replace(PORT, port).replace("contextos serve 2>", f"contextos serve --port {port} 2>")
    found: list[Typed] = []
    for block in blocks(page):
        if block.title:
            # The reader saves it in the workspace; the session writes it there.
            found.append(Typed(f"cat > {block.title} <<'END'\n{block.text}END", 0, ()))
        elif block.language == "console":
            found += typed(block.text)
    return found, play(found, place / "empty", [make_shim(place / "bin")])


def test_every_command_of_the_page_ends_and_says_what_it_shows(session) -> None:
    found, said = session
    assert any("Authorization: Bearer" in one.command for one in found), "the page has no curl lines"
    check_session(found, [(code, COLOUR.sub("", shown)) for code, shown in said])


def test_the_page_names_the_default_port() -> None:
    from contextos.cli.operations.serving import DEFAULT_PORT

    assert int(PORT) == DEFAULT_PORT
    assert Path(ROOT / "mkdocs.yml").read_text("utf-8").count("service.md") == 1

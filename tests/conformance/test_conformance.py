"""The conformance suite of MCP from npm judges both faces, in each revision: exactly what is listed fails.

`make mcp-conformance` runs this.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.suite import (
    EXTENSIONS_OF,
    FOLDER,
    REVISIONS,
    TIMEOUT_MS,
    differences,
    expected_failures,
    extensions,
    outcomes,
    run,
    scenario_of,
    scenarios,
)
from tests.conformance.workspace import SUITE_PACK, SUITE_TOOLS, everything_is_allowed, session_words, tools_workspace
from tests.mcp_face import ROOT, TOKEN, served

MOST = {
    ("server", "2025-11-25"): 25,
    ("server", "2026-07-28"): 50,
    ("client", "2025-11-25"): 21,
    ("client", "2026-07-28"): 40,
}
"""The number of entries of each list, as reviewed. It only goes down: lower it with each entry that goes."""


def listed(face: str, revision: str) -> dict[str, str]:
    return expected_failures(face, (FOLDER / f"{revision}.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real server over a workspace with the suite's tools, and a person who allows its calls."""
    workspace = tools_workspace(tmp_path_factory.mktemp("face") / "shop", SUITE_TOOLS.read_text("utf-8"), SUITE_PACK)
    (workspace / "token").touch(0o600)
    (workspace / "token").write_text(TOKEN)
    words = session_words(workspace, "--http", "127.0.0.1:0", "--token-file", str(workspace / "token"))
    with served(words) as address, everything_is_allowed(workspace):
        yield f"http://{address}/mcp"


@pytest.mark.parametrize("revision", REVISIONS)
def test_exactly_the_listed_scenarios_fail_for_our_server(url: str, revision: str, tmp_path: Path) -> None:
    loaded = {"FACE_TOKEN": TOKEN, "NODE_OPTIONS": f"--import={FOLDER / 'preload.mjs'}"}
    common = ["server", "--url", url, "--output-dir", str(tmp_path)]
    said = run(*common, "--suite", "all", "--spec-version", revision, **loaded)
    for extension in extensions("server") if revision == EXTENSIONS_OF else ():
        said += run(*common, "--scenario", extension, **loaded)
    ran = outcomes(tmp_path)
    assert set(ran) == scenarios("server", revision), said
    assert differences(listed("server", revision), ran) == []


@pytest.mark.parametrize("revision", REVISIONS)
def test_exactly_the_listed_scenarios_fail_for_our_client(revision: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m tests.conformance.client"
    common = ["client", "--command", command, "--timeout", str(TIMEOUT_MS), "--output-dir", str(tmp_path)]
    loaded = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    said = run(*common, "--suite", "all", "--spec-version", revision, **loaded)
    if revision == EXTENSIONS_OF:
        said += run(*common, "--suite", "extensions", **loaded)
        # Those that this suite of the suite leaves out.
        for extension in set(extensions("client")) - set(outcomes(tmp_path)):
            said += run(*common, "--scenario", extension, **loaded)
    ran = outcomes(tmp_path)
    assert set(ran) == scenarios("client", revision), said
    assert differences(listed("client", revision), ran) == []
    gave_up = {path.parent for path in tmp_path.rglob("stdout.txt") if not path.read_text().endswith("finished\n")}
    assert not {scenario_of(place, tmp_path) for place in gave_up} & {one for one in ran if not ran[one]}, (
        "nothing passes because the client gave up"
    )


@pytest.mark.parametrize(("face", "revision"), MOST)
def test_the_lists_only_shrink(face: str, revision: str) -> None:
    assert len(listed(face, revision)) == MOST[face, revision]


RAN = {"a": frozenset({"x", "y"}), "b": frozenset[str]()}


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        (["a:x", "a:y"], []),
        (["a"], []),
        (["a:x"], ["fails: a:y"]),
        (["a", "b"], ["does not fail: b"]),
        (["a", "b:x"], ["does not fail: b:x"]),
        (["a:x", "a:y", "a:z"], ["does not fail: a:z"]),
        (["a", "c"], ["does not fail: c"]),
    ],
)
def test_each_entry_is_a_failure_and_each_failure_an_entry(entries: list[str], found: list[str]) -> None:
    assert differences(dict.fromkeys(entries, "reason"), RAN) == found


@pytest.mark.parametrize(
    "line", ["  - a", "  - a  #", "  - a  # ", "- a  # reason", "  - a: x  # reason", "  - b  # again"]
)
def test_an_entry_without_a_reason_or_a_second_time_is_refused(line: str) -> None:
    with pytest.raises(AssertionError):
        expected_failures("server", f"server:\n  - b  # reason\n{line}\n")

"""An agent with slots depends on the selection agent, one without does not, and both files name one package."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from contextos.cli import run_command_line
from contextos_agentspec.package import is_version_range, lint_package, lint_reimport
from contextos_agentspec.selection_node import SELECTION_AGENT
from tests.agentspec.planted import EXAMPLE, good
from tests.slots import slot

DOCUMENT = {"metadata": {"cinatra": {"packageName": "@acme/agent", "contextSlots": [slot().to_json()]}}}
NAME = "@contextos-examples/email-outreach-agent"
DEPENDS = {"name": "@acme/agent", "cinatra": {"agentDependencies": {SELECTION_AGENT: "^1.0.0"}}}


@pytest.mark.parametrize(
    ("document", "package", "codes"),
    [
        (DOCUMENT, DEPENDS, []),
        ({}, {"name": "@acme/agent"}, []),
        (DOCUMENT, [], ["not_an_object"]),
        (DOCUMENT, {**DEPENDS, "name": "@acme/other"}, ["package_name_differs"]),
        (DOCUMENT, {"cinatra": {"agentDependencies": []}}, ["not_an_object"]),
        (DOCUMENT, {"cinatra": {"agentDependencies": {SELECTION_AGENT: " "}}}, ["missing_dependency"]),
        (DOCUMENT, {"cinatra": "x"}, ["missing_dependency"]),
        ({}, DEPENDS, ["transitive_dependency"]),
    ],
)
def test_each_fault_of_a_package_has_its_code(document: Any, package: Any, codes: list[str]) -> None:
    assert [one.code for one in lint_package(document, package)] == codes


@pytest.mark.parametrize(
    "stated", ["^1.0.0", "~1.2", "1", "1.x", "*", ">=1.2 <2 || 3", "1.0.0 - 2.0.0", "=v1.2.3-rc.1+build", ">= 1"]
)
def test_the_version_of_the_selection_agent_is_a_range(stated: str) -> None:
    assert is_version_range(stated)


@pytest.mark.parametrize(
    "stated",
    [
        *("latest-ish!", "latest", "next", "workspace:*", "npm:other@^1", "file:../x", "^", "^1 ||", "1.2.3.4"),
        *("01.0.0", "^1.0.0,<2", "^1.0.0\n", "1 " * 200, "\u0661.0.0", "https://example.com/agent.tgz"),
    ],
)
def test_a_tag_an_address_or_a_spelling_mistake_is_no_range(stated: str) -> None:
    assert not is_version_range(stated)
    package = {"name": "@acme/agent", "cinatra": {"agentDependencies": {SELECTION_AGENT: stated}}}
    assert [one.code for one in lint_package(DOCUMENT, package)] == ["not_a_range"]


EDGE = {
    "packageName": SELECTION_AGENT,
    "kind": "agent",
    "edgeType": "runtime",
    "versionConstraint": {"kind": "semver-range", "range": "^1.0.0"},
    "requirement": "required",
}
OTHER = {**EDGE, "packageName": "@acme/connector", "edgeType": "peer"}


@pytest.mark.parametrize(
    ("edges", "codes"),
    [
        ([EDGE], []),
        ([OTHER, {**EDGE, "versionConstraint": {"kind": "exact", "version": "1.0.0"}}], []),
        ([], ["missing_dependency"]),
        ([OTHER], ["missing_dependency"]),
        ([{**EDGE, "edgeType": "peer"}], ["wrong_edge"]),
        ([{**EDGE, "requirement": "optional"}], ["wrong_edge"]),
        ([EDGE, {**EDGE, "edgeType": "install-time", "requirement": None}], ["wrong_edge", "wrong_edge"]),
        ([{**EDGE, "versionConstraint": {"kind": "semver-range", "range": "latest"}}], ["not_a_range"]),
        ([{**EDGE, "versionConstraint": {"kind": "semver-range", "range": ">=2 <1"}}], ["empty_range"]),
        ([{**EDGE, "versionConstraint": {"kind": "tag", "range": "^1.0.0"}}], ["wrong_edge"]),
        ([{**EDGE, "versionConstraint": {"kind": "exact", "version": "^1.0.0"}}], ["wrong_edge"]),
        ([{**EDGE, "versionConstraint": "^1.0.0"}], ["wrong_edge"]),
        ([{**EDGE, "packageName": None}], ["wrong_edge"]),
        ([EDGE, "x"], ["wrong_edge"]),
        ({SELECTION_AGENT: "^1.0.0"}, ["not_a_list"]),
    ],
)
def test_an_edge_of_the_selection_agent_is_required_at_run_time_and_has_a_version(edges: Any, codes: list[str]) -> None:
    package = {"name": "@acme/agent", "cinatra": {"dependencies": edges}}
    assert [one.code for one in lint_package(DOCUMENT, package)] == codes
    both = {**DEPENDS, "cinatra": {**DEPENDS["cinatra"], "dependencies": edges}}
    left = [one for one in codes if one != "missing_dependency"]
    assert [one.code for one in lint_package(DOCUMENT, both)] == left


def test_an_agent_without_slots_has_no_edge_to_the_selection_agent() -> None:
    package = {"name": "@acme/agent", "cinatra": {"dependencies": [OTHER, EDGE]}}
    assert [one.code for one in lint_package({}, package)] == ["transitive_dependency"]
    assert lint_package({}, {"name": "@acme/agent", "cinatra": {"dependencies": [OTHER]}}) == ()


@pytest.mark.parametrize(
    ("stated", "empty"),
    [
        *(
            (one, True)
            for one in (">=2 <1", "<0", "<0.0.0", ">*", "<*", "2 - 1", ">1 <2", ">1.0.0 <1.0.1", "1.2.3 1.2.4")
        ),
        *(
            (one, True)
            for one in ("^0.0.3 0.0.4", "~>1.2 >=1.3", "v1 ^2", ">1.0.0-b <1.0.0-a", "^1.0.0 <1.0.0", "<0 || >3 <3")
        ),
        *((one, False) for one in (">=2 <1 || 3", ">=1.0.0-rc.1 <1.0.0", "1 - 2", "1.2.3 - 1.2", "^0 <1", ">1 <=2")),
        *((one, False) for one in ("<=0.0.0", "x.1.2", "^1.2.3-rc.1 <1.2.3", ">999999999999999", "=1.2.3 1.2.3")),
    ],
)
def test_a_range_that_no_version_is_in_is_refused(stated: str, empty: bool) -> None:
    package = {"name": "@acme/agent", "cinatra": {"agentDependencies": {SELECTION_AGENT: stated}}}
    assert [one.code for one in lint_package(DOCUMENT, package)] == (["empty_range"] if empty else [])


@pytest.mark.parametrize(
    ("version", "earlier", "raised"),
    [
        ("1.1.0", "1.0.9", True),
        ("1.10.0", "1.9.0", True),
        ("1.1.0", "1.1.0-rc.1", True),
        ("1.1.0-rc.10", "1.1.0-rc.9", True),
        ("1.0.0", None, True),
        ("1.0.0", "1.0.0", False),
        ("1.0.0+two", "1.0.0+one", False),
        ("1.1.0-rc.1", "1.1.0", False),
        ("0.9.0", "1.0.0", False),
        ("soon", "1.0.0", False),
        (None, "1.0.0", False),
        (2, "1.0.0", False),
    ],
)
def test_what_changed_is_imported_again_only_under_a_higher_version(version: Any, earlier: Any, raised: bool) -> None:
    found = lint_reimport({"a": 1}, {"version": version}, {"a": 2}, {"version": earlier})
    assert [one.code for one in found] == ([] if raised else ["version_not_raised"])
    assert lint_reimport({"a": 1}, {"version": version}, {"a": 1}, {"version": version}) == ()


def test_one_and_true_are_not_the_same_agent() -> None:
    found = lint_reimport({"a": 1}, {"version": "1.0.0"}, {"a": True}, {"version": "1.0.0"})
    assert [one.code for one in found] == ["version_not_raised"]


def test_an_import_that_has_no_agent_of_the_package_is_not_fine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    shutil.copytree(EXAMPLE, tmp_path / "renamed")
    for file in (tmp_path / "renamed").rglob("*.json"):
        file.write_text(file.read_text("utf-8").replace(NAME, "@acme/another"), encoding="utf-8")
    for folder in ("empty", "renamed"):
        assert run_command_line(["slots", "lint", str(EXAMPLE), "--imported", str(tmp_path / folder)]) == 2
        said = capsys.readouterr().out
        assert "nothing_compared" in said
        assert NAME in said
    both = [str(EXAMPLE), str(tmp_path / "renamed"), "--imported", str(EXAMPLE)]
    run_command_line(["slots", "lint", *both])
    assert "nothing_compared" not in capsys.readouterr().out


def test_the_command_says_that_a_changed_agent_needs_a_higher_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "moved" / "agent")
    document, package = copy.deepcopy(good())
    document["description"] = "writes to other people"
    place = tmp_path / "moved" / "agent"
    assert run_command_line(["slots", "lint", str(place), "--imported", str(EXAMPLE)]) == 0
    (place / "cinatra" / "oas.json").write_text(json.dumps(document), encoding="utf-8")
    assert run_command_line(["slots", "lint", str(place), "--imported", str(EXAMPLE)]) == 2
    assert "package.json: version_not_raised" in capsys.readouterr().out
    (place / "package.json").write_text(json.dumps(package | {"version": "1.1.1"}), encoding="utf-8")
    assert run_command_line(["slots", "lint", str(place), "--imported", str(EXAMPLE)]) == 0
    assert run_command_line(["slots", "lint", str(place), "--imported", str(tmp_path / "nothing.json")]) == 2
    assert "nothing.json" in capsys.readouterr().err

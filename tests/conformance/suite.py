"""The conformance suite of MCP: it is run against both faces, and what fails is compared with what is listed.

A list is a file of the suite's own form (`--expected-failures`), one for each revision of the protocol. An entry is
`scenario:check`, or a whole scenario, and its comment is the reason.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.npm import node_environment, npm_folder

FOLDER = Path(__file__).parent
REVISIONS = ("2025-11-25", "2026-07-28")
EXTENSIONS_OF = "2026-07-28"
"""The revision at which the suite runs the scenarios of extensions."""
TIMEOUT_MS = 240_000

_ENTRY = re.compile(r"  - (?P<entry>\S+) +# (?P<reason>\S.*)")
_RESULT = re.compile(r"(?:server-)?(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")

Outcomes = Mapping[str, frozenset[str]]
"""By the name of each scenario that ran, the checks that failed; a warning is a failure too."""


def run(*words: str, **environment: str) -> str:
    """Run the suite's program; returns what it printed."""
    folder = npm_folder()
    program = str(folder / "node_modules" / ".bin" / "conformance")
    done = subprocess.run(
        [program, *words], env=node_environment(folder) | environment, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def scenarios(face: str, revision: str) -> frozenset[str]:
    """The scenarios of a face that the suite has for a revision, with those of extensions for the newest one."""
    own = re.findall(r"^  - (\S+)", run("list", f"--{face}", "--spec-version", revision), re.MULTILINE)
    return frozenset([*own, *(extensions(face) if revision == EXTENSIONS_OF else ())])


def extensions(face: str) -> list[str]:
    return re.findall(r"^  - (\S+) \[extension\]", run("list", f"--{face}"), re.MULTILINE)


def outcomes(results: Path) -> Outcomes:
    """What the suite wrote to a folder."""
    found: dict[str, frozenset[str]] = {}
    for path in results.rglob("checks.json"):
        checks = json.loads(path.read_bytes())
        failed = frozenset(one["id"] for one in checks if one["status"] in ("FAILURE", "WARNING"))
        found[scenario_of(path.parent, results)] = failed
    return found


def scenario_of(place: Path, results: Path) -> str:
    """The scenario whose results are in a folder below `results`."""
    named = _RESULT.fullmatch(place.relative_to(results).as_posix())
    assert named, place
    return named["scenario"]


def expected_failures(face: str, text: str) -> dict[str, str]:
    """The entries of a face in a file, each with its reason. Every line is a comment, a face, or an entry with one."""
    found: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        if line in ("server:", "client:"):
            section = line.rstrip(":")
            continue
        entry = _ENTRY.fullmatch(line)
        assert entry, f"no entry with a reason: {line}"
        assert entry["entry"] not in found or section != face, f"twice: {line}"
        if section == face:
            found[entry["entry"]] = entry["reason"]
    return found


def differences(expected: Mapping[str, str], ran: Outcomes) -> list[str]:
    """What fails and is not listed, and what is listed and does not fail or does not exist."""
    failing = {f"{scenario}:{check}" for scenario, checks in ran.items() for check in checks}
    whole = {one.partition(":")[0] for one in failing}
    unlisted = [one for one in failing if not {one, one.partition(":")[0]} & expected.keys()]
    stale = [one for one in expected if one not in failing | whole]
    return sorted([*(f"fails: {one}" for one in unlisted), *(f"does not fail: {one}" for one in stale)])

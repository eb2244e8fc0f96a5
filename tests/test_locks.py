"""The lock files: exact, hashed, in step with `pyproject.toml`, and naming no registry and no path."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PIN = re.compile(r"(?P<name>[a-z0-9][a-z0-9-]*)==(?P<version>[0-9][\w.]*)(?P<marker> ; [^;]+)? \\")
HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?P<more> \\)?")


def pins(text: str) -> dict[str, set[str]]:
    """Name to versions (a marker may fork one). Refuses every line that is not a pin followed by its hashes."""
    found: dict[str, set[str]] = {}
    open_pin = False
    for number, line in enumerate(text.splitlines(), 1):
        pin, digest = PIN.fullmatch(line), HASH.fullmatch(line)
        if open_pin and digest:
            open_pin = bool(digest["more"])
        elif pin and not open_pin:
            found.setdefault(pin["name"], set()).add(pin["version"])
            open_pin = True
        else:
            raise ValueError(f"line {number} is neither a pin nor its hash: `{line}`")
    if open_pin:
        raise ValueError("the last pin has no hash")
    return found


def locked(name: str) -> dict[str, set[str]]:
    return pins((ROOT / "requirements" / name).read_text(encoding="utf-8"))


def asked(lines: list[str]) -> set[str]:
    return {re.split(r"[\s\[<>=!~;]", line)[0].lower() for line in lines}


def test_every_declared_dependency_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    runtime, dev = locked("runtime.txt"), locked("dev.txt")
    assert asked(project["project"]["dependencies"]) <= runtime.keys()
    assert asked(project["dependency-groups"]["dev"]) <= dev.keys()


def test_the_environment_of_agents_is_locked() -> None:
    """It is a lock of its own: WayFlow excludes versions that the other one pins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    agents = tomllib.loads((ROOT / "agentspec" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    group = project["dependency-groups"]["agentspec"]
    assert set(agents["optional-dependencies"]["wayflow"]) <= set(group)
    assert asked([*project["project"]["dependencies"], *group]) <= locked("agentspec.txt").keys()
    own = {name: [f"{name}=={agents['version']}"] for name in ("contextos", "contextos-agentspec")}
    assert agents["version"] == project["project"]["version"]
    assert agents["dependencies"] == own["contextos"]
    assert project["project"]["optional-dependencies"]["agentspec"] == own["contextos-agentspec"]


def test_the_environment_of_agentdojo_is_locked() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["agentdojo"]]
    assert asked(wanted) <= locked("agentdojo.txt").keys()


@pytest.mark.parametrize("name", ["service.txt", "build.txt"])
def test_the_image_has_the_versions_that_are_tested(name: str) -> None:
    tested = locked("dev.txt")
    assert {one: tested.get(one) for one in locked(name)} == locked(name)


def test_the_image_has_the_extras_of_a_service() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = re.search(r"^SERVICE := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert named is not None
    extras = project["project"]["optional-dependencies"]
    wanted = [one for name in named[1].split() for one in extras[name]]
    assert {"service", "postgres", "telemetry"} <= set(named[1].split())
    assert asked([*project["project"]["dependencies"], *wanted]) <= locked("service.txt").keys()
    assert asked(project["dependency-groups"]["build"]) <= locked("build.txt").keys()


@pytest.mark.parametrize("name", ["dev.txt", "agentdojo.txt"])
def test_the_tested_versions_are_the_shipped_ones(name: str) -> None:
    tested = locked(name)
    assert {one: tested.get(one) for one in locked("runtime.txt")} == locked("runtime.txt")


GOOD = "one==1.0 \\\n    --hash=sha256:" + "a" * 64 + "\n"


@pytest.mark.parametrize(
    "line",
    ["--index-url https://example.org", "# made in /somewhere", "two @ file:///x", "two==2.0", "two>=2 \\", "-e ."],
)
def test_a_line_that_is_no_hashed_pin_is_refused(line: str) -> None:
    assert pins(GOOD) == {"one": {"1.0"}}
    with pytest.raises(ValueError, match="line 3"):
        pins(GOOD + line + "\n")


def test_a_pin_without_a_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="no hash"):
        pins("one==1.0 \\\n")

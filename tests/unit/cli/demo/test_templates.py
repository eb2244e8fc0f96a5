"""A new workspace is there whole or not at all, and opens as it was made."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from contextos.cli.demo.templates import copy_template, example_folder, new_workspace
from contextos.errors import InvalidInput
from contextos.trust.seal import listed_key
from contextos.workspace import open_app, read_seed
from contextos.workspace.settings import Settings

SRC = Path(__file__).resolve().parents[4] / "src"


@pytest.mark.parametrize("name", WORKSPACE_TEMPLATES)
def test_each_template_makes_a_workspace_that_opens(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = tmp_path / "above" / "w"
    WORKSPACE_TEMPLATES[name](place)
    assert list(place.parent.iterdir()) == [place], "nothing else is left beside it"

    async def opened() -> tuple[str, ...]:
        app = await open_app(Settings.read(place))
        try:
            return app.tenants()
        finally:
            app.close()

    [tenant] = asyncio.run(opened())
    listed = json.loads((place / "directory.json").read_text("utf-8"))[tenant]
    for path in (place / "keys").glob("*.key"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    named = {one["approver_id"]: one["keys"] for one in listed["approvers"] if one["keys"]}
    assert named, "somebody can act"
    for person, keys in named.items():
        assert keys == [listed_key(read_seed(place / "keys" / f"{person}.key"))]


@pytest.mark.parametrize("name", WORKSPACE_TEMPLATES)
def test_git_is_asked_to_ignore_every_private_key_and_the_store(name: str, tmp_path: Path) -> None:
    WORKSPACE_TEMPLATES[name](tmp_path / "w")
    subprocess.run(["git", "init", "-q", str(tmp_path / "w")], check=True)
    (tmp_path / "w" / "contextos.db-wal").touch()
    listing = ["git", "-C", str(tmp_path / "w"), "ls-files", "--others", "--exclude-standard"]
    shown = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
    assert "contextos.toml" in shown
    assert [one for one in shown if one.startswith("keys/") or ".db" in one or one.endswith(".key")] == []


def test_a_workspace_has_the_files_of_its_example_and_keys_of_its_own(tmp_path: Path) -> None:
    """There is one source of the deploy example: the folder `examples/deploy_rollback`."""
    for name in ("a", "b"):
        WORKSPACE_TEMPLATES["deploy"](tmp_path / name)
    source = example_folder("deploy_rollback")
    for path in source.rglob("*"):
        if path.is_file() and path.name != "directory.json" and "__pycache__" not in path.parts:
            assert (tmp_path / "a" / path.relative_to(source)).read_bytes() == path.read_bytes()
    rings = [(tmp_path / name / "keys" / "runtime.json").read_bytes() for name in ("a", "b")]
    assert rings[0] != rings[1]


def full(path: Path) -> None:
    path.mkdir()
    (path / "mine").write_text("mine")


def a_file(path: Path) -> None:
    path.write_text("mine")


def current(path: Path) -> None:
    path.mkdir()
    os.chdir(path)


def unwritable(path: Path) -> None:
    (path.parent / "closed").write_text("")


@pytest.mark.parametrize(
    ("prepare", "named", "why"),
    [
        (full, "w", "it is not empty"),
        (a_file, "w", "it is not a directory"),
        (current, ".", "the current directory cannot be replaced"),
        (unwritable, "closed/w", "it cannot be used: "),
        (unwritable, "/", "it is the root of the file system"),
        (unwritable, "a\0b", "its name holds a null character"),
    ],
    ids=["not empty", "a file", "the current directory", "below a file", "the root", "no name"],
)
def test_a_place_that_cannot_be_a_workspace_is_left_as_it_is(
    prepare: Callable[[Path], None], named: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path / "w")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidInput, match=why):
        WORKSPACE_TEMPLATES["deploy"](Path(named))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "raised", [OSError(28, "No space left on device"), KeyboardInterrupt(), RuntimeError("defect")]
)
def test_an_error_in_the_middle_leaves_nothing(raised: BaseException, tmp_path: Path) -> None:
    def make() -> None:
        with new_workspace(tmp_path / "w") as made:
            (made / "half").write_text("half")
            raise raised

    with pytest.raises((InvalidInput, KeyboardInterrupt, RuntimeError)):
        make()
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_puts_there_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    def make() -> None:
        with new_workspace(tmp_path / "w") as made:
            (made / "mine").write_text("new")
            full(tmp_path / "w")

    with pytest.raises(InvalidInput, match="not empty"):
        make()
    assert (tmp_path / "w" / "mine").read_text() == "mine"
    assert [one.name for one in tmp_path.iterdir()] == ["w"]


def test_a_process_that_is_killed_in_the_middle_leaves_no_workspace_and_the_next_one_makes_it(tmp_path: Path) -> None:
    """Killed when everything is written and nothing is in its place yet."""
    place = tmp_path / "w"
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom contextos.cli.demo import templates\n"
        "templates.os.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "templates.copy_template('deploy_rollback', Path(sys.argv[1]))\n"
    )
    paths = os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])
    killed = subprocess.run(
        [sys.executable, "-c", script, str(place)], env={**os.environ, "PYTHONPATH": paths}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert not place.exists()
    copy_template("deploy_rollback", place)
    assert (place / "contextos.toml").is_file()

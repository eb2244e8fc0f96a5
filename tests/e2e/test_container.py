"""`Containerfile`: a linter passes it, and what it does, done here without an engine, makes a `contextos serve`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ended
from tests.served import free_port

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text("utf-8")
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in re.sub(r"\\\n\s*", " ", CONTAINERFILE).splitlines()
    if line and not line.startswith("#") and not line.startswith(" ")
]
STAGES = [index for index, (word, _) in enumerate(INSTRUCTIONS) if word == "FROM"]
BUILD, FINAL = INSTRUCTIONS[STAGES[0] : STAGES[1]], INSTRUCTIONS[STAGES[1] :]


def stated(word: str) -> list[str]:
    """The arguments of an instruction in the stage that is the image."""
    return [rest for one, rest in FINAL if one == word]


def linted(text: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "hadolint"
    return subprocess.run([program, "-"], input=text, capture_output=True, text=True, check=False)


def test_a_linter_finds_nothing() -> None:
    done = linted(CONTAINERFILE)
    assert (done.returncode, done.stdout) == (0, "")
    assert linted("FROM python\nRUN pip install contextos\n").returncode == 1, "it looks"


def test_the_image_has_no_root_no_secret_and_a_health_check() -> None:
    [user] = stated("USER")
    assert all(int(one) >= 10_000 for one in user.split(":"))
    assert stated("COPY") == ["--from=build /opt/contextos /opt/contextos"]
    assert "/v1/health" in " ".join(stated("HEALTHCHECK"))
    copied = {source for word, rest in BUILD if word == "COPY" for source in rest.split()[:-1]}
    assert not {one for one in copied if one in (".", "keys") or "*" in one}
    assert not re.search("password|secret|token|api_key", CONTAINERFILE, re.IGNORECASE)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the installed environment: each `COPY` and `RUN` of the build, below a directory of its own."""
    root = tmp_path_factory.mktemp("image")
    (root / "opt").mkdir()
    where = root / "build"
    where.mkdir()
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("VIRTUAL_ENV", None)
    for word, rest in BUILD:
        if word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                goal = where / target / (Path(source).name if target.endswith("/") else "")
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, goal)
                else:
                    goal.parent.mkdir(exist_ok=True)
                    shutil.copy(ROOT / source, goal)
        elif word == "RUN":
            script = rest.replace("/opt/", f"{root}/opt/")
            done = subprocess.run(
                ["sh", "-e", "-c", script], cwd=where, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return root / "opt" / "contextos"


@pytest.mark.soak
def test_what_the_build_installs_serves_and_answers_the_health_check(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    python, contextos = built / "bin" / "python", built / "bin" / "contextos"
    assert subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 1
    subprocess.run([contextos, "init", "shop", "--from", "refund"], cwd=tmp_path, capture_output=True, check=True)
    workspace, port = tmp_path / "shop", free_port()
    [command] = stated("CMD")
    words = [*map(str, [contextos, *re.findall('"(.*?)"', command)]), "--port", str(port)]
    [check] = stated("HEALTHCHECK")
    _, program, code = shlex.split(check.partition("CMD")[2].strip("[ ]").replace(",", " ", 2))
    assert program == "-c"
    with ended(subprocess.Popen(words, cwd=workspace, stderr=subprocess.PIPE)) as process:
        assert process.stderr is not None
        assert b"serving" in process.stderr.readline()
        subprocess.run([python, program, code.replace("8765", str(port))], capture_output=True, check=True)
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert subprocess.run([python, program, code.replace("8765", str(port))], capture_output=True).returncode == 1

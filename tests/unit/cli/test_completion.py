"""`contextos completion`: a real bash completes commands and options, and no runtime is loaded for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from contextos.cli.completion import SHELLS
from tests.docs.pages import make_shim

COMPLETED = [
    ("contextos ap", ["apply", "approvals"]),
    ("contextos runs s", ["show", "sessions", "settle"]),
    ("contextos runs list --li", ["--limit"]),
    ("contextos pack nosuch", []),
    ("contextos approvals approve --b", ["--binding"]),
]

ASK = """
source <(contextos completion bash)
COMP_LINE="$1" COMP_POINT=${#1}
read -ra COMP_WORDS <<< "$1"
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
complete -p contextos > /dev/null || exit 9
_contextos_completion contextos
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    shim = make_shim(tmp_path_factory.mktemp("path") / "bin")
    return {**os.environ, "PATH": f"{shim}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(("typed", "offered"), COMPLETED, ids=[typed for typed, _ in COMPLETED])
def test_bash_completes_what_is_typed(typed: str, offered: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK, "bash", typed], env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout.split(), done.stderr) == (offered, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_asks_contextos(shell: str, say) -> None:
    said = say("completion", shell)
    assert said.code == 0
    assert "_CONTEXTOS_COMPLETE=complete_" in said.out
    assert json.loads(say("completion", shell, "--json").out)["script"] + "\n" == said.out
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=said.out, text=True, check=True)


def test_another_shell_is_refused_with_the_nearest(say) -> None:
    said = say("completion", "bsh")
    assert (said.code, "did you mean `bash`?" in said.err) == (2, True)


@pytest.mark.parametrize("variable", ["complete_bash", "complete_nosuch", "x", ""])
def test_the_variable_without_the_rest_is_a_wrong_call_and_no_defect(variable: str, command) -> None:
    start, environment = command
    plain = {name: value for name, value in environment.items() if not name.startswith("COMP_")}
    done = subprocess.run(
        start, env=plain | {"_CONTEXTOS_COMPLETE": variable}, capture_output=True, text=True, check=False
    )
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


LOADED = """
import sys
from contextos.cli import main
try:
    main()
finally:
    print("\\n".join(sorted(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("how", ["--help", "completion", "answer"])
def test_help_and_completion_load_no_runtime(how: str, command, tmp_path: Path) -> None:
    _, environment = command
    words = {"--help": ["--help"], "completion": ["completion", "bash"], "answer": []}[how]
    asked = {"COMP_WORDS": "contextos r", "COMP_CWORD": "1", "_CONTEXTOS_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        env=environment | (asked if how == "answer" else {}),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stderr.split())
    assert "contextos.cli.commands" in loaded
    packages = {name.split(".")[1] for name in loaded if name.startswith("contextos.")}
    assert packages <= {"cli", "contracts", "errors", "files", "queries"}
    assert not loaded & {"cryptography", "sqlite3", "yaml"}
    assert how != "--help" or "pydantic" not in loaded, "the parser of options needs it, and the help does not"

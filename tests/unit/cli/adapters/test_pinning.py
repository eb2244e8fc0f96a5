"""`pin-code`: a person sees what changed in the code of tools, and only then it runs and is pinned."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from contextos.contracts.encoding.jcs import digest
from tests.docs.pages import Typed
from tests.terminal import play

ADDED = '''

@contextos.read(integrity="trusted", produces="load")
def load(service: str) -> int:
    """How busy a service is."""
    return 3


TOOLS = contextos.toolset("deploy", [ci_status, impact, load, scale, rollback])
'''


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The workspace of the first decision, which is the current directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    WORKSPACE_TEMPLATES["deploy"](tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")
    return tmp_path / "w"


def change(deploy: Path, added: str) -> str:
    file = deploy / "deploy.py"
    file.write_text(file.read_text("utf-8").rpartition("\n\nTOOLS")[0] + added, "utf-8")
    return digest(file.read_bytes())


def pinned(deploy: Path) -> str:
    return tomllib.loads((deploy / "contextos.toml").read_text("utf-8"))["adapters"][0]["digest"]


def test_a_changed_tool_is_shown_and_pinned_and_the_next_command_works(say, deploy: Path) -> None:
    found, before = change(deploy, ADDED), (deploy / "contextos.toml").read_text("utf-8")
    by = ("--by", "otto", "--key", "keys/otto.key")
    assert "`contextos pin-code`" in say("apply", *by).err
    said = say("pin-code", "--yes")
    assert said.code == 0, said.err
    assert "deploy.py of deploy.py:TOOLS changed; tools: load" in said.err
    assert "  +def load(service: str) -> int:" in said.err, "the text that was pinned is that of the example"
    assert "contextos approvals reask RUN" in said.out
    after = (deploy / "contextos.toml").read_text("utf-8")
    old = digest(before.encode()) and tomllib.loads(before)["adapters"][0]["digest"]
    assert after == before.replace(old, found), "nothing else of the file changed"
    assert say("apply", *by).code == 0


def test_nothing_changes_and_nothing_runs_before_somebody_says_yes(say, deploy: Path) -> None:
    ran = deploy.parent / "ran"
    change(deploy, f"\n\nopen({str(ran)!r}, 'w').close()\nTOOLS = contextos.toolset('deploy', [ci_status])\n")
    before = pinned(deploy)
    said = say("pin-code")
    assert (said.code, "pass --yes" in said.err, ran.exists(), pinned(deploy)) == (2, True, False, before)
    assert say("pin-code", "--json").code == 2
    assert not ran.exists()


def test_a_file_that_changes_after_it_was_shown_is_not_pinned(
    say, deploy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(deploy, ADDED)
    before = pinned(deploy)
    monkeypatch.setattr("contextos.cli.adapters.pinning._confirm", lambda *_: change(deploy, ADDED.replace("3", "4")))
    said = say("pin-code")
    assert (said.code, "digest_mismatch" in said.err or "has the digest" in said.err) == (2, True)
    assert pinned(deploy) == before


@pytest.mark.parametrize("added", ["\n\nTOOLS = (", "\n\nTOOLS = 1 / 0\n", "\n\n"], ids=["syntax", "fault", "none"])
def test_code_that_does_not_load_is_not_pinned(say, deploy: Path, added: str) -> None:
    change(deploy, added)
    before = pinned(deploy)
    said = say("pin-code", "--yes")
    assert (said.code, pinned(deploy)) == (2, before)


@pytest.mark.parametrize("table", ['files = {{ "rates.py" = "{0}" }}', "\n[adapters.files]\n'rates.py' = '{0}'"])
def test_a_helper_is_pinned_wherever_the_settings_have_its_digest(say, deploy: Path, table: str) -> None:
    (deploy / "rates.py").write_text("RATE = 1\n", "utf-8")
    (deploy / "rates.py.bak").write_text("RATE = 0\n", "utf-8")
    settings = deploy / "contextos.toml"
    settings.write_text(settings.read_text("utf-8") + table.format(digest(b"RATE = 0\n")) + "\n", "utf-8")
    said = say("pin-code", "rates.py", "--yes", "--json")
    assert said.code == 0, said.err
    [one] = said.json["pinned"]
    assert (one["file"], one["adapter"], one["diff"][-2:]) == (
        "rates.py",
        "deploy.py:TOOLS",
        ["-RATE = 0", "+RATE = 1"],
    )
    adapter = tomllib.loads(settings.read_text("utf-8"))["adapters"][0]
    assert adapter["files"] == {"rates.py": digest(b"RATE = 1\n")}
    assert say("pack", "lint", "packs/deploy.yaml").code == 0


def test_a_new_file_has_no_text_before(say, deploy: Path) -> None:
    shutil.copy(deploy / "deploy.py", deploy / "new.py")
    with (deploy / "new.py").open("a", encoding="utf-8") as file:
        file.write("# \u202e\n")
    settings = deploy / "contextos.toml"
    settings.write_text('[[adapters]]\npath = "new.py:TOOLS"\ndigest = "sha256:0"\n', "utf-8")
    said = say("pin-code", "--yes")
    assert said.code == 0, said.err
    assert "ci_status, impact, rollback, scale" in said.err
    assert "read the file" in said.err
    assert "\u202e" not in said.err
    assert pinned(deploy) == digest((deploy / "new.py").read_bytes())


def test_what_is_not_pinned_or_did_not_change_is_refused(say, deploy: Path) -> None:
    unchanged = say("pin-code", "--yes")
    assert (unchanged.code, "nothing changed" in unchanged.err) == (2, True)
    change(deploy, ADDED)
    for name in ("agent.py", "nowhere.py", "../w/deploy.py", "\u202e"):
        said = say("pin-code", name, "--yes")
        assert (said.code, "use one of deploy.py" in said.err, "\u202e" in said.err) == (2, True, False)
    (deploy / "desk.json").write_text("{}", "utf-8")
    settings = deploy / "contextos.toml"
    settings.write_text(settings.read_text("utf-8") + '\n[[adapters]]\npath = "desk.json"\ndigest = "sha256:0"\n')
    assert "`contextos adapters publish desk.json`" in say("pin-code", "desk.json", "--yes").err


HIDDEN = {
    "line_separator": "\x0b",
    "file_separator": "\x1c",
    "next_line": "\x85",
    "unicode_line": "\u2028",
    "return": "\r",
}


@pytest.mark.parametrize("break_", HIDDEN.values(), ids=HIDDEN)
def test_a_change_of_what_ends_a_line_is_shown(say, deploy: Path, break_: str) -> None:
    file = deploy / "deploy.py"
    text = file.read_text("utf-8").replace("\n\nTOOLS", "\n\n# one\n# two\nTOOLS", 1)
    settings = deploy / "contextos.toml"
    settings.write_text(settings.read_text("utf-8").replace(pinned(deploy), digest(text.encode())), "utf-8")
    (deploy / "deploy.py.bak").write_text(text, "utf-8")
    file.write_bytes(text.replace("# one\n", f"# one{break_}").encode())
    said = say("pin-code")
    assert said.code == 2
    assert "  +# one\\u" in said.err, "escaped, and where it is"


@pytest.mark.parametrize(
    "raw",
    [b"# \xff\n", b"# coding: latin-1\n", b"\r# coding: utf-7\n", b"#\n# -*- coding: utf-16 -*-\n", b"# coding: x\n"],
)
def test_a_file_of_another_coding_is_refused(say, deploy: Path, raw: bytes) -> None:
    file = deploy / "deploy.py"
    before = pinned(deploy)
    file.write_bytes(raw + file.read_bytes())
    said = say("pin-code", "--yes")
    assert (said.code, "`deploy.py` is not UTF-8" in said.err, pinned(deploy)) == (2, True, before)


def test_a_syntax_error_has_its_line(say, deploy: Path) -> None:
    change(deploy, "\n\nTOOLS = (")
    line = (deploy / "deploy.py").read_text("utf-8").count("\n") + 1
    assert f"`deploy.py` is not Python at line {line}: '(' was never closed" in say("pin-code", "--yes").err


@pytest.mark.parametrize("name", ["./deploy.py", "absolute"])
def test_a_file_is_named_as_a_shell_names_it(say, deploy: Path, name: str) -> None:
    found = change(deploy, ADDED)
    said = say("pin-code", str(deploy / "deploy.py") if name == "absolute" else name, "--yes")
    assert (said.code, pinned(deploy)) == (0, found), said.err


def test_a_program_reads_the_difference_before_it_says_yes(say, deploy: Path) -> None:
    change(deploy, ADDED)
    said = say("pin-code", "--json")
    assert said.code == 2
    assert "  +def load(service: str) -> int:" in json.loads(said.out)["error"]["diff"]


@pytest.mark.parametrize("kind", ["package", "namespace"])
def test_an_installed_package_does_not_run_before_somebody_says_yes(
    say, deploy: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    site, ran = deploy.parent / "site", deploy.parent / "ran"
    (site / "shopkit" / "inner").mkdir(parents=True)
    if kind == "package":
        (site / "shopkit" / "__init__.py").write_text(f"open({str(ran)!r}, 'w').close()\n", "utf-8")
    shutil.copy(deploy / "deploy.py", site / "shopkit" / "inner" / "desk.py")
    monkeypatch.syspath_prepend(str(site))
    settings = deploy / "contextos.toml"
    settings.write_text('[[adapters]]\npath = "shopkit.inner.desk:TOOLS"\ndigest = "sha256:0"\n', "utf-8")
    said = say("pin-code")
    assert ("shopkit.inner.desk of" in said.err, "pass --yes" in said.err, ran.exists()) == (True, True, False)


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2)])
def test_a_person_at_a_terminal_is_asked_after_the_difference(deploy: Path, answer: str, code: int) -> None:
    found, before = change(deploy, ADDED), pinned(deploy)
    asked = Typed("contextos pin-code", code, (f"Pin the code as it is now? [y/N]: {answer}",))
    programs = [Path(sys.executable).parent]
    [(ended, shown)] = play([asked], deploy, programs, more={"XDG_STATE_HOME": str(deploy.parent / "state")})
    assert (ended, pinned(deploy)) == (code, before if code else found), shown
    assert 0 < shown.index("+def load(service: str)") < shown.index("Pin the code as it is now?")
    assert ("nothing was pinned" in shown) == bool(code)


def test_a_program_learns_that_it_is_never_asked(say, deploy: Path) -> None:
    change(deploy, ADDED)
    assert (
        "with `--json` nobody is asked" in json.loads(say("pin-code", "--json").out)["error"]["problems"][0]["detail"]
    )
    assert "there is no terminal to ask at" in say("pin-code").err


def test_what_tools_call_may_have_changed(say, deploy: Path) -> None:
    change(deploy, "\n\ndef helper() -> int:\n    return 1\n\n\nTOOLS = contextos.toolset('deploy', [ci_status])\n")
    said = say("pin-code", "--yes")
    assert (said.code, "no decorated function changed; what they call may have" in said.err) == (0, True), said.err


@pytest.mark.parametrize("changed", [ADDED, "\n\nTOOLS = ("], ids=["valid", "syntax"])
def test_a_file_with_a_byte_order_mark_is_read_as_python_reads_it(say, deploy: Path, changed: str) -> None:
    change(deploy, changed)
    file = deploy / "deploy.py"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    said = say("pin-code", "--yes")
    assert said.code == (0 if changed == ADDED else 2), said.err
    assert ("tools: load" if changed == ADDED else "was never closed") in said.err
    assert "\\ufeff" in said.err or changed != ADDED, "the mark is a part of the difference"


@pytest.mark.parametrize("text", ["x = '\0'\n", f"x = {'-' * 100_000}1\n", f"x = {'(' * 300}{')' * 300}\n"])
def test_what_python_cannot_read_is_refused_before_it_is_shown(say, deploy: Path, text: str) -> None:
    (deploy / "deploy.py").write_text(text, "utf-8")
    said = say("pin-code", "--yes")
    assert (said.code, "`deploy.py` is not Python" in said.err, "line None" in said.err) == (2, True, False)


def test_a_copy_that_is_not_the_pinned_one_is_not_shown_as_it(say, deploy: Path) -> None:
    change(deploy, ADDED)
    (deploy / "deploy.py.bak").write_text("an_attack = 1\n", "utf-8")
    said = say("pin-code", "--yes")
    assert (said.code, "an_attack" in said.err, "+def load" in said.err) == (0, False, True)


def with_helper(deploy: Path, name: str, pinned: bytes, now: str) -> Path:
    """A second adapter in the settings, whose helper changed."""
    shutil.copy(deploy / "deploy.py", deploy / f"{name}.py")
    file = deploy / f"{name}.py"
    file.write_text(file.read_text("utf-8").replace('toolset("deploy"', f'toolset("{name}"'), "utf-8")
    (deploy / "rates.py").write_text(now, "utf-8")
    with (deploy / "contextos.toml").open("a", encoding="utf-8") as settings:
        settings.write(f'\n[[adapters]]\npath = "{name}.py:TOOLS"\ndigest = "{digest(file.read_bytes())}"\n')
        settings.write(f'files = {{ "rates.py" = "{digest(pinned)}" }}\n')
    return file


def test_a_helper_of_two_adapters_is_pinned_for_both(say, deploy: Path) -> None:
    for name in ("desk", "till"):
        with_helper(deploy, name, b"RATE = 0\n", "RATE = 1\n")
    assert say("pin-code", "--yes").code == 0
    _, *two = tomllib.loads((deploy / "contextos.toml").read_text("utf-8"))["adapters"]
    assert [one["files"] for one in two] == [{"rates.py": digest(b"RATE = 1\n")}] * 2


def test_one_file_of_an_adapter_is_not_pinned_beside_another_that_changed(say, deploy: Path) -> None:
    file = with_helper(deploy, "desk", b"RATE = 0\n", "RATE = 1\n")
    file.write_text(file.read_text("utf-8") + "# changed\n", "utf-8")
    before = (deploy / "contextos.toml").read_text("utf-8")
    said = say("pin-code", "rates.py", "--yes")
    assert (said.code, "desk.py" in said.err, "+# changed" in said.err) == (2, True, False)
    assert (deploy / "contextos.toml").read_text("utf-8") == before
    assert say("pin-code", "rates.py", "desk.py", "--yes").code == 0


@pytest.mark.parametrize(
    ("made", "closes"), [("def made(folder):\n    return [Closing()]\n", 1), ("made = Closing()\n", 0)]
)
def test_what_was_made_to_try_the_code_is_closed(say, deploy: Path, made: str, closes: int) -> None:
    closed = deploy.parent / "closed"
    code = f"""

class Closing:
    def __init__(self):
        self.own = contextos.toolset("deploy", [ci_status])
        self.describe, self.call, self.lookup = self.own.describe, self.own.call, self.own.lookup

    def close(self):
        with open({str(closed)!r}, "a") as file:
            file.write("closed\\n")


{made}"""
    change(deploy, code)
    settings = deploy / "contextos.toml"
    settings.write_text(settings.read_text("utf-8").replace("deploy.py:TOOLS", "deploy.py:made"), "utf-8")
    said = say("pin-code", "--yes")
    assert said.code == 0, said.err
    assert (closed.read_text("utf-8").count("closed") if closed.exists() else 0) == closes

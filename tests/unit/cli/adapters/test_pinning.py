"""`pin-code`: a person sees what changed in the code of tools, and only then it runs and is pinned."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from contextos.cli.demo.init import WORKSPACE_TEMPLATES
from contextos.contracts.encoding.jcs import digest

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

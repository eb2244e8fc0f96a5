"""Every fault of a settings file is said at once, in the order of its lines."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings import Settings
from contextos.workspace.settings.reading import setting_lines

WRONG = """\
packs = ["a", 3, 4]
stroe = "x.db"

[[adapters]]
path = "a:b"

[limits]
total_tokens = 0
max_tool_cals = -3
"""


def test_all_faults_are_named_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "contextos.toml").write_text(WRONG, "utf-8")
    with pytest.raises(InvalidSettings) as raised:
        Settings.read(tmp_path)
    said = [(one.pointer, one.detail.partition(":")[0]) for one in raised.value.problems]
    assert said == [
        ("/packs/1", "line 1"),
        ("/packs/2", "line 1"),
        ("/stroe", "line 2"),
        ("/adapters/0/digest", "line 4"),
        ("/limits/total_tokens", "line 8"),
        ("/limits/max_tool_cals", "line 9"),
        ("/limits/max_tool_calls", "line 9"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # Whether a number over all workers counts is not known while the store is not.
        ('store = "mysql://db/a"\n[driving]\nrate_per_tenant = 3\n', ["/store"]),
        ('store = "a.db"\n[driving]\nrate_per_tenant = 3\n', ["/driving/rate_per_tenant"]),
        ('profile = "servce"\nunsafe = ["unsafe_local_keys"]\n', ["/profile"]),
        ('profile = "servce"\nunsafe = ["local_keys"]\n', ["/profile", "/unsafe/0"]),
        ("nothing_alike = 7\n[driving]\nrate_per_tenant = 3\n", ["/nothing_alike", "/driving/rate_per_tenant"]),
    ],
)
def test_of_what_follows_a_wrong_setting_nothing_is_said(tmp_path: Path, text: str, said: list[str]) -> None:
    (tmp_path / "contextos.toml").write_text(text, "utf-8")
    with pytest.raises(InvalidSettings) as raised:
        Settings.read(tmp_path)
    assert [one.pointer for one in raised.value.problems] == said


PLACES = """\
# \u2028 a comment, and no line end
packs = [
  # the first
  "a",
  [1,
   2],
  3
]
text = \"\"\"
[no.table]
\"\"\"
[[adapters]]
path = "a"
[adapters.files]
"x.py" = "y"
[[adapters]]
path = "b"
[keys.own]
kind = { a = 1, "b c" = [
  2] }
"""


def test_each_setting_has_the_line_on_which_it_begins() -> None:
    found = {"/".join(path): line for path, line in setting_lines(PLACES).items()}
    named = ("packs", "packs/0", "packs/1", "packs/1/1", "packs/2", "text")
    assert [found[one] for one in named] == [2, 4, 5, 5, 7, 9]
    named = (
        "adapters",
        "adapters/0",
        "adapters/0/path",
        "adapters/0/files",
        "adapters/0/files/x.py",
        "adapters/1/path",
    )
    assert [found[one] for one in named] == [12, 12, 13, 14, 15, 17]
    assert [found[one] for one in ("keys", "keys/own", "keys/own/kind/a", "keys/own/kind/b c/0")] == [18, 18, 19, 19]
    assert not any("no" in one for one in found)


def test_a_long_file_is_read_once_for_all_its_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    loads = tomllib.loads
    monkeypatch.setattr(tomllib, "loads", lambda text: read.append(len(text)) or loads(text))
    text = "".join(f'wrong_{number} = "x"\n' for number in range(5_000))
    (tmp_path / "contextos.toml").write_text(text, "utf-8")
    with pytest.raises(InvalidSettings) as raised:
        Settings.read(tmp_path)
    assert [one.detail.partition(":")[0] for one in raised.value.problems[:2]] == ["line 1", "line 2"]
    assert sum(read) < 3 * len(text)
    read.clear()
    (tmp_path / "contextos.toml").write_text("packs = [\n" + '"a",\n' * 20_000 + "]\nstroe = 1\n", "utf-8")
    with pytest.raises(InvalidSettings):
        Settings.read(tmp_path)
    assert sum(read) < 5_000_000


def test_an_element_that_is_wrong_hides_none_behind_it(tmp_path: Path) -> None:
    hook = 'tenant = "t"\nurl = "https://a.example/"\nlink = "https://a.example/{run}"\nsecret_env = "HOOK"\n'
    names = ["a", "a/b", "b", "c/d", "b"]
    text = "".join(f'[[outbox.webhooks]]\nname = "{name}"\n{hook}' for name in names)
    (tmp_path / "contextos.toml").write_text(text, "utf-8")
    with pytest.raises(InvalidSettings) as raised:
        Settings.read(tmp_path)
    assert [(one.pointer, one.detail) for one in raised.value.problems] == [
        ("/outbox/webhooks/1/name", "line 8: this is not a name"),
        ("/outbox/webhooks/3/name", "line 20: this is not a name"),
        ("/outbox/webhooks/4/name", "line 26: another destination has this name"),
    ]


def test_a_name_that_is_meant_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "contextos.toml").write_text('[hops]\nadress = 7\n[egress]\n"" = []\n"[key]" = 7\n', "utf-8")
    with pytest.raises(InvalidSettings) as raised:
        Settings.read(tmp_path)
    assert [(one.pointer, one.detail, one.remedy) for one in raised.value.problems] == [
        ("/hops/adress", "line 2: this is not a setting here", "did you mean `address`?"),
        ("/hops/address", "line 2: this is not a text", "give a text that is not empty"),
        ("/egress/", "line 4: its name is empty, or not a text", "give a name that is not empty"),
        ("/egress/[key]", "line 5: this is not a list", "give a list"),
    ]

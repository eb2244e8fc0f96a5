"""The table `[models]` of the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.errors import InvalidSettings
from contextos.workspace.settings import Settings


def read(folder: Path, text: str) -> Settings:
    (folder / "contextos.toml").write_text(text, "utf-8")
    return Settings.read(folder)


def test_keys_endpoints_and_a_script_are_read(tmp_path: Path) -> None:
    text = (
        '[models]\nscript = "a.json"\ninternal = ["localhost:8000"]\n[[models.keys]]\nname = "main"\nsecret_env = "K"'
    )
    told = read(tmp_path, text).models
    assert told is not None
    assert (told.script, told.internal) == ("a.json", ("localhost:8000",))
    assert [(one.name, one.secret_env) for one in told.keys] == [("main", "K")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[models.keys]]\nname = "a"', "exactly one of `secret_file` and `secret_env`"),
        ('[[models.keys]]\nname = "a"\nsecret = "sk-1"', "secret"),
        (
            '[[models.keys]]\nname = "a"\nsecret_env = "A"\n[[models.keys]]\nname = "a"\nsecret_env = "B"',
            "has this name",
        ),
        ('[models]\ninternal = ["http://x"]', "not an endpoint"),
        ('[models]\nscripts = "a"', "script"),
    ],
)
def test_what_cannot_count_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        read(tmp_path, text)
    assert said in str(refused.value)
    assert "sk-1" not in str(refused.value)

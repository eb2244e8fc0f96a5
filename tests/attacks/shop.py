"""The demo's workspace on either store, and the command line in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.cli.conftest import Said

OPERATOR_FILE = "user_operator_5"


@dataclass(frozen=True)
class Shop:
    """A workspace; `say` runs a command in it with `--json`."""

    path: Path
    say: Callable[..., Said]

    @property
    def by(self) -> list[str]:
        return ["--by", OPERATOR_FILE, "--key", str(self.path / "keys" / f"{OPERATOR_FILE}.key")]

    def request(self, name: str) -> Path:
        return self.path / "requests" / f"{name}.json"

    def settings(self, more: str) -> None:
        """Put these lines before the settings, as another machine has them."""
        file = self.path / "contextos.toml"
        file.write_text(more + file.read_text())

    def runs(self) -> list[Any]:
        listed: list[Any] = self.say("runs", "list").json["runs"]
        return listed

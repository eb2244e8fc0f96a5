"""Where tokens of the development issuer count. The attacks are in `tests/attacks/test_e35_development_tokens.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.app.development_tokens import development_fault
from contextos.settings import Settings


@pytest.mark.parametrize(
    "store",
    ["contextos.db", "postgresql:///contextos", "postgresql://localhost/x", "postgresql://u:p@127.0.0.1:5432/x"],
)
def test_a_store_of_this_machine_is_development(tmp_path: Path, store: str) -> None:
    assert development_fault(Settings(tmp_path, store=store), "127.0.0.1") is None


@pytest.mark.parametrize("store", ["postgresql://db/x", "postgresql://[::1/x", "postgresql://10.0.0.7/x"])
def test_a_store_of_another_machine_is_none(tmp_path: Path, store: str) -> None:
    assert "another machine" in (development_fault(Settings(tmp_path, store=store)) or "")


def test_a_token_that_is_only_made_needs_no_address(tmp_path: Path) -> None:
    assert development_fault(Settings(tmp_path)) is None
    assert development_fault(Settings(tmp_path), "192.0.2.1")

"""What changed twice within one step of a file system's clock is read twice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from contextos.adapters import file_status
from contextos.adapters.directory import FileDirectory
from contextos.adapters.file_status import STEP_NS, is_settled

BEFORE = '{"tenant_a": {"users": [], "agents": [], "approvers": [{"approver_id": "ana", "roles": ["lead"]}]}}'


def test_a_file_is_settled_when_its_time_is_past(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("x")
    status = os.stat(tmp_path / "a")
    assert not is_settled(status)
    monkeypatch.setattr(time, "time_ns", lambda: status.st_ctime_ns + STEP_NS + 1)
    assert is_settled(status)
    assert not is_settled(status, os.stat_result((*status[:7], 0, 0, 0), {"st_ctime_ns": time.time_ns()}))


def test_a_directory_that_changed_within_one_step_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The times of both changes are the same here, as on a quick disk."""
    file = tmp_path / "directory.json"
    file.write_text(BEFORE)
    first = os.stat(file)
    monkeypatch.setattr(Path, "stat", lambda _self, **_how: first)
    monkeypatch.setattr(time, "time_ns", lambda: first.st_ctime_ns + STEP_NS // 2)
    directory = FileDirectory(file)
    assert directory._current()["tenant_a"]["approvers"]["ana"].roles == ("lead",)
    file.write_text(BEFORE.replace("lead", "none"))
    assert directory._current()["tenant_a"]["approvers"]["ana"].roles == ("none",)
    monkeypatch.setattr(file_status, "STEP_NS", 0)
    file.write_text(BEFORE)
    assert directory._current()["tenant_a"]["approvers"]["ana"].roles == ("lead",)
    file.write_text(BEFORE.replace("lead", "none"))
    assert directory._current()["tenant_a"]["approvers"]["ana"].roles == ("lead",), "the same status, long ago"

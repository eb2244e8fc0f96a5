"""The development directory reads its file anew when it changes, and knows nobody while the file is broken."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from contextos.adapters.directory import FileDirectory
from contextos.errors import InvalidSettings, Unavailable
from tests.world import TENANT, example


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "directory.json"
    path.write_text(json.dumps(example("directory.json")), encoding="utf-8")
    return path


def ids(file: Path) -> tuple[str, str]:
    tenant = json.loads(file.read_text("utf-8"))[TENANT]
    return tenant["users"][0]["user_id"], tenant["agents"][0]["agent_id"]


def rewrite(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 1_000_000))


def resolve(directory: FileDirectory, *named: str) -> Any:
    return asyncio.run(directory.resolve(*named))


def test_both_identities_are_needed_in_this_tenant(file: Path) -> None:
    user, agent = ids(file)
    directory = FileDirectory(file)
    known = resolve(directory, TENANT, user, agent)
    assert (known.user.user_id, known.agent.agent_id) == (user, agent)
    assert known.unsafe == ("unsafe_local_directory",)
    for named in ((TENANT, user, "agt_none"), (TENANT, "usr_none", agent), ("tenant_other", user, agent)):
        assert resolve(directory, *named) is None
    assert asyncio.run(directory.approver(TENANT, "nobody")) is None


def test_a_user_who_is_removed_from_the_file_is_gone_at_once(file: Path) -> None:
    user, agent = ids(file)
    directory = FileDirectory(file)
    changed = json.loads(file.read_text("utf-8"))
    changed[TENANT]["users"] = []
    rewrite(file, json.dumps(changed))
    assert resolve(directory, TENANT, user, agent) is None


def test_a_file_of_the_same_size_and_time_is_read_all_the_same(file: Path) -> None:
    """Tools that copy files bring their times along, and a role can be as long as the one before."""
    directory, before = FileDirectory(file), file.stat()
    content = json.loads(file.read_text())
    user = content[TENANT]["users"][0]
    user["role"] = "x" * len(user["role"])
    beside = file.with_name("next.json")
    beside.write_text(json.dumps(content))
    for replaced in (lambda: beside.replace(file), lambda: file.write_text(json.dumps(content))):
        replaced()
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        known = asyncio.run(directory.resolve(TENANT, user["user_id"], content[TENANT]["agents"][0]["agent_id"]))
        assert known is not None
        assert known.user.role == user["role"]


@pytest.mark.parametrize(
    "broken", ["", "{", "[]", '{"t":{}}', '{"t":{"users":[{}],"agents":[],"approvers":[]}}', '{"t":[]}']
)
def test_a_broken_file_makes_everybody_unknown_and_stops_a_start(file: Path, broken: str) -> None:
    user, agent = ids(file)
    directory = FileDirectory(file)
    rewrite(file, broken)
    with pytest.raises(Unavailable):
        resolve(directory, TENANT, user, agent)
    with pytest.raises(InvalidSettings):
        FileDirectory(file)


def test_a_missing_file_is_unavailable(file: Path) -> None:
    user, agent = ids(file)
    directory = FileDirectory(file)
    file.unlink()
    with pytest.raises(Unavailable):
        resolve(directory, TENANT, user, agent)

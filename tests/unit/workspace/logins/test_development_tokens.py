"""Where tokens of the development issuer count. The attacks are in `tests/attacks/test_e35_development_tokens.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import contextos
from contextos.cli.demo.workspace import make_workspace
from contextos.workspace.logins.development_tokens import development_fault, development_logins
from contextos.workspace.settings import Settings
from tests.world import TENANT, run


@pytest.mark.parametrize(
    "store",
    [
        "contextos.db",
        "postgresql:///contextos",
        "postgresql://localhost/x",
        "postgresql://u:p@127.0.0.1:5432/x",
        "postgresql:///x?host=/run/pg",
    ],
)
def test_a_store_of_this_machine_is_development(tmp_path: Path, store: str) -> None:
    assert development_fault(Settings(tmp_path, store=store), "127.0.0.1") is None


@pytest.mark.parametrize(
    "store",
    [
        "postgresql://db/x",
        "postgresql:///x?host=/run/pg,db",
        "postgresql:///x?hostaddr=10.0.0.7",
        "postgresql://[::1/x",
        "postgresql://10.0.0.7/x",
        "postgresql://u:p@evil@localhost/x",
    ],
)
def test_a_store_of_another_machine_is_none(tmp_path: Path, store: str) -> None:
    assert "another machine" in (development_fault(Settings(tmp_path, store=store)) or "")


def test_a_store_whose_host_the_environment_names_is_none_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(tmp_path, store="postgresql:///contextos")
    assert development_fault(settings, "127.0.0.1") is None
    monkeypatch.setenv("PGHOST", "db.example")
    assert "another machine" in (development_fault(settings, "127.0.0.1") or "")


def test_a_token_that_is_only_made_needs_no_address(tmp_path: Path) -> None:
    assert development_fault(Settings(tmp_path)) is None
    assert development_fault(Settings(tmp_path), "192.0.2.1")


def test_every_person_with_a_role_has_a_login_that_is_theirs(tmp_path: Path) -> None:
    path = tmp_path / "shop"
    make_workspace(path, witness="off")
    listed = json.loads((path / "directory.json").read_text("utf-8"))
    listed[TENANT]["approvers"].append({"approver_id": "nobody", "roles": [], "granted_by": {}, "keys": []})
    (path / "directory.json").write_text(json.dumps(listed), "utf-8")

    async def act() -> None:
        async with contextos.open(path) as app:
            logins = await development_logins(app.settings, app.deployment.ports, ttl_s=60)
            people = [person for _, person, _ in logins]
            assert {"usr_771", "user_finance_lead_77"} <= set(people)
            assert people == sorted(set(people) - {"nobody"})
            tokens = app.bearer_tokens(bound_to="127.0.0.1")
            for tenant, person, token in logins:
                caller = await tokens.caller(token)
                assert (caller.tenant_id, caller.subject, caller.agent_ids) == (tenant, person, None)

    run(act())

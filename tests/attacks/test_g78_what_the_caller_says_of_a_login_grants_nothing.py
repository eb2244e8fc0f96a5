"""`user.tenure_days` and `user.delegation.auth_type` are only stated: whatever they are, the same person is asked."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from contextos.contracts.facts import Vocabulary
from contextos.errors import InvalidInput
from tests.world import open_world, request, run


def stating(number: int, **said: Any) -> dict[str, Any]:
    body = copy.deepcopy(request(4200, f"req_stated_{number}"))
    if "auth_type" in said:
        body["user"]["delegation"]["auth_type"] = said["auth_type"]
    if "tenure_days" in said:
        body["user"]["tenure_days"] = said["tenure_days"]
    return body


def test_nothing_that_is_decided_depends_on_them(tmp_path: Path) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path)
        try:
            asked = []
            for number, said in enumerate(
                ({}, {"auth_type": "service"}, {"auth_type": "saml"}, {"tenure_days": 0}, {"tenure_days": 40_000})
            ):
                view = await world.invoke(stating(number, **said))
                assert view.waiting is not None
                asked.append((view.waiting["gate_id"], view.waiting["required_role"]))
            assert len(set(asked)) == 1
            with pytest.raises(InvalidInput):
                await world.invoke(stating(9, auth_type="none"))
        finally:
            await world.aclose()

    run(attack())


@pytest.mark.parametrize("path", ["user.tenure_days", "user.auth_type", "user.delegation.auth_type"])
def test_no_rule_can_read_them(path: str) -> None:
    assert Vocabulary().find(path) is None

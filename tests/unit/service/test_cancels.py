"""What a person signs to stop a run fits this run, person and reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contextos.errors import InvalidInput, NotFound
from contextos.service.cancels import Cancels
from tests.world import OPERATOR, TENANT, open_world, request, run


def test_a_statement_names_the_run_as_it_is_the_person_and_the_reason(tmp_path: Path) -> None:
    async def act() -> None:
        world = await open_world(tmp_path)
        cancels = Cancels(world.deployment)
        view = await world.invoke(request(4200, "req_1"))
        said = await cancels.statement(TENANT, "req_1", OPERATOR, "a double")
        act = json.loads(said.payload)
        length = await world.stores.tenant(TENANT).length(view.run_id)
        assert act["arguments"] == {"run": view.run_id, "request_id": "req_1", "reason": "a double"}
        assert (act["actor"], act["tenant_id"], act["expected"]) == (OPERATOR, TENANT, length)
        assert said.signing_input("kid_1", 1).count(b".") == 1
        with pytest.raises(NotFound):
            await cancels.statement(TENANT, "req_none", OPERATOR)
        with pytest.raises(InvalidInput):
            await cancels.statement(TENANT, "req_1", OPERATOR, "a" * 100_000)
        await world.aclose()

    run(act())

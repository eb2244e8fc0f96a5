"""References to evidence: what the run used resolves, and rules and sessions never do."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.deployment.acts.evidence import refuse_unresolved
from contextos.errors import InvalidInput
from tests.evidence import BOOKS, keep_books
from tests.world import TENANT, open_world, request, run


def test_a_reference_resolves_or_says_what_to_name(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores="sqlite")
        view = await world.invoke(request(900, "req_1"))
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        assert view.record is not None
        used = [one for one in view.record["evidence_refs"] if one.startswith(("kg:", "tool:"))]
        assert used
        for ref in used:
            await refuse_unresolved(world.deployment, TENANT, entries, ref)
        with pytest.raises(InvalidInput, match="names nothing that is known here"):
            await refuse_unresolved(world.deployment, TENANT, entries, BOOKS)
        await keep_books(world.stores, TENANT)
        await refuse_unresolved(world.deployment, TENANT, entries, BOOKS)
        for ref in ("session:sess_42f1", "policy:pol.refunds@1.0.0#rule_1"):
            with pytest.raises(InvalidInput):
                await refuse_unresolved(world.deployment, TENANT, entries, ref)
        await world.aclose()

    run(go())

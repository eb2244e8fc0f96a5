"""A review is one act of somebody without a part in the run; what has no effect leaves no line."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.contracts.documents.memories import review_key
from contextos.contracts.envelopes.memory import ReviewRefused
from contextos.contracts.journal import CONTROL
from contextos.deployment.acts.memories import review_memory
from contextos.deployment.operator import erase_entry
from contextos.errors import ApprovalRefused, NotFound
from contextos.intelligence.memory import list_candidates
from tests.world import TENANT, open_world, request, run


def test_a_review_is_recorded_once(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        await world.invoke(request(900, "req_1"))
        store = world.stores.tenant(TENANT)
        [proposal, *_] = await list_candidates(store)
        named = (world.deployment, TENANT, proposal.proposal_id)
        done = await review_memory(*named, "promote", by=world.actor())
        assert isinstance(done, dict)
        assert done["verdict"] == "promote"
        lines = await store.read(CONTROL)
        about = review_key(proposal.candidate.entity_ceid, proposal.candidate.predicate)
        assert (lines[-1].kind, lines[-1].key) == ("memory.reviewed", about)
        assert isinstance(await review_memory(*named, "reject", by=world.actor()), ReviewRefused)
        assert len(await store.read(CONTROL)) == len(lines)
        with pytest.raises(NotFound):
            await review_memory(world.deployment, TENANT, "mwp_0000000000000000", "promote", by=world.actor())
        world.close()

    run(go())


def test_nobody_reviews_what_an_erased_requester_proposed(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        view = await world.invoke(request(900, "req_1"))
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        known = next(one.seq for one in entries if one.kind == "identity.resolved")
        await erase_entry(world.deployment, TENANT, view.run_id, known, by=world.actor(), reason="the law")
        [proposal, *_] = await list_candidates(world.stores.tenant(TENANT))
        with pytest.raises(ApprovalRefused, match="was erased"):
            await review_memory(world.deployment, TENANT, proposal.proposal_id, "promote", by=world.actor())
        world.close()

    run(go())

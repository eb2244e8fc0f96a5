"""The words of a pack are shown beside what it denied, if the pack is the one that the run is pinned to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from contextos.deployment.queries.checked_run import read_checked
from contextos.deployment.queries.rationales import checked_story
from contextos.deployment.queries.timeline import story_document
from contextos.errors import Integrity
from tests.observed.recording import INTERN, TENANT, deployed, observing, open_gate
from tests.observed.shop import World


def test_a_pack_that_was_altered_is_named_and_its_words_are_not_shown() -> None:
    class Altered:
        async def load(self, pins: Any) -> Any:
            raise Integrity(f"`{pins['pack_ref']}` is altered")

    with deployed(observing(World([]), mode="enforce")) as app:
        gate = open_gate(app, "intern", user=INTERN)
        store = app.deployment.ports.stores.tenant(TENANT)
        checked = app.call(read_checked, store, TENANT, app.deployment.ports.keys, gate.run_id)
        catalog: Any = Altered()
        story, fault = asyncio.run(checked_story(checked, catalog))
        assert fault == "`shop.watch@0.1.0` is altered"
        told = str(story_document(story))
        assert "R_SHOP_WATCH_OTHERS" in told
        assert "who is not named may not" not in told
        forged = replace(checked, fault="its head is not signed")
        assert app.call(checked_story, forged, app.deployment.catalog(TENANT))[1] == "its head is not signed"
        story, _ = app.call(checked_story, forged, app.deployment.catalog(TENANT))
        assert "who is not named may not" not in str(story_document(story)), "its pins are anybody's"
        story, fault = app.call(checked_story, checked, app.deployment.catalog(TENANT))
        assert fault is None
        assert "who is not named may not" in str(story_document(story))

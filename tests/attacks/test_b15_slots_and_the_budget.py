"""B15: a run does not go on without the content that its slot needs, however large that content is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextos.audit.replay import replay
from tests.e2e.test_slots_in_runs import VOICE, blocks_of, declaring, hold, opened
from tests.world import TENANT, request, run

LARGE = "x" * 100_000
"""More tokens than the bucket of the example's evidence has; a slot may hold it."""


async def outcome(path: Path, stores: str, *contents: str, **slot: Any) -> tuple[Any, list[str], list[str]]:
    """The view of a run whose slot holds these contents beside two short ones, what was sent, and the scopes of the
    contents in its context.
    """
    world = await opened(path, declaring(**slot), stores=stores)
    for number, content in enumerate(contents):
        await hold(world, f"more_{number}", content, VOICE)
    view = await world.invoke(request(900, "req_1"))
    sent = [kind for kind in await world.kinds(view.run_id) if kind == "tool.dispatching"]
    compiled = await world.contexts(view.run_id)
    replayed = await replay(world.deployment, TENANT, view.run_id)
    assert replayed.record_hash == view.record["record_hash"]
    origins = [block["provenance"]["origin"] for block in blocks_of(compiled)]
    await world.aclose()
    return view, sent, [one for one in origins if one.startswith("slot:")]


def test_a_slot_with_min_items_whose_content_does_not_fit_ends_the_run(tmp_path: Path, stores: str) -> None:
    view, sent, _ = run(outcome(tmp_path, stores, LARGE, minItems=3))
    assert (view.state, sent) == ("exhausted", [])
    (failure,) = view.record["rationale"]["failures"]
    assert failure["code"] == "budget_exhausted"
    assert "required blocks" in failure["detail"]


def test_a_slot_without_min_items_goes_on_and_says_what_it_left_out(tmp_path: Path, stores: str) -> None:
    view, sent, scopes = run(outcome(tmp_path, stores, LARGE))
    assert view.state == "completed"
    assert sent
    assert scopes == ["slot:team", "slot:organization"]


@pytest.mark.parametrize("least", [1, 2])
def test_as_many_as_the_slot_needs_are_in_the_context(tmp_path: Path, stores: str, least: int) -> None:
    crowd = ["y" * 3_000] * 30
    view, _, scopes = run(outcome(tmp_path, stores, *crowd, minItems=least))
    assert view.state == "completed"
    assert scopes[0] == "slot:team", "the narrowest scope comes first"
    assert least <= len(scopes) < len(crowd)

"""A request that names nothing for one retrieval seed has the evidence of the others, and learns what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.world import open_world, request, run

PLACE = "/input/context/supplier_id"


def with_another_seed(pack: dict[str, Any]) -> None:
    """Put the seed of another kind of requests, with its evidence, before those of the refunds."""
    refs = pack["intelligence_refs"]
    retrieval = refs["retrieval"]
    for path in retrieval["evidence"]:
        path["seed"] = path.get("seed", 0) + 1
    retrieval["seeds"].insert(
        0, {"type": refs["identity_layer"]["ceid_namespaces"][0], "binding": {"from": "request", "pointer": PLACE}}
    )
    predicate = refs["ontology"]["relationship_types"][0]
    retrieval["evidence"].insert(0, {"name": "supplier_known", "seed": 0, "path": [predicate]})


def requiring_it(pack: dict[str, Any]) -> None:
    with_another_seed(pack)
    for spec in pack["decision_layer"]["decision_specs"]:
        spec["required_evidence"].append("supplier_known")
    for permission in pack["tooling_layer"]["permissions"]:
        permission.setdefault("evidence_args", {})["supplier_known"] = {}


def with_a_second_path(pack: dict[str, Any]) -> None:
    """One piece of evidence from two seeds, one of which the request does not name: the other one is not enough."""
    with_another_seed(pack)
    evidence = pack["intelligence_refs"]["retrieval"]["evidence"]
    evidence[0]["name"] = evidence[1]["name"]


@pytest.mark.parametrize("changed", [with_another_seed, requiring_it, with_a_second_path])
def test_the_evidence_of_the_other_seeds_is_there_and_what_is_missing_is_named(
    changed: Any, tmp_path: Path, stores: str
) -> None:
    async def attack() -> None:
        world = await open_world(tmp_path, stores=stores, pack=changed)
        try:
            view = await world.invoke(request(2000, "req_seed"))
            assert view.record is not None
            if changed is with_another_seed:
                assert (view.state, view.record["status"]) == ("completed", "DECIDED"), view.record["rationale"]
                return
            details = " ".join(one["detail"] for one in view.record["rationale"]["failures"])
            assert PLACE in details
            assert world.refunds() == []
        finally:
            await world.aclose()

    run(attack())

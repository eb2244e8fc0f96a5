"""H2, "It must show" 2: each leaf of a pack alters what runs do when it is changed, is refused, or is descriptive.

A leaf that could be changed without any of it would be a control that is accepted and not applied.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.attacks.mutations import Leaf, behaviour, changes_of, leaves, mutated
from tests.attacks.second_pack import HOST, Desk, second_pack
from tests.world import TENANT, example, request, run

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).resolve().parents[2]
PACKS: Final = {"example": example("pack.json"), "second": second_pack()}

DESCRIPTIVE: Final = {
    "contract_meta.contract_version",
    "contract_meta.created_at",
    "contract_meta.issuer",
    "pack_meta.environment_defaults",
    "pack_meta.ttl_seconds",
    "intelligence_refs.ontology.namespace",
    "intelligence_refs.ontology.entity_types",
    "intelligence_refs.identity_layer.ceid_namespaces",
    "policy_layer.policy_bundles.priority",
    "policy_layer.policy_bundles.policy_dsl.rules.rationale",
    "tooling_layer.permissions.permission_id",
    "tooling_layer.permissions.without_sum",
    "decision_layer.decision_specs.owner_role",
    "decision_layer.intents.owner_role",
}
"""The fields that describe, by their path without indices. `docs/embedding.md` prints the same list with reasons."""

ELSEWHERE: Final = {
    "decision_layer.task_templates.plan_timeout_ms": ("tests/e2e/test_planner.py", "plan_timeout_ms"),
    "decision_layer.intents.parameters.description": ("tests/unit/decision/test_parameters.py", "words_of_the_author"),
    "decision_layer.intents.parameters.from.message": ("tests/unit/decision/test_parameters.py", "AMOUNTS"),
    "memory_layer.recall_limit": ("tests/unit/intelligence/test_memory.py", "limit="),
    "pack_meta.max_session_duration_ms": ("tests/e2e/test_sessions.py", "max_session_duration_ms"),
}
"""Fields that bind runs of another kind than those below, and the test that shows it."""


def asking(name: str, amount: int, **more: Any) -> dict[str, Any]:
    """A request; `user`, `channel` and `locale` go to their places, everything else to the context."""
    user, channel, locale = (more.pop(key, None) for key in ("user", "channel", "locale"))
    body = request(amount, name, **more)
    if user:
        body["user"] = {"user_id": user}
    body["input"] |= {key: value for key, value in (("channel", channel), ("locale", locale)) if value}
    return body


REQUESTS: Final = [
    asking("req_small", 2500, channel="app_chat", locale="en-IN"),
    asking("req_large", 4200, channel="email", locale="en-US"),
    asking("req_limit", 250_000, order_id="ord_895", channel="voice", locale="hi-IN"),
    asking("req_lead", 800, order_id="ord_882", user="usr_772"),
    asking("req_clerk", 100, user="usr_774"),
    asking("req_unverified", 2500, order_id="ord_896"),
    asking("req_shipped", 2500, order_id="ord_883"),
    asking("req_dollars", 100, currency="USD"),
    asking("req_at_limit", 3000, order_id="ord_895"),
    asking("req_above_limit", 3001, order_id="ord_895"),
    asking("req_dollars_large", 5000, order_id="ord_895", currency="USD"),
    asking("req_much", 100_001, order_id="ord_895"),
    asking("req_most", 100_000, order_id="ord_895"),
    asking("req_four", 4, order_id="ord_895"),
    asking("req_five", 5, order_id="ord_895"),
]

SLOW: Final = {"policy_layer", "decision_layer", "pack_meta", "intelligence_refs", "tooling_layer"}
LAYERS: Final = [
    pytest.param(
        name, layer, id=f"{name}-{layer}", marks=pytest.mark.soak if name == "second" and layer in SLOW else ()
    )
    for name, pack in PACKS.items()
    for layer in pack
]


def played(path: Path, name: str, pack: Any, expected: list[Any]) -> list[Any]:
    path.mkdir()
    desk = {one: Desk(one) for one in ("adp_notes", "adp_mail")} if name == "second" else {}
    return run(behaviour(path, pack, REQUESTS, expected, desk, {TENANT: (HOST,)}))


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What each pack does unchanged; twice the same, or a difference would prove nothing."""
    folder = tmp_path_factory.mktemp("honest")
    found = {name: played(folder / name, name, pack, []) for name, pack in PACKS.items()}
    assert found == {name: played(folder / f"{name}_again", name, pack, []) for name, pack in PACKS.items()}
    return found


def field_of(at: Leaf) -> str:
    """The path of a leaf without the indices of lists; an entry of an open object counts as the object."""
    path = ".".join(part for part in at if isinstance(part, str))
    return next((name for name in DESCRIPTIVE if path.startswith(f"{name}.")), path)


@pytest.mark.parametrize(("name", "layer"), LAYERS)
def test_each_leaf_counts_or_describes(name: str, layer: str, honest: dict[str, list[Any]], tmp_path: Path) -> None:
    pack, inert = PACKS[name], set()
    for number, (at, value) in enumerate(leaves(pack[layer], (layer,))):
        for again, other in enumerate(changes_of(value)):
            if played(tmp_path / f"{number}_{again}", name, mutated(pack, at, other), honest[name]) != honest[name]:
                break
        else:
            inert.add(field_of(at))
    assert inert <= DESCRIPTIVE | ELSEWHERE.keys()


def test_the_good_packs_do_what_they_are_for(honest: dict[str, list[Any]]) -> None:
    ends = {name: [one[0][-1][2]["end"] for one in seen] for name, seen in honest.items()}
    assert {"completed", "escalated", "refused", "rejected"} <= set(ends["example"]), ends
    # It writes the note and sends the message before it asks for the payment: a person decides what a refusal left.
    assert {"completed", "escalated", "rejected"} == set(ends["second"]), ends
    left = "it ends as refused, and `adp_notes.add`, `adp_mail.send` had an effect"
    records = [body for one in honest["second"] for kind, _, body in one[0] if kind == "record.revised"]
    failures = [{one["detail"] for one in record["rationale"]["failures"]} for record in records]
    for policy in ("R_IDENTITY_NOT_VERIFIED", "R_NOT_ELIGIBLE", "R_COMMIT"):
        assert any(left in said and any(f"`{policy}`" in one for one in said) for said in failures), policy


def test_the_docs_print_the_list_of_descriptive_fields() -> None:
    page = (ROOT / "docs" / "embedding.md").read_text("utf-8")
    table = page.partition("### Fields that only describe")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z_.]+)` \|", table, re.MULTILINE)) == DESCRIPTIVE


def test_the_tests_that_show_the_other_fields_exist() -> None:
    for field, (path, word) in ELSEWHERE.items():
        assert word in (ROOT / path).read_text("utf-8"), field

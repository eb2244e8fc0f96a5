"""Every JSON example of the specification parses and round-trips; sealed, each fails exactly where it is loose."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.model import Model
from tests.unit.contracts.seeds import COMPLETIONS, EXAMPLES, SEEDS, completed, example, with_changes


def faults(model: type[Model], value: Any) -> set[str]:
    """The places that `sealed()` refuses."""
    try:
        model.model_validate(value).sealed()
    except ValidationError as error:
        return {pointer(item["loc"]) for item in error.errors()}
    return set()


def test_every_fixture_has_a_model() -> None:
    assert {path.stem for path in SEEDS.glob("*.json")} == set(EXAMPLES) == set(COMPLETIONS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_specification_parses_and_round_trips_exactly(name: str) -> None:
    given = example(name)
    assert EXAMPLES[name].model_validate(given).to_json() == given
    raw = (SEEDS / f"{name}.json").read_bytes()
    assert canonical(parse(EXAMPLES[name], raw).to_json()) == canonical(json.loads(raw))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_seals_exactly_when_every_loose_place_is_completed(name: str) -> None:
    assert faults(EXAMPLES[name], example(name)) == set(COMPLETIONS[name])
    assert faults(EXAMPLES[name], completed(name)) == set()


@pytest.mark.parametrize(("name", "place"), [(name, place) for name in COMPLETIONS for place in COMPLETIONS[name]])
def test_one_loose_place_alone_keeps_an_example_from_being_sealed(name: str, place: str) -> None:
    changes = {other: value for other, value in COMPLETIONS[name].items() if other != place}
    assert faults(EXAMPLES[name], with_changes(example(name), changes)) == {place}


@pytest.mark.parametrize("name", EXAMPLES)
def test_sealing_keeps_the_value_and_sealing_again_changes_nothing(name: str) -> None:
    value = EXAMPLES[name].model_validate(completed(name))
    assert value.sealed() == value
    assert value.sealed().sealed().to_json() == completed(name)


@pytest.mark.parametrize("name", ["tool_result_envelope", "decision_record"])
def test_an_open_object_keeps_what_looks_like_a_placeholder(name: str) -> None:
    outputs = EXAMPLES[name].model_validate(completed(name)).sealed().to_json()
    assert (outputs.get("output") or outputs["outputs"])["transaction_id"] == "txn_q9..."


def test_an_amount_is_kept_as_given_and_its_canonical_form_is_one() -> None:
    float_hint = example("invoke_agent")
    whole_hint = with_changes(float_hint, {"/runtime/max_cost_cents": 25})
    kept = [EXAMPLES["invoke_agent"].model_validate(value).to_json() for value in (float_hint, whole_hint)]
    assert [type(value["runtime"]["max_cost_cents"]) for value in kept] == [float, int]
    assert canonical(kept[0]) == canonical(kept[1])


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name.startswith("invoke_agent")])
def test_a_request_that_names_an_unpinned_pack_is_read_but_never_sealed(name: str) -> None:
    for unpinned in ("ctxpack.support", "ctxpack.support@^5.2.0", "ctxpack.support@5.2", "ctxpack.support@v5.2.0"):
        loose = with_changes(completed(name), {"/context_pack_refs/0": unpinned})
        assert faults(EXAMPLES[name], loose) == {"/context_pack_refs/0"}

"""Whatever is sent instead of an envelope: a valid model that says exactly what was sent, or a typed refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contextos.contracts.encoding.codec import MAX_BYTES, loads, parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.policy import ArgConstraint
from contextos.contracts.envelopes.record import ReplayPacket
from contextos.contracts.model import Model
from contextos.errors import InvalidEnvelope, InvalidInput, MalformedJson
from tests.unit.contracts.mutations import HURTFUL, dumped, mutated, nested, spoiled
from tests.unit.contracts.seeds import EXAMPLES, PACK, PACKET, example

VALID: dict[str, tuple[type[Model], Any]] = {name: (model, example(name)) for name, model in EXAMPLES.items()}
VALID |= {"context_pack": (ContextPack, PACK), "replay_packet": (ReplayPacket, PACKET)}

every_envelope = pytest.mark.parametrize(("model", "value"), VALID.values(), ids=VALID)
large_on_purpose = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def read(model: type[Model], raw: Any) -> Model | None:
    """The model, or None after a refusal that says where, what and what to do, within bounds."""
    try:
        return parse(model, raw)
    except InvalidInput as error:
        assert isinstance(error, MalformedJson | InvalidEnvelope)
        assert 1 <= len(error.problems) <= 50
        for problem in error.problems:
            assert problem.pointer == "" or problem.pointer.startswith("/")
            assert problem.code
            assert problem.remedy
            assert 0 < len(problem.detail) < 500
        return None


@every_envelope
@large_on_purpose
@given(data=st.data())
def test_a_mutated_envelope_is_refused_with_a_reason_or_read_exactly(
    model: type[Model], value: Any, data: st.DataObject
) -> None:
    raw = dumped(data.draw(mutated(value)))
    if (read_value := read(model, raw)) is not None:
        assert canonical(read_value.to_json()) == canonical(loads(raw))


@every_envelope
@large_on_purpose
@given(data=st.data())
def test_a_loaded_object_is_refused_with_a_reason_or_read_exactly(
    model: type[Model], value: Any, data: st.DataObject
) -> None:
    given_object = data.draw(mutated(value))
    try:
        exact = canonical(given_object)
    except MalformedJson:
        exact = None  # an open object can hold a value that is no JSON; writing it is refused
    if (read_value := read(model, given_object)) is not None and exact is not None:
        assert canonical(read_value.to_json()) == exact


@every_envelope
@given(data=st.data())
def test_spoiled_bytes_are_refused_with_a_reason_or_read_exactly(
    model: type[Model], value: Any, data: st.DataObject
) -> None:
    raw = data.draw(spoiled(dumped(value)))
    if (read_value := read(model, raw)) is not None:
        assert canonical(read_value.to_json()) == canonical(loads(raw))


@every_envelope
@given(raw=st.binary(max_size=300))
def test_noise_is_never_an_envelope(model: type[Model], value: Any, raw: bytes) -> None:
    assert read(model, raw) is None


@every_envelope
def test_nothing_but_an_object_is_an_envelope(model: type[Model], value: Any) -> None:
    for other in (None, True, 1, 1.5, "text", [], [value], "", {}, *HURTFUL):
        assert read(model, dumped(other)) is None


@every_envelope
def test_an_unknown_field_is_named(model: type[Model], value: Any) -> None:
    with pytest.raises(InvalidEnvelope) as caught:
        parse(model, value | {"surprise": 1})
    assert [(problem.pointer, problem.code) for problem in caught.value.problems] == [("/surprise", "extra_forbidden")]


@every_envelope
def test_a_key_that_comes_twice_is_named(model: type[Model], value: Any) -> None:
    first = next(iter(value))
    raw = dumped(value)[:-1] + f', "{first}": null}}'.encode()
    with pytest.raises(MalformedJson) as caught:
        parse(model, raw)
    assert [(problem.pointer, problem.code) for problem in caught.value.problems] == [(f"/{first}", "duplicate_key")]


@every_envelope
def test_an_envelope_beyond_the_caps_is_refused_before_it_is_read(model: type[Model], value: Any) -> None:
    for bomb in ("x" * MAX_BYTES, nested(64), [0] * 100_000):
        with pytest.raises(MalformedJson):
            parse(model, dumped(value | {"metadata": bomb}))
    with pytest.raises(MalformedJson):
        parse(model, b"[" * 100_000)


@pytest.mark.parametrize("name", ["run_context", "tool_call_envelope", "tool_result_envelope"])
@pytest.mark.parametrize("bomb", ["NaN", "-Infinity", "1e999", "9007199254740992", '"\\ud800"', '{"\\udfff":1}'])
def test_an_open_object_holds_only_what_can_be_written_again(name: str, bomb: str) -> None:
    raw = json.dumps(example(name) | {"metadata": {"bomb": "HERE"}}).replace('"HERE"', bomb)
    with pytest.raises(MalformedJson) as caught:
        parse(EXAMPLES[name], raw)
    assert caught.value.problems[0].pointer.startswith("/metadata/bomb")


def test_a_pattern_is_kept_as_text_and_bounded() -> None:
    for bomb in ("(a+)+$", "(a|a)*b", "(.*a){25}", "["):
        assert parse(ArgConstraint, {"pattern": bomb}).pattern == bomb
    with pytest.raises(InvalidEnvelope, match="512"):
        parse(ArgConstraint, {"pattern": "(a+)+" * 103})

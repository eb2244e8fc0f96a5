"""The AI Gateway of a run, over the real runtime: attempts, fallbacks, money and what is on record of each call."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from struct import pack as pack_numbers
from struct import unpack
from typing import Any
from unittest.mock import patch

import pytest

from contextos.action.models.gateway import MAX_NORMAL_GROWTH, TOKENS_PER_CALL
from contextos.action.models.questions import ModelAnswer
from contextos.adapters.models.tokenizers import count_tokens
from contextos.contracts.admission_limits import AdmissionLimits
from contextos.contracts.encoding.jcs import digest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ports.models import ModelCall, ModelReply, ModelUsage, OnText
from contextos.control.lint import models as lint
from contextos.errors import Conflict
from contextos.runtime.attempts import planning
from contextos.runtime.models import model_gateway
from tests.modelled import EVALUATE, LOOKUP, Modelled, calls, embedder, finish, modelled, pack, plan, profile, rules
from tests.world import TENANT

GOOD = {"text": plan()}
LISTED = [{"profile": "model.large@1.0.0"}, {"profile": "model.small@1.0.0", "weight": 0}]
FIRST_LARGE = [profile(), profile("small"), rules({"operation": "judge.plan", "candidates": LISTED})]


@pytest.mark.parametrize("outcome", ["overloaded", "unavailable", "timed_out", "cut", "malformed"])
def test_after_a_fault_the_next_candidate_is_asked(outcome: str) -> None:
    with modelled(artifacts=FIRST_LARGE, script={"large": [{"outcome": outcome}], "small": [GOOD]}) as world:
        view = world.run()
        answered = [one["outcome"] for one in world.entries(view, "model.answered")]
        asked = [one.profile.model for one in world.models.asked]
        assert world.replay(view).status == "DECIDED"
    assert (answered, asked) == ([outcome, "answered"], ["large", "small"])


@pytest.mark.parametrize("outcome", ["refused", "rejected", "truncated"])
def test_after_what_is_no_fault_of_the_provider_nobody_else_is_asked(outcome: str) -> None:
    with modelled({"outcome": outcome, "text": "half of"}, GOOD) as world:
        view = world.run()
        failure = view.record["rationale"]["failures"][0]
        assert len(world.models.asked) == 1
    assert failure["code"] == "model_failed"
    assert f"({outcome})" in failure["detail"]


def test_nothing_of_an_answer_that_is_not_whole_is_on_record() -> None:
    with modelled({"outcome": "cut", "text": "half of a plan"}, GOOD) as world:
        view = world.run()
        assert "half of a plan" not in str(world.entries(view, "model.answered"))


def test_a_call_without_usage_costs_what_was_reserved() -> None:
    with modelled({**GOOD, "usage": None}) as world:
        view = world.run()
        asked, answered = world.entries(view, "model.asked")[0], world.entries(view, "model.answered")[0]
        assert answered["cost_units"] == asked["reserved_units"]
        assert answered["unpriced"]
        assert world.replay(view).status == "DECIDED"


def test_a_refused_call_costs_nothing() -> None:
    with modelled({"outcome": "overloaded", "usage": None, "billed": False}, GOOD) as world:
        view = world.run()
        assert [one["cost_units"] for one in world.entries(view, "model.answered")] == [0, 600]


def test_the_same_model_is_asked_again_no_earlier_than_it_says() -> None:
    waited: list[int] = []
    with modelled({"outcome": "overloaded", "retry_after_ms": 300}, GOOD) as world:
        sender = world.app.deployment.ports.models
        pause = sender._pause

        async def counted(duration_us: int) -> None:
            waited.append(duration_us)
            await pause(0)

        sender._pause = counted
        assert world.run().state == "completed"
    assert len(waited) == 1
    assert 0 < waited[0] <= 300_000


def test_what_is_asked_is_what_is_on_record() -> None:
    with modelled(GOOD, GOOD) as world:
        one, other = world.run(), world.run(901, "req_2")
        digests = [world.entries(view, "model.asked")[0]["request_digest"] for view in (one, other)]
    assert digests[0] != digests[1], "another request is another prompt"


def test_a_secret_of_the_context_is_in_no_call() -> None:
    with modelled(GOOD) as world:
        world.run(note="mail me at ana@example.com, card 4111 1111 1111 1111")
        sent = "".join(message.text for message in world.models.asked[0].messages)
    assert "4111 1111 1111 1111" not in sent


def test_what_policy_judges_is_what_is_reserved() -> None:
    short = [profile(), rules({"operation": "judge.plan", "max_output_tokens": 100, "candidates": LISTED[:1]})]
    with modelled(GOOD, artifacts=short) as world:
        reserved = world.entries(world.run(), "model.asked")[0]["reserved_units"] / 10_000
    limited = pack()
    # The longest answer of the profile would cost 2.85 cents more.
    dear = {">": [{"var": "model.cost_cents"}, reserved + 1]}
    rule = {"rule_id": "R_DEAR", "applies_to": {"point": "model"}, "if": dear, "then": {"allow": False}}
    limited["policy_layer"]["policy_bundles"][0]["policy_dsl"]["rules"].append(rule)
    with modelled(GOOD, of=limited, artifacts=short) as world:
        assert world.run().state == "completed"


@pytest.mark.parametrize("text", [plan(), "no plan"], ids=["taken", "asked again"])
def test_a_provider_that_bills_more_than_the_run_has_left_ends_the_run(text: Any) -> None:
    with modelled({"text": text, "usage": {"input": 100_000_000, "output": 1}}, GOOD) as world:
        view = world.run()
        [failure] = view.record["rationale"]["failures"]
        assert (view.state, failure["code"], failure["facts"]) == ("exhausted", "budget_exhausted", ["max_cost_cents"])
        assert "above it after a call of `model.large@1.0.0`" in failure["detail"]
        assert world.entries(view, "plan.verified") == [], "its answer is not used"
        assert len(world.models.asked) == 1
        assert world.replay(view)


TEXTS = ("refund of ana@example.com", "card 4111 1111 1111 1111")
VECTORS = [[0.25, 0.5, -1.0], [1.0, 0.0, 0.0]]
EMBEDDED = {"vectors": VECTORS, "usage": {"input": 1_000, "output": 0}}


class Finder:
    """What looks something up by vectors before each plan, as retrieval does; `dies` so often with the vectors."""

    def __init__(self, dies: int) -> None:
        self.found: list[ModelAnswer | Failure] = []
        self._dies, self._propose = dies, planning.propose_by_model

    async def propose(self, admitted: Any, *rest: Any) -> Any:
        environment = rest[-1]
        gateway = model_gateway(admitted, environment)
        self.found.append(await gateway.embed(TEXTS, "find", "INTERNAL", 10_000, as_query=True))
        if self._dies and not environment.journal.on_tape:
            self._dies -= 1
            await environment.journal.commit()
            raise Conflict("the run")
        return await self._propose(admitted, *rest)


@contextmanager
def finding(
    *answers: Mapping[str, Any],
    dies: int = 0,
    finder: type[Finder] = Finder,
    artifacts: Sequence[Mapping[str, Any]] = (),
    **rule: Any,
) -> Iterator[tuple[Modelled, Finder]]:
    """A deployment whose runs embed two texts before they ask for a plan."""
    asks = {"operation": "embed", "candidates": [{"profile": "model.vectors@1.0.0"}], **rule}
    plans = {"operation": "judge.plan", "candidates": [{"profile": "model.large@1.0.0"}]}
    script = {"large": [GOOD] * 9, "vectors": answers}
    known = [*(artifacts or [embedder()]), profile(), rules(asks, plans)]
    looks_up = finder(dies)
    with pytest.MonkeyPatch.context() as patch:
        # As retrieval will: in this version nothing in a run asks for vectors.
        patch.setattr(lint, "ASKED_OPERATIONS", lint.ASKED_OPERATIONS | {"embed"})
        patch.setattr(planning, "propose_by_model", looks_up.propose)
        with modelled(of=pack("judge.plan", "embed"), script=script, artifacts=known) as world:
            yield world, looks_up


def outcome(found: ModelAnswer | Failure) -> Any:
    return found.vectors if isinstance(found, ModelAnswer) else found.code


def test_texts_become_vectors_that_are_on_record_by_digest_alone() -> None:
    with finding(EMBEDDED) as (world, finder):
        view = world.run()
        journal = b"".join(one.body or b"" for one in world.journal(view)).decode()
        asked, answered = (world.entries(view, f"model.{kind}")[0] for kind in ("asked", "answered"))
        used, lineage = view.record["budget_usage"], view.record["lineage"]["models"]
        sent = [one for one in world.models.asked if one.texts]
        why = world.app.runs.why(world.app.runs.get(TENANT, view.run_id)).reasons
    assert "the model answered: 2 vectors, 1000 input, 0.1 US cents" in [one.text for one in why]
    assert view.state == "completed"
    assert [outcome(one) for one in finder.found] == [tuple(map(tuple, VECTORS))]
    first = digest(bytes.fromhex("0000803e0000003f000080bf"))
    assert (answered["vectors"][0], len(answered["vectors"]), asked["texts"]) == (first, 2, 2)
    assert (answered["cost_units"], answered["text"]) == (1_000, "")
    assert not any(secret in journal for secret in ("0.25", "-1.0", *TEXTS))
    assert "4111" not in str(sent[0].texts)
    assert sent[0].as_query
    assert used["model_calls"] == 2
    assert (lineage[0]["operation"], lineage[0]["outcome"], lineage[0]["cost_usd_cents"]) == ("embed", "answered", 0.1)


def test_a_replay_embeds_nothing_and_has_no_vectors() -> None:
    with finding(EMBEDDED) as (world, finder):
        view = world.run()
        asked = len(world.models.asked)
        assert world.replay(view).status == "DECIDED"
        assert len(world.models.asked) == asked
    assert outcome(finder.found[-1]) is None


def test_vectors_whose_process_ended_before_it_used_them_are_made_again() -> None:
    with finding(EMBEDDED, EMBEDDED, dies=1) as (world, finder):
        view = world.run()
        answers = world.entries(view, "model.answered")
        (lost,) = world.entries(view, "model.unavailable")
        assert world.replay(view).status == "DECIDED"
        assert len([one for one in world.models.asked if one.texts]) == 2
    assert lost["vectors_lost"]
    assert [outcome(one) for one in finder.found] == [tuple(map(tuple, VECTORS))] * 2 + [None]
    assert [one["cost_units"] for one in answers][:2] == [1_000, 1_000], "both were billed"
    assert view.state == "completed"


def test_vectors_are_not_made_again_more_often_than_the_rule_allows() -> None:
    with finding(EMBEDDED, EMBEDDED, dies=1, max_attempts=1) as (world, finder):
        view = world.run()
        assert world.replay(view).status == "DECIDED"
        assert len([one for one in world.models.asked if one.texts]) == 1
    assert [outcome(one) for one in finder.found][1:] == ["model_failed"] * 2


@pytest.mark.parametrize(
    ("answers", "rule", "profiles", "code"),
    [
        ([{**EMBEDDED, "vectors": VECTORS[:1]}] * 3, {}, [], "model_failed"),
        ([{"text": "0.25, 0.5, -1"}] * 3, {}, [], "model_failed"),
        ([EMBEDDED], {"max_cost_cents": 0.0001}, [], "no_model_route"),
        ([EMBEDDED], {}, [embedder(context_window=6)], "no_model_route"),
        ([EMBEDDED], {}, [embedder(data_class="PUBLIC")], "no_model_route"),
    ],
)
def test_what_has_no_vectors_has_a_reason(answers: Any, rule: Any, profiles: Any, code: str) -> None:
    with finding(*answers, artifacts=profiles, **rule) as (world, finder):
        view = world.run()
        assert world.replay(view).status == "DECIDED"
    assert outcome(finder.found[0]) == code


def test_the_window_holds_for_each_text_and_not_for_all() -> None:
    with finding(EMBEDDED, artifacts=[embedder(context_window=7)]) as (world, finder):
        world.run()
    assert outcome(finder.found[0]) is not None
    assert isinstance(finder.found[0], ModelAnswer)


@pytest.mark.parametrize("first", [179.0, 0.1, -3.4e38])
def test_a_digest_is_of_the_numbers_that_are_used_and_is_not_redacted(first: float) -> None:
    given = {**EMBEDDED, "vectors": [[first, 0.0, 0.0], VECTORS[1]]}
    with finding(given) as (world, finder):
        view = world.run()
        answered = world.entries(view, "model.answered")[0]
        assert world.replay(view).status == "DECIDED"
    (one, _) = outcome(finder.found[0])
    # The digest of 179.0 has 16 digits in a row that can be a card.
    assert answered["vectors"][0] == digest(pack_numbers("<3f", *one))
    assert one == unpack("<3f", pack_numbers("<3f", first, 0.0, 0.0))


def test_a_key_is_asked_once_so_each_call_is_in_the_budget() -> None:
    class Again(Finder):
        async def propose(self, admitted: Any, *rest: Any) -> Any:
            proposed = await super().propose(admitted, *rest)
            with pytest.raises(ValueError, match="asked `find` before"):
                await model_gateway(admitted, rest[-1]).embed(TEXTS, "find", "INTERNAL", 10_000)
            return proposed

    with finding(EMBEDDED, EMBEDDED, finder=Again) as (world, _):
        view = world.run()
        assert len([one for one in world.models.asked if one.texts]) == 1
        assert world.replay(view).status == "DECIDED"


def test_the_reserve_holds_for_the_normal_form_that_a_model_reads() -> None:
    grown = max(range(0x110000), key=lambda code: growth(chr(code)))
    assert (chr(grown), growth(chr(grown))) == ("\ufdfa", MAX_NORMAL_GROWTH)
    with finding(EMBEDDED) as (world, _):
        asked = world.entries(world.run(), "model.asked")[0]
    sent = sum(len(one.encode()) for one in TEXTS)
    assert asked["most_input_tokens"] > MAX_NORMAL_GROWTH * sent + TOKENS_PER_CALL


def growth(text: str) -> float:
    """How many times as long a text is in NFKC, in bytes."""
    if "\ud800" <= text <= "\udfff":
        return 0
    return len(unicodedata.normalize("NFKC", text).encode()) / len(text.encode())


BY_VOCABULARY = [profile(tokenizer="o200k_base@1"), rules()]
TOKENIZERS = "contextos.adapters.models.tokenizers"


def test_a_profile_names_how_its_prompt_is_counted_and_a_replay_counts_nothing() -> None:
    with modelled(GOOD) as world:
        (by_bytes,) = world.entries(world.run(), "model.asked")
    with modelled(GOOD, artifacts=BY_VOCABULARY) as world:
        view = world.run()
        (asked,), (found,) = (world.entries(view, f"model.{kind}") for kind in ("asked", "unavailable"))
        (call,) = world.models.asked
        with patch.dict(sys.modules, {TOKENIZERS: None}):
            assert world.replay(view).status == "DECIDED"
    assert found == {"tokens": {"model.large@1.0.0": [asked["input_tokens"]]}}
    assert (asked["tokenizer"], "tokenizer" in by_bytes) == ("o200k_base@1", False)
    assert asked["input_tokens"] != by_bytes["input_tokens"]
    said = sum(count_tokens("o200k_base@1", one.text) for one in call.messages)
    assert asked["input_tokens"] > said, "the schema is a part of the prompt"
    assert asked["reserved_units"] == by_bytes["reserved_units"], "the reserve is that of the bytes"


def test_a_profile_whose_tokenizer_is_not_installed_is_passed_over() -> None:
    with patch.dict(sys.modules, {TOKENIZERS: None}), modelled(GOOD, artifacts=BY_VOCABULARY) as world:
        view = world.run()
        assert world.models.asked == []
        assert world.replay(view).status == "ESCALATED"
    assert "`o200k_base@1` is not installed" in view.record["rationale"]["failures"][0]["detail"]


def test_each_text_to_embed_is_counted_for_itself() -> None:
    counted = embedder(tokenizer="cl100k_base@1", context_window=20)
    with finding(EMBEDDED, artifacts=[counted]) as (world, _):
        found = world.entries(world.run(), "model.unavailable")[0]
    assert len(found["tokens"]["model.vectors@1.0.0"]) == 2


def test_vectors_without_usage_cost_what_was_reserved() -> None:
    with finding({**EMBEDDED, "usage": None}) as (world, _):
        view = world.run()
        asked, answered = (world.entries(view, f"model.{kind}")[0] for kind in ("asked", "answered"))
    assert (answered["cost_units"], answered["unpriced"]) == (asked["reserved_units"], True)
    assert asked["reserved_units"] == asked["most_input_tokens"]


class Together:
    """Answers a plan to each call once so many calls are open."""

    def __init__(self, calls: int) -> None:
        self._calls, self._open, self._all_open = calls, 0, threading.Event()

    async def complete(self, call: ModelCall, on_text: OnText | None = None) -> ModelReply:
        self._open += 1
        if self._open == self._calls:
            self._all_open.set()
        # Runs of other threads have other loops.
        if not await asyncio.to_thread(self._all_open.wait, 60):
            return ModelReply("unavailable", billed=False)
        return ModelReply("answered", json.dumps(plan()), usage=ModelUsage({"input": 100, "output": 20}))


def test_a_slow_model_holds_no_turn_that_another_run_needs() -> None:
    runs = AdmissionLimits().max_turns + 2
    with modelled(models=Together(runs)) as world, ThreadPoolExecutor(runs) as pool:
        made = [pool.submit(world.run, 900 + number, f"req_{number}") for number in range(runs)]
        views = [one.result() for one in made]
        answered = [world.entries(view, "model.answered")[0]["outcome"] for view in views]
        replayed = [world.replay(view).status for view in views]
    assert answered == ["answered"] * runs, "all calls were open at the same time"
    assert replayed == ["DECIDED"] * runs


def test_what_comes_later_in_a_conversation_is_redacted_as_what_came_before() -> None:
    script = [calls(LOOKUP), calls(EVALUATE), finish("denied", "the card 4111 1111 1111 1111 was lost")]
    with modelled(*script, of=pack(chosen_by="model")) as world:
        world.run(note="my card is 4111 1111 1111 1111")
        asked = world.models.asked
    assert [len(one.messages) for one in asked] == [2, 4, 6]
    assert asked[2].messages[:4] == asked[1].messages
    assert "4111" not in str([one.messages for one in asked])

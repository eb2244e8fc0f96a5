"""Memory: runs propose, people review, and only what was promoted is recalled."""

import json
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from contextos.contracts.acts import ProposedAct
from contextos.contracts.documents.memories import CANDIDATES, review_key
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.evidence import EvidenceItem, fact_digest
from contextos.contracts.envelopes.memory import MemoryProposal, ReviewRefused
from contextos.contracts.envelopes.pack import MemoryLayer
from contextos.contracts.envelopes.plan import MemoryTemplate
from contextos.contracts.ids import PROPOSAL
from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos.contracts.ports.storage import Store
from contextos.errors import Conflict, NotFound
from contextos.intelligence.memory import (
    BoundMemory,
    StoredMemories,
    StoreMemory,
    candidate_writes,
    list_candidates,
    propose_memories,
    review_proposal,
)
from contextos_sim.memory.stores import MemoryStores

T = TypeVar("T")
CUSTOMER = "customer:cus_77"
LAYER = MemoryLayer(write_classes=("preference", "decision_outcome"), consent_required=True, tier_ttls={"episodic": 60})
AT_US = 1_777_887_000_000_000


class Clock:
    def __init__(self) -> None:
        self.us = AT_US

    def now_us(self) -> int:
        return self.us


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the core waited for something")


def bound(value: Any = "email", entity: str = CUSTOMER, predicate: str = "prefers_channel", **rest: Any) -> BoundMemory:
    template = MemoryTemplate.model_validate(
        {
            "entity": {"binding": {"from": "request", "pointer": "/user/user_id"}},
            "predicate": predicate,
            "value": value,
            "write_class": rest.pop("write_class", "preference"),
            "tier_target": rest.pop("tier", "semantic"),
        }
    )
    return BoundMemory(template, entity, value, rest.pop("refs", ("session:sess_1",)), rest.pop("confidence", 0.9))


def proposed(*candidates: BoundMemory, run: str = "run_a1b2c3d4e5f60718", **changes: Any) -> tuple[MemoryProposal, ...]:
    given: dict[str, Any] = {
        "run_id": run,
        "layer": LAYER,
        "recalled": (),
        "classification": "INTERNAL",
        "consent_given": True,
        "at_us": AT_US,
    }
    return propose_memories(candidates, **{**given, **changes})


def a_store() -> Store:
    return MemoryStores().tenant("tenant_acme")


def kept(store: Store, *candidates: BoundMemory, run: str = "run_a1b2c3d4e5f60718", **changes: Any) -> list[str]:
    proposals = proposed(*candidates, run=run, **changes)
    now(store.commit(Batch(run=run, writes=candidate_writes(proposals))))
    return [proposal.proposal_id for proposal in proposals]


def judged(store: Store, proposal_id: str, verdict: Any = "promote", **changes: Any) -> ProposedAct | ReviewRefused:
    given: dict[str, Any] = {"reviewer": "usr_reviewer", "at_us": AT_US + 1}
    return now(review_proposal(store, proposal_id, verdict, **{**given, **changes}))


def committed(store: Store, proposal_id: str, verdict: Any = "promote", **changes: Any) -> ProposedAct:
    made = judged(store, proposal_id, verdict, **changes)
    assert isinstance(made, ProposedAct)
    line = Draft(made.kind, made.about, AT_US + 1, "usr_reviewer", canonical(dict(made.arguments)), b"\x00" * 16)
    now(store.commit(Batch(run=CONTROL, writes=made.writes, shared=((CONTROL, line),))))
    return made


def refusal(store: Store, proposal_id: str, verdict: Any = "promote", **changes: Any) -> ReviewRefused:
    made = judged(store, proposal_id, verdict, **changes)
    assert isinstance(made, ReviewRefused)
    return made


async def believed(memories: StoredMemories) -> StoredMemories:
    """Whether an act covers them is the question of `tests/unit/trust/rows/test_memories.py`."""
    return memories


def recalled(store: Store, *subjects: str, limit: int = 20, clock: Clock | None = None) -> tuple[EvidenceItem, ...]:
    return now(StoreMemory(store, (clock or Clock()).now_us, believed).recall(subjects or (CUSTOMER,), limit=limit))


def values(items: Sequence[EvidenceItem]) -> list[Any]:
    return [item.value for item in items]


def test_a_proposal_says_what_and_why_and_is_sealed() -> None:
    (made,) = proposed(bound())
    assert made.sealed() == made
    assert PROPOSAL.fits(made.proposal_id, sealed=True)
    assert made.to_json() == {
        "proposal_id": made.proposal_id,
        "run_id": "run_a1b2c3d4e5f60718",
        "candidate": {
            "entity_ceid": CUSTOMER,
            "predicate": "prefers_channel",
            "value": "email",
            "evidence_refs": ["session:sess_1"],
            "confidence": 0.9,
        },
        "write_class": "preference",
        "tier_target": "semantic",
        "classification": "INTERNAL",
        "consent_check": "passed",
        "contradiction_check": {"existing": [], "verdict": "no_conflict"},
        "auto_promote_eligible": False,
        "ttl_s": None,
        "proposed_at_us": AT_US,
    }


def test_the_same_run_proposes_the_same_and_each_proposal_has_its_own_id() -> None:
    candidates = (bound(), bound("sms", predicate="other"))
    assert proposed(*candidates) == proposed(*candidates)
    ids = [
        one.proposal_id
        for run in ("run_a1b2c3d4e5f60718", "run_a1b2c3d4e5f60719")
        for one in proposed(*candidates, run=run)
    ]
    assert len(set(ids)) == 4


@pytest.mark.requirement("I-WRITE-CLASS")
@pytest.mark.parametrize("left_out", [bound(write_class="correction"), bound(refs=()), bound(entity="no entity")])
def test_a_memory_that_the_pack_forbids_or_no_evidence_supports_is_not_proposed(left_out: BoundMemory) -> None:
    assert proposed(left_out) == ()
    first, last = proposed(bound(), left_out, bound("x", predicate="y"))
    assert (first.candidate.value, last.candidate.value) == ("email", "x")


@pytest.mark.requirement("I-WRITE-CLASS")
def test_without_allowed_classes_nothing_is_proposed() -> None:
    assert proposed(bound(), layer=MemoryLayer()) == ()


@pytest.mark.requirement("I-CONSENT")
def test_a_candidate_without_the_consent_it_needs_is_not_kept_and_cannot_be_promoted() -> None:
    (missing,) = proposed(bound(), consent_given=False)
    assert missing.consent_check == "missing"
    assert candidate_writes([missing]) == ()
    (free,) = proposed(bound(), consent_given=False, layer=LAYER.model_copy(update={"consent_required": False}))
    assert free.consent_check == "not_required"
    store = a_store()
    (with_consent,) = candidate_writes(proposed(bound()))
    assert with_consent.body is not None
    forged = json.loads(with_consent.body)
    forged["proposal"]["consent_check"] = "missing"
    raw = json.dumps(forged).encode()
    now(store.commit(Batch(run="run_x", writes=(type(with_consent)(CANDIDATES.name, with_consent.key, 0, raw),))))
    assert refusal(store, with_consent.key).reason == "consent_missing"
    assert refusal(store, with_consent.key, supersede=True).reason == "consent_missing"


def test_a_proposal_names_the_promoted_memory_that_it_contradicts_or_repeats() -> None:
    store = a_store()
    (promoted,) = kept(store, bound())
    committed(store, promoted)
    known = recalled(store)
    for value, verdict in [("email", "duplicate"), ("sms", "conflict")]:
        (made,) = proposed(bound(value), recalled=known)
        assert made.contradiction_check.verdict == verdict
        assert made.contradiction_check.existing == (f"memory:{promoted}",)
    (unrelated,) = proposed(bound(predicate="other"), recalled=known)
    assert unrelated.contradiction_check.verdict == "no_conflict"


@pytest.mark.requirement("I-REVIEW")
def test_only_promoted_memory_is_recalled() -> None:
    store = a_store()
    promoted, rejected, waiting = kept(store, bound(), bound("x", predicate="b"), bound("y", predicate="c"))
    assert recalled(store) == ()
    committed(store, promoted)
    committed(store, rejected, "reject")
    assert values(recalled(store)) == ["email"]
    assert [proposal.proposal_id for proposal in now(list_candidates(store))] == [waiting]


def test_a_recalled_item_is_untrusted_data_without_a_name_unless_the_reviewer_says_trusted() -> None:
    store = a_store()
    one, other = kept(store, bound(), bound("x", predicate="b"))
    committed(store, one)
    committed(store, other, integrity="trusted")
    by_value = {item.value: item for item in recalled(store)}
    assert by_value["email"] == EvidenceItem(
        evidence_ref=f"memory:{one}",
        name=None,
        subject=CUSTOMER,
        predicate="prefers_channel",
        value="email",
        origin="memory",
        integrity="untrusted",
        classification="INTERNAL",
        observed_at_us=AT_US,
        digest=fact_digest(CUSTOMER, "prefers_channel", "email"),
        hop=0,
    )
    assert by_value["x"].integrity == "trusted"


def test_recall_keeps_to_its_subjects_its_limit_and_its_order() -> None:
    store = a_store()
    ids = kept(
        store,
        *(bound(value, entity) for value, entity in [(1, CUSTOMER), (2, "customer:cus_7"), (3, "eu:customer:cus_77")]),
        *(bound(at, predicate=f"p{at}") for at in range(4, 9)),
    )
    for proposal_id in ids:
        committed(store, proposal_id)
    assert values(recalled(store, "customer:cus_7")) == [2]
    assert values(recalled(store, "eu:customer:cus_77", "customer:cus_7", "eu:customer:cus_77")) == [3, 2]
    assert sorted(values(recalled(store))) == [1, 4, 5, 6, 7, 8]
    assert recalled(store) == recalled(store)
    assert values(recalled(store, limit=2)) == values(recalled(store))[:2]
    assert values(recalled(store, "customer:cus_7", CUSTOMER, limit=1)) == [2]
    for none in (recalled(store, limit=0), recalled(store, "customer:cus"), recalled(store, "customer:")):
        assert none == ()


@pytest.mark.requirement("I-TENANT")
def test_a_tenant_recalls_nothing_of_another() -> None:
    stores = MemoryStores()
    ours, theirs = stores.tenant("tenant_a"), stores.tenant("tenant_b")
    (proposal_id,) = kept(ours, bound())
    committed(ours, proposal_id)
    assert values(recalled(ours)) == ["email"]
    assert recalled(theirs) == ()
    assert now(list_candidates(theirs)) == ()
    with pytest.raises(NotFound):
        judged(theirs, proposal_id)


@pytest.mark.requirement("I-RETENTION")
def test_memory_of_a_tier_that_ends_is_not_recalled_after_its_time() -> None:
    store, clock = a_store(), Clock()
    (proposal_id,) = kept(store, bound(tier="episodic"))
    made = committed(store, proposal_id)
    clock.us = made.arguments["at_us"] + 60_000_000 - 1
    assert values(recalled(store, clock=clock)) == ["email"]
    clock.us += 1
    assert recalled(store, clock=clock) == ()


@pytest.mark.requirement("I-CONTRADICTION")
def test_a_contradiction_is_refused_and_nothing_is_overwritten() -> None:
    store = a_store()
    first, second = kept(store, bound("email"), bound("sms"))
    committed(store, first)
    refused = refusal(store, second)
    assert (refused.reason, refused.existing) == ("contradiction", (f"memory:{first}",))
    assert values(recalled(store)) == ["email"]


@pytest.mark.requirement("I-CONTRADICTION")
def test_a_reviewer_can_supersede_and_the_trace_names_the_replaced_memory() -> None:
    store = a_store()
    first, second = kept(store, bound("email"), bound("sms"))
    committed(store, first)
    made = committed(store, second, supersede=True, reason="asked on the phone")
    assert values(recalled(store)) == ["sms"]
    assert made.arguments["supersedes"] == f"memory:{first}"
    said = json.loads(now(store.read(CONTROL))[-1].body or b"")
    assert (said["supersedes"], said["reviewer"], said["reason"]) == (
        f"memory:{first}",
        "usr_reviewer",
        "asked on the phone",
    )


@pytest.mark.requirement("I-REVIEW", "P-ACTS")
def test_every_review_leaves_an_entry_in_the_control_stream() -> None:
    store = a_store()
    one, other = kept(store, bound(), bound("x", predicate="b"))
    committed(store, one)
    committed(store, other, "reject", reason="not so")
    entries = [
        (entry.kind, entry.key, entry.by, said["proposal_id"], said["verdict"])
        for entry in now(store.read(CONTROL))
        for said in [json.loads(entry.body or b"")]
    ]
    assert entries == [
        ("memory.reviewed", review_key(CUSTOMER, "prefers_channel"), "usr_reviewer", one, "promote"),
        ("memory.reviewed", review_key(CUSTOMER, "b"), "usr_reviewer", other, "reject"),
    ]


@pytest.mark.requirement("I-REJECTION")
def test_a_rejection_is_remembered_and_the_same_is_not_queued_again() -> None:
    store = a_store()
    (first,) = kept(store, bound())
    committed(store, first, "reject")
    again, different = kept(store, bound(), bound("sms"), run="run_a1b2c3d4e5f60719")
    assert [proposal.proposal_id for proposal in now(list_candidates(store))] == [different]
    assert refusal(store, again).reason == "rejected_before"
    committed(store, again, supersede=True)
    assert values(recalled(store)) == ["email"]


def test_a_promoted_or_waiting_memory_is_not_queued_again() -> None:
    store = a_store()
    (first,) = kept(store, bound())
    kept(store, bound(), bound("x", predicate="b"), run="run_a1b2c3d4e5f60719")
    assert len(now(list_candidates(store))) == 2
    committed(store, first)
    assert [proposal.candidate.value for proposal in now(list_candidates(store))] == ["x"]


def test_the_queue_is_read_in_pages() -> None:
    store = a_store()
    ids = sorted(kept(store, *(bound(at, predicate=f"p{at}") for at in range(7))))
    committed(store, ids[0], "reject")
    page = now(list_candidates(store, limit=3))
    assert [one.proposal_id for one in page] == ids[1:4]
    assert [one.proposal_id for one in now(list_candidates(store, after=page[-1].proposal_id, limit=9))] == ids[4:]
    assert now(list_candidates(store, limit=0)) == ()


@pytest.mark.requirement("I-REVIEW")
@pytest.mark.parametrize("verdict", ["promote", "reject"])
def test_a_proposal_is_reviewed_once(verdict: str) -> None:
    store = a_store()
    (proposal_id,) = kept(store, bound())
    committed(store, proposal_id, verdict)
    for second in ("promote", "reject"):
        assert refusal(store, proposal_id, second, supersede=True).reason == "already_reviewed"


@pytest.mark.requirement("I-REVIEW")
def test_of_two_reviewers_at_once_one_loses_and_nothing_of_it_is_kept() -> None:
    store = a_store()
    (proposal_id,) = kept(store, bound())
    one, other = judged(store, proposal_id), judged(store, proposal_id, "reject")
    assert isinstance(one, ProposedAct)
    assert isinstance(other, ProposedAct)
    now(store.commit(Batch(run=CONTROL, writes=one.writes)))
    with pytest.raises(Conflict):
        now(store.commit(Batch(run=CONTROL, writes=other.writes)))
    assert values(recalled(store)) == ["email"]


@pytest.mark.requirement("I-CONTRADICTION")
def test_two_contradicting_promotions_at_once_do_not_both_win() -> None:
    store = a_store()
    made = [judged(store, proposal_id) for proposal_id in kept(store, bound("email"), bound("sms"))]
    assert all(isinstance(one, ProposedAct) for one in made)
    now(store.commit(Batch(run=CONTROL, writes=made[0].writes)))  # type: ignore[union-attr]
    with pytest.raises(Conflict):
        now(store.commit(Batch(run=CONTROL, writes=made[1].writes)))  # type: ignore[union-attr]


@pytest.mark.requirement("I-REJECTION")
def test_a_promotion_loses_against_a_rejection_of_the_same_statement() -> None:
    store = a_store()
    (first,) = kept(store, bound())
    (again,) = kept(store, bound(), run="run_a1b2c3d4e5f60719")
    promotion = judged(store, again)
    assert isinstance(promotion, ProposedAct)
    committed(store, first, "reject")
    with pytest.raises(Conflict):
        now(store.commit(Batch(run=CONTROL, writes=promotion.writes)))


@pytest.mark.parametrize("proposal_id", ["mwp_0000000000000000", "", "x", "mwp_" + "x" * 500])
def test_an_unknown_proposal_is_not_found(proposal_id: str) -> None:
    with pytest.raises(NotFound, match="no memory proposal"):
        judged(a_store(), proposal_id)


class Promotion(RuleBasedStateMachine):
    """Against a model that says in a few lines what each review must do."""

    def __init__(self) -> None:
        super().__init__()
        self.store, self.runs = a_store(), 0
        self.waiting: dict[str, tuple[str, int]] = {}
        self.promoted: dict[str, int] = {}
        self.rejected: set[tuple[str, int]] = set()

    @rule(predicate=st.sampled_from("pq"), value=st.integers(0, 2))
    def a_run_proposes(self, predicate: str, value: int) -> None:
        self.runs += 1
        (proposal_id,) = kept(self.store, bound(value, predicate=predicate), run=f"run_{self.runs:016x}")
        self.waiting[proposal_id] = (predicate, value)

    @precondition(lambda self: self.waiting)
    @rule(
        pick=st.randoms(use_true_random=False), verdict=st.sampled_from(["promote", "reject"]), supersede=st.booleans()
    )
    def somebody_reviews(self, pick: Any, verdict: str, supersede: bool) -> None:
        proposal_id = pick.choice(sorted(self.waiting))
        predicate, value = self.waiting[proposal_id]
        conflict = self.promoted.get(predicate, value) != value
        refused = verdict == "promote" and not supersede and (conflict or (predicate, value) in self.rejected)
        made = judged(self.store, proposal_id, verdict, supersede=supersede)
        assert isinstance(made, ReviewRefused) == refused
        if isinstance(made, ProposedAct):
            now(self.store.commit(Batch(run=CONTROL, writes=made.writes)))
            del self.waiting[proposal_id]
            if verdict == "promote":
                self.promoted[predicate] = value
            else:
                self.rejected.add((predicate, value))

    @invariant()
    def recall_gives_what_was_promoted_last(self) -> None:
        assert {item.predicate: item.value for item in recalled(self.store)} == self.promoted

    @invariant()
    def the_queue_gives_what_is_not_settled(self) -> None:
        settled = self.rejected | set(self.promoted.items())
        queued = [(one.candidate.predicate, one.candidate.value) for one in now(list_candidates(self.store))]
        assert sorted(queued) == sorted(set(self.waiting.values()) - settled)


@pytest.mark.requirement("I-REVIEW", "I-CONTRADICTION", "I-REJECTION")
class TestPromotion(Promotion.TestCase):  # type: ignore[name-defined,misc]
    pass

"""What holds of every run, looked up in journals that real runs left: the field invariants and the core invariants.

Source: Runtime API Schemas, "Field invariants"; Reference Architecture, "Core invariants".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
import rfc8785

from contextos import __version__
from contextos.adapters.code import runtime_digest
from contextos.audit.replay import Unreachable, replay
from contextos.context.compiler import recorded_context
from contextos.context.surface import tool_manifest
from contextos.contracts.encoding.pointer import resolve_pointer
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.envelopes.policy import APPROVAL_MODES
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.journal import SEMANTICS
from contextos.contracts.refs import EVIDENCE
from contextos.deployment.queries.run_view import RunView
from contextos.errors import Integrity
from contextos.trust.journal.record import build_packet
from tests.e2e.test_verdicts import Wrapped
from tests.world import TENANT, TestWorld, open_world, request, run


@dataclass
class Ran:
    """A run that ended, its entries as (kind, key, body), the contexts that it compiled, and its world."""

    world: TestWorld
    view: RunView
    entries: list[tuple[str, str, Any]]
    compiled: list[dict[str, Any]]

    def all(self, kind: str) -> list[Any]:
        return [body for name, _, body in self.entries if name == kind]

    @property
    def record(self) -> dict[str, Any]:
        assert self.view.record is not None
        return self.view.record


RUNS = {
    "completed": (2500, "ord_881", None),
    "approved": (4200, "ord_881", "approved"),
    "denied": (3100, "ord_881", "denied"),
    "refused": (2500, "ord_896", None),
    "escalated": (2500, "ord_890", None),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ran]]:
    world = run(open_world(tmp_path_factory.mktemp("ran")))
    made: dict[str, Ran] = {}

    async def go() -> None:
        for name, (amount, order, verdict) in RUNS.items():
            view = await world.invoke(request(amount, f"req_{name}", order_id=order))
            if verdict:
                view = await world.approve(view.run_id, verdict)
            entries = []
            for entry in await world.stores.tenant(TENANT).read(view.run_id):
                body = orjson.loads(entry.body or b"{}")
                entries.append((entry.kind, entry.key, body["answer"] if KINDS[entry.kind].recorded else body))
            made[name] = Ran(world, view, entries, await world.contexts(view.run_id))

    run(go())
    yield made
    world.close()


every = pytest.mark.parametrize("name", RUNS)


@pytest.mark.requirement("C-INV-1")
@every
def test_one_trace_id_runs_through_everything_a_run_leaves(ran: dict[str, Ran], name: str) -> None:
    one = ran[name]
    sent = InvokeRequest.model_validate(one.all("run.received")[0]["request"])
    trace_ids = [sent.trace.trace_id, build_packet(one.record, sent)["trace_id"]]
    trace_ids += [compiled["context_ledger"]["trace_id"] for compiled in one.compiled]
    trace_ids += [body["trace_id"] for body in one.all("record.revised")]
    assert set(trace_ids) == {"4bf92f3577b34da6a3ce929d0e0e4736"}
    assert len(trace_ids) >= 3


@pytest.mark.requirement("C-INV-2", "R-CORE-3")
@pytest.mark.parametrize("ceiling", APPROVAL_MODES)
def test_what_lies_above_the_ceiling_is_gone_before_a_planner_could_choose(ceiling: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        body = request(2500, "req_1")
        body["runtime"]["safety_mode"] = ceiling
        view = await world.invoke(body)
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        recorded = next(orjson.loads(entry.body or b"") for entry in entries if entry.kind == "context.compiled")
        (compiled,) = await world.contexts(view.run_id)
        modes = [
            meta["approval_mode"]
            for adapter in compiled["manifests"]["tool_manifest"]
            for meta in adapter["capability_metadata"].values()
        ]
        assert modes
        assert all(APPROVAL_MODES.index(mode) <= APPROVAL_MODES.index(ceiling) for mode in modes)  # type: ignore[arg-type]
        assert recorded_context(compiled)["context_ledger"] == recorded["context_ledger"]
        assert ("adp_payments.issue_refund" in compiled["context_ledger"]["tools"]) == (ceiling == "destructive")
        assert bool(world.refunds()) == (ceiling == "destructive")
        world.close()

    run(go())


@pytest.mark.requirement("C-INV-3", "R-CORE-1")
def test_the_compiled_hash_covers_exactly_prompt_manifests_controls_and_budget(ran: dict[str, Ran]) -> None:
    for one in ran.values():
        assert [recorded_context(compiled)["context_ledger"] for compiled in one.compiled] == [
            compiled["context_ledger"] for compiled in one.all("context.compiled")
        ]
        for compiled in one.compiled:
            covered = {
                part: compiled[part] for part in ("compiled_prompt", "manifests", "runtime_controls", "budget_report")
            }
            # The trace of the caller is a name of the run: two runs that see the same have the same hash.
            manifests = {name: value for name, value in compiled["manifests"].items() if name != "trace_context"}
            address = "sha256:" + hashlib.sha256(rfc8785.dumps(covered | {"manifests": manifests})).hexdigest()
            assert compiled["context_ledger"]["compiled_context_hash"] == address
            assert set(compiled) == {*covered, "context_ledger"}
        hashes = [compiled["context_ledger"]["compiled_context_hash"] for compiled in one.all("context.compiled")]
        assert one.record["replay"]["compiled_context_hash"] == hashes[-1]


@pytest.mark.requirement("C-INV-4", "R-CORE-4")
@every
def test_every_call_names_the_policy_decision_that_let_it_pass_or_stopped_it(ran: dict[str, Ran], name: str) -> None:
    one = ran[name]
    decided: dict[str, Any] = {}
    for kind, _, body in one.entries:
        if kind == "policy.decided":
            decided |= {each["policy_decision_id"]: each for each in body.get("decisions", [body])}
        if kind == "tool.dispatching":
            decision = decided[body["envelope"]["policy_decision_id"]]
            assert (decision["point"], decision["allowed"]) == ("execute", True)
            assert decision["capability_id"] == body["envelope"]["capability_id"]
            assert decision["effective_approval_mode"] == body["envelope"]["approval_mode_effective"]
        if kind == "tool.refused":
            assert body["envelope"]["policy_decision_id"] in decided
        if kind == "tool.returned":
            assert body["envelope"]["policy_decision_id"] in decided
    assert {each["policy_decision_id"] for each in one.record["policy_decisions"]} <= decided.keys()


@pytest.mark.requirement("C-INV-5", "A-MODE-LOCAL-WRITE")
def test_what_would_do_harm_twice_carries_its_key_and_the_outside_got_that_key(ran: dict[str, Ran]) -> None:
    keys = []
    for one in ran.values():
        for sent in one.all("tool.dispatching"):
            envelope = sent["envelope"]
            writes = envelope["capability_id"] == "adp_payments.issue_refund"
            assert bool(envelope.get("idempotency_key")) == writes
            if writes:
                assert re.fullmatch("ik_[a-z0-9]{16}", envelope["idempotency_key"])
                keys.append(envelope["idempotency_key"])
    assert keys == [refund["key"] for refund in ran["completed"].world.refunds()]
    assert len(set(keys)) == len(keys) == 2


@pytest.mark.requirement("C-INV-6", "R-CORE-9", "T-REPLAY-NO-EFFECT")
def test_a_result_names_its_mutations_and_a_replay_reads_them_without_a_second_effect(ran: dict[str, Ran]) -> None:
    for name in ("completed", "approved"):
        one = ran[name]
        results = [body["envelope"] for body in one.all("tool.returned")]
        assert [bool(result.get("mutations")) for result in results] == [False, False, True]
        assert results[-1]["status"] == "completed"
        refund = results[-1]["output"]["transaction_id"]
        assert results[-1]["mutations"] == [f"refund:{refund}"]
        before = one.world.refunds()
        spies = {adapter: Wrapped(inner) for adapter, inner in one.world.adapters.items()}
        kept = dict(one.world.adapters)
        one.world.adapters.update(spies)  # type: ignore[arg-type]
        replayed = run(replay(one.world.deployment, TENANT, one.view.run_id))
        one.world.adapters.update(kept)
        assert replayed.record_hash == one.record["record_hash"]
        assert [spy.calls for spy in spies.values()] == [[], [], []]
        assert one.world.refunds() == before


def resolved(one: Ran, ref: str) -> bool:
    """Whether an evidence ref names something that the journal holds."""
    if ref.startswith("tool:"):
        _, capability, call = ref.split(":")
        given = [body["envelope"] for body in one.all("tool.returned")]
        return any(
            (each["capability_id"], each["tool_call_id"]) == (capability, call)
            and each["status"] in ("ok", "completed")
            for each in given
        )
    if ref.startswith("kg:"):
        return any(item["evidence_ref"] == ref for found in one.all("evidence.retrieved") for item in found)
    if ref.startswith("memory:"):
        return any(item["evidence_ref"] == ref for found in one.all("memory.recalled") for item in found)
    if ref.startswith("policy:"):
        bundle, rule = ref.removeprefix("policy:").split("#")
        announced = [name for body in one.all("context.compiled") for name in body["context_ledger"]["policy_bundles"]]
        return bundle in announced and any(
            rule in each["matched_rule_ids"]
            for body in one.all("policy.decided")
            for each in body.get("decisions", [body])
        )
    return False


@pytest.mark.requirement("C-INV-7")
@every
def test_every_evidence_ref_resolves_within_the_journal(ran: dict[str, Ran], name: str) -> None:
    one = ran[name]
    refs = list(one.record["evidence_refs"])
    refs += [ref for body in one.all("tool.dispatching") for ref in body["envelope"]["evidence_refs"]]
    refs += [ref for body in one.all("context.compiled") for ref in body["context_ledger"]["evidence_refs"]]
    refs += [item["evidence_ref"] for body in one.all("evidence.frozen") for item in body["items"]]
    for ref in refs:
        assert EVIDENCE.fits(ref)
        assert resolved(one, ref), ref
    assert (len(one.record["evidence_refs"]) >= 3) == (name in ("completed", "approved", "denied", "refused"))


@pytest.mark.requirement("R-CORE-5", "A-MODE-DELEGATED")
@pytest.mark.parametrize("name", ["completed", "approved"])
def test_evidence_is_frozen_before_a_governed_call_goes_out(ran: dict[str, Ran], name: str) -> None:
    frozen: set[str] = set()
    governed = 0
    for kind, key, body in ran[name].entries:
        if kind == "evidence.frozen":
            frozen = {item["name"] for item in body["items"]}
        if kind == "tool.dispatching" and body["envelope"]["approval_mode_highest"] == "destructive":
            assert frozen == {"order_lookup", "policy.eval", "identity_verified"}, key
            assert body["envelope"]["evidence_refs"]
            governed += 1
    assert governed == 1


@pytest.mark.requirement("R-CORE-6")
@every
def test_both_identities_travel_with_every_call_and_the_token_is_never_kept(ran: dict[str, Ran], name: str) -> None:
    one = ran[name]
    for body in one.all("tool.dispatching"):
        assert [link["kind"] for link in body["envelope"]["principal_chain"]] == ["user", "agent"]
    assert [link["id"] for link in one.record["agent_identity"]["principal_chain"]] == [
        "usr_771",
        "agent:contextos/support-refund@1.2.0",
    ]
    claim = one.all("identity.resolved")[0]["claim"]
    assert "token" not in claim
    assert claim["claim_hash"] == one.record["agent_identity"]["claim_hash"]
    raw = orjson.dumps([body for _, _, body in one.entries])
    assert not re.search(rb"eyJ[A-Za-z0-9_-]{20,}\.eyJ", re.sub(rb'"token":"[^"]*"', b"", raw)), "only the approver's"


@pytest.mark.requirement("A-MODE-DESTRUCTIVE")
def test_a_destructive_call_goes_out_only_after_the_answer_that_allows_it(ran: dict[str, Ran]) -> None:
    kinds = [kind for kind, _, _ in ran["approved"].entries]
    last = len(kinds) - 1 - kinds[::-1].index("tool.dispatching")
    assert kinds.index("approval.asked") < kinds.index("approval.answered") < kinds.index("evidence.rechecked") < last
    sent, asked = ran["approved"].all("tool.dispatching")[-1], ran["approved"].all("approval.asked")[0]
    assert sent["approval_id"] == asked["approval_id"]
    assert "approval.asked" not in [kind for kind, _, _ in ran["completed"].entries]


@pytest.mark.requirement("A-MODE-READ")
def test_a_read_runs_inline_and_is_audited(ran: dict[str, Ran]) -> None:
    sent = [body["envelope"] for body in ran["completed"].all("tool.dispatching")]
    assert [envelope["approval_mode_effective"] for envelope in sent] == ["read_only", "read_only", "delegated"]
    assert len(ran["completed"].all("tool.returned")) == len(sent)


@pytest.mark.requirement("A-MODE-LOWERED")
def test_a_mode_is_lowered_only_by_a_rule_that_bounds_the_arguments(ran: dict[str, Ran]) -> None:
    decision = next(
        body
        for kind, key, body in ran["completed"].entries
        if kind == "policy.decided" and key.startswith("execute/") and key.endswith("s3")
    )
    assert decision["effective_approval_mode"] == "delegated"
    assert decision["arg_constraints"]["amount_inr"] == [{"max": 3000}]


@pytest.mark.requirement("R-CORE-7")
@every
def test_the_budget_of_a_run_is_used_up_no_further_than_it_goes(ran: dict[str, Ran], name: str) -> None:
    one = ran[name]
    budget, used = one.all("run.context")[0]["run_budget"], one.record["budget_usage"]
    assert used["tool_calls"] <= budget["max_tool_calls"] == 8
    assert used["tokens"] <= budget["total_tokens"]
    assert used["cost_usd_cents"] <= budget["max_cost_cents"] == 25
    assert used["wall_clock_ms"] <= budget["wall_clock_ms"]
    assert used["tool_calls"] == len(one.all("tool.dispatching"))


@pytest.mark.requirement("R-CORE-8")
def test_a_proposed_memory_is_not_recalled_before_it_is_promoted(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        first = await world.invoke(request(1000, "req_1"))
        assert "memory.proposed" in await world.kinds(first.run_id)
        assert await world.stores.tenant(TENANT).scan("memory_candidates")
        second = await world.invoke(request(1100, "req_2"))
        entries = await world.stores.tenant(TENANT).read(second.run_id)
        recalled = next(entry.body or b"" for entry in entries if entry.kind == "memory.recalled")
        assert orjson.loads(recalled)["answer"] == []
        world.close()

    run(go())


@pytest.mark.requirement("I-NO-WRITE")
def test_whatever_a_run_comes_to_it_writes_neither_graph_nor_promoted_memory(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        graph, store = world.stores.graph(TENANT), world.stores.tenant(TENANT)

        async def known() -> tuple[int, Any, Any]:
            return await graph.head(), await store.scan("memory_promoted"), await store.scan("memory_rejected")

        before = await known()
        for name, (amount, order, verdict) in RUNS.items():
            view = await world.invoke(request(amount, f"req_{name}", order_id=order))
            if verdict:
                view = await world.approve(view.run_id, verdict)
            assert view.ended
        assert await store.scan("memory_candidates"), "there was something to remember"
        assert await known() == before
        assert before[0] > 0
        world.close()

    run(go())


@pytest.mark.requirement("P-PINNED")
@every
def test_a_run_records_the_digests_of_its_pins_and_its_rules(ran: dict[str, Ran], name: str) -> None:
    one = ran[name]
    (pinned,) = one.all("run.pinned")
    adapters = one.world.adapters
    refs = {"ctxpack.support@5.2.0", "active_policies", *(f"adapter:{adapter}" for adapter in adapters)}
    code = {f"{part}:{adapter}" for part in ("code", "packages") for adapter in adapters}
    assert set(pinned["pins"]) == refs | code | {"runtime"}
    assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in pinned["pins"].values())
    for adapter, live in one.world.adapters.items():
        canonical = rfc8785.dumps(live.describe().to_json())
        assert pinned["pins"][f"adapter:{adapter}"] == "sha256:" + hashlib.sha256(canonical).hexdigest()
        assert pinned["pins"][f"code:{adapter}"] == one.world.deployment.ports.code.adapter(live)
    assert pinned["pins"]["runtime"] == runtime_digest()
    head = run(one.world.stores.graph(TENANT).head())
    rules = {field: pinned[field] for field in ("snapshot", "semantics", "runtime_version", "profile", "estimator")}
    assert rules == {
        "snapshot": f"kg_{head}",
        "semantics": SEMANTICS,
        "runtime_version": __version__,
        "profile": "embedded",
        "estimator": "bytes_div_4@1",
    }


@pytest.mark.requirement("R-LEDGERS", "R-REVISIONS")
@every
def test_a_record_names_its_three_ledgers_and_each_change_is_a_revision(ran: dict[str, Ran], name: str) -> None:
    one = ran[name]
    revisions = one.all("record.revised")
    assert [body["revision"] for body in revisions] == list(range(len(revisions)))
    assert [body["status"] for body in revisions[:-1]] == ["DEFERRED"] * (len(revisions) - 1)
    ledgers = one.record["lineage"]["ledgers"]
    counted = {"context": 0, "effect": 0, "decision": 0}
    before = [kind for kind, _, _ in one.entries][: [k for k, _, _ in one.entries].index("replay.packed") - 1]
    for kind in before:
        if KINDS[kind].ledger in counted:
            counted[KINDS[kind].ledger] += 1
    assert {ledger: said["entries"] for ledger, said in ledgers.items()} == counted


@pytest.mark.requirement("T-FAIL-REPLAY", "T-REPLAY-NO-EFFECT")
def test_a_replay_that_uses_an_external_port_is_stopped() -> None:
    with pytest.raises(Integrity, match="used `call` of an external port"):
        Unreachable().call()


def test_the_reading_helpers_of_this_file_can_fail(ran: dict[str, Ran]) -> None:
    one = ran["completed"]
    assert not resolved(one, "tool:adp_orders.lookup:tool_0000000000000000")
    assert not resolved(one, "kg:customer:cus_77#snapshot_kg_999")
    assert not resolved(one, "policy:POLICY_RETURNS_V4#R_NOT_ELIGIBLE")
    assert resolve_pointer({"a": 1}, "/a") == 1
    assert tool_manifest([], {}) == []

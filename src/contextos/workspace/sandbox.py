"""Runs one request in a deployment in memory that is thrown away, to show what a pack does with it.

It is the real runtime. Nothing outside is called: each tool gives the answer that the caller wrote, or one that is made
from the schema of its output, and no model is asked. The people and the facts are those that the caller states. The
clock always shows the stated time, so equal input gives equal hashes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from contextos.audit.replay import derived_context
from contextos.contracts.acts import PackPin, ProposedAct
from contextos.contracts.documents.memories import PROMOTED, promoted_key, review_key
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.compiled import CompiledContext
from contextos.contracts.envelopes.evidence import Classification, IntegrityLevel, fact_digest
from contextos.contracts.envelopes.identity import Principals
from contextos.contracts.envelopes.memory import (
    ContradictionCheck,
    MemoryCandidate,
    MemoryProposal,
    MemoryReview,
    PromotedMemory,
)
from contextos.contracts.envelopes.pack import ContextPack, PolicyArtifact
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.envelopes.record import DecisionRecord
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.ids import Ceid, derive
from contextos.contracts.model import Count, Map, Model, Name, OpenObject, Seq
from contextos.control.artifacts import PACK_TYPE, GovernedArtifact, MergedArtifacts, merge, read_artifact, ref_of
from contextos.deployment.acts.act import propose_commit
from contextos.deployment.acts.governance import pin_packs
from contextos.deployment.gate.gate import CallGate
from contextos.deployment.queries.run_view import RunView
from contextos.errors import InvalidInput, Problem
from contextos.packs.checking import payload_type_of
from contextos.packs.mining.backtest import FOR_EVER, RecordedAnswers
from contextos.packs.tools.samples import sample_value
from contextos.runtime.environment import RunLimits
from contextos.service.runs import Run
from contextos.service.views import ReasonDocument, TimelineDocument, TimelinePart
from contextos.trust.seal import KeyRing
from contextos.workspace.application import App
from contextos.workspace.given import GivenPorts
from contextos.workspace.in_memory import TEST_OPERATOR, InMemory, MemoryDirectory, MovableClock, Person
from contextos.workspace.settings import Settings

MAX_ANSWERS: Final = 16
"""The most questions of one run that are answered."""
_SEED: Final = hashlib.sha256(b"contextos.sandbox").digest()


class SandboxCall(Model):
    """A call of an agent that chooses its calls."""

    tool: Name
    args: OpenObject = {}


class StatedFacts(Model):
    """The facts of a sandbox, in the form of the command `facts load`."""

    nodes: Seq[OpenObject] = ()
    edges: Seq[OpenObject] = ()


class StatedMemory(Model):
    """A memory that a person promoted before the run: a statement about an entity."""

    subject: Ceid
    predicate: Name
    value: Any
    integrity: IntegrityLevel = "untrusted"
    classification: Classification = "INTERNAL"


class StatedWorld(Model):
    """What the caller states of the world of a run.

    `principals` are the user and the agent; without them the directory knows nobody. `outputs` has the answer of a
    tool, by its id. `answer` is what a person answers to each question; empty: nobody answers. `calls` are made in
    order if an agent chooses the calls.
    """

    principals: Principals | None = None
    facts: StatedFacts = StatedFacts()
    memories: Seq[StatedMemory] = ()
    outputs: Map[OpenObject] = {}
    answer: Literal["", "approved", "denied"] = ""
    calls: Seq[SandboxCall] = ()


class PolicyAbove(Model):
    """A policy in force above the packs."""

    level: Level
    document: OpenObject


class Sandbox(StatedWorld):
    """The world of a run. `beside` are artifacts that the request names beside the pack, and models; `at_us` is the
    time, Unix microseconds; `limits` are the fields of `RunLimits`.
    """

    beside: Seq[OpenObject] = ()
    policies: Seq[PolicyAbove] = ()
    at_us: Count = 0
    limits: OpenObject = {}
    environment: Name = "dev"
    redaction: Seq[Name] = ()


class SandboxRun(Model):
    """What happened: the state of the run, its story, its reasons, its record, and the context that it compiled (null:
    none).

    `run_context` states the safety mode and the limits in force (null: the run was refused before). `outputs` are the
    answers that tools gave, and `made_up` names the tools whose answer nobody stated.
    """

    state: str
    waits_for: str | None
    run_context: OpenObject | None
    compiled: CompiledContext | None
    reasons: list[ReasonDocument]
    story: list[TimelinePart]
    record: DecisionRecord | None
    outputs: dict[str, OpenObject]
    made_up: list[str]


async def run_in_sandbox(
    pack: ContextPack, definitions: Sequence[AdapterDefinition], world: Sandbox, request: Mapping[str, Any]
) -> SandboxRun:
    """Run a request, and return what happened. The request names the pack and the catalogs of `world.beside`.

    Raises:
        InvalidInput: the request, a fact, a call or a definition is malformed.
        InvalidArtifact: the pack or an artifact beside it cannot be published.
    """
    tenant_id, tools = pack.pack_meta.tenant, [_ScriptedTools(one, world.outputs) for one in definitions]
    beside = [read_document_of(one) for one in world.beside]
    above = [(one.level, read_document_of(one.document)) for one in world.policies]
    policies = [(level, policy) for level, policy in above if isinstance(policy, PolicyArtifact)]
    async with _opened(merge(pack, beside, policies), world, tools, request) as app:
        await _govern(app, pack, beside, policies, [str(ref) for ref in request["context_pack_refs"]])
        await _remember(app, tenant_id, world)
        view = await _answered(app, world, await app.deployment.invoke(canonical(dict(request))))
        for number, call in enumerate(world.calls):
            gate = CallGate(app.deployment, tenant_id, view.run_id, view.run_id)
            with _at(f"/calls/{number}"):
                await gate.call(call.tool, call.args, call_id=f"call_{number + 1}")
            view = await _answered(app, world, await app.deployment.view(tenant_id, view.run_id))
        return await _seen(app, await app.runs.get(tenant_id, view.run_id), tools, world)


async def _seen(app: App, run: Run, tools: Sequence[_ScriptedTools], world: Sandbox) -> SandboxRun:
    entries = await app.runs.entries(run)
    contexts = [read_body(entry) for entry in entries if entry.kind == "run.context"]
    is_compiled = any(entry.kind == "context.compiled" for entry in entries)
    given = {name: output for one in tools for name, output in one.given.items()}
    return SandboxRun(
        state=run.state,
        waits_for=run.waits_for,
        run_context=dict(contexts[-1]) if contexts else None,
        compiled=await derived_context(app.deployment, run.tenant_id, run.run_id) if is_compiled else None,
        reasons=[ReasonDocument.of_reason(one) for one in (await app.runs.why(run)).reasons],
        story=TimelineDocument.of_timeline(await app.runs.timeline(run)).parts,
        record=run.record,
        outputs=given,
        made_up=sorted(given.keys() - world.outputs.keys()),
    )


def read_document_of(document: Mapping[str, Any]) -> GovernedArtifact:
    """Return a bare artifact. Raises `InvalidArtifact`."""
    return read_artifact(payload_type_of(document) or PACK_TYPE, canonical(dict(document))).artifact


@contextmanager
def _at(pointer: str) -> Iterator[None]:
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(*(replace(one, pointer=pointer + one.pointer) for one in error.problems)) from None


class _StillClock(MovableClock):
    """A clock that shows one time."""

    unsafe = ("unsafe_still_clock",)

    def __init__(self, at_us: int) -> None:
        super().__init__()
        self._at_us = at_us

    def now_us(self) -> int:
        return self._at_us


class _ScriptedTools(RecordedAnswers):
    """An `Adapter` whose tools give written answers, or made-up ones. `given` are the answers so far."""

    unsafe = ("unsafe_scripted_answers",)

    def __init__(self, definition: AdapterDefinition, outputs: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(definition)
        self._outputs = outputs
        self.given: dict[str, dict[str, Any]] = {}

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:  # noqa: ARG002 - the port's signature
        name = f"{self._definition.adapter_id}.{capability}"
        [tool] = [one for one in self._definition.capabilities if one.name == capability]
        stated = self._outputs.get(name)
        output = dict(stated) if stated is not None else sample_value(tool.output_schema, args) or {}
        if stated is None:
            output |= {place.removeprefix("/"): args[arg] for arg, place in tool.output_repeats.items() if arg in args}
        self.given[name] = output
        return AdapterReply(output=output, mutations=(name,) if tool.kind == "write" else ())


def _opened(
    merged: MergedArtifacts, world: Sandbox, tools: Sequence[_ScriptedTools], request: Mapping[str, Any]
) -> InMemory:
    """Return the deployment of a world. Its pack comes into force although lint may refuse it."""
    tenant_id = merged.pack.pack_meta.tenant
    endpoints = sorted({endpoint for one in tools for endpoint in one.describe().egress})
    settings = Settings(
        Path.cwd(),
        packs=(),
        witness="off",
        limits=RunLimits(**world.limits),
        environment=world.environment,
        egress={tenant_id: tuple(endpoints)},
        redaction={tenant_id: tuple(world.redaction)},
    )
    ports = GivenPorts(
        directory=MemoryDirectory({tenant_id: _directory(merged, world, request)}),
        keys=KeyRing.from_seed(_SEED),
        adapters=tools,
        clock=_StillClock(world.at_us),
        dev=True,
    )
    artifacts = (*(one.document for one in world.policies), *world.beside, merged.pack.to_json())
    return InMemory(settings, ports, artifacts, None, world.facts.to_json())


def _directory(merged: MergedArtifacts, world: Sandbox, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the directory of the tenant: the user, the agent and their delegation, and a person for each gate."""
    directory: dict[str, Any] = {"users": [], "agents": [], "approvers": list(_approvers(merged))}
    if (known := world.principals) is None:
        return directory
    delegated = request.get("user", {}).get("delegation") or {}
    delegation = known.delegation and known.delegation.model_copy(update={"expires_at": FOR_EVER})
    return directory | {
        "users": [known.user.to_json()],
        "agents": [known.agent.to_json()],
        "delegations": {str(delegated.get("token_ref", "tok_sandbox")): delegation.to_json()} if delegation else {},
        "limits": known.tenant.to_json(),
    }


def _approvers(merged: MergedArtifacts) -> Iterator[dict[str, Any]]:
    """Yield a person for each role that a gate asks."""
    for role in sorted({gate.required_approver_role for gate in merged.gates.values()}):
        yield {"approver_id": _person(role).user_id, "roles": [role], "granted_by": {role: "sandbox_admin"}}


def _person(role: str) -> Person:
    return Person(f"sandbox_{hashlib.sha256(role.encode()).hexdigest()[:16]}")


async def _govern(
    app: App,
    pack: ContextPack,
    beside: Sequence[GovernedArtifact],
    policies: Sequence[tuple[Level, PolicyArtifact]],
    refs: Sequence[str],
) -> None:
    """Put the policies in force, and pin the refs of the request together if they are more than the pack."""
    tenant_id, by = pack.pack_meta.tenant, Person(TEST_OPERATOR).actor()
    catalog, ports, config = app.deployment.catalog(tenant_id), app.deployment.ports, app.deployment.config
    if policies:
        levels = [(level, ref_of(one)) for level, one in policies]
        activation = await catalog.activation(levels, expected=(await catalog.active()).version)
        if activation is not None:
            await propose_commit(ports, config, tenant_id, activation, by).signed()
    if len(refs) > 1:
        pin = PackPin(refs=tuple(refs), intents=tuple(merge(pack, beside).intents), environment=config.environment)
        await pin_packs(app.deployment, tenant_id, pin, expected=(await catalog.active()).version, by=by)


async def _remember(app: App, tenant_id: str, world: Sandbox) -> None:
    """Promote the memories of a world. Raises `InvalidInput` for two about the same."""
    by, ports, seen = Person(TEST_OPERATOR).actor(), app.deployment.ports, set[str]()
    for number, memory in enumerate(world.memories):
        key = promoted_key(memory.subject, memory.predicate)
        if key in seen:
            detail = f"`{memory.predicate}` of `{memory.subject}` is remembered twice"
            raise InvalidInput(Problem(f"/memories/{number}", "duplicate", detail, "state it once"))
        seen.add(key)
        promoted = _promoted(number, memory, world.at_us)
        about, review = review_key(memory.subject, memory.predicate), promoted.review.to_json()
        act = ProposedAct("memory.reviewed", about, review, 0, (PROMOTED.write(key, 0, promoted),))
        await propose_commit(ports, app.deployment.config, tenant_id, act, by).signed()


def _promoted(number: int, memory: StatedMemory, at_us: int) -> PromotedMemory:
    run_id = f"run_{number:016x}"
    candidate = MemoryCandidate(
        entity_ceid=memory.subject,
        predicate=memory.predicate,
        value=memory.value,
        evidence_refs=(f"artifact:stated_{number}#rev_1",),
        confidence=1,
    )
    proposal = MemoryProposal(
        proposal_id=derive("mwp_", run_id, "memory_proposal", number),
        run_id=run_id,
        candidate=candidate,
        write_class="evidence_link",
        tier_target="durable",
        classification=memory.classification,
        consent_check="passed",
        contradiction_check=ContradictionCheck(verdict="no_conflict"),
        auto_promote_eligible=False,
        ttl_s=None,
        proposed_at_us=at_us,
    )
    review = MemoryReview(
        proposal_id=proposal.proposal_id,
        verdict="promote",
        reviewer=TEST_OPERATOR,
        reason="stated in a sandbox",
        at_us=at_us,
        integrity=memory.integrity,
        fact_digest=fact_digest(memory.subject, memory.predicate, memory.value),
        proposal_digest=content_address(proposal.to_json()),
    )
    return PromotedMemory(proposal=proposal, review=review)


async def _answered(app: App, world: Sandbox, view: RunView) -> RunView:
    """Answer the questions of a run as the world says, and return its state then."""
    for _ in range(MAX_ANSWERS):
        waiting = view.waiting or {}
        if not world.answer or waiting.get("for") != "approval":
            break
        view = await _person(waiting["required_role"]).answer(app, view, world.answer, reason="answered in a sandbox")
    return view

"""Propose an act, and commit it with the signatures of its actor.

The actor signs the kind of the act, its arguments and the version of what it changes. The signature is checked against
the actor's keys and roles in the tenant's directory. The runtime seals the control entry that records the act.
Source: docs/adr/0021-an-operator-signs-what-is-in-force.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

from contextos.contracts.acts import OperatorAct, ProposedAct
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.identity import Approver
from contextos.contracts.journal import CONTROL, SALT_BYTES, Batch, Draft, TermChange
from contextos.deployment.ports import DeploymentConfig, Ports
from contextos.deployment.signing import SignStatement, act_signer
from contextos.errors import ApprovalRefused
from contextos.trust.approvals.acts import (
    ACT_ROLES,
    ACT_TYP,
    OWN_RUN_ACTS,
    UNSAFE_LOCAL_OPERATORS,
    act_fault,
    act_key,
    sealed_act,
)
from contextos.trust.approvals.assertion import read_assertion
from contextos.trust.approvals.people import signer, unstated_person

ActP = ParamSpec("ActP")
ResultT = TypeVar("ResultT")
NextT = TypeVar("NextT")
Assertions = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Actor:
    """A person who acts: their id in the directory, and the function that signs for them."""

    id: str
    vouch: SignStatement

    @classmethod
    def with_key(cls, actor_id: str, private_key: bytes) -> Actor:
        """Return the actor who signs with a raw Ed25519 private key of 32 bytes. Raises `ValueError` for others."""
        return cls(actor_id, act_signer(private_key))


@dataclass(frozen=True, slots=True)
class ActProposal(Generic[ResultT]):
    """An act that is not done yet: the statements that `by` signs, in order, and `commit`, which takes an assertion for
    each statement and does the act. `typ` is the type of the signed tokens.

    The statements name the state from which they were made, and the commit fails if that state has changed. So exactly
    what is signed is written. An act without a statement changes nothing.
    """

    by: Actor
    statements: tuple[Mapping[str, Any], ...]
    commit: Callable[[Assertions], Awaitable[ResultT]]
    typ: str = ACT_TYP

    @classmethod
    def of_nothing(cls, by: Actor, result: ResultT) -> ActProposal[ResultT]:
        """Return the proposal of an act that changes nothing and returns `result`."""

        async def commit(_assertions: Assertions) -> ResultT:
            return result

        return ActProposal(by, (), commit)

    async def signed(self) -> ResultT:
        """Have the actor sign, and do the act. Raises as `prove_act`, and every error of the commit."""
        return await self.commit([self.by.vouch(statement) for statement in self.statements])

    def then(self, follow: Callable[[ResultT], Awaitable[NextT]]) -> ActProposal[NextT]:
        """Return the same proposal with another result: what `follow` returns for the result of this proposal."""

        async def commit(assertions: Assertions) -> NextT:
            return await follow(await self.commit(assertions))

        return ActProposal(self.by, self.statements, commit, self.typ)


class Act(Generic[ActP, ResultT]):
    """A function that does an act. A call has the actor sign and does the act at once. `propose` takes the same
    arguments and returns the act as an `ActProposal`; nothing is changed before the proposal is committed.
    """

    def __init__(self, propose: Callable[ActP, Coroutine[Any, Any, ActProposal[ResultT]]]) -> None:
        self.propose = propose
        update_wrapper(self, propose)

    async def __call__(self, *args: ActP.args, **kwargs: ActP.kwargs) -> ResultT:
        return await (await self.propose(*args, **kwargs)).signed()


def unsafe_local_assertion(_statement: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an unsigned assertion in place of a person's signature, for development. Refused unless the settings
    allow it.
    """
    return {"kind": "unsafe_local"}


def propose_act(
    ports: Ports,
    config: DeploymentConfig,
    tenant_id: str,
    proposed: ProposedAct,
    by: Actor,
    write: Callable[[tuple[str, Draft]], Awaitable[ResultT]],
    *,
    own_run: bool = False,
) -> ActProposal[ResultT]:
    """Return the proposal of one act. Once it is proved, `write` commits it with its entry for the control stream.

    `own_run`: the run is the actor's own, so that they need no role. Raises `InvalidInput` if the act does not fit its
    contract. The commit raises as `prove_act`.
    """
    return propose_acts(
        ports, config, tenant_id, [proposed], by, lambda drafts: write((CONTROL, drafts[0])), own_run=own_run
    )


def propose_acts(
    ports: Ports,
    config: DeploymentConfig,
    tenant_id: str,
    proposed: Sequence[ProposedAct],
    by: Actor,
    write: Callable[[list[Draft]], Awaitable[ResultT]],
    *,
    own_run: bool = False,
) -> ActProposal[ResultT]:
    """As `propose_act`, for acts that are committed together: the actor signs each act before any act is checked."""

    async def commit(bodies: Sequence[Mapping[str, Any]]) -> ResultT:
        return await write(_seal_drafts(ports, tenant_id, proposed, by, bodies))

    return propose_signed(config, tenant_id, proposed, by, partial(signer, ports, tenant_id, by.id), commit, own_run)


def propose_signed(
    config: DeploymentConfig,
    tenant_id: str,
    proposed: Sequence[ProposedAct],
    by: Actor,
    look_up: Callable[[], Awaitable[Approver | None]],
    write: Callable[[Sequence[Mapping[str, Any]]], Awaitable[ResultT]],
    own_run: bool = False,
) -> ActProposal[ResultT]:
    """As `propose_acts`; `write` takes the fields of a `RecordedAct` without its seal, for each act. `look_up` returns
    the actor as the directory lists them.
    """
    common = {"tenant_id": tenant_id, "actor": by.id}
    acts = [
        parse(OperatorAct, common | {"kind": act.kind, "arguments": dict(act.arguments), "expected": act.expected})
        for act in proposed
    ]

    async def commit(assertions: Assertions) -> ResultT:
        person = await look_up()
        pairs = zip(acts, assertions, strict=True)
        return await write([_recorded_fields(config, person, act, assertion, own_run) for act, assertion in pairs])

    return ActProposal(by, tuple(act.to_json() for act in acts), commit)


def propose_commit(
    ports: Ports,
    config: DeploymentConfig,
    tenant_id: str,
    proposed: ProposedAct,
    by: Actor,
    *,
    run: str = CONTROL,
    terms: TermChange | None = None,
) -> ActProposal[None]:
    """Return the proposal of an act whose writes are committed together with its control entry, and with `terms` of the
    run `run` that it is about.

    The commit raises as `prove_act`, and `Conflict` if another process changed the same documents at the same moment:
    look at them and act again.
    """

    async def write(control: tuple[str, Draft]) -> None:
        batch = Batch(run=run, writes=proposed.writes, shared=(control,), terms=terms)
        await ports.stores.tenant(tenant_id).commit(batch)

    return propose_act(ports, config, tenant_id, proposed, by, write)


async def prove_act(
    ports: Ports, config: DeploymentConfig, tenant_id: str, proposed: ProposedAct, by: Actor, *, own_run: bool = False
) -> tuple[str, Draft]:
    """Have the actor sign the act at once, check it, and return its entry for the control stream.

    `own_run`: the run is the actor's own, so that they need no role.

    Raises:
        ApprovalRefused: `unknown_actor`, `not_allowed`, `self_granted`, `not_granted`, `assertion_invalid`,
            `unsafe_not_allowed`.
        InvalidInput: the act does not fit its contract.
        Unavailable: the directory did not answer.
    """

    async def return_draft(control: tuple[str, Draft]) -> tuple[str, Draft]:
        return control

    return await propose_act(ports, config, tenant_id, proposed, by, return_draft, own_run=own_run).signed()


async def prove_with_listing(
    ports: Ports, config: DeploymentConfig, tenant_id: str, proposed: ProposedAct, by: Actor
) -> tuple[tuple[str, Draft], ...]:
    """Do `prove_act`, and list the actor in the same commit, for an act that has to be the first commit."""
    listing: list[Draft] = []

    async def look_up() -> Approver | None:
        person = await ports.directory.approver(tenant_id, by.id)
        listing.extend(await unstated_person(ports, tenant_id, by.id, person))
        return person

    async def return_drafts(bodies: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, Draft], ...]:
        return tuple((CONTROL, draft) for draft in (*listing, *_seal_drafts(ports, tenant_id, [proposed], by, bodies)))

    return await propose_signed(config, tenant_id, [proposed], by, look_up, return_drafts).signed()


def _recorded_fields(
    config: DeploymentConfig, person: Approver | None, act: OperatorAct, body: Mapping[str, Any], own_run: bool
) -> dict[str, Any]:
    """Check a signed act, and return the fields of its `RecordedAct` without the seal."""
    role = None if own_run and act.kind in OWN_RUN_ACTS else ACT_ROLES[act.kind]
    assertion = read_assertion(body)
    fault: ApprovalRefused | None = act_fault(
        person, act, role, assertion, unsafe_local=UNSAFE_LOCAL_OPERATORS in config.unsafe
    )
    if fault:
        raise fault
    key = act_key(person, act, assertion)
    fields = {"act": act.to_json(), "role": role, "assertion": assertion.to_json()}
    return {**fields, "key": key.to_json() if key else None}


def _seal_drafts(
    ports: Ports, tenant_id: str, proposed: Sequence[ProposedAct], by: Actor, bodies: Sequence[Mapping[str, Any]]
) -> list[Draft]:
    drafts = []
    for act, body in zip(proposed, bodies, strict=True):
        at_us = max(ports.clock.now_us(), act.not_before_us)
        draft = Draft(act.kind, act.about, at_us, by.id, b"", ports.entropy.take(SALT_BYTES))
        drafts.append(sealed_act(tenant_id, draft, body, ports.keys))
    return drafts

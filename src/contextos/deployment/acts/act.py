"""Prove an operator's act and make the control entry that records it.

The actor signs the kind of the act, its arguments and the version of what it changes. The signature is checked against
the actor's keys and roles in the tenant's directory. The runtime seals the entry.
Source: docs/adr/0021-an-operator-signs-what-is-in-force.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from contextos.contracts.acts import OperatorAct, ProposedAct
from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.identity import Approver
from contextos.contracts.journal import CONTROL, SALT_BYTES, Batch, Draft
from contextos.deployment.ports import DeploymentConfig, Ports
from contextos.deployment.signing import SignStatement, act_signer
from contextos.errors import ApprovalRefused
from contextos.trust.approvals.acts import (
    ACT_ROLES,
    OWN_RUN_ACTS,
    UNSAFE_LOCAL_OPERATORS,
    act_fault,
    act_key,
    sealed_act,
)
from contextos.trust.approvals.assertion import read_assertion
from contextos.trust.approvals.people import signer, unstated_person


@dataclass(frozen=True, slots=True)
class Actor:
    """A person who acts: their id in the directory, and the function that signs for them."""

    id: str
    vouch: SignStatement

    @classmethod
    def with_key(cls, actor_id: str, private_key: bytes) -> Actor:
        """Return the actor who signs with a raw Ed25519 private key of 32 bytes. Raises `ValueError` for others."""
        return cls(actor_id, act_signer(private_key))

    def sign(self, statements: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return an assertion for each statement of acts that are committed together. Nothing was changed before."""
        return [self.vouch(one) for one in statements]


def unsafe_local_assertion(_statement: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an unsigned assertion in place of a person's signature, for development. Refused unless the settings
    allow it.
    """
    return {"kind": "unsafe_local"}


def stated_act(tenant_id: str, proposed: ProposedAct, actor_id: str) -> OperatorAct:
    """Return the act that `actor_id` signs. Raises `InvalidInput` if it does not fit its contract."""
    fields = {
        "tenant_id": tenant_id,
        "kind": proposed.kind,
        "actor": actor_id,
        "arguments": dict(proposed.arguments),
        "expected": proposed.expected,
    }
    return parse(OperatorAct, fields)


async def signed_act(
    ports: Ports, config: DeploymentConfig, tenant_id: str, proposed: ProposedAct, by: Actor, *, own_run: bool = False
) -> dict[str, Any]:
    """Have the actor sign the act, check it, and return the fields of a `RecordedAct` without its seal.

    `own_run`: the run is the actor's own, so that they need no role.

    Raises:
        ApprovalRefused: `unknown_actor`, `not_allowed`, `self_granted`, `not_granted`, `assertion_invalid`,
            `unsafe_not_allowed`.
        InvalidInput: the act does not fit its contract.
        Unavailable: the directory did not answer.
    """
    look_up = partial(signer, ports, tenant_id, by.id)
    (signed,) = await _signed_acts(config, tenant_id, [proposed], by, look_up, own_run=own_run)
    return signed


async def _signed_acts(
    config: DeploymentConfig,
    tenant_id: str,
    proposed: Sequence[ProposedAct],
    by: Actor,
    look_up: Callable[[], Awaitable[Approver | None]],
    *,
    own_run: bool = False,
) -> list[dict[str, Any]]:
    acts = [stated_act(tenant_id, one, by.id) for one in proposed]
    said_of_each = by.sign([one.to_json() for one in acts])
    person = await look_up()
    signed: list[dict[str, Any]] = []
    for act, said in zip(acts, said_of_each, strict=True):
        role = None if own_run and act.kind in OWN_RUN_ACTS else ACT_ROLES[act.kind]
        assertion = read_assertion(said)
        refused: ApprovalRefused | None = act_fault(
            person, act, role, assertion, unsafe_local=UNSAFE_LOCAL_OPERATORS in config.unsafe
        )
        if refused:
            raise refused
        key = act_key(person, act, assertion)
        fields = {"act": act.to_json(), "role": role, "assertion": assertion.to_json()}
        signed.append({**fields, "key": key.to_json() if key else None})
    return signed


async def prove_act(
    ports: Ports, config: DeploymentConfig, tenant_id: str, proposed: ProposedAct, by: Actor, *, own_run: bool = False
) -> tuple[str, Draft]:
    """Have the actor sign the act, check it, and return its entry for the control stream. Raises as `signed_act`."""
    (draft,) = await prove_acts(ports, config, tenant_id, [proposed], by, own_run=own_run)
    return CONTROL, draft


async def prove_with_listing(
    ports: Ports, config: DeploymentConfig, tenant_id: str, proposed: ProposedAct, by: Actor
) -> tuple[tuple[str, Draft], ...]:
    """As `prove_act`, and state the actor in the same commit, for an act before which nothing can be committed."""
    listing: list[Draft] = []

    async def look_up() -> Approver | None:
        person = await ports.directory.approver(tenant_id, by.id)
        listing.extend(await unstated_person(ports, tenant_id, by.id, person))
        return person

    signed = await _signed_acts(config, tenant_id, [proposed], by, look_up)
    (draft,) = _drafts(ports, tenant_id, [proposed], by, signed)
    return tuple((CONTROL, one) for one in (*listing, draft))


async def prove_acts(
    ports: Ports,
    config: DeploymentConfig,
    tenant_id: str,
    proposed: Sequence[ProposedAct],
    by: Actor,
    *,
    own_run: bool = False,
) -> list[Draft]:
    """As `prove_act` for acts that are committed together: the actor signs each before any is checked."""
    look_up = partial(signer, ports, tenant_id, by.id)
    signed = await _signed_acts(config, tenant_id, proposed, by, look_up, own_run=own_run)
    return _drafts(ports, tenant_id, proposed, by, signed)


def _drafts(
    ports: Ports, tenant_id: str, proposed: Sequence[ProposedAct], by: Actor, signed: Sequence[Mapping[str, Any]]
) -> list[Draft]:
    drafts = []
    for one, body in zip(proposed, signed, strict=True):
        at_us = max(ports.clock.now_us(), one.not_before_us)
        draft = Draft(one.kind, one.about, at_us, by.id, b"", ports.entropy.take(SALT_BYTES))
        drafts.append(sealed_act(tenant_id, draft, body, ports.keys))
    return drafts


async def commit_act(ports: Ports, config: DeploymentConfig, tenant_id: str, proposed: ProposedAct, by: Actor) -> None:
    """Prove an act that is about no run, and commit its writes together with its control entry.

    Raises:
        Conflict: another process changed the same at the same moment; look at it and act again.
        ApprovalRefused, InvalidInput, Unavailable: as `prove_act`.
    """
    control = await prove_act(ports, config, tenant_id, proposed, by)
    await ports.stores.tenant(tenant_id).commit(Batch(run=CONTROL, writes=proposed.writes, shared=(control,)))

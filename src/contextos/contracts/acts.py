"""Operator acts: the decisions of people about a tenant, as they sign them and as the control stream records them.

Source: docs/adr/0021-an-operator-signs-what-is-in-force.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Strict

from contextos.contracts.envelopes.identity import Approver, ApproverKey, SignerAssertion
from contextos.contracts.envelopes.policy import Level
from contextos.contracts.ids import Digest, TenantId
from contextos.contracts.journal import Write
from contextos.contracts.model import Count, Model, Name, NonEmpty, OpenObject, Positive, Seq


@dataclass(frozen=True, slots=True)
class ProposedAct:
    """An act before it is signed, and the writes that carry it out.

    `about` is the key of its control entry, and `not_before_us` (Unix microseconds) the earliest time that this entry
    can have; the other fields are as in `OperatorAct`.
    """

    kind: str
    about: str
    arguments: Mapping[str, Any]
    expected: int = 0
    writes: tuple[Write, ...] = ()
    not_before_us: int = 0


class OperatorAct(Model):
    """The statement that the actor signs.

    `kind` is the kind of the control entry, and `arguments` says exactly what is done. `expected` is the version of the
    document or graph that the act changes, or the length of the run that it is about; 0 for an act that changes
    neither. So a signature counts for one change only.
    """

    tenant_id: TenantId
    kind: Name
    actor: Name
    arguments: OpenObject
    expected: Count


class ActSeal(Model):
    """The runtime's signature (hex) over the body and the place of an entry of `control`, with its key `kid` of the
    purpose `act`.
    """

    kid: Name
    signature: Name


class RecordedAct(Model):
    """The body of the control entry of an act.

    `role` is the role by which the actor was allowed to do it; None if they needed no role, because the run is theirs.
    `key` is the actor's key in the directory at that time, so that the signature can always be checked; None for a
    development stand-in. `seal` proves that the runtime checked role and key, and wrote this entry once.
    """

    act: OperatorAct
    role: Name | None
    assertion: SignerAssertion
    key: ApproverKey | None = None
    seal: ActSeal


class ListedPerson(Model):
    """Body of `person.listed`: a person who signs, as the directory lists them from now on; None: it does not.

    The key of the entry is the person's id. A signature counts only with a key that such a line states.
    """

    person: Approver | None
    seal: ActSeal


class UsedDirectory(Model):
    """Body of `directory.used`: the version of a signed directory that is used from now on, and the digest of its
    content.
    """

    version: Positive
    digest: Digest
    seal: ActSeal


class PackPin(Model):
    """A tenant pin: requests that name exactly these refs are allowed for these intents in this environment.

    `refs` are a context pack and the other artifacts that a request names beside it, sorted. `environment` is the
    environment that the deployment serves.
    """

    refs: NonEmpty[Name]
    intents: NonEmpty[Name]
    environment: Name


class ActiveSet(Model):
    """What is active in a tenant: the policies in force, strongest level first, the tenant pins and the withdrawn refs.

    The stored document is this set, sealed by the runtime. `version` is the version of the document. A deployment does
    not use a set with a pin of another environment than its own.
    """

    tenant_id: TenantId
    version: Positive
    policies: Seq[Annotated[tuple[Level, Name], Strict(False)]] = ()
    packs: Seq[PackPin] = ()
    withdrawn: Seq[Name] = ()

"""`app.facts`: what is known of a subject, and the signed acts that set, replace and retract it.

A fact is an edge of the tenant's graph with a value, its source and its writer. Nothing is overwritten: a replaced fact
ends with the commit that replaces it, and every earlier snapshot still has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.codec import JsonValue, parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.envelopes.evidence import Classification, IntegrityLevel, commit_key
from contextos.contracts.ids import Ceid
from contextos.contracts.model import Model, Name, Whole
from contextos.contracts.refs import EvidenceRef
from contextos.deployment.acts.act import Actor, ActProposal
from contextos.deployment.acts.facts import write_facts
from contextos.deployment.deployment import Deployment
from contextos.errors import InvalidInput, NotFound, Problem
from contextos.service.pages import Page, check_limit
from contextos.trust.recorded_time import recorded_now_us

_MAX_VALUES: Final = 100
"""The most facts that one subject can have under one predicate at once, so that they can be replaced together."""

_SNAPSHOT: Final = re.compile(r"kg_(0|[1-9][0-9]{0,15})")


class StatedFact(Model):
    """A fact as its writer states it, and when it was observed, in Unix microseconds. Only a `trusted` fact meets a
    requirement of a decision.
    """

    subject: Ceid
    predicate: Name
    value: Any
    source: EvidenceRef
    integrity: IntegrityLevel
    classification: Classification
    observed_at_us: Whole


class KnownFact(Model):
    """A fact: `subject` (an entity such as `customer:cus_77`) has `value` under `predicate`.

    `source` is the reference to the evidence for the fact, and `snapshot` the first snapshot that contains the fact.
    """

    fact_id: str
    subject: str
    predicate: str
    value: Any
    source: str
    integrity: IntegrityLevel
    classification: Classification
    snapshot: str


class Facts:
    """The facts of a deployment's tenants. Writers are people, or feeds with a key, that hold the role
    `knowledge_writer`.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment

    async def get(
        self, tenant_id: str, subject: str, predicate: str, *, snapshot: str | None = None
    ) -> tuple[KnownFact, ...]:
        """Return the facts that hold now, or held in `snapshot`: none, one, or several if `write_facts` wrote them.

        Raises:
            NotFound: there is no such snapshot.
            Integrity: a fact is not what a sealed act of its writer states.
        """
        return await self._facts_at(tenant_id, subject, predicate, await self._snapshot(tenant_id, snapshot))

    async def list(
        self,
        tenant_id: str,
        subject: str,
        predicate: str | None = None,
        *,
        snapshot: str | None = None,
        ended: bool = False,
        limit: int = 50,
        cursor: str = "",
    ) -> Page[KnownFact]:
        """Return a page of the facts of a subject that hold now, or held in `snapshot`, by id; with `ended`, of those
        that had been replaced or retracted by then.

        `predicate` None: of all predicates. With a snapshot the pages together are one state of the graph.

        Raises:
            InvalidInput: the limit is out of bounds.
            NotFound, Integrity: as `get`.
        """
        check_limit(limit)
        at = await self._snapshot(tenant_id, snapshot)
        graph = self._deployment.graph(tenant_id)
        edges = await graph.step([subject], predicate, at=at, limit=limit + 1, after=cursor, ended=ended)
        facts = tuple(_known_fact(edge) for edge in edges[:limit])
        return Page(facts, facts[-1].fact_id if len(edges) > limit else None)

    async def set(
        self,
        tenant_id: str,
        subject: str,
        predicate: str,
        value: JsonValue,
        *,
        source: str,
        integrity: IntegrityLevel,
        classification: Classification,
        by: Actor,
        observed_at_us: int | None = None,
    ) -> KnownFact:
        """Write a fact that nothing contradicts yet, and return it. The same call again changes nothing.

        `source` is a reference to the evidence, such as `artifact:kyc_4711#rev_1`. Only a `trusted` fact meets a
        requirement of a decision. `observed_at_us` (Unix microseconds) is now if it is None.

        Raises:
            InvalidInput: the fact is malformed, or another one holds already (`fact_exists`); replace it.
            ApprovalRefused: the writer is not proved, or does not have the role `knowledge_writer`.
            Conflict: another process wrote to the graph at the same moment; look again.
        """
        statement = await self._stated_fact(
            tenant_id, subject, predicate, value, source, integrity, classification, observed_at_us
        )
        return await (await self.propose_set(tenant_id, statement, by=by)).signed()

    async def replace(
        self,
        tenant_id: str,
        subject: str,
        predicate: str,
        value: JsonValue,
        *,
        source: str,
        integrity: IntegrityLevel,
        classification: Classification,
        by: Actor,
        observed_at_us: int | None = None,
    ) -> KnownFact:
        """End every fact that holds, begin this one in the same commit, and return it. Otherwise as `set`.

        A run that began before keeps its snapshot; an approval that rests on the old fact is void when it is redeemed.

        Raises:
            NotFound: no such fact holds; set it.
            InvalidInput, ApprovalRefused, Conflict: as `set`.
        """
        statement = await self._stated_fact(
            tenant_id, subject, predicate, value, source, integrity, classification, observed_at_us
        )
        return await (await self.propose_replacement(tenant_id, statement, by=by)).signed()

    async def retract(self, tenant_id: str, subject: str, predicate: str, *, source: str, by: Actor) -> None:
        """End every fact of this subject and predicate. `source` is a reference to the evidence that the fact no longer
        holds.

        Raises:
            NotFound: no such fact holds.
            InvalidInput, ApprovalRefused, Conflict: as `set`.
        """
        await (await self.propose_retraction(tenant_id, subject, predicate, source=source, by=by)).signed()

    async def propose_set(self, tenant_id: str, stated: StatedFact, *, by: Actor) -> ActProposal[KnownFact]:
        """Return the proposal of `set`. Raises as `set`, except for errors about the writer."""
        head, facts = await self._facts_now(tenant_id, stated.subject, stated.predicate)
        if equal_facts := [fact for fact in facts if _is_same(fact, stated)]:
            return ActProposal.of_nothing(by, equal_facts[0])
        if facts:
            value_shown = canonical(facts[0].value)[:80].decode(errors="replace")
            detail = f"`{stated.predicate}` of `{stated.subject}` is {value_shown} already"
            raise InvalidInput(Problem("/value", "fact_exists", detail, "replace the fact, or retract it first"))
        return await self._propose_write(tenant_id, stated, facts, head, by)

    async def propose_replacement(self, tenant_id: str, stated: StatedFact, *, by: Actor) -> ActProposal[KnownFact]:
        """Return the proposal of `replace`. Raises as `replace`, except for errors about the writer."""
        head, facts = await self._facts_now(tenant_id, stated.subject, stated.predicate)
        if len(facts) == 1 and _is_same(facts[0], stated):
            return ActProposal.of_nothing(by, facts[0])
        if not facts:
            about = f"`{stated.predicate[:80]}` of `{stated.subject[:80]}`"
            raise NotFound(f"no fact {about} holds, so none can be replaced; set it")
        return await self._propose_write(tenant_id, stated, facts, head, by)

    async def propose_retraction(
        self, tenant_id: str, subject: str, predicate: str, *, source: str, by: Actor
    ) -> ActProposal[int]:
        """Return the proposal of `retract`. Raises as `retract`, except for errors about the writer."""
        head, facts = await self._facts_now(tenant_id, subject, predicate)
        if not facts:
            raise NotFound(f"no fact `{predicate[:80]}` of `{subject[:80]}` holds, so none can be retracted")
        edges = [{"retracts": fact.fact_id, "evidence_ref": source} for fact in facts]
        return await write_facts.propose(self._deployment, tenant_id, [], edges, by=by, expect=head)

    async def _stated_fact(
        self,
        tenant_id: str,
        subject: str,
        predicate: str,
        value: JsonValue,
        source: str,
        integrity: str,
        classification: str,
        observed_at_us: int | None,
    ) -> StatedFact:
        now_us = await recorded_now_us(self._deployment.ports, tenant_id)
        fields = {
            "subject": subject,
            "predicate": predicate,
            "value": value,
            "source": source,
            "integrity": integrity,
            "classification": classification,
            "observed_at_us": now_us if observed_at_us is None else observed_at_us,
        }
        return parse(StatedFact, fields)

    async def _snapshot(self, tenant_id: str, snapshot: str | None) -> int:
        """Return the number of a snapshot, or of the newest one. Raises `NotFound`."""
        newest = await self._deployment.graph(tenant_id).head()
        if snapshot is None:
            return newest
        match = _SNAPSHOT.fullmatch(snapshot) if isinstance(snapshot, str) else None
        if not match or int(match[1]) > newest:
            detail = f"there is no snapshot `{str(snapshot)[:40]}` of this graph; the newest one is"
            raise NotFound(f"{detail} `{commit_key(newest)}`")
        return int(match[1])

    async def _facts_now(self, tenant_id: str, subject: str, predicate: str) -> tuple[int, tuple[KnownFact, ...]]:
        """Return the number of the newest commit, and the facts that hold at it."""
        head = await self._deployment.graph(tenant_id).head()
        return head, await self._facts_at(tenant_id, subject, predicate, head)

    async def _facts_at(self, tenant_id: str, subject: str, predicate: str, commit: int) -> tuple[KnownFact, ...]:
        edges = await self._deployment.graph(tenant_id).step([subject], predicate, at=commit, limit=_MAX_VALUES + 1)
        if len(edges) > _MAX_VALUES:
            detail = f"`{predicate[:80]}` of `{subject[:80]}` has more than {_MAX_VALUES} values"
            raise InvalidInput(Problem("/predicate", "too_many", detail, "read and write them with `write_facts`"))
        return tuple(_known_fact(edge) for edge in edges)

    async def _propose_write(
        self, tenant_id: str, statement: StatedFact, replaced: Sequence[KnownFact], head: int, by: Actor
    ) -> ActProposal[KnownFact]:
        edge = {
            "src": statement.subject,
            "predicate": statement.predicate,
            # A value is not an entity, so the edge begins and ends at the subject.
            "dst": statement.subject,
            "value": statement.value,
            "evidence_ref": statement.source,
            "observed_at": statement.observed_at_us,
            "integrity": statement.integrity,
            "classification": statement.classification,
        }
        retractions = [{"retracts": fact.fact_id, "evidence_ref": statement.source} for fact in replaced]

        async def written(commit: int) -> KnownFact:
            (fact,) = await self._facts_at(tenant_id, statement.subject, statement.predicate, commit)
            return fact

        edges = [*retractions, edge]
        return (await write_facts.propose(self._deployment, tenant_id, [], edges, by=by, expect=head)).then(written)


def _is_same(fact: KnownFact, statement: StatedFact) -> bool:
    """Return whether a fact says what is stated, whenever it was observed."""
    current, proposed = ([item.source, item.integrity, item.classification, item.value] for item in (fact, statement))
    return canonical(current) == canonical(proposed)


def _known_fact(edge: Mapping[str, Any]) -> KnownFact:
    return KnownFact(
        fact_id=edge["edge_id"],
        subject=edge["src"],
        predicate=edge["predicate"],
        value=edge["value"] if "value" in edge else edge["dst"],
        source=edge["evidence_ref"],
        integrity=edge["integrity"],
        classification=edge["classification"],
        snapshot=commit_key(edge["commit"]),
    )

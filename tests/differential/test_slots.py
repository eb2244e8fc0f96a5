"""Memory, SQLite and PostgreSQL give the answers of the naive reference, for any stored artifacts and any actor.

Also of what may be recorded: a triple lands exactly where the reference calls it coherent, and reads the same later.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextos.context.slots.resolve import resolve_context_slot
from contextos.contracts.envelopes.artifacts import ArtifactRef, Assertion, ExtensionManifest, Outranked, Revision
from contextos.contracts.envelopes.slots import AgentContextSlot, SelectionAct, SlotActor, selection_id
from contextos.errors import IncoherentSelection, InvalidInput, NotFound
from contextos.store.postgres.stores import PostgresStores
from contextos.store.sqlite.stores import SqliteStores
from contextos_sim.memory.stores import MemoryStores
from tests.postgres import Server
from tests.reference_slots import NARROW_TO_BROAD, NaiveArtifacts, scope
from tests.slots import CuratedArtifacts, add, classify, one_loop, origin, revise, run

ORGS, IDS = ("acme", "rival"), ("a", "b", "c")
USERS, TEAMS, PROJECTS = ("ann", "bob"), ("sales", "legal"), ("launch", "secret")
EXTENSIONS = ("@x/a", "@x/b", "@x/c")
VISIBILITIES = (
    "owner",
    "org",
    "workspace",
    "admin",
    "team:sales",
    "team:legal",
    "project:launch",
    "project:secret",
    "team:ann",
)
LEVELS = {"user": USERS, "team": (*TEAMS, "ann"), "organization": ORGS, "workspace": ("main",)}

_tenants = count()

Step = tuple[Any, ...]
one_of = st.sampled_from
places = st.tuples(one_of(ORGS), one_of(IDS))
owners = one_of([(level, owner) for level, those in LEVELS.items() for owner in those])
some = st.sets(one_of(EXTENSIONS), max_size=2).map(lambda found: tuple(sorted(found)))

asserters = one_of(["user", "agent", "authoring_skill", "matcher"])


def steps(at: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    """What may happen to the artifacts at these places; most of it ends or replaces what is there."""
    ended = st.tuples(st.just("archive"), at, one_of(EXTENSIONS))
    classified = st.tuples(st.just("classify"), at, one_of(EXTENSIONS), asserters)
    return st.one_of(
        ended,
        classified,
        classified,
        st.tuples(st.just("revise"), at),
        st.tuples(st.just("tombstone"), at),
        st.tuples(st.just("add"), places, owners, one_of(VISIBILITIES)),
        st.tuples(st.just("register"), one_of(EXTENSIONS), some),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Mostly whole artifacts, then anything."""
    begun: list[Step] = [("register", extension, draw(some)) for extension in EXTENSIONS[:2]]
    there = draw(st.lists(places, unique=True, min_size=2, max_size=4))
    for place in there:
        visibility = draw(one_of(VISIBILITIES[:7]))
        owner = draw(owners) if visibility != "owner" else ("user", draw(one_of(USERS)))
        begun += [("add", place, owner, visibility), ("revise", place)]
        begun.append(("classify", place, draw(one_of(EXTENSIONS[:2])), draw(asserters)))
    return begun + draw(st.lists(steps(one_of(there)), max_size=12))


actors = st.builds(
    SlotActor,
    principal_id=one_of(USERS),
    organization_id=one_of(ORGS),
    team_ids=st.sets(one_of(TEAMS)).map(tuple),
    project_ids=st.sets(one_of(PROJECTS)).map(tuple),
    platform_admin=st.booleans(),
)
slots = st.fixed_dictionaries(
    {
        "slotId": st.just("s"),
        "acceptedArtifactExtensions": st.sets(one_of(EXTENSIONS), min_size=1, max_size=2).map(sorted),
        "selectionMode": one_of(["interactive", "autonomous"]),
        "resolutionMode": one_of(["override", "accumulate"]),
        "maxItems": one_of([None, 1, 2]),
    }
).map(lambda values: AgentContextSlot(**{name: one for name, one in values.items() if one is not None}))
questions = st.tuples(actors, slots, one_of([None, *PROJECTS]), st.booleans())


@pytest.fixture(scope="module")
def repositories(postgres: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Any]]:
    """Every store; each example is a tenant of its own."""
    database = postgres.database()
    folder: Path = tmp_path_factory.mktemp("slots")
    with one_loop():
        file, server = SqliteStores(folder / "slots.db"), PostgresStores(database.app)
        yield [MemoryStores(), file, server]
        file.close()
        run(server.aclose())
    database.drop()


class Twins:
    """The same history in every store and in the reference; a difference is a failed assertion."""

    def __init__(self, stores: list[Any]) -> None:
        tenant = f"tenant_{next(_tenants)}"
        self.repositories: list[CuratedArtifacts] = [each.artifacts(tenant) for each in stores]
        self.naive = NaiveArtifacts()

    def same(self, answers: list[Any]) -> Any:
        assert all(one == answers[0] for one in answers), answers
        return answers[0]

    def take(self, step: Step) -> None:
        made = self.same([run(self._taken(repository, step)) for repository in self.repositories])
        kind = step[0]
        if kind == "register":
            self.naive.extensions[step[1]] = list(step[2])
            return
        org, artifact = step[1]
        expected = {
            "add": lambda: self.naive.add(org, artifact, *step[2], step[3]),
            "revise": lambda: self.naive.revise(org, artifact),
            "classify": lambda: self.naive.classify(org, artifact, step[2], step[3]),
            "archive": lambda: self.naive.archive(org, artifact, step[2]),
            "tombstone": lambda: self.naive.tombstone(org, artifact),
        }[kind]()
        assert _word(made) == expected, step
        if isinstance(made, Revision):
            self.naive.revisions.append({"org": org, "artifact": artifact, "id": made.revision_id})
        if isinstance(made, Assertion):
            values = {"id": made.assertion_id, "extension": made.extension, "by": made.asserted_by}
            self.naive.assertions.append({"org": org, "artifact": artifact, "eligibility": made.eligibility} | values)

    async def _taken(self, repository: CuratedArtifacts, step: Step) -> Any:
        kind = step[0]
        try:
            if kind == "register":
                return await repository.register(ExtensionManifest(extension=step[1], satisfies=step[2]))
            org, artifact = step[1]
            if kind == "add":
                level, owner = step[2]
                return await add(
                    repository, artifact, org_id=org, owner_level=level, owner_id=owner, visibility=step[3]
                )
            if kind == "revise":
                return await revise(repository, artifact, org_id=org)
            if kind == "classify":
                return await classify(repository, artifact, step[2], step[3], org_id=org)
            if kind == "archive":
                return await repository.archive(org, artifact, step[2], 9)
            return await repository.tombstone(org, artifact, 9)
        except (InvalidInput, NotFound) as refused:
            return type(refused), str(refused)

    def resolved(self, actor: SlotActor, slot: AgentContextSlot, project: str | None, broader: bool) -> list[Any]:
        """What every store resolves to, in parts."""

        async def ask(repository: CuratedArtifacts) -> Any:
            installed = await repository.extensions()
            return await resolve_context_slot(
                actor, slot, project, installed, artifacts=repository, include_broader=broader
            )

        found = self.same([run(ask(repository)) for repository in self.repositories])
        return [(*ref.triple, ref.extension, ref.source_scope, ref.owner_id) for ref in found.refs]

    def recorded(self, org: str, refs: list[ArtifactRef], key: str) -> bool:
        values = origin(org_id=org, act_key=key)
        act = SelectionAct(
            selection_id=selection_id("s", values),
            origin=values,
            slot_id="s",
            resolution_mode="accumulate",
            selection_mode="interactive",
            selected_by="user",
            refs=tuple(refs),
            selected_at_us=5,
        )

        async def insert(repository: CuratedArtifacts) -> Any:
            try:
                return await repository.insert_selection(act)
            except IncoherentSelection as refused:
                return refused.problems

        answer = self.same([run(insert(repository)) for repository in self.repositories])
        parts = [(*ref.triple, ref.extension, ref.source_scope, ref.owner_id) for ref in refs]
        wrong = [f"/refs/{at}" for at, ref in enumerate(parts) if not self.naive.coherent(org, ref)]
        assert (answer is True) == (not wrong)
        assert wrong == ([] if answer is True else [problem.pointer for problem in answer])
        return not wrong


def _word(made: Any) -> str:
    if isinstance(made, tuple):
        return "missing" if made[0] is NotFound else "refused"
    return "outranked" if isinstance(made, Outranked) else "done"


@settings(max_examples=60)
@given(history=histories(), asked=st.lists(questions, min_size=1, max_size=6))
def test_every_store_resolves_as_the_reference_does(
    repositories: list[Any], history: list[Step], asked: list[Any]
) -> None:
    twins = Twins(repositories)
    for step in history:
        twins.take(step)
    for actor, slot, project, broader in asked:
        expected = twins.naive.resolve(actor, slot, project, broader=broader)
        assert twins.resolved(actor, slot, project, broader) == expected


@settings(max_examples=50)
@given(history=histories(), more=st.lists(steps(places), max_size=6), data=st.data())
def test_a_triple_lands_exactly_where_it_is_coherent_and_reads_the_same_ever_after(
    repositories: list[Any], history: list[Step], more: list[Step], data: st.DataObject
) -> None:
    twins = Twins(repositories)
    for step in history:
        twins.take(step)
    naive, kept = twins.naive, []
    for key in ("1", "2", "3"):
        org = data.draw(one_of(ORGS))
        refs = [data.draw(triples(naive, org)) for _ in range(data.draw(st.integers(0, 2)))]
        if twins.recorded(org, refs, key):
            kept.append((org, refs))
    before = [
        twins.same([run(repository.pinned(org, refs)) for repository in twins.repositories]) for org, refs in kept
    ]
    for step in more:
        twins.take(step)
    after = [twins.same([run(repository.pinned(org, refs)) for repository in twins.repositories]) for org, refs in kept]
    assert before == after
    for org in ORGS:
        acts = twins.same([run(repository.selections(org, "run_1")) for repository in twins.repositories])
        assert [list(act.refs) for act in acts] == [refs for of, refs in kept if of == org]


def triples(naive: NaiveArtifacts, org: str) -> st.SearchStrategy[ArtifactRef]:
    """Ones of this organisation that were good at some time, and ones with a part of another."""
    whole = []
    for row in naive.objects:
        mine = (row["org"], row["id"])
        for revision in naive.revisions:
            for assertion in naive.assertions:
                if (revision["org"], revision["artifact"]) == mine == (assertion["org"], assertion["artifact"]):
                    whole.append((row, revision["id"], assertion["id"], assertion["extension"]))
    if not whole:
        return st.just(_ref("a", "rev_" + "0" * 16, "asr_" + "0" * 16, EXTENSIONS[0], "user", "ann"))
    columns = [sorted({one[at] for one in whole}) for at in (1, 2, 3)]

    mixed = st.tuples(one_of(IDS), *map(one_of, columns), one_of(NARROW_TO_BROAD), one_of([*USERS, *ORGS]))
    good = [_ref(row["id"], *parts, scope(row), row["owner"]) for row, *parts in whole]
    mine = [made for made, one in zip(good, whole, strict=True) if one[0]["org"] == org] or good
    nearly = st.tuples(one_of(mine), mixed.map(lambda parts: _ref(*parts)), one_of(list(ArtifactRef.model_fields)))
    return one_of(mine) | nearly.map(lambda made: made[0].model_copy(update={made[2]: getattr(made[1], made[2])}))


def _ref(artifact: str, revision: str, assertion: str, extension: str, of: Any, owner: str) -> ArtifactRef:
    return ArtifactRef(
        artifactId=artifact,
        representationRevisionId=revision,
        semanticAssertionId=assertion,
        extension=extension,
        sourceScope=of,
        ownerId=owner,
    )

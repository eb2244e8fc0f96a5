"""A small world of artifacts for tests: one organisation's ICPs and voices, and who may see which."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from contextos.contracts.envelopes.artifacts import (
    Artifact,
    Assertion,
    ExtensionManifest,
    NewAssertion,
    NewRevision,
    Revision,
)
from contextos.contracts.envelopes.slots import AgentContextSlot, SelectionOrigin, SlotActor
from contextos.contracts.ports.storage import Artifacts, Curation

ICP, B2B, VOICE = "@acme/icp", "@acme/b2b-icp", "@acme/voice"


T = TypeVar("T")

_runners: list[asyncio.Runner] = []


@contextmanager
def one_loop() -> Iterator[None]:
    """Inside of it every `run` has the same event loop, so that connections outlive one call."""
    with asyncio.Runner() as runner:
        _runners.append(runner)
        yield
        _runners.remove(runner)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine."""
    return _runners[-1].run(coroutine)


class CuratedArtifacts(Artifacts, Curation, Protocol):
    """Both ports, as every store has them in one object."""


def actor(**changes: Any) -> SlotActor:
    """Ann of Acme, in the team `sales` and the project `launch`."""
    known = {"principal_id": "ann", "organization_id": "acme", "team_ids": ("sales",), "project_ids": ("launch",)}
    return SlotActor(**known | changes)


def slot(**changes: Any) -> AgentContextSlot:
    """An autonomous slot that takes every ICP."""
    fields: dict[str, Any] = {
        "slotId": "icp",
        "acceptedArtifactExtensions": [ICP],
        "selectionMode": "autonomous",
        "resolutionMode": "accumulate",
    }
    return AgentContextSlot(**fields | changes)


def origin(**changes: Any) -> SelectionOrigin:
    """An act of Ann's in a run of the outreach agent."""
    fields = {
        "org_id": "acme",
        "parent_run_id": "run_1",
        "parent_package_name": "@acme/outreach",
        "principal_id": "ann",
        "act_key": "1",
    }
    return SelectionOrigin(**fields | changes)


async def install(repository: CuratedArtifacts) -> None:
    for extension, satisfies in ((ICP, ()), (B2B, (ICP,)), (VOICE, ())):
        await repository.register(ExtensionManifest(extension=extension, satisfies=satisfies))


async def add(repository: CuratedArtifacts, artifact_id: str, **changes: Any) -> None:
    """An artifact without content and meaning; of the whole organisation unless it is said otherwise."""
    fields: dict[str, Any] = {
        "artifact_id": artifact_id,
        "org_id": "acme",
        "title": f"title of {artifact_id}",
        "owner_level": "organization",
        "owner_id": "acme",
        "visibility": "org",
        "created_by": "ann",
        "created_at_us": 1,
    }
    await repository.add(Artifact(**fields | changes))


async def revise(
    repository: CuratedArtifacts, artifact_id: str, content: str = "", *, org_id: str = "acme"
) -> Revision:
    new = NewRevision(
        artifact_id=artifact_id,
        org_id=org_id,
        mime="text/plain",
        content=content or f"content of {artifact_id}",
        created_by="ann",
        created_at_us=2,
    )
    return await repository.revise(new)


async def classify(
    repository: CuratedArtifacts, artifact_id: str, extension: str = ICP, by: str = "user", *, org_id: str = "acme"
) -> Any:
    new: dict[str, Any] = {
        "artifact_id": artifact_id,
        "org_id": org_id,
        "extension": extension,
        "asserted_by": by,
        "principal_id": "ann",
        "asserted_at_us": 3,
    }
    return await repository.classify(NewAssertion(**new))


async def complete(repository: CuratedArtifacts, artifact_id: str, extension: str = ICP, **changes: Any) -> Assertion:
    """An artifact with one revision and one assertion of a user."""
    await add(repository, artifact_id, **changes)
    await revise(repository, artifact_id, org_id=changes.get("org_id", "acme"))
    made: Assertion = await classify(repository, artifact_id, extension, org_id=changes.get("org_id", "acme"))
    return made

"""Check that a reference to evidence resolves: the named evidence is in the tenant's store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from contextos.contracts.entries.reading import read_body
from contextos.contracts.journal import Entry
from contextos.contracts.refs import Ref, parse_ref
from contextos.deployment.deployment import Deployment
from contextos.errors import InvalidInput, Problem

_SNAPSHOT: Final = re.compile(r"kg_([1-9][0-9]{0,17})")
_REVISION: Final = re.compile(r"rev_([1-9][0-9]{0,8})")


async def refuse_unresolved(app: Deployment, tenant_id: str, entries: Sequence[Entry], evidence_ref: str) -> None:
    """Refuse a reference that names nothing which this deployment has. `entries` is the verified journal of the run.

    An entity of the graph has a fact at the snapshot (`kg_3`), an artifact has a revision of this number (`rev_2`), and
    anything else is evidence that the run got or used. Rules and sessions do not count as evidence of what happened.

    Raises:
        InvalidInput: the reference does not resolve.
        Integrity: the named evidence was altered.
    """
    ref = parse_ref(evidence_ref)
    is_known = ref.scheme not in ("policy", "session") and evidence_ref in _used_refs(entries)
    if ref.scheme == "kg":
        is_known = is_known or await _is_fact(app, tenant_id, ref)
    elif ref.scheme == "artifact":
        is_known = is_known or await _is_revision(app, tenant_id, ref)
    if not is_known:
        detail = f"`{evidence_ref}` names nothing that is known here"
        remedy = "state what was found as a fact or an artifact of the tenant, and name that"
        raise InvalidInput(Problem("/evidence_ref", "unresolved_ref", detail, remedy))


async def _is_fact(app: Deployment, tenant_id: str, ref: Ref) -> bool:
    graph, snapshot = app.graph(tenant_id), _SNAPSHOT.fullmatch(ref.version)
    if snapshot is None or int(snapshot[1]) > await graph.head():
        return False
    return bool(await graph.step([ref.subject], None, at=int(snapshot[1]), limit=1))


async def _is_revision(app: Deployment, tenant_id: str, ref: Ref) -> bool:
    number = _REVISION.fullmatch(ref.version)
    if number is None:
        return False
    library = await app.ports.stores.artifacts(tenant_id).stored()
    return any((row[1], row[2]) == (ref.subject, int(number[1])) for row in library.revisions)


def _used_refs(entries: Sequence[Entry]) -> set[str]:
    """Return the references of results that a run got, and of the evidence that it read."""
    refs: set[str] = set()
    for entry in entries:
        body = read_body(entry) if entry.kind in ("tool.returned", "evidence.frozen") else None
        if body is not None and entry.kind == "tool.returned":
            refs.update(citation["evidence_ref"] for citation in body["envelope"]["citations"])
        elif body is not None:
            refs.update(item["evidence_ref"] for item in body.get("items", ()))
    return refs

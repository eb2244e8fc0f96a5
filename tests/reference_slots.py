"""Context slots, naively: what the guide says, sentence by sentence, over plain lists. Shares no code with the stores.

Source: Agent Context Slots; docs/design/contracts.md, "Context slots".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NARROW_TO_BROAD = ["project", "user", "team", "organization", "workspace"]
STRONGER_LAST = ["matcher", "agent", "authoring_skill", "user"]

Row = dict[str, Any]


@dataclass
class NaiveArtifacts:
    """Everything of one tenant. Methods that change it answer with a word; ids are given by the caller."""

    extensions: dict[str, list[str]] = field(default_factory=dict)
    objects: list[Row] = field(default_factory=list)
    revisions: list[Row] = field(default_factory=list)
    assertions: list[Row] = field(default_factory=list)

    def live(self, org: str, artifact: str) -> Row | None:
        found = [one for one in self.objects if one["org"] == org and one["id"] == artifact]
        return found[0] if found and not found[0]["dead"] else None

    def add(self, org: str, artifact: str, level: str, owner: str, visibility: str) -> str:
        if any(one["org"] == org and one["id"] == artifact for one in self.objects):
            return "refused"
        if visibility == "owner" and level != "user":
            return "refused"
        row = {"org": org, "id": artifact, "level": level, "owner": owner, "visibility": visibility, "dead": False}
        self.objects.append(row)
        return "done"

    def revise(self, org: str, artifact: str) -> str:
        return "done" if self.live(org, artifact) else "missing"

    def classify(self, org: str, artifact: str, extension: str, by: str) -> str:
        if not self.live(org, artifact):
            return "missing"
        if extension not in self.extensions:
            return "refused"
        active = self._active(org, artifact, extension)
        if by == "matcher" and active:
            return "outranked"
        if any(STRONGER_LAST.index(one["by"]) > STRONGER_LAST.index(by) for one in active):
            return "outranked"
        for one in active:
            one["eligibility"] = "archived"
        return "done"

    def archive(self, org: str, artifact: str, extension: str) -> str:
        if not self.live(org, artifact):
            return "missing"
        active = self._active(org, artifact, extension)
        for one in active:
            one["eligibility"] = "archived"
        return "done" if active else "missing"

    def tombstone(self, org: str, artifact: str) -> str:
        row = self.live(org, artifact)
        if row is None:
            return "missing"
        row["dead"] = True
        for one in self.assertions:
            if (one["org"], one["artifact"]) == (org, artifact):
                one["eligibility"] = "archived"
        return "done"

    def resolve(self, actor: Any, slot: Any, project: str | None, *, broader: bool) -> list[tuple[str, ...]]:
        """(artifact, revision, assertion, extension, scope, owner) of each ref, in order."""
        if project is not None and project not in actor.project_ids:
            return []
        accepted = set(slot.accepted_artifact_extensions)
        added = {name for name, satisfies in self.extensions.items() if accepted & set(satisfies)}
        found = []
        for row in self.objects:
            latest = [one for one in self.revisions if (one["org"], one["artifact"]) == (row["org"], row["id"])]
            if row["dead"] or not latest or not self._sees(actor, row) or not _in_project(row, project, broader):
                continue
            for one in self.assertions:
                if (one["org"], one["artifact"], one["eligibility"]) != (row["org"], row["id"], "eligible"):
                    continue
                if one["extension"] in accepted | added:
                    ref = (row["id"], latest[-1]["id"], one["id"], one["extension"], scope(row), row["owner"])
                    found.append(ref)
        found.sort(key=lambda ref: (NARROW_TO_BROAD.index(ref[4]), ref[0], ref[2], ref[1]))
        if slot.resolution_mode == "override":
            found = [ref for ref in found if ref[4] == found[0][4]]
        if slot.selection_mode == "autonomous" and slot.max_items is not None:
            found = found[: slot.max_items]
        return found

    def coherent(self, org: str, ref: tuple[str, ...]) -> bool:
        """Whether a triple may be recorded now."""
        artifact, revision, assertion, extension, said_scope, owner = ref
        row = self.live(org, artifact)
        if row is None or (scope(row), row["owner"]) != (said_scope, owner):
            return False
        mine = (org, artifact)
        if not any((one["org"], one["artifact"]) == mine and one["id"] == revision for one in self.revisions):
            return False
        return any(
            (one["org"], one["artifact"]) == mine
            and one["id"] == assertion
            and one["extension"] == extension
            and one["eligibility"] == "eligible"
            for one in self.assertions
        )

    def _active(self, org: str, artifact: str, extension: str) -> list[Row]:
        return [
            one
            for one in self.assertions
            if (one["org"], one["artifact"], one["extension"]) == (org, artifact, extension)
            and one["eligibility"] != "archived"
        ]

    def _sees(self, actor: Any, row: Row) -> bool:
        if row["org"] != actor.organization_id:
            return False
        if row["level"] == "user" and row["owner"] == actor.principal_id:
            return True
        kind, _, of = row["visibility"].partition(":")
        if kind == "team":
            return of in actor.team_ids
        if kind == "project":
            return of in actor.project_ids
        return kind in ("org", "workspace") or (kind == "admin" and actor.platform_admin)


def _in_project(row: Row, project: str | None, broader: bool) -> bool:
    of_a_project = row["visibility"].startswith("project:")
    if project is None:
        return not of_a_project
    return row["visibility"] == f"project:{project}" or (broader and not of_a_project)


def scope(row: Row) -> str:
    """Where an artifact comes from."""
    if row["visibility"].startswith("project:"):
        return "project"
    if row["visibility"].startswith("team:"):
        return "team"
    if row["visibility"] == "workspace":
        return "workspace"
    if row["visibility"] == "org":
        return "organization"
    return row["level"]

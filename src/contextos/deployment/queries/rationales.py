"""Find why rules exist, in the words of their authors, for people who read a denial.

The journal names the rules that deny, and the pins of the run name the pack and the policies with these rules. The
words are read from those artifacts. So they are the signed words, and no entry of the journal depends on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from contextos.contracts.entries.reading import read_body
from contextos.deployment.queries.timeline import Story, tell_story
from contextos.errors import Integrity

if TYPE_CHECKING:
    from contextos.contracts.journal import Entry
    from contextos.control.catalog import Catalog
    from contextos.control.loading import LoadedArtifacts
    from contextos.deployment.queries.checked_run import CheckedRun

DECIDED: Final = "policy.decided"


def denying_rules(decided: Mapping[str, Any]) -> list[str]:
    """Return the ids of the rules that deny in the body of a `policy.decided`, which has one decision or several."""
    decisions = decided.get("decisions", [decided])
    return [name for decision in decisions if not decision["allowed"] for name in decision.get("denying_rule_ids", ())]


def rule_rationales(loaded: LoadedArtifacts) -> Mapping[str, str]:
    """Return the rationales of the rules that a run is pinned to, by rule id, without empty ones."""
    rules = (rule for leveled in loaded.bundles for rule in leveled.bundle.policy_dsl.rules)
    return {rule.rule_id: rule.rationale for rule in rules if rule.rationale}


async def pinned_artifacts(catalog: Catalog, entries: Sequence[Entry]) -> LoadedArtifacts | None:
    """Return the artifacts to which a run was last pinned; None if it was not admitted, or the entry was erased.

    Raises:
        Integrity: an artifact is missing or altered.
    """
    pinned = next((entry for entry in reversed(entries) if entry.kind == "run.pinned" and entry.body), None)
    body = read_body(pinned) if pinned else None
    return await catalog.load(body) if body and "pack_ref" in body else None


async def denial_rationales(catalog: Catalog, entries: Sequence[Entry]) -> Mapping[str, str]:
    """Return the rationales of the rules that denied something in a run, by rule id. Raises as `pinned_artifacts`."""
    bodies = (read_body(entry) for entry in entries if entry.kind == DECIDED)
    denying = {name for body in bodies if body for name in denying_rules(body)}
    loaded = await pinned_artifacts(catalog, entries) if denying else None
    return {name: rationale for name, rationale in rule_rationales(loaded).items() if name in denying} if loaded else {}


async def checked_story(run: CheckedRun, catalog: Catalog) -> tuple[Story, str | None]:
    """Return the story of a run with the reasons for denials, and what about the run or its pack does not verify, or
    None. The pins of a run that does not verify are not used.
    """
    story: Story = {}
    if run.fault is not None:
        return run.told(lambda: tell_story(run.entries), story), run.fault
    try:
        return tell_story(run.entries, await denial_rationales(catalog, run.entries)), None
    except Integrity as broken:
        return tell_story(run.entries), str(broken)

"""Compute the reasons of a run that was read and verified, with the rules that it is pinned to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contextos.deployment.queries.rationales import pinned_artifacts
from contextos.deployment.why.explaining import NO_RULES, PinnedRules, RunReason, explain
from contextos.errors import Integrity

if TYPE_CHECKING:
    from contextos.control.catalog import Catalog
    from contextos.control.loading import LoadedArtifacts
    from contextos.deployment.queries.checked_run import CheckedRun


async def checked_reasons(
    run: CheckedRun, catalog: Catalog, tool: str | None = None
) -> tuple[tuple[RunReason, ...], str | None]:
    """Return the reasons of a run, and what about the run or its pack does not verify, or None.

    If the run or its pack does not verify, the pins are not used, and no rule is quoted.

    Raises:
        InvalidInput: no entry of the run is about this tool (`unknown_tool`).
    """
    no_reasons: tuple[RunReason, ...] = ()
    if run.fault is not None:
        return run.told(lambda: explain(run.entries), no_reasons), run.fault
    try:
        loaded = await pinned_artifacts(catalog, run.entries)
    except Integrity as broken:
        return explain(run.entries, NO_RULES, tool), str(broken)
    return explain(run.entries, _pinned_rules(loaded) if loaded else NO_RULES, tool), None


def _pinned_rules(loaded: LoadedArtifacts) -> PinnedRules:
    tools = [(adapter.adapter_id, tool) for adapter in loaded.definitions for tool in adapter.capabilities]
    return PinnedRules(
        by_id={rule.rule_id: rule for leveled in loaded.bundles for rule in leveled.bundle.policy_dsl.rules},
        produced={f"{adapter_id}.{tool.name}": tool.produces for adapter_id, tool in tools},
    )

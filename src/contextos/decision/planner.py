"""The template planner: deterministic, no model. It proposes a typed plan and cannot execute anything.

Source: How It Works, step 3; shared/design/contracts.md, "A plan argument is a literal or `{from, pointer}`".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from contextos.contracts.codec import MISSING, resolve
from contextos.contracts.ids import derive
from contextos.contracts.plan import Binding, Plan, TaskTemplate

PLANNER: Final = "template@1"
_SOURCES: Final = frozenset({"request", "pack", "evidence", "step"})


def propose(run_id: str, template: TaskTemplate, compiled: Mapping[str, Any], revision: int) -> Plan:
    """The template as a plan. A step whose tool is not in the manifest stays: the Critic refuses, we do not hide it."""
    assert compiled["context_ledger"]["compiled_context_hash"], "a plan is made from a compiled context"
    return Plan(
        plan_id=derive("plan_", run_id, "plan", revision), intent=template.intent, steps=template.steps,
        decision_checkpoints=template.decision_checkpoints, revision=revision, planner=PLANNER,
        template_id=f"{template.template_id}@{template.version}",
    )  # fmt: skip


def binding_of(value: Any) -> Binding | None:
    """The binding that a parameter is, or None for a literal. An object of exactly `from` and `pointer` is one."""
    if isinstance(value, Mapping) and value.keys() == {"from", "pointer"} and value["from"] in _SOURCES:
        source, where = value["from"], value["pointer"]
        return _binding(source, where) if isinstance(where, str) else Binding.model_validate(dict(value))
    return None


@lru_cache(1024)
def _binding(source: str, where: str) -> Binding:
    return Binding.model_validate({"from": source, "pointer": where})


def bind(binding: Binding, sources: Mapping[str, Any]) -> Any:
    """The bound value, or `MISSING`."""
    return resolve(sources[binding.source], binding.pointer) if binding.source in sources else MISSING


def resolve_params(
    params: Mapping[str, Any], sources: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """(arguments, provenance by argument, arguments that do not resolve yet)."""
    args: dict[str, Any] = {}
    provenance: dict[str, str] = {}
    missing: list[str] = []
    for name in sorted(params):
        binding = binding_of(params[name])
        value = params[name] if binding is None else bind(binding, sources)
        if value is MISSING:
            missing.append(name)
            continue
        args[name] = value
        provenance[name] = "literal" if binding is None else f"{binding.source}:{binding.pointer}"
    return args, provenance, missing

"""Lints task templates: their steps, bindings and checkpoints.

A plan that the Critic would refuse in every run is refused here once, when the template is published or pinned.
Source: How It Works, steps 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from contextos.contracts.encoding.pointer import MISSING, pointer, resolve_pointer
from contextos.contracts.envelopes.plan import Binding, PlanStep, Subject, TaskTemplate
from contextos.contracts.envelopes.policy import APPROVAL_MODES
from contextos.control.artifacts import MergedArtifacts
from contextos.control.lint.graph import (
    REQUEST_PLACE,
    TO_REGISTER,
    BindingTargets,
    PointerPath,
    governing_keys,
    no_such,
    place_of,
    request_has,
    steps_before,
)
from contextos.errors import Problem

SOURCES: Final = ("request", "parameter", "pack", "evidence", "step")
EVIDENCE_PARTS: Final = ("value", "subject", "evidence_ref")


def lint_templates(merged: MergedArtifacts, edges: BindingTargets) -> Iterator[Problem]:
    """Yield the problems of each task template (a plan with parameters), with pointers into the pack or catalog that
    has it.
    """
    declared = merged.pack.decision_layer.task_templates
    for template in merged.templates.values():
        place = place_of(template, template.template_id, declared, "task_templates")
        yield from _TemplateLint(merged, edges, template, place).problems()


class _TemplateLint:
    """The checks of one template. `before` holds, for each step, the steps that are done before it."""

    def __init__(
        self, merged: MergedArtifacts, edges: BindingTargets, template: TaskTemplate, path: PointerPath
    ) -> None:
        self.merged, self.edges, self.template, self.path = merged, edges, template, path
        self.before = steps_before(template)

    def problems(self) -> Iterator[Problem]:
        if self.edges.lacks_intent(self.template.intent):
            yield no_such((*self.path, "intent"), "intent", self.template.intent, "name an intent of the catalog")
        step_ids: set[str] = set()
        for index, step in enumerate(self.template.steps):
            path: PointerPath = (*self.path, "steps", index)
            yield from self._lint_order(step, step_ids, path)
            yield from self._lint_tool(step, path)
            yield from self._lint_params(step, path)
            step_ids.add(step.id)
        yield from self._lint_session() if self.template.is_session else self._lint_observed_plan()
        yield from self._lint_slots()
        yield from self._lint_checkpoints()
        yield from self._lint_results(step_ids)

    def _lint_observed_plan(self) -> Iterator[Problem]:
        """Refuse a plan in a pack that observes: a plan that goes on after a refusal is another plan."""
        if self.merged.pack.pack_meta.mode == "observe":
            detail = f"the pack observes, and the calls of `{self.template.template_id}` are planned"
            remedy = "set `mode` to `enforce`, or `chosen_by` to `agent`"
            yield Problem("/pack_meta/mode", "observes_plan", detail, remedy)

    def _lint_session(self) -> Iterator[Problem]:
        """Check the template of a session: an agent chooses its calls and their arguments, under one decision."""
        tools: set[str] = set()
        for index, step in enumerate(self.template.steps):
            path: PointerPath = (*self.path, "steps", index)
            for name, value in (("params", step.params), ("depends_on", step.depends_on)):
                if value:
                    detail = f"step `{step.id}` of a session has `{name}`, which its agent chooses"
                    remedy = f"leave out `{name}`; bound arguments by `arg_constraints` and `agrees_with`"
                    yield Problem(pointer((*path, name)), "chosen_by_agent", detail, remedy)
            if step.tool in tools:
                detail = f"`{step.tool}` is listed twice in a session"
                yield Problem(pointer((*path, "tool")), "duplicate", detail, "list each tool once")
            tools.add(step.tool)
        points = self.template.decision_checkpoints
        base: PointerPath = (*self.path, "decision_checkpoints")
        if len({point.decision_id for point in points}) > 1:
            yield Problem(pointer(base), "one_decision", "a session makes one decision", "name one `decision_key`")
        for index, point in enumerate(points):
            if point.after_step is not None:
                detail = f"`{point.decision_id}` is checked after a step, and the steps of a session have no order"
                yield Problem(
                    pointer((*base, index, "after_step")), "chosen_by_agent", detail, "leave out `after_step`"
                )
        yield from self._lint_single_template()

    def _lint_single_template(self) -> Iterator[Problem]:
        """Refuse an intent with a session and other templates: a run cannot change from one kind to the other."""
        for intent in self.merged.intents.values():
            name, eligible = self.template.template_id, intent.eligible_task_templates
            if intent.intent_id == self.template.intent and name in eligible and len(eligible) > 1:
                detail = f"the intent `{intent.intent_id}` has other templates beside the session `{name}`"
                yield Problem(pointer((*self.path, "intent")), "session_not_alone", detail, "give each an intent")

    def _lint_slots(self) -> Iterator[Problem]:
        """Check the slots of the template: when a slot is resolved, only the request of the run is known."""
        slot_ids: set[str] = set()
        for index, step in enumerate(self.template.context_slots):
            path: PointerPath = (*self.path, "context_slots", index)
            for name, detail in step.slot.sealing_faults():
                yield Problem(pointer((*path, "slot", name)), "contradiction", detail, "correct the slot")
            if step.slot.slot_id in slot_ids:
                detail = f"slot `{step.slot.slot_id}` is declared twice"
                yield Problem(pointer((*path, "slot", "slotId")), "duplicate", detail, "give it another id")
            slot_ids.add(step.slot.slot_id)
            if step.project is not None and step.project.source != "request":
                detail = f"the project of a slot is bound to `{step.project.source}` and not to the request"
                yield Problem(pointer((*path, "project", "from")), "not_request", detail, "bind it to `request`")
            elif step.project is not None and not request_has(step.project.pointer):
                project_path: PointerPath = (*path, "project", "pointer")
                yield no_such(project_path, REQUEST_PLACE, step.project.pointer, "correct the pointer")

    def _lint_order(self, step: PlanStep, earlier: set[str], path: PointerPath) -> Iterator[Problem]:
        if step.id in earlier:
            yield Problem(
                pointer((*path, "id")), "duplicate", f"step `{step.id}` is listed twice", "give it another id"
            )
        for index, name in enumerate(step.depends_on):
            if name not in earlier:
                detail = f"step `{step.id}` depends on `{name}`, which is not an earlier step"
                yield Problem(pointer((*path, "depends_on", index)), "not_earlier", detail, "reorder the steps")
        for index, gate in enumerate(step.requires):
            if gate not in self.edges.gates:
                yield no_such((*path, "requires", index), "gate", gate, "define it in `approval_gates`")

    def _lint_tool(self, step: PlanStep, path: PointerPath) -> Iterator[Problem]:
        if self.edges.is_unregistered(step.tool):
            yield no_such((*path, "tool"), "registered capability", step.tool, TO_REGISTER, self.edges.registered)
        if step.tool in self.merged.pack.tooling_layer.prohibitions:
            detail = f"`{step.tool}` is prohibited, so the step can never run"
            yield Problem(pointer((*path, "tool")), "prohibited", detail, "remove the step or the prohibition")
        declared = self.edges.capability(step.tool)
        if declared is None:
            yield from self._lint_spec(step, step.approval_mode, path)
            return
        if step.approval_mode != declared.approval_mode:
            detail = f"`{step.tool}` declares `{declared.approval_mode}`, and the step states `{step.approval_mode}`"
            yield Problem(pointer((*path, "approval_mode")), "mode_mismatch", detail, "state the declared mode")
        yield from self._lint_spec(step, declared.approval_mode, path)

    def _lint_spec(self, step: PlanStep, mode: Any, path: PointerPath) -> Iterator[Problem]:
        """Refuse a step above `read_only` that no checkpoint precedes whose spec may execute at that mode."""
        rank = APPROVAL_MODES.index(mode)
        before = self.before.get(step.id, ())
        keys = governing_keys(self.template, before)
        if rank and not keys:
            remedy = "put a decision checkpoint after a step that it depends on"
            yield Problem(pointer(path), "not_bound", f"`{step.tool}` is not bound to a DecisionSpec", remedy)
        for key in keys:
            spec = self.edges.specs.get(key)
            if spec is None:
                continue
            if rank > APPROVAL_MODES.index(spec.approval_mode):
                detail = f"`{step.tool}` uses mode `{mode}`, and `{key}` allows at most `{spec.approval_mode}`"
                yield Problem(pointer(path), "mode_above_spec", detail, "raise the mode of the spec or move the step")
            if rank and spec.decision_right != "execute":
                detail = f"`{step.tool}` has effects, and `{key}` is only allowed to {spec.decision_right}"
                yield Problem(pointer(path), "no_right", detail, "bind it to a spec that is allowed to execute")

    def _lint_params(self, step: PlanStep, base: PointerPath) -> Iterator[Problem]:
        declared, properties = self.edges.capability(step.tool), self.edges.properties(step.tool)
        for name, value in step.params.items():
            path: PointerPath = (*base, "params", name)
            if properties is not None and name not in properties:
                remedy = "name a property of its input schema"
                yield no_such(path, f"argument of `{step.tool}`", name, remedy, properties)
            yield from self._lint_value(value, path, frozenset(self.before.get(step.id, ())))
        is_session = self.template.is_session
        for name in declared.input_schema.get("required", ()) if declared is not None and not is_session else ():
            if name not in step.params:
                detail = f"`{step.tool}` requires the argument `{name}`"
                yield Problem(pointer((*base, "params")), "argument_missing", detail, "add a value or a binding")

    def _lint_value(self, value: Any, path: PointerPath, steps: frozenset[str]) -> Iterator[Problem]:
        """Check a literal or a binding. A malformed binding is refused: it would silently become a literal."""
        if not isinstance(value, Mapping) or "from" not in value or not value.keys() <= {"from", "pointer"}:
            return
        place, source = value.get("pointer"), value["from"]
        if source not in SOURCES:
            yield no_such((*path, "from"), "binding source", str(source), f"use one of {', '.join(SOURCES)}")
        elif not isinstance(place, str) or not place.startswith("/") or not _is_well_formed(place):
            yield Problem(
                pointer((*path, "pointer")), "not_a_pointer", "`pointer` is not a JSON Pointer", "write it like `/a/b`"
            )
        else:
            yield from self._lint_binding(str(source), place, (*path, "pointer"), steps)

    def _lint_binding(self, source: str, place: str, path: PointerPath, steps: frozenset[str]) -> Iterator[Problem]:
        first, *rest = [token.replace("~1", "/").replace("~0", "~") for token in place.split("/")[1:]]
        if source == "request" and not request_has(place):
            yield no_such(path, REQUEST_PLACE, place, "correct the pointer")
        elif source == "parameter" and not self._has_parameter(first, rest):
            remedy = f"declare it in `parameters` of `{self.template.intent}`"
            yield no_such(path, "parameter of the intent", place.removeprefix("/"), remedy)
        elif source == "pack" and resolve_pointer(self.merged.pack.to_json(), place) is MISSING:
            yield no_such(path, "field of the pack", place, "correct the pointer")
        elif source == "evidence":
            if self.edges.produces is not None and first not in self.edges.available_evidence:
                yield no_such(path, "evidence", first, "produce it by a capability, or retrieve it by an evidence path")
            if not rest or rest[0] not in EVIDENCE_PARTS:
                remedy = f"add one of {', '.join(EVIDENCE_PARTS)}"
                yield Problem(pointer(path), "evidence_part", f"`{place}` names no part of the evidence", remedy)
        elif source == "step":
            yield from self._lint_output(first, rest, path, steps)

    def _has_parameter(self, name: str, rest: list[str]) -> bool:
        """Return whether the intent of the template has this parameter, or is not known yet."""
        intent = self.merged.intents.get(self.template.intent)
        return intent is None or (not rest and any(parameter.name == name for parameter in intent.parameters))

    def _lint_output(self, name: str, rest: list[str], path: PointerPath, steps: frozenset[str]) -> Iterator[Problem]:
        if name not in steps:
            yield Problem(pointer(path), "not_earlier", f"step `{name}` is not done before this step", "depend on it")
            return
        tool = next(step.tool for step in self.template.steps if step.id == name)
        declared = self.edges.capability(tool)
        output = declared.output_schema.get("properties") if declared is not None else None
        if rest and isinstance(output, dict) and rest[0] not in output:
            yield no_such(path, f"output of `{tool}`", rest[0], "name a property of its output schema")

    def _lint_checkpoints(self) -> Iterator[Problem]:
        steps = {step.id for step in self.template.steps}
        for index, point in enumerate(self.template.decision_checkpoints):
            path: PointerPath = (*self.path, "decision_checkpoints", index)
            if point.after_step is not None and point.after_step not in steps:
                yield no_such((*path, "after_step"), "step", point.after_step, "name a step of the template")
            if self.edges.lacks_spec(point.decision_id):
                yield no_such((*path, "decision_id"), "DecisionSpec", point.decision_id, "name a `decision_key`")

    def _lint_results(self, steps: set[str]) -> Iterator[Problem]:
        """Check subjects, outputs and memory, which are bound when all steps are done."""
        done = frozenset(steps)
        for index, subject in enumerate(self.template.subjects):
            yield from self._lint_subject(subject, (*self.path, "subjects", index), done)
        for name, binding in self.template.outputs.items():
            path: PointerPath = (*self.path, "outputs", name, "pointer")
            yield from self._lint_binding(binding.source, binding.pointer, path, done)
        allowed = self.merged.pack.memory_layer.write_classes
        for index, memory in enumerate(self.template.memory):
            base: PointerPath = (*self.path, "memory", index)
            yield from self._lint_subject(memory.entity, (*base, "entity"), done)
            yield from self._lint_value(memory.value, (*base, "value"), done)
            if memory.write_class not in allowed:
                remedy = "add it to `memory_layer.write_classes`"
                yield no_such((*base, "write_class"), "allowed write class", memory.write_class, remedy)

    def _lint_subject(self, subject: Subject, path: PointerPath, steps: frozenset[str]) -> Iterator[Problem]:
        namespaces = self.merged.pack.intelligence_refs.identity_layer.ceid_namespaces
        if subject.type is not None and subject.type not in namespaces:
            yield no_such((*path, "type"), "CEID namespace", subject.type, "add it to `identity_layer.ceid_namespaces`")
        binding: Binding = subject.binding
        yield from self._lint_binding(binding.source, binding.pointer, (*path, "binding", "pointer"), steps)


def _is_well_formed(place: str) -> bool:
    return "~" not in place.replace("~0", "").replace("~1", "")

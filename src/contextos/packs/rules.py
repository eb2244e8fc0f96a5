"""Builds the policy rules of a declaration: for each intent and tool, who may call, what denies, who is asked.

At most one of the rules that allow a write is true of a call: an entry of `ask`, else an entry of `auto_approve`, else
the rule that asks the approver. Another rule denies everybody who is not named. A rule denies if its facts are missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.policy import AppliesTo
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.facts import Vocabulary
from contextos.errors import InvalidArtifact, Problem
from contextos.packs.declaration import (
    ArgumentBounds,
    AskDeclaration,
    AutoApproveDeclaration,
    DenyDeclaration,
    IntentDeclaration,
    PackDeclaration,
    tools_named,
)
from contextos.packs.expressions import FaultCollector, Place, compile_condition, limited_arguments
from contextos.packs.origins import OriginOf, default, derived, stated, written, written_conjuncts
from contextos.trust.policy.conditions import analyse_condition
from contextos.trust.policy.fact_lint import lint_facts

_BOUND_ONE: Final = "bound one in `bounds`, or in `when`, such as `args.count <= 5`"
_NOT_IN_IDS: Final = re.compile(r"[^A-Z0-9]+")


def refuse_pack(code: str, at: Place, detail: str, remedy: str) -> InvalidArtifact:
    """Return the error for one place of a declaration."""
    return InvalidArtifact(Problem(pointer(at), code, detail, remedy))


def upper(*names: str) -> str:
    """Return names joined as one part of a rule or gate id, in upper case."""
    return _NOT_IN_IDS.sub("_", "_".join(names).upper()).strip("_")


@dataclass(frozen=True, slots=True)
class WriteRules:
    """The entries that decide about one write in one intent, each with its condition.

    `asks_all` is the entry of `ask` about all other calls, with its place.
    """

    asks: list[tuple[AskDeclaration, Any, Place]]
    automatic: list[tuple[AutoApproveDeclaration, Any, Place]]
    asks_all: tuple[AskDeclaration, Place] | None


class RuleBuilder(FaultCollector):
    """Builds the rules and gates of one declaration. `tools` maps tool ids to their definitions."""

    def __init__(
        self, declaration: PackDeclaration, tools: Mapping[str, CapabilityDefinition], vocabulary: Vocabulary
    ) -> None:
        self.declaration, self.tools, self.vocabulary = declaration, tools, vocabulary
        super().__init__()
        self.gates: dict[str, dict[str, OriginOf]] = {}
        self._ids: dict[str, str] = {}

    def check_entries(self, used: Mapping[str, Sequence[str]]) -> None:
        """Refuse an entry that never counts: its tool is used by no run of its intent, or it asks about a read.

        `used` maps each intent to the tools of its runs.
        """
        layers: list[tuple[Place, PackDeclaration | IntentDeclaration, list[str]]] = [
            ((), self.declaration, [tool for tools in used.values() for tool in tools])
        ]
        layers += [(("intents", name), intent, list(used[name])) for name, intent in self.declaration.intents.items()]
        for base, layer, tools in layers:
            for kind in ("deny", "ask", "auto_approve"):
                for index, entry in enumerate(getattr(layer, kind)):
                    with self.collecting():
                        self._check_entry(kind, entry.tools, tools, (*base, kind, index))

    def _check_entry(self, kind: str, names: Sequence[str], used: Sequence[str], place: Place) -> None:
        writes = [tool for tool in used if self.tools[tool].kind == "write"]
        if not names and not writes:
            remedy = "name the reads in `tools`" if kind == "deny" else "remove it"
            raise refuse_pack("never_counts", place, "no run that it is about makes a write", remedy)
        for index, tool in enumerate(self.named(names, list(self.tools), (*place, "tools"))):
            if tool not in used:
                detail = f"no run that it is about uses `{tool}`"
                raise refuse_pack("never_counts", (*place, "tools", index), detail, "correct the name, or remove it")
            if kind != "deny" and tool not in writes:
                detail = f"`{tool}` is a read, and only writes are asked about"
                raise refuse_pack("never_counts", (*place, "tools", index), detail, "deny the read, or remove it")

    def rules(self, name: str, intent: IntentDeclaration, used: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the rules of one intent whose runs use the tools `used`."""
        base: Place = ("intents", name)
        who = list(intent.who or self.declaration.who)
        if not who:
            remedy = 'name the roles: `who: ["deployer"]`'
            missing: Place = (*base, "who") if name in self.declaration.intents else ("who",)
            raise refuse_pack("nobody", missing, f"nobody may make a request of `{name}`", remedy)
        # A person can have two roles: `user.role` is only the first one.
        place: Place = (*base, "who") if intent.who else ("who",)
        roles = [OriginOf(role, "derived", (*place, index)) for index, role in enumerate(who)]
        role_tests = [{"in": [role, derived({"var": ["user.roles", []]})]} for role in roles]
        role_list = [replace(role, origin="written") for role in roles]
        role_condition = {"or": [{"in": [derived({"var": "user.role"}), role_list]}, *role_tests]}
        yield self._rule(
            self._rule_id("others", name, "OTHERS"),
            {"intent": derived(name)},
            {"!": [role_condition]},
            {"allow": default(False)},
            default("who is not named may not"),
        )
        writes = [tool for tool in used if self.tools[tool].kind == "write"]
        denials: list[tuple[DenyDeclaration, Place]] = [
            *((entry, ("deny", index)) for index, entry in enumerate(self.declaration.deny)),
            *((entry, (*base, "deny", index)) for index, entry in enumerate(intent.deny)),
        ]
        evidence: dict[str, set[str]] = {tool: set(intent.requires) for tool in used}
        for number, (denial, place) in enumerate(denials, 1):
            for tool in self._entry_tools(denial.tools, used, writes, place):
                condition = self._condition(denial.when, tool, name, (*place, "when"))
                evidence[tool] |= self._evidence_of(condition)
                yield self._rule(
                    self._rule_id(f"deny {number}", name, tool, f"DENY_{number}"),
                    {"intent": derived(name), "capability": derived(tool)},
                    OriginOf(condition, "written", (*place, "when")),
                    {"allow": written(False)},
                    replace(stated(denial, "because"), at=(*place, "because")),
                )
        for tool in used:
            if tool in writes:
                yield from self._write_rules(name, intent, tool, role_condition, evidence[tool])
            else:
                yield self._rule(
                    self._rule_id("read", name, tool, "READ"),
                    {"intent": derived(name), "capability": derived(tool)},
                    role_condition,
                    {"allow": derived(True)},
                    derived("a read of the intent's tools"),
                )

    def _write_rules(
        self, name: str, intent: IntentDeclaration, tool: str, role_condition: Any, evidence: set[str]
    ) -> Iterator[dict[str, Any]]:
        entries = self._write_entries(name, intent, tool)
        for _, condition, *_ in (*entries.asks, *entries.automatic):
            evidence = evidence | self._evidence_of(condition)
        requires = {"requires": derived(sorted(evidence))} if evidence else {}
        applies = {"intent": derived(name), "capability": derived(tool)}
        # Before a call is asked for, its arguments and the evidence are not known: each permitted role sees the tool.
        for point in ("compile", "plan"):
            yield self._rule(
                self._rule_id(point, name, tool, point),
                {**applies, "point": derived(point)},
                role_condition,
                {"allow": derived(True)},
                derived("who may can see the tool; the other rules decide about each call"),
            )
        negations: list[OriginOf] = []
        for number, (ask, condition, place) in enumerate(entries.asks, 1):
            when: Place = (*place, "when")
            rule_id = self._rule_id(f"ask {number}", name, tool, f"ASK_{number}")
            yield self._rule(
                rule_id,
                applies,
                {"and": [role_condition, *negations, *written_conjuncts(condition, when)]},
                {**self._ask_effect((ask, place), rule_id), **requires},
                derived(f"a person with the role {ask.role} is asked"),
                derived(name),
            )
            negations.append(OriginOf({"!": [condition]}, "derived", when))
        for number, (automatic, condition, place) in enumerate(entries.automatic, 1):
            bounds = {
                argument: OriginOf(bound.limits(), "written", (*place, "bounds", argument))
                for argument, bound in automatic.bounds.items()
            }
            if all(bound.any for bound in automatic.bounds.values()):
                bounds |= {arg: OriginOf(cap, "derived", place) for arg, cap in limited_arguments(condition).items()}
            yield self._rule(
                self._rule_id(f"auto {number}", name, tool, f"AUTO_{number}"),
                applies,
                {"and": [role_condition, *negations, *written_conjuncts(condition, place)]},
                {
                    "allow": derived(True),
                    "approval_mode": stated(automatic, "mode"),
                    "arg_constraints": OriginOf(bounds, "written", (*place, "bounds")),
                    **requires,
                },
                replace(stated(automatic, "because"), at=(*place, "because")),
                derived(name),
            )
            negations.append(OriginOf({"!": [condition]}, "derived", place))
        rule_id = self._rule_id("ask", name, tool, "ASK")
        yield self._rule(
            rule_id,
            applies,
            {"and": [role_condition, *negations]} if negations else role_condition,
            {**self._ask_effect(entries.asks_all, rule_id), **requires},
            derived("a person is asked about every other call"),
            derived(name),
        )

    def _write_entries(self, name: str, intent: IntentDeclaration, tool: str) -> WriteRules:
        """Return the entries of the intent, then those of the pack, that are about this write."""
        base: Place = ("intents", name)
        asks: list[tuple[AskDeclaration, Place]] = [
            *((entry, (*base, "ask", index)) for index, entry in enumerate(intent.ask)),
            *((entry, ("ask", index)) for index, entry in enumerate(self.declaration.ask)),
        ]
        conditional: list[tuple[AskDeclaration, Any, Place]] = []
        asks_all: tuple[AskDeclaration, Place] | None = None
        for ask, place in asks:
            if ask.tools and tool not in self.named(ask.tools, list(self.tools), (*place, "tools")):
                continue
            if asks_all is not None and place[0] == "ask" and asks_all[1][0] == "intents":
                # The intent says who is asked about all other calls. Entries of the pack with a condition still count.
                if ask.when is None:
                    continue
            elif asks_all is not None:
                detail = f"an entry before it is about every call of `{tool}`, so it would never count"
                raise refuse_pack("never_counts", place, detail, "put the entry without `when` last")
            if ask.when is None:
                asks_all = (ask, place)
            else:
                conditional.append((ask, self._condition(ask.when, tool, name, (*place, "when")), place))
        automatic: list[tuple[AutoApproveDeclaration, Place]] = [
            *((entry, (*base, "auto_approve", index)) for index, entry in enumerate(intent.auto_approve))
        ]
        # An intent that asks about all its calls is not loosened by the pack.
        if asks_all is None or asks_all[1][0] != "intents":
            automatic += [(entry, ("auto_approve", index)) for index, entry in enumerate(self.declaration.auto_approve)]
        automatic_entries = []
        for entry, place in automatic:
            if entry.tools and tool not in self.named(entry.tools, list(self.tools), (*place, "tools")):
                continue
            tests = [test for argument, bound in entry.bounds.items() for test in _bound_tests(argument, bound, place)]
            if tests:
                self._check({"and": tests}, tool, name, (*place, "bounds"))
            faults = len(self.faults)
            if entry.when is not None:
                tests.append(self._condition(entry.when, tool, name, (*place, "when")))
            condition = {"and": tests} if len(tests) > 1 else tests[0] if tests else True
            if not limited_arguments(condition) and len(self.faults) == faults:
                raise refuse_pack("no_bound", (*place, "bounds"), f"no argument of `{tool}` is bounded", _BOUND_ONE)
            automatic_entries.append((entry, condition, place))
        return WriteRules(conditional, automatic_entries, asks_all)

    def _ask_effect(self, entry: tuple[AskDeclaration, Place] | None, rule_id: str) -> dict[str, Any]:
        """Return the effect of a rule that asks, and its gate. Without an entry the approver of the pack is asked."""
        if entry is None:
            ask, role = None, replace(stated(self.declaration, "approver"), at=("approver",))
        else:
            ask, role = entry[0], OriginOf(entry[0].role, "written", (*entry[1], "role"))
        gate = f"GATE_{rule_id.removeprefix('R_')}"
        self.gates[gate] = {
            "gate_id": derived(gate),
            "required_approver_role": role,
            "timeout_s": default(AskDeclaration.model_fields["timeout_s"].default)
            if ask is None
            else stated(ask, "timeout_s"),
            "quorum": default(1),
            "on_timeout": default("escalate") if ask is None else stated(ask, "on_timeout"),
        }
        return {
            "allow": derived(True),
            "approval_mode": default("destructive"),
            "requires_approval_gate": derived(gate),
        }

    def _entry_tools(self, tools: Sequence[str], used: Sequence[str], writes: Sequence[str], place: Place) -> list[str]:
        """Return the tools of an intent that an entry is about."""
        if not tools:
            return list(writes)
        tool_ids = self.named(tools, list(self.tools), (*place, "tools"))
        return [tool for tool in used if tool in tool_ids]

    def named(self, names: Sequence[str], known: Sequence[str], at: Place, *, keep: bool = False) -> list[str]:
        """Return the ids of tools that a declaration names by id or by their own name. `keep`: faults go to `faults`.

        Raises:
            InvalidArtifact: there is no such tool, or there are two.
        """
        tool_ids, faults = tools_named(names, known, at)
        if faults and not keep:
            raise InvalidArtifact(*faults)
        self.faults += faults
        return tool_ids

    def _condition(self, text: str, tool: str, intent: str, place: Place) -> Any:
        with self.collecting():
            condition = compile_condition(text, place)
            self._check(condition, tool, intent, place)
            return condition
        return True  # in a pack that is refused

    def _check(self, condition: Any, tool: str, intent: str, place: Place) -> None:
        """Refuse a condition whose types do not fit, or that reads a fact that does not exist for this tool."""
        analysis = analyse_condition(condition, at=())
        applies = AppliesTo(intent=intent, capability=tool)
        problems = [*analysis.problems, *lint_facts(analysis.facts, condition, applies, self.vocabulary, ())]
        if problems:
            raise InvalidArtifact(
                *(
                    Problem(pointer(place), fault.code, f"the condition about `{tool}`: {fault.detail}", fault.remedy)
                    for fault in dict.fromkeys(problems)
                )
            )

    def _evidence_of(self, condition: Any) -> set[str]:
        """Return the names of evidence that a condition reads."""
        facts = [fact for fact in analyse_condition(condition).facts if fact.required]
        paths = [fact.path.partition(".")[2] for fact in facts if fact.segments[0] == "evidence"]
        names = self.vocabulary.evidence or {}
        return {name for path in paths for name in names if path == name or path.startswith(f"{name}.")}

    def _rule_id(self, kind: str, *names: str) -> str:
        pack_name = self.declaration.name
        prefix = () if names[0] == pack_name or names[0].startswith(f"{pack_name}.") else (pack_name,)
        rule_id = f"R_{upper(*prefix, *names)}"
        meaning = f"{kind} of {' '.join(names)}"
        if self._ids.setdefault(rule_id, meaning) != meaning:
            detail = f"`{meaning}` and `{self._ids[rule_id]}` give the same rule id `{rule_id}`"
            raise refuse_pack("same_id", (), detail, "rename a tool or an intent")
        return rule_id

    def _rule(
        self,
        rule_id: str,
        applies: Mapping[str, Any],
        condition: Any,
        effect: Mapping[str, Any],
        rationale: OriginOf,
        binding: OriginOf | None = None,
    ) -> dict[str, Any]:
        decision = {} if binding is None else {"decision_binding": binding}
        return {
            "rule_id": derived(rule_id),
            "applies_to": dict(applies),
            "if": condition,
            "then": dict(effect),
            **decision,
            "rationale": rationale,
        }


def _bound_tests(argument: str, bound: ArgumentBounds, place: Place) -> list[dict[str, Any]]:
    """Return the conditions that an argument is within its bounds."""
    tests = bound.conditions(argument)
    if bound.any is bool(tests):
        remedy = "give `min`, `max` or `enum`, or `any: true` alone"
        detail = f"`{argument[:80]}` is {'bounded and free' if tests else 'not bounded'}"
        raise refuse_pack("no_bound", (*place, "bounds", argument), detail, remedy)
    return tests

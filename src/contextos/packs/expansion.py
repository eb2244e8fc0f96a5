"""`expand`: makes the whole Context Pack of a declaration, with the origin of every field. The same input gives the
same bytes.

The expansion passes lint together with the tools that it is made for, or is refused with the problems that lint finds.
Source: docs/design/contracts.md, "Policy", "Approval modes".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.yaml_text import in_lines
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.policy import APPROVAL_MODES
from contextos.contracts.envelopes.run import BUCKETS
from contextos.contracts.envelopes.tool import AdapterDefinition, capability_id
from contextos.contracts.facts import Vocabulary
from contextos.control.artifacts import merge
from contextos.control.lint.access import lint_access
from contextos.control.lint.pack import OUTCOMES, lint_merged
from contextos.control.vocabulary import pack_vocabulary
from contextos.errors import InvalidArtifact, Problem
from contextos.packs.declaration import IntentDeclaration, PackDeclaration, PermissionDeclaration
from contextos.packs.expressions import Place
from contextos.packs.origins import Origin, OriginOf, default, derived, places_of, split_origins, stated, written
from contextos.packs.rules import RuleBuilder, refuse_pack, upper
from contextos.packs.templates import template_of
from contextos.trust.policy.policy_set import compile_policy

CONTRACT_VERSION: Final = "2.0.0"
SHARE_OF_TOKENS: Final = {"policy": 15, "tool": 15, "evidence": 25, "memory": 10, "business": 10, "session": 15}
"""Percent of the tokens of a run for each part of the prompt."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """A whole pack, its JSON, and the origin of each leaf of the JSON, by JSON Pointer.

    `places` maps each field that comes from the declaration to its place there, both as JSON Pointers.
    """

    pack: ContextPack
    document: Mapping[str, Any] = field(repr=False)
    origins: Mapping[str, Origin] = field(repr=False)
    places: Mapping[str, str] = field(repr=False)
    source: bytes = field(default=b"", repr=False)
    """The content of the file with the declaration; empty if it is not from a file."""

    def placed(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """Return problems of the expansion, each once and with its place in the declaration, and with line and column
        if the declaration is from a file.

        A remedy names the field `egress` as the declaration does.
        """
        unique: dict[tuple[str, str], Problem] = {}
        for problem in problems:
            place = self._place(problem.pointer)
            remedy = problem.remedy.replace("`tooling_layer.egress`", "`egress` of the pack")
            unique.setdefault((place, problem.detail), replace(problem, pointer=place, remedy=remedy))
        return in_lines(unique.values(), self.source)

    def _place(self, pointer: str) -> str:
        """Return the place of a field in the declaration, or the place of the nearest field around it that has one."""
        ancestor = pointer
        while ancestor and ancestor not in self.places:
            ancestor = ancestor.rpartition("/")[0]
        return self.places.get(ancestor, pointer)


def expand(declaration: PackDeclaration, adapters: Iterable[AdapterDefinition]) -> Expansion:
    """Return the whole pack of a declaration, for the tools of `adapters`.

    Raises:
        InvalidArtifact: the declaration names a tool or fact that does not exist, contradicts itself, or lint refuses
            the pack. Each problem has a pointer into the declaration; into the expansion if the field has no place.
    """
    definitions = {adapter.adapter_id: adapter for adapter in adapters}
    return _Expander(declaration, definitions).expansion()


class _Expander:
    """Expands one declaration. `tools` maps the ids of the tools that the pack uses to their definitions."""

    def __init__(self, declaration: PackDeclaration, definitions: Mapping[str, AdapterDefinition]) -> None:
        self.declaration, self.definitions = declaration, definitions
        self.every = {capability_id(owner, tool): tool for owner in definitions.values() for tool in owner.capabilities}
        if not self.every:
            raise refuse_pack("no_tools", ("tools",), "the pack is given no tools", "give it the adapters of its tools")
        builder = RuleBuilder(declaration, self.every, Vocabulary())
        tool_ids = builder.named(declaration.tools, list(self.every), ("tools",), keep=True) or list(self.every)
        self.tools = {name: self.every[name] for name in dict.fromkeys(tool_ids)}
        self.builder = RuleBuilder(declaration, self.tools, self._vocabulary())
        self.builder.faults += builder.faults
        self.intents = dict(declaration.intents) or {declaration.name: IntentDeclaration()}
        self.used = {
            name: self.builder.named(intent.tools, list(self.tools), ("intents", name, "tools"), keep=True)
            or list(self.tools)
            for name, intent in self.intents.items()
        }

    def expansion(self) -> Expansion:
        with self.builder.collecting():
            self._check_entries()
        with self.builder.collecting():
            tree = self._document_tree()
        self.builder.refuse_faults()
        document, origins = split_origins(tree)
        expansion = Expansion(parse(ContextPack, document), document, origins, places_of(tree))
        self._lint(expansion)
        return expansion

    def _vocabulary(self) -> Vocabulary:
        outputs = {name: tool.output_schema for tool in self.tools.values() for name in tool.produces}
        arguments = {name: tool.input_schema for name, tool in self.tools.items()}
        evidence = {**outputs, **dict.fromkeys(self.declaration.evidence)}
        hours = tuple(self.declaration.business_hours)
        return Vocabulary(arguments, evidence, complete=True, hours=hours)

    def _check_entries(self) -> None:
        """Refuse entries that would never count: tools that no intent uses or that cost too much, and duplicates."""
        self.builder.check_entries(self.used)
        idle = sorted(self.tools.keys() - {tool for tools in self.used.values() for tool in tools})
        if idle:
            remedy = "name it in the `tools` of an intent, or take it out of those of the pack"
            raise refuse_pack("idle_tool", ("tools",), f"no intent uses `{idle[0]}`", remedy)
        for name, tool in self.tools.items():
            if tool.cost_cents > self.declaration.budget.max_cost_cents:
                detail = f"a call of `{name}` costs {tool.cost_cents} cents, and a run has fewer"
                raise refuse_pack("over_budget", ("budget", "max_cost_cents"), detail, "raise `max_cost_cents`")
        seen = set[str]()
        for name in self.declaration.permissions:
            (tool_id,) = self.builder.named([name], list(self.tools), ("permissions", name))
            if tool_id in seen:
                detail = f"`{tool_id}` has two entries, under its id and under its own name"
                raise refuse_pack("duplicate", ("permissions", name), detail, "write one entry")
            seen.add(tool_id)

    def _document_tree(self) -> dict[str, Any]:
        pack = self.declaration
        rules: list[dict[str, Any]] = []
        for name, intent in self.intents.items():
            with self.builder.collecting():
                rules += self.builder.rules(name, intent, self.used[name])
        return {
            "contract_meta": {
                "contract_name": default("contextos.context_pack"),
                "contract_version": default(CONTRACT_VERSION),
                "issuer": stated(pack, "owner"),
                "created_at": default("not stated"),
            },
            "pack_meta": {
                "pack_id": stated(pack, "name"),
                "pack_version": stated(pack, "version"),
                "tenant": stated(pack, "tenant"),
                "ttl_seconds": default(86_400),
                "data_classification": stated(pack, "classification"),
                "safety_ceiling": derived(self._highest_mode(self.tools)),
                **({"mode": written(pack.mode)} if "mode" in pack.model_fields_set else {}),
                "run_budget": self._budget(),
            },
            "intelligence_refs": self._evidence(),
            "business_context": {"summary": stated(pack, "summary"), "non_negotiables": default([])},
            "policy_layer": {
                "policy_bundles": [
                    {
                        "bundle_id": derived(f"POLICY_{upper(pack.name)}"),
                        "priority": default(0),
                        "mode": default("enforce"),
                        **({"business_hours": stated(pack, "business_hours")} if pack.business_hours else {}),
                        "policy_dsl": {"language": default("jsonlogic"), "rules": rules},
                    }
                ],
                "guardrails": {
                    "must_refuse": default([]),
                    "must_escalate": default([]),
                    "redaction_rules": stated(pack, "redaction"),
                },
                "approval_gates": list(self.builder.gates.values()) or derived([]),
            },
            "tooling_layer": self._tooling(),
            "decision_layer": self._decisions(),
            "memory_layer": {
                "tier_ttls": default({}),
                "write_classes": default([]),
                "consent_required": default(True),
                "recall_limit": default(0),
            },
            "evaluation_layer": {"eval_targets": [self._eval_target(name) for name in self.intents]},
            "tone_and_comms": {"voice": default("Plain and exact."), "do": default([]), "do_not": default([])},
        }

    def _highest_mode(self, names: Iterable[str]) -> str:
        return max((self.tools[name].approval_mode for name in names), key=APPROVAL_MODES.index)

    def _budget(self) -> dict[str, Any]:
        budget = self.declaration.budget
        names = ("total_tokens", "max_tool_calls", "max_replan_attempts", "wall_clock_ms", "max_cost_cents")
        parts = {bucket: derived(budget.total_tokens * SHARE_OF_TOKENS[bucket] // 100) for bucket in BUCKETS}
        return {**{name: stated(budget, name) for name in names}, "bucket_tokens": parts}

    def _evidence(self) -> dict[str, Any]:
        seeds: list[tuple[str, str]] = []
        evidence = []
        for name, entry in self.declaration.evidence.items():
            seed = (entry.type, entry.request)
            if seed not in seeds:
                seeds.append(seed)
            age = {} if entry.max_age_s is None else {"max_age_s": written(entry.max_age_s)}
            path = {"name": written(name), "seed": derived(seeds.index(seed)), "path": stated(entry, "path")}
            evidence.append({**path, **age})
        paths = [entry.path for entry in self.declaration.evidence.values()]
        types = sorted({kind for kind, _ in seeds})
        return {
            "ontology": {
                "namespace": derived(self.declaration.name),
                "version": derived(self.declaration.version),
                "entity_types": derived(types),
                "relationship_types": derived(sorted({step for path in paths for step in path})),
            },
            "identity_layer": {"ceid_namespaces": derived(types)},
            "retrieval": {
                "seeds": [
                    {"type": written(kind), "binding": {"from": derived("request"), "pointer": written(place)}}
                    for kind, place in seeds
                ]
                or derived([]),
                "hops": derived(max((len(path) for path in paths), default=0)),
                "fan_out": default(50),
                "limit": default(200),
                "evidence": evidence or derived([]),
            },
        }

    def _tooling(self) -> dict[str, Any]:
        mark = written if self.declaration.tools else derived
        by_adapter: dict[str, list[str]] = {}
        for name in self.tools:
            adapter_id, _, capability = name.rpartition(".")
            by_adapter.setdefault(adapter_id, []).append(capability)
        return {
            "adapter_registry": [
                {"adapter_id": mark(adapter_id), "capabilities": mark(names)}
                for adapter_id, names in by_adapter.items()
            ],
            "permissions": [self._permission(name) for name in self.tools],
            "prohibitions": default([]),
            "egress": stated(self.declaration, "egress"),
        }

    def _permission(self, name: str) -> dict[str, Any]:
        adapter_id, _, capability = name.rpartition(".")
        roles: dict[str, OriginOf] = {}
        for intent, tools in self.used.items():
            who = self.intents[intent].who
            place: Place = ("intents", intent, "who") if who else ("who",)
            for index, role in enumerate((who or self.declaration.who) if name in tools else ()):
                roles.setdefault(role, OriginOf(role, "derived", (*place, index)))
        permission = next(
            (self.declaration.permissions[key] for key in self.declaration.permissions if key in (name, capability)),
            PermissionDeclaration(),
        )
        agreements: dict[str, OriginOf] = {}
        for intent, tools in self.used.items():
            if name in tools and self.tools[name].kind == "write":
                bindings = self._agreements(intent, name)
                for argument in bindings.keys() & agreements.keys() - permission.agrees_with.keys():
                    if bindings[argument] != agreements[argument]:
                        detail = f"two plans take `{argument}` of `{name}` from different places of the request"
                        remedy = "bind both to one, or say in `permissions` with what it agrees"
                        raise refuse_pack("two_places", ("intents", intent, "steps"), detail, remedy)
                agreements |= bindings
        agreements |= {argument: written(pointer) for argument, pointer in permission.agrees_with.items()}
        return {
            "permission_id": derived(f"perm_{adapter_id}_{capability}"),
            "adapter_id": derived(adapter_id),
            "capability": derived(capability),
            "roles": list(roles.values()),
            "allow": derived(True),
            "arg_constraints": stated(permission, "arg_constraints"),
            "agrees_with": agreements or default({}),
            "evidence_args": stated(permission, "evidence_args"),
            **({"consent": stated(permission, "consent")} if permission.consent else {}),
            **({"without_sum": stated(permission, "without_sum")} if permission.without_sum else {}),
        }

    def _agreements(self, intent: str, tool: str) -> dict[str, OriginOf]:
        """Return, by argument of a write, the place in the request from which a plan takes it: both must be equal."""
        template = template_of(intent, self.intents[intent], self.used[intent], self.builder)
        steps = template["steps"]
        plain_steps = [split_origins(step)[0] for step in steps]
        return {
            argument: derived(value["pointer"])
            for step in plain_steps
            if step["tool"] == tool
            for argument, value in step.get("params", {}).items()
            if isinstance(value, dict) and value.keys() == {"from", "pointer"} and value["from"] == "request"
        }

    def _decisions(self) -> dict[str, Any]:
        pack = self.declaration
        specs, intents, templates = [], [], []
        for name, intent in self.intents.items():
            highest = self._highest_mode(self.used[name])
            specs.append(
                {
                    "decision_key": derived(name),
                    "version": derived(pack.version),
                    "owner_role": stated(pack, "approver"),
                    "required_evidence": stated(intent, "requires"),
                    "allowed_outcomes": default(sorted(OUTCOMES)),
                    "approval_mode": derived(highest),
                    "decision_right": derived("recommend" if highest == "read_only" else "execute"),
                    "challenge_required": default(False),
                }
            )
            intents.append(
                {
                    "intent_id": written(name) if pack.intents else derived(name),
                    "version": derived(pack.version),
                    "owner_role": stated(pack, "owner"),
                    "description": stated(intent, "description"),
                    "risk_class": derived(highest),
                    "accepted_channels": stated(intent, "channels"),
                    "locale_support": stated(intent, "locales"),
                    "eligible_task_templates": derived([f"{name}.task"]),
                }
            )
            templates.append(
                {"version": derived(pack.version), **template_of(name, intent, self.used[name], self.builder)}
            )
        models = {"models": stated(pack, "models")} if pack.models else {}
        return {"decision_specs": specs, "intents": intents, "task_templates": templates, **models}

    def _eval_target(self, name: str) -> dict[str, Any]:
        minimums = {"policy": 1, "utility": 1, "latency": 0, "safety": 1, "economics": 0}
        return {"intent": derived(name), **{axis: default(share) for axis, share in minimums.items()}}

    def _lint(self, expansion: Expansion) -> None:
        pack = expansion.pack
        merged = merge(pack)
        problems = [*lint_merged(merged, self.definitions), *lint_access(merged, self.definitions, None)]
        if problems:
            raise InvalidArtifact(*expansion.placed(problems))
        compile_policy(
            list(merged.bundles.values()),
            gates=merged.gates,
            must_refuse=(),
            must_escalate=(),
            vocabulary=pack_vocabulary(pack, merged.specs, self.definitions.values()),
            declared={name: tool.approval_mode for name, tool in self.every.items()},
        )

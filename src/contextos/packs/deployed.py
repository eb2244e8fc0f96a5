"""Lints a pack against the deployment that runs it: finds what its limits, people, agents and version rule out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.identity import Approver, DirectoryLimits, HeldRoles, KnownAgent
from contextos.contracts.envelopes.pack import ApprovalGate
from contextos.contracts.envelopes.policy import APPROVAL_MODES, ApprovalMode, PolicyBundle
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition
from contextos.contracts.model import Count, Model, Name
from contextos.contracts.scope import platform_scopes_of
from contextos.control.artifacts import MergedArtifacts
from contextos.control.lint.graph import PointerPath
from contextos.control.pinning import unmet_requirement
from contextos.deployment.deployment import Deployment
from contextos.errors import Problem
from contextos.trust.approvals.acts import MEMORY_REVIEWER_ROLE
from contextos.trust.approvals.assertion import OPERATOR_ROLE, grant_fault

_RANK: Final = APPROVAL_MODES.index


class Deployed(Model):
    """A deployment, as lint sees it: its limits of a run, its version, and the time now in Unix seconds. `logins` says
    whether a login proves an answer to an approval, and `unproved` whether an answer needs no proof.
    """

    limits: DirectoryLimits
    runtime_version: Name
    now_s: Count
    logins: bool
    unproved: bool

    @classmethod
    def by(cls, deployment: Deployment) -> Deployed:
        config = deployment.config
        return cls(
            limits=DirectoryLimits(**{name: getattr(config.limits, name) for name in DirectoryLimits.model_fields}),
            runtime_version=config.runtime_version,
            now_s=deployment.ports.clock.now_us() // 1_000_000,
            logins=deployment.ports.approval_logins is not None,
            unproved="unsafe_local_approvals" in config.unsafe,
        )


def lint_deployed(
    merged: MergedArtifacts, definitions: Mapping[str, AdapterDefinition], held: HeldRoles, here: Deployed
) -> Iterator[Problem]:
    """Yield a problem for each statement of a pack that nothing in this deployment can fulfil."""
    yield from _DeployedLint(merged, definitions, held, here).problems()


def lint_rule_names(bundle: PolicyBundle) -> Iterator[Problem]:
    """Yield a problem for each name that several rules of a bundle share: records and guardrails take them for one."""
    names = [rule.rule_id for rule in bundle.policy_dsl.rules]
    for name in (name for name, count in Counter(names).items() if count > 1):
        place = pointer(("policy_dsl", "rules", len(names) - 1 - names[::-1].index(name), "rule_id"))
        yield Problem(place, "duplicate", f"`{name}` is the name of two rules", "give each rule its own name")


class _DeployedLint:
    def __init__(
        self, merged: MergedArtifacts, definitions: Mapping[str, AdapterDefinition], held: HeldRoles, here: Deployed
    ) -> None:
        self.merged, self.pack, self.held, self.here = merged, merged.pack, held, here
        self.definitions = definitions
        self.agents = None if held.agents is None else [agent for agent in held.agents if agent.lifecycle == "active"]
        budget = self.pack.pack_meta.run_budget
        self.stated = {name: getattr(budget, name, None) for name in DirectoryLimits.model_fields}
        self.stated["max_session_duration_ms"] = self.pack.pack_meta.max_session_duration_ms

    def problems(self) -> Iterator[Problem]:
        if unmet := unmet_requirement(self.pack, self.here.runtime_version):
            yield Problem("/contract_meta/compatibility/requires", "unmet", f"the pack requires {unmet}")
        yield from self._limit_problems()
        yield from self._template_problems()
        yield from self._tool_problems()
        yield from self._delegation_problems()
        yield from self._gate_problems()
        yield from self._role_problems()
        for index, name in enumerate(self.pack.tooling_layer.prohibitions):
            if name.rpartition(".")[0] not in self.definitions:
                at = pointer(("tooling_layer", "prohibitions", index))
                yield Problem(at, "not_now", f"no adapter of the tenant has the tool `{name}`", "correct or remove it")

    def _lowest_limit(self, name: str) -> float | None:
        """Return the lowest value of a limit that the pack, the deployment or the tenant states."""
        limits = (self.stated[name], getattr(self.here.limits, name), getattr(self.held.limits, name))
        return min((limit for limit in limits if limit is not None), default=None)

    def _limit_problems(self) -> Iterator[Problem]:
        for name, limit in self.stated.items():
            lowest = self._lowest_limit(name)
            if limit is not None and lowest is not None and limit > lowest:
                group: PointerPath = () if name == "max_session_duration_ms" else ("run_budget",)
                detail = f"`{name}` is {limit:g}, and this deployment or the tenant allows at most {lowest:g}"
                yield Problem(pointer(("pack_meta", *group, name)), "above_limit", detail, f"write at most {lowest:g}")

    def _template_problems(self) -> Iterator[Problem]:
        """Yield a problem for each plan that no intent names, or that no run can end within its limits."""
        used_names = {name for intent in self.merged.intents.values() for name in intent.eligible_task_templates}
        for index, template in enumerate(self.pack.decision_layer.task_templates):
            place: PointerPath = ("decision_layer", "task_templates", index)
            if template.template_id not in used_names:
                detail = f"no intent names the task template `{template.template_id}`, so no run has it"
                yield Problem(pointer(place), "unused", detail, "add it to `eligible_task_templates`, or remove it")
            is_planned = not template.is_session
            costs = [tool.cost_cents if (tool := self._find_tool(step.tool)) else 0 for step in template.steps]
            calls, money = (len(costs), sum(costs)) if is_planned else (min(len(costs), 1), min(costs, default=0))
            for name, amount in (("max_tool_calls", calls), ("max_cost_cents", money)):
                lowest = self._lowest_limit(name)
                if lowest is not None and round(amount, 4) > lowest:
                    detail = f"`{template.template_id}` needs {amount:g} of `{name}`, and a run has {lowest:g}"
                    yield Problem(pointer((*place, "steps")), "beyond_limit", detail, f"raise `{name}`")

    def _tool_problems(self) -> Iterator[Problem]:
        """Yield a problem for each tool that no intent, no agent or no user of the tenant can use."""
        layer = self.pack.tooling_layer
        for position, entry in enumerate(layer.adapter_registry):
            for index, short in enumerate(entry.capabilities):
                name = f"{entry.adapter_id}.{short}"
                tool = self._find_tool(name)
                if tool is None or name in layer.prohibitions:
                    continue
                place = pointer(("tooling_layer", "adapter_registry", position, "capabilities", index))
                highest = self._highest_mode(name)
                if highest is not None and _RANK(tool.approval_mode) > _RANK(highest):
                    detail = f"`{name}` is `{tool.approval_mode}`, and its intents reach `{highest}` at most"
                    yield Problem(
                        place, "above_ceiling", detail, "raise `safety_ceiling` or the `risk_class` of an intent"
                    )
                if self.agents is not None and not any(
                    _can_call(agent, self.definitions[entry.adapter_id], tool) for agent in self.agents
                ):
                    detail = f"no active agent of the tenant has the ceiling, scopes and platform scopes for `{name}`"
                    yield Problem(place, "no_agent", detail, "raise one in the directory, or drop the tool")
                if self.held.requesters is not None and not self._has_user(entry.adapter_id, short, tool):
                    detail = f"no user with a permitted role has the scopes for `{name}`"
                    yield Problem(place, "no_user", detail, "give the scopes in the directory, or drop the tool")

    def _find_tool(self, name: str) -> CapabilityDefinition | None:
        adapter_id, _, short = name.partition(".")
        adapter = self.definitions.get(adapter_id)
        return next((tool for tool in adapter.capabilities if tool.name == short), None) if adapter else None

    def _highest_mode(self, name: str) -> ApprovalMode | None:
        """Return the highest mode that a run with this tool reaches; None if no intent's plan or session has it."""
        meta = self.pack.pack_meta
        ids = [plan.intent for plan in self.merged.templates.values() if any(step.tool == name for step in plan.steps)]
        intents = [self.merged.intents[key] for key in ids if key in self.merged.intents]
        modes = [min((intent.risk_class, meta.safety_ceiling), key=_RANK) for intent in intents]
        return max(modes, key=_RANK, default=None)

    def _has_user(self, adapter_id: str, short: str, tool: CapabilityDefinition) -> bool:
        layer, users = self.pack.tooling_layer, self.held.requesters or ()
        grants = [grant for grant in layer.permissions if (grant.adapter_id, grant.capability) == (adapter_id, short)]
        roles = {role for grant in grants if grant.allow for role in grant.roles}
        with_role = [user for user in users if roles & {user.role, *user.roles}]
        # If nobody holds the role, the problem of its permission says so.
        return not with_role or any({*tool.required_scopes} <= {*user.scopes} for user in with_role)

    def _delegation_problems(self) -> Iterator[Problem]:
        listed = self.held.delegations
        agents = None if self.agents is None else {agent.agent_id for agent in self.agents}
        live = [item for item in listed or () if item.expires_at > self.here.now_s and item.agent_id in (agents or ())]
        if listed and agents is not None and not live:
            detail = "every delegation that the directory lists is over, or to an agent that is not active"
            yield Problem("/tooling_layer/permissions", "no_delegation", detail, "renew one, or remove them")

    def _gate_problems(self) -> Iterator[Problem]:
        session_ms = self._lowest_limit("max_session_duration_ms")
        for index, gate in enumerate(self.pack.policy_layer.approval_gates):
            at = ("policy_layer", "approval_gates", index)
            if session_ms is not None and gate.timeout_s * 1000 > session_ms:
                detail = f"`{gate.gate_id}` waits {gate.timeout_s} s, and a run is over after {session_ms / 1000:g} s"
                yield Problem(pointer((*at, "timeout_s")), "beyond_limit", detail, "wait less, or let runs last longer")
            if reason := self._why_unanswered(gate):
                detail = f"nobody can answer `{gate.gate_id}`: {reason}"
                yield Problem(
                    pointer((*at, "required_approver_role")), "nobody_answers", detail, "change the directory"
                )

    def _why_unanswered(self, gate: ApprovalGate) -> str | None:
        """Return why no holder of a gate's role can answer it, or None. A role without holders is not reported here."""
        role = gate.required_approver_role
        holders = [person for person in self.held.people or () if role in person.roles]
        proved = [person for person in holders if self._can_prove(person)]
        granted = [person for person in proved if grant_fault(person, role) is None]
        others = [person for person in granted if self._is_other(person)]
        if not holders or others:
            return None
        if not proved:
            return f"the person with `{role}` has no key, passkey or login that counts here"
        if not granted:
            return f"nobody else granted `{role}` to the person who holds it"
        return f"the person with `{role}` wrote the pack or owns the agents, and is barred"

    def _can_prove(self, person: Approver) -> bool:
        proofs: Sequence[Any] = (*person.keys, *person.passkeys, *(person.logins if self.here.logins else ()))
        return bool(proofs) or self.here.unproved

    def _is_other(self, person: Approver) -> bool:
        """Return whether a person is neither the author of the pack nor behind each of the agents."""
        names = {person.approver_id, *person.user_ids}
        conflicts = [bool(names & {agent.agent_id, agent.owner}) for agent in self.agents or ()]
        return self.pack.contract_meta.issuer not in names and not (conflicts and all(conflicts))

    def _role_problems(self) -> Iterator[Problem]:
        """Yield a problem for each operator's role that the pack needs and that nobody holds."""
        has_memory = [bool(template.memory) for template in self.pack.decision_layer.task_templates]
        needs = list[tuple[PointerPath, str, str]]()
        if True in has_memory:
            place: PointerPath = ("decision_layer", "task_templates", has_memory.index(True), "memory")
            needs.append((place, MEMORY_REVIEWER_ROLE, "a memory that it proposes"))
        if self.pack.policy_layer.guardrails.must_escalate:
            needs.append((("policy_layer", "guardrails", "must_escalate"), OPERATOR_ROLE, "a run that it escalates"))
        for path, role, duty in needs:
            if role not in self.held.approvers:
                detail = f"nobody holds the role `{role}`, so nobody decides about {duty}"
                yield Problem(pointer(path), "nobody_holds", detail, "give somebody the role in the directory")


def _can_call(agent: KnownAgent, adapter: AdapterDefinition, tool: CapabilityDefinition) -> bool:
    is_high_enough = _RANK(agent.ceiling) >= _RANK(tool.approval_mode)
    scopes = {*platform_scopes_of(adapter, tool)}
    return is_high_enough and {*tool.required_scopes} <= {*agent.scopes} and scopes <= agent.platform

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

_MODES: Final = APPROVAL_MODES.index


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
        at = pointer(("policy_dsl", "rules", len(names) - 1 - names[::-1].index(name), "rule_id"))
        yield Problem(at, "duplicate", f"`{name}` is the name of two rules", "give each rule its own name")


class _DeployedLint:
    def __init__(
        self, merged: MergedArtifacts, definitions: Mapping[str, AdapterDefinition], held: HeldRoles, here: Deployed
    ) -> None:
        self.merged, self.pack, self.held, self.here = merged, merged.pack, held, here
        self.definitions = definitions
        self.agents = None if held.agents is None else [one for one in held.agents if one.lifecycle == "active"]
        budget = self.pack.pack_meta.run_budget
        self.stated = {name: getattr(budget, name, None) for name in DirectoryLimits.model_fields}
        self.stated["max_session_duration_ms"] = self.pack.pack_meta.max_session_duration_ms

    def problems(self) -> Iterator[Problem]:
        if unmet := unmet_requirement(self.pack, self.here.runtime_version):
            yield Problem("/contract_meta/compatibility/requires", "unmet", f"the pack requires {unmet}")
        yield from self._limits()
        yield from self._templates()
        yield from self._tools()
        yield from self._delegations()
        yield from self._gates()
        yield from self._roles()
        for index, name in enumerate(self.pack.tooling_layer.prohibitions):
            if name.rpartition(".")[0] not in self.definitions:
                at = pointer(("tooling_layer", "prohibitions", index))
                yield Problem(at, "not_now", f"no adapter of the tenant has the tool `{name}`", "correct or remove it")

    def _lowest(self, name: str) -> float | None:
        """Return the lowest value of a limit that the pack, the deployment or the tenant states."""
        stated = (self.stated[name], getattr(self.here.limits, name), getattr(self.held.limits, name))
        return min((one for one in stated if one is not None), default=None)

    def _limits(self) -> Iterator[Problem]:
        for name, stated in self.stated.items():
            lowest = self._lowest(name)
            if stated is not None and lowest is not None and stated > lowest:
                above: PointerPath = () if name == "max_session_duration_ms" else ("run_budget",)
                detail = f"`{name}` is {stated:g}, and this deployment or the tenant allows at most {lowest:g}"
                yield Problem(pointer(("pack_meta", *above, name)), "above_limit", detail, f"write at most {lowest:g}")

    def _templates(self) -> Iterator[Problem]:
        """Yield a problem for each plan that no intent names, or that no run can end within its limits."""
        named = {name for intent in self.merged.intents.values() for name in intent.eligible_task_templates}
        for index, template in enumerate(self.pack.decision_layer.task_templates):
            at: PointerPath = ("decision_layer", "task_templates", index)
            if template.template_id not in named:
                detail = f"no intent names the task template `{template.template_id}`, so no run has it"
                yield Problem(pointer(at), "unused", detail, "add it to `eligible_task_templates`, or remove it")
            planned = not template.is_session
            costs = [one.cost_cents if (one := self._tool(step.tool)) else 0 for step in template.steps]
            calls, money = (len(costs), sum(costs)) if planned else (min(len(costs), 1), min(costs, default=0))
            for name, needed in (("max_tool_calls", calls), ("max_cost_cents", money)):
                lowest = self._lowest(name)
                if lowest is not None and round(needed, 4) > lowest:
                    detail = f"`{template.template_id}` needs {needed:g} of `{name}`, and a run has {lowest:g}"
                    yield Problem(pointer((*at, "steps")), "beyond_limit", detail, f"raise `{name}`")

    def _tools(self) -> Iterator[Problem]:
        """Yield a problem for each tool that no intent, no agent or no user of the tenant can use."""
        layer = self.pack.tooling_layer
        for place, entry in enumerate(layer.adapter_registry):
            for index, short in enumerate(entry.capabilities):
                name = f"{entry.adapter_id}.{short}"
                tool = self._tool(name)
                if tool is None or name in layer.prohibitions:
                    continue
                at = pointer(("tooling_layer", "adapter_registry", place, "capabilities", index))
                highest = self._highest(name)
                if highest is not None and _MODES(tool.approval_mode) > _MODES(highest):
                    detail = f"`{name}` is `{tool.approval_mode}`, and its intents reach `{highest}` at most"
                    yield Problem(
                        at, "above_ceiling", detail, "raise `safety_ceiling` or the `risk_class` of an intent"
                    )
                if self.agents is not None and not any(
                    _can_call(one, self.definitions[entry.adapter_id], tool) for one in self.agents
                ):
                    detail = f"no active agent of the tenant has the ceiling, scopes and platform scopes for `{name}`"
                    yield Problem(at, "no_agent", detail, "raise one in the directory, or drop the tool")
                if self.held.requesters is not None and not self._has_user(entry.adapter_id, short, tool):
                    detail = f"no user with a permitted role has the scopes for `{name}`"
                    yield Problem(at, "no_user", detail, "give the scopes in the directory, or drop the tool")

    def _tool(self, name: str) -> CapabilityDefinition | None:
        adapter_id, _, short = name.partition(".")
        adapter = self.definitions.get(adapter_id)
        return next((one for one in adapter.capabilities if one.name == short), None) if adapter else None

    def _highest(self, name: str) -> ApprovalMode | None:
        """Return the highest mode that a run with this tool reaches; None if no intent's plan or session has it."""
        meta = self.pack.pack_meta
        using = [one.intent for one in self.merged.templates.values() if any(step.tool == name for step in one.steps)]
        intents = [self.merged.intents[one] for one in using if one in self.merged.intents]
        modes = [min((one.risk_class, meta.safety_ceiling), key=_MODES) for one in intents]
        return max(modes, key=_MODES, default=None)

    def _has_user(self, adapter_id: str, short: str, tool: CapabilityDefinition) -> bool:
        layer, users = self.pack.tooling_layer, self.held.requesters or ()
        asked = [one for one in layer.permissions if (one.adapter_id, one.capability) == (adapter_id, short)]
        roles = {role for one in asked if one.allow for role in one.roles}
        with_role = [one for one in users if roles & {one.role, *one.roles}]
        # If nobody holds the role, the problem of its permission says so.
        return not with_role or any({*tool.required_scopes} <= {*one.scopes} for one in with_role)

    def _delegations(self) -> Iterator[Problem]:
        listed = self.held.delegations
        agents = None if self.agents is None else {one.agent_id for one in self.agents}
        live = [one for one in listed or () if one.expires_at > self.here.now_s and one.agent_id in (agents or ())]
        if listed and agents is not None and not live:
            detail = "every delegation that the directory lists is over, or to an agent that is not active"
            yield Problem("/tooling_layer/permissions", "no_delegation", detail, "renew one, or remove them")

    def _gates(self) -> Iterator[Problem]:
        session_ms = self._lowest("max_session_duration_ms")
        for index, gate in enumerate(self.pack.policy_layer.approval_gates):
            at = ("policy_layer", "approval_gates", index)
            if session_ms is not None and gate.timeout_s * 1000 > session_ms:
                detail = f"`{gate.gate_id}` waits {gate.timeout_s} s, and a run is over after {session_ms / 1000:g} s"
                yield Problem(pointer((*at, "timeout_s")), "beyond_limit", detail, "wait less, or let runs last longer")
            if why := self._unanswered(gate):
                detail = f"nobody can answer `{gate.gate_id}`: {why}"
                yield Problem(
                    pointer((*at, "required_approver_role")), "nobody_answers", detail, "change the directory"
                )

    def _unanswered(self, gate: ApprovalGate) -> str | None:
        """Return why no holder of a gate's role can answer it, or None. A role without holders is not reported here."""
        role = gate.required_approver_role
        holders = [one for one in self.held.people or () if role in one.roles]
        proved = [one for one in holders if self._can_prove(one)]
        granted = [one for one in proved if grant_fault(one, role) is None]
        others = [one for one in granted if self._is_other(one)]
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
        behind = [bool(names & {one.agent_id, one.owner}) for one in self.agents or ()]
        return self.pack.contract_meta.issuer not in names and not (behind and all(behind))

    def _roles(self) -> Iterator[Problem]:
        """Yield a problem for each operator's role that the pack needs and that nobody holds."""
        remembering = [bool(one.memory) for one in self.pack.decision_layer.task_templates]
        needed = list[tuple[PointerPath, str, str]]()
        if True in remembering:
            place: PointerPath = ("decision_layer", "task_templates", remembering.index(True), "memory")
            needed.append((place, MEMORY_REVIEWER_ROLE, "a memory that it proposes"))
        if self.pack.policy_layer.guardrails.must_escalate:
            needed.append((("policy_layer", "guardrails", "must_escalate"), OPERATOR_ROLE, "a run that it escalates"))
        for at, role, what in needed:
            if role not in self.held.approvers:
                detail = f"nobody holds the role `{role}`, so nobody decides about {what}"
                yield Problem(pointer(at), "nobody_holds", detail, "give somebody the role in the directory")


def _can_call(agent: KnownAgent, adapter: AdapterDefinition, tool: CapabilityDefinition) -> bool:
    is_high_enough = _MODES(agent.ceiling) >= _MODES(tool.approval_mode)
    needed = {*platform_scopes_of(adapter, tool)}
    return is_high_enough and {*tool.required_scopes} <= {*agent.scopes} and needed <= agent.platform

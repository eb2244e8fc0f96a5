"""The facts that policy decides from, and the controls that decisions raise: gates, escalations, required evidence,
bounds on arguments, prohibitions.

A control binds from the decision that raised it on, whichever point that was: one raised at `compile` governs every
later call of that capability, one raised at `plan` the call of that step. Controls only add up; nothing removes one.
Source: docs/design/contracts.md, "Policy".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

from contextos.contracts.encoding.jcs import canonical, digest
from contextos.contracts.envelopes.policy import ArgConstraint, CapabilityView, PolicyDecision
from contextos.contracts.envelopes.tool import CapabilityDefinition
from contextos.contracts.facts import LATE_ROOTS
from contextos.contracts.journal import Logged
from contextos.contracts.model import final_fields
from contextos.errors import Problem

CheckArgs = Callable[[Mapping[str, Sequence[ArgConstraint]], Mapping[str, Any], bool], Sequence[Problem]]
"""(bounds by argument, arguments, whether a gate is active) -> the violated bounds."""


_OF_CALL: Final = LATE_ROOTS - {"args"}
_OF_RUN: Final = frozenset({"request", "run", "tenant", "user"})
_PIECES: Final = {root: min(part) for part in (_OF_CALL, _OF_RUN) for root in part}
"""By root, the first root of the piece of text in which it stands: a piece has roots between which no other one sorts,
and which become known together. Any other root is a piece of its own.
"""


class KnownFacts(dict[str, Any]):
    """Facts by root. Each piece of their canonical text is made once, also for what is made of these facts.

    Raises:
        MalformedJson: a value is not JSON; raised where its text is needed first.
    """

    def __init__(
        self,
        facts: Mapping[str, Any],
        texts: Mapping[str, bytes] = MappingProxyType({}),
        unwritten: Iterable[str] | None = None,
        served: tuple[str | None, str | None] | None = None,
    ) -> None:
        super().__init__(facts)
        self._texts, self._unwritten, self._served = texts, tuple(self) if unwritten is None else unwritten, served
        self._text: bytes | None = None
        self._digest: str | None = None
        self._about: dict[bytes, KnownFacts] = {}

    @property
    def served(self) -> tuple[str | None, str | None]:
        """The intent and the environment, as the run and its request state them; no intent if they disagree."""
        if self._served is None:
            run, request = ({} if not isinstance(one, dict) else one for one in (self.get("run"), self.get("request")))
            stated = (run.get("intent"), request.get("intent"), run.get("environment"))
            of_run, of_request, environment = (one if isinstance(one, str) and one else None for one in stated)
            intent = of_run or of_request if None in (of_run, of_request) or of_run == of_request else None
            self._served = intent, environment
        return self._served

    def also(self, facts: Mapping[str, Any]) -> KnownFacts:
        """Return these facts with other roots beside or instead of theirs."""
        texts, others, new = self._written(), {_PIECES.get(root, root) for root in facts}, [*facts]
        if not others.isdisjoint(texts):
            texts = {first: text for first, text in texts.items() if first not in others}
            new += [root for root in self.keys() - facts.keys() if _PIECES.get(root, root) in others]
        served = self.served if facts.keys().isdisjoint(("run", "request")) else None
        return KnownFacts({**self, **facts}, texts, new, served)

    def about(self, tool: CapabilityView) -> KnownFacts:
        """Return these facts with those of a tool."""
        found = self._about.get(tool.text)
        if found is None:
            made, texts = {**self, "capability": tool.facts}, {**self._written(), "capability": tool.text}
            found = self._about[tool.text] = KnownFacts(made, texts, (), self.served)
        return found

    def _written(self) -> Mapping[str, bytes]:
        """The pieces of the canonical text of these facts, by their first roots."""
        if self._unwritten:
            pieces: dict[str, dict[str, Any]] = {}
            for root in self._unwritten:
                pieces.setdefault(_PIECES.get(root, root), {})[root] = self[root]
            self._texts = {**self._texts, **{first: canonical(piece)[1:-1] for first, piece in pieces.items()}}
            self._unwritten = ()
        return self._texts

    @property
    def text(self) -> bytes:
        """The canonical JSON of all facts."""
        if self._text is None:
            texts = self._written()
            self._text = b"{%b}" % b",".join(map(texts.__getitem__, sorted(texts)))
        return self._text

    @property
    def digest(self) -> str:
        """The content address of all facts."""
        if self._digest is None:
            self._digest = digest(self.text)
        return self._digest


@final_fields
class Controls:
    """The controls that one or more policy decisions raised, united."""

    gates: frozenset[str] = frozenset()
    must_escalate: frozenset[str] = frozenset()
    requires: frozenset[str] = frozenset()
    arg_constraints: Mapping[str, tuple[ArgConstraint, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, decision: PolicyDecision) -> Controls:
        """Return the controls that a decision raises, whether it allows or not."""
        bounds = {name: tuple(constraints) for name, constraints in decision.arg_constraints.items()}
        return cls(frozenset(decision.gates), frozenset(decision.must_escalate), frozenset(decision.requires), bounds)

    def __or__(self, other: Controls) -> Controls:
        names = sorted({*self.arg_constraints, *other.arg_constraints})
        return Controls(
            self.gates | other.gates,
            self.must_escalate | other.must_escalate,
            self.requires | other.requires,
            {
                name: _distinct((*self.arg_constraints.get(name, ()), *other.arg_constraints.get(name, ())))
                for name in names
            },
        )

    def bind(self, decision: PolicyDecision) -> PolicyDecision:
        """Return the decision with these controls united into its own."""
        if self == NO_CONTROLS:
            return decision
        own = Controls.of(decision)
        united = own | self
        changed: dict[str, Any] = {
            name: tuple(sorted(getattr(united, name)))
            for name in ("gates", "must_escalate", "requires")
            if getattr(united, name) != getattr(own, name)
        }
        if united.arg_constraints != own.arg_constraints:
            changed["arg_constraints"] = united.arg_constraints
        return decision.model_copy(update=changed) if changed else decision


NO_CONTROLS = Controls()


@final_fields
class RunControls:
    """The controls that the decisions of a run raised so far, by what they govern.

    `steps` has the key `<plan revision>/<step id>`.
    """

    capabilities: Mapping[str, Controls] = field(default_factory=dict)
    steps: Mapping[str, Controls] = field(default_factory=dict)

    def with_compiled(self, decisions: Mapping[str, PolicyDecision]) -> RunControls:
        """Add the decisions at `compile`, by capability."""
        return RunControls(_united(self.capabilities, decisions.items()), self.steps)

    def with_planned(self, revision: int, decisions: Mapping[str, PolicyDecision]) -> RunControls:
        """Add the decisions at `plan`, by step id."""
        keyed = ((f"{revision}/{step_id}", decision) for step_id, decision in decisions.items())
        return RunControls(self.capabilities, _united(self.steps, keyed))

    def on_call(self, capability_id: str, key: str) -> Controls:
        """Return the controls on the call of a capability by the step with this key."""
        return self.capabilities.get(capability_id, NO_CONTROLS) | self.steps.get(key, NO_CONTROLS)

    @property
    def must_escalate(self) -> tuple[str, ...]:
        """Return what escalates the whole run, about whichever capability it was raised."""
        return tuple(sorted(frozenset().union(*(one.must_escalate for one in self.capabilities.values()))))


NO_RUN_CONTROLS = RunControls()


def _united(raised: Mapping[str, Controls], decisions: Iterable[tuple[str, PolicyDecision]]) -> dict[str, Controls]:
    united = dict(raised)
    for name, decision in decisions:
        united[name] = united.get(name, NO_CONTROLS) | Controls.of(decision)
    return united


def _distinct(constraints: Iterable[ArgConstraint]) -> tuple[ArgConstraint, ...]:
    by_text = {canonical(constraint.to_json()): constraint for constraint in constraints}
    return tuple(by_text.values())


class Prohibitions:
    """The prohibitions in force in a run, from its journal entries `log`, which only grows.

    `bind` goes on from the entries that it has read before.
    """

    def __init__(self, log: Sequence[Logged]) -> None:
        self._log, self._read = log, 0
        self._matched: dict[str, None] = {}

    def bind(self, decision: PolicyDecision, prohibiting: Mapping[str, Sequence[str]]) -> PolicyDecision:
        """Return the decision about a tool, denied if an earlier decision of the run had a rule that prohibits it.

        `prohibiting` has the tools that a rule prohibits, by its id.
        """
        for at in range(self._read, len(self._log)):
            if prohibiting and self._log[at].kind == "policy.decided":
                body = self._log[at].body
                for one in body.get("decisions", [body]):
                    self._matched |= dict.fromkeys(one["matched_rule_ids"])
        self._read = len(self._log)
        by = tuple(rule for rule in self._matched if decision.capability_id in prohibiting.get(rule, ()))
        if not by:
            return decision
        # A pack that observes is bound by the rules above it also where its own rules deny the same call.
        denying = tuple(dict.fromkeys((*decision.denying_rule_ids, *by)))
        denied = {"allowed": False, "reason": "prohibited"} if decision.allowed else {}
        return decision.model_copy(update={"denying_rule_ids": denying, **denied})


def required_of(definition: CapabilityDefinition, requires: Iterable[str]) -> frozenset[str]:
    """Return the evidence that policy requires of a call. A read cannot require what only it produces."""
    return frozenset(requires) - frozenset(definition.produces if definition.kind == "read" else ())

"""Policy: bundles of rules as authored, and the decision at one enforcement point.

Source: Reference Architecture, "Trust plane"; docs/design/contracts.md, "Policy", "Approval modes".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Annotated, Any, Literal, Self, get_args
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.ids import BundleId, CapabilityId, Digest, GateId, PolicyDecisionId, RuleId
from contextos.contracts.model import (
    MAX_KEYS,
    Map,
    Model,
    Name,
    NonEmpty,
    Number,
    Positive,
    Seq,
    Text,
    Whole,
    final_fields,
)

ApprovalMode = Literal["read_only", "local_write", "network", "delegated", "destructive"]
APPROVAL_MODES: tuple[ApprovalMode, ...] = ("read_only", "local_write", "network", "delegated", "destructive")
"""The approval modes in order of rising risk."""

Point = Literal["compile", "plan", "execute", "model", "memory", "commit"]
POINTS: tuple[Point, ...] = ("compile", "plan", "execute", "model", "memory", "commit")

Level = Literal["platform", "tenant", "pack"]
LEVELS: tuple[Level, ...] = ("platform", "tenant", "pack")
"""The levels of rules from strong to weak: a rule cannot loosen a rule of an earlier level."""

FactType = Literal["boolean", "number", "string", "array", "object"]


class AppliesTo(Model):
    """Which requests a rule applies to. An absent field matches every value."""

    intent: Name | None = None
    """The id of the intent; absent, every intent."""
    capability: Name | None = None
    """The id of the tool, `<adapter>.<name>`; absent, every tool."""
    point: Point | None = None
    """The point at which policy is asked; absent, the first point at which every fact of the rule can be known."""
    environment: Name | None = None
    """The environment of the deployment: `dev`, `staging` or `prod`; absent, all."""


class ArgConstraint(Model):
    """A limit on one argument of a call.

    With `unless_approved`, an approval by a person lifts `min`, `max`, `whole`, `enum` and `pattern`.
    """

    min: Number | None = None
    """The lowest number that the argument can be; absent, no lower limit."""
    max: Number | None = None
    """The highest number that the argument can be; absent, no upper limit."""
    whole: bool = False
    """Whether a number has to be whole."""
    enum: Seq[Any] | None = None
    """The values that the argument can have, compared as JSON; absent, every value."""
    required: bool | None = None
    """If false, the argument can be absent; if true or null, it has to be there."""
    pattern: str | None = Field(default=None, max_length=512)
    """A regular expression (RE2) that the whole argument, a string, has to match."""
    unless_approved: bool = False
    """Whether an approval of the call by a person lifts the other limits."""


class Then(Model):
    """What a rule does when its condition is true: allow, deny, require an approval, or limit arguments."""

    allow: bool
    """Whether a call that matches is allowed; any rule that denies wins over all that allow."""
    approval_mode: ApprovalMode | None = None
    """The approval mode of the call; a rule can lower the declared one only if it limits an argument."""
    requires: Seq[Name] = ()
    """The names of evidence that has to be available before the call."""
    prohibits: Seq[Name] = ()
    """The ids of tools that the run can no longer use once the rule has matched in a decision."""
    requires_approval_gate: GateId | None = None
    """The gate at which a person has to approve the call; absent, this rule asks nobody."""
    arg_constraints: Map[ArgConstraint] = {}
    """Limits on arguments of the call, by name."""


class Rule(Model):
    """One policy rule: a JsonLogic condition and its effect. `facts` declares the types that cannot be inferred."""

    rule_id: RuleId
    """The id of the rule, by which records and guardrails name it."""
    applies_to: AppliesTo = AppliesTo()
    """The calls that the rule is about; by default all."""
    condition: Any = Field(alias="if")
    """A JsonLogic condition over the facts of policy; a fact that is missing or of another type makes the rule deny."""
    then: Then
    """What the rule does if its condition is true."""
    decision_binding: Name | None = None
    """The decision key for which the rule was written, for readers; lint refuses an unknown one, and `applies_to` alone
    says where the rule is asked.
    """
    rationale: Text = ""
    """Why the rule exists, for people; the planner reads it if the rule matches when the context is compiled, and an
    agent if the rule denies its call.
    """
    non_enforcing: bool = False
    """Whether the rule can only restrict: it never allows a call and never lowers an approval mode."""
    facts: Map[FactType] = {}
    """The types of facts that the operators and literals of the condition do not show, by the path of the fact."""


class PolicyDsl(Model):
    """The rules of a policy bundle, and the language they are written in."""

    language: Literal["jsonlogic"]
    """The language of the conditions; there is one."""
    rules: NonEmpty[Rule]
    """The rules, at least one."""


class CountedTool(Model):
    """Another tool whose effects a history fact counts, with the tool's own names of the arguments."""

    of: Name | None = None
    """The tool's argument that `sum` adds up; absent, the argument that the fact names in `of`."""
    subject: Name | None = None
    """The tool's argument with the subject; absent, the argument that the fact names in `subject`."""


class HistoryFact(Model):
    """A fact about the past effects of a capability: their number, or the sum of the argument `of`.

    It counts the effects of the last `window_s` seconds `over` the same user, agent or tenant, or over the same value
    of the argument `subject` (for example an order). Effects that were dispatched and may have happened count. `also`
    names every other capability with the same effect. A call of a read that leaves the machine also counts, once for
    all its attempts: so a rule can bound the rate of such calls.
    """

    capability: CapabilityId
    """The id of the tool whose past effects are counted."""
    also: Map[CountedTool] = {}
    """The other tools with the same effect, by id: their effects count too, and a rule about each reads the fact."""
    aggregate: Literal["count", "sum"]
    """Whether the effects are counted or an argument of them is added up."""
    of: Name | None = None
    """The argument that `sum` adds up, a number; `count` has none."""
    over: Literal["user", "agent", "tenant", "subject"]
    """Whose effects are counted: those of the same user, agent or tenant, or with the same value of `subject`."""
    subject: Name | None = None
    """The argument whose value the effects share; only with `over` `subject`, and required then."""
    window_s: Positive
    """How far back effects count, in seconds."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if (self.aggregate == "sum") is not (self.of is not None):
            raise ValueError("a `sum` names the argument to add up in `of`, and a `count` has none")
        if (self.over == "subject") is not (self.subject is not None):
            raise ValueError("`subject` names an argument if it counts over one, and only then")
        if self.capability in self.also:
            raise ValueError("`also` names other tools than `capability`; remove it there")
        if any((self.of is None and tool.of) or (self.subject is None and tool.subject) for tool in self.also.values()):
            raise ValueError("a tool of `also` names an `of` or a `subject` only where the fact has one")
        return self

    def counted(self) -> dict[str, CountedTool]:
        """Return every tool whose effects count, by id, with its names of the arguments."""
        main = CountedTool(of=self.of, subject=self.subject)
        return {self.capability: main} | {
            name: CountedTool(of=tool.of or self.of, subject=tool.subject or self.subject)
            for name, tool in self.also.items()
        }


Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
WEEKDAYS: tuple[Weekday, ...] = get_args(Weekday)
"""The days of the week in the order in which `datetime` counts them."""

ClockTime = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$|^24:00$")]
"""A local time of the day, `HH:MM`; `24:00` is the end of the day."""


class BusinessHours(Model):
    """When somebody is at work, in the local time of one time zone. Rules read the clock of that zone under the name of
    the business hours, as `clock.<name>.open`, `.weekday`, `.hour`, `.minute`, `.date` and `.holiday`.
    """

    zone: str = Field(pattern=r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$", max_length=64)
    """The time zone by its IANA name, such as `Europe/Berlin`; its summer time counts."""
    days: NonEmpty[Weekday]
    """The days of the week that have business hours, at least one."""
    opens: ClockTime
    """When the hours begin on each of these days; this minute is within."""
    closes: ClockTime
    """When the hours end on the same day; this minute is outside."""
    holidays: Seq[Annotated[str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]] = ()
    """The dates without business hours, as `YYYY-MM-DD`."""

    @model_validator(mode="after")
    def _refuse_impossible_times(self) -> Self:
        if self.opens >= self.closes:
            raise ValueError("`opens` is before `closes`; hours over midnight are two entries, read with `or`")
        for holiday in self.holidays:
            date.fromisoformat(holiday)
        return self

    def at(self, now_us: int) -> dict[str, Any]:
        """Return the facts of the clock at a moment (Unix microseconds).

        Raises `ZoneInfoNotFoundError` if this machine does not know the zone.
        """
        now = datetime.fromtimestamp(now_us // 1_000_000, UTC).astimezone(ZoneInfo(self.zone))
        weekday, today = WEEKDAYS[now.weekday()], now.date().isoformat()
        holiday, time = today in self.holidays, f"{now:%H:%M}"
        return {
            "weekday": weekday,
            "hour": now.hour,
            "minute": now.minute,
            "date": today,
            "holiday": holiday,
            "open": weekday in self.days and not holiday and self.opens <= time < self.closes,
        }


HoursByName = Annotated[
    dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")], BusinessHours],
    Field(max_length=MAX_KEYS, json_schema_extra={"additionalProperties": False}),
]
"""Business hours by the name that rules read them by."""


class PolicyBundle(Model):
    """Rules that are published together. A larger `priority` is listed first; it never overrides a deny.

    Rules read the facts that `history` declares as `history.<name>`, and the clock as `clock.<name>.<part>` through the
    `business_hours` of that name.
    """

    bundle_id: BundleId
    """The id of the bundle, by which records name it."""
    priority: Whole = 0
    """The order in which bundles are listed, largest first; it overrides no deny."""
    mode: Literal["enforce", "observe"] = "enforce"
    """With `enforce` the rules decide; with `observe` only the effect that they would have had is recorded."""
    accept_asserted: Seq[Name] = ()
    """The paths of facts that only the caller states and on which rules of the bundle can nevertheless allow a call."""
    history: Map[HistoryFact] = {}
    """Facts about past effects by name; rules read one as `history.<name>`."""
    business_hours: HoursByName = {}
    """Business hours by name; rules read them, and the clock of their zone, as `clock.<name>.<part>`."""
    policy_dsl: PolicyDsl
    """The rules, and their language."""


class Indeterminate(Model):
    """A rule that could not be evaluated, and the facts that were missing, null or of the wrong type."""

    rule_id: RuleId
    facts: Seq[Name]


class PolicyDecision(Model):
    """The answer of policy, at one point of a run, to whether one tool (capability) is allowed.

    `reason` is a stable code: `allowed`, `allowed_by_default` (a granted read), `no_rule_allows`, `denied_by_rule`,
    `indeterminate`, `must_refuse`, `prohibited`, `mode_above_declared`, `mode_not_bounded`, `gate_missing`.
    """

    policy_decision_id: PolicyDecisionId
    point: Point
    capability_id: Name | None = None
    allowed: bool
    reason: Name
    effective_approval_mode: ApprovalMode | None = None
    gates: Seq[GateId] = ()
    requires: Seq[Name] = ()
    prohibits: Seq[Name] = ()
    arg_constraints: Map[Seq[ArgConstraint]] = {}
    bundle_ids: Seq[BundleId] = ()
    matched_rule_ids: Seq[RuleId] = ()
    denying_rule_ids: Seq[RuleId] = ()
    indeterminate: Seq[Indeterminate] = ()
    passed_over: Seq[RuleId] = ()
    observed: Seq[RuleId] = ()
    must_refuse: Seq[Text] = ()
    must_escalate: Seq[Text] = ()
    asserted: Seq[Name] = ()
    facts_digest: Digest

    def to_json(self) -> dict[str, Any]:
        """Return this decision as a JSON object without its empty fields."""
        return self.model_dump(mode="json", exclude_unset=True, exclude_defaults=True, by_alias=True)

    def stated(self) -> dict[str, Any]:
        """Return this decision as the journal states it: without `bundle_ids`, because the run pins its bundles."""
        return {name: value for name, value in self.to_json().items() if name != "bundle_ids"}

    @property
    def missing_facts(self) -> tuple[str, ...]:
        """Return the facts without which rules could not be evaluated, sorted."""
        return tuple(sorted({fact for unknown in self.indeterminate for fact in unknown.facts}))

    @property
    def why_denied(self) -> str:
        """Return, for people, why policy does not allow the tool: the missing facts, or the reason and its rules."""
        if self.reason == "indeterminate":
            names = ", ".join(f"`{fact}`" for fact in self.missing_facts)
            return f"policy cannot decide: missing or mistyped facts {names}"
        rules = ", ".join(f"`{rule}`" for rule in (*self.denying_rule_ids, *self.must_refuse))
        return f"policy denies: {self.reason}" + (f" by {rules}" if rules else "")

    def sealing_faults(self) -> Iterator[tuple[str, str]]:
        """Yield a fault if a `destructive` call is allowed at the point `execute` without an approval gate."""
        ungated = self.effective_approval_mode == "destructive" and not self.gates
        if self.allowed and self.point == "execute" and ungated:
            yield "gates", "an allowed `destructive` call needs an approval gate; deny it or name the gate"


@dataclass(frozen=True, slots=True)
class LeveledBundle:
    """A policy bundle with its level (platform, tenant or pack), its version and its content digest."""

    level: Level
    bundle: PolicyBundle
    version: str
    digest: str


@final_fields
class RulesAbove:
    """The rules above a pack (of its tenant or the platform), and the gates and limits that they can add. They also
    bind a pack whose mode is `observe`.

    `constraints` holds pairs of an argument and its limit.
    """

    rule_ids: frozenset[str]
    gates: frozenset[str]
    requires: frozenset[str]
    prohibits: frozenset[str]
    constraints: tuple[tuple[str, ArgConstraint], ...]

    def deny(self, decision: PolicyDecision) -> bool:
        """Return whether in `decision` one of these rules denies, prohibits the tool, or could not be evaluated."""
        unknown = (rule.rule_id for rule in decision.indeterminate)
        prohibited = decision.capability_id in self.prohibits.intersection(decision.prohibits)
        return prohibited or not self.rule_ids.isdisjoint((*decision.denying_rule_ids, *unknown))


def fact_member(root: str, value: Any, digest: str | None = None) -> bytes:
    """Return the canonical JSON of one member, `"<root>":"<digest>"`, of the object of digests of all roots of facts.
    Without `digest` it is computed from `value`.
    """
    return f'"{root}":"{digest or content_address(value)}"'.encode()


@dataclass(frozen=True)
class CapabilityView:
    """A tool (capability) as policy rules see it: its id, its declared approval mode, and the facts below
    `capability`.
    """

    capability_id: str
    declared_mode: ApprovalMode
    facts: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def member(self) -> bytes:
        """The member `capability` of the object of digests (`fact_member`)."""
        return fact_member("capability", self.facts)

"""The short form of a pack, as its author writes it in Python or YAML.

A condition is a text in the syntax of Python expressions. A tool is named by its id (`deploy.rollback`), or by its own
name (`rollback`) if no other tool of the pack has that name. A field that is left out gets a strict default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.envelopes.evidence import Classification
from contextos.contracts.envelopes.pack import ModelUse, Semver
from contextos.contracts.envelopes.plan import Binding
from contextos.contracts.envelopes.policy import ArgConstraint, HoursByName
from contextos.contracts.facts import TYPO_SIMILARITY, nearest_name
from contextos.contracts.ids import EgressEndpoint, TenantId
from contextos.contracts.model import Cents, Count, Map, Model, Name, NonEmpty, Number, OpenObject, Positive, Seq, Text
from contextos.errors import Problem

ConditionText = Annotated[str, Field(min_length=1, max_length=4_000)]
"""A condition, for example `evidence.blast_radius > 20 and args.env == "prod"`."""

PackName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]

WriteMode = Literal["local_write", "network", "delegated"]


class DenyDeclaration(Model):
    """Calls that nobody may make: those of `tools` (by default each write) for which `when` is true."""

    when: ConditionText
    """The condition for which a call is denied, such as `evidence.freeze == True`."""
    tools: Seq[Name] = ()
    """The tools that the entry is about; by default each write."""
    because: Text = ""
    """The reason, for people and for an agent whose call is denied; it becomes the rationale of the rule."""


class AskDeclaration(Model):
    """Who is asked before a write of `tools` (by default each) is made: a person with the role `role`.

    The first entry whose `when` is true counts. An entry without `when` is the last and covers all other calls. Such an
    entry in an intent overrides the `auto_approve` of the pack for its tools.
    """

    role: Name
    """The role of the person who is asked."""
    when: ConditionText | None = None
    """The condition for which this role is asked; absent, for every other call, so such an entry is the last."""
    tools: Seq[Name] = ()
    """The tools that the entry is about; by default each write."""
    timeout_s: int = Field(default=3600, ge=1, le=2_592_000)
    """How long the question waits for an answer, in seconds, at most 30 days."""
    on_timeout: Literal["escalate", "deny"] = "escalate"
    """What happens if nobody answers in time: `escalate` ends the run as escalated, `deny` denies the call."""


class ArgumentBounds(Model):
    """Limits of one argument, within which nobody is asked about a call."""

    min: Number | None = None
    """The lowest number that the argument can be; absent, no lower limit."""
    max: Number | None = None
    """The highest number that the argument can be; absent, no upper limit."""
    enum: NonEmpty[Any] | None = None
    """The values that the argument can have; absent, every value."""
    any: bool = False
    """Whether the argument can have every value; lint asks for it where an argument has no limit."""

    def conditions(self, argument: str) -> list[dict[str, Any]]:
        """Return the conditions (JsonLogic) that an argument is within the limits; empty for a free argument."""
        fact = {"var": f"args.{argument}"}
        tests: list[dict[str, Any]] = []
        if self.min is not None:
            tests.append({">=": [fact, self.min]})
        if self.max is not None:
            tests.append({"<=": [fact, self.max]})
        if self.enum is not None:
            tests.append({"in": [fact, list(self.enum)]})
        return tests

    def limits(self) -> dict[str, Any]:
        """Return the limits as an `ArgConstraint`, as JSON. A free argument can be absent."""
        return {name: value for name, value in self.to_json().items() if name != "any"} | {"required": not self.any}


class AutoApproveDeclaration(Model):
    """Writes of `tools` that nobody is asked about: those within `bounds`, for which `when` is true.

    `bounds` or `when` limits at least one argument, by its name. `mode` is the approval mode of such a call.
    """

    tools: Seq[Name] = ()
    """The writes that the entry is about; by default all."""
    bounds: Annotated[dict[Name, ArgumentBounds], Field(max_length=100)] = {}
    """Limits by the name of an argument. A person is asked about a call outside of them. Lint reports each argument
    that neither `bounds` nor `when` names, and each limit with an open side.
    """
    when: ConditionText | None = None
    """A condition that has to be true too; absent, the bounds decide alone. Without `bounds` it must limit an argument,
    as `args.count <= 5` does.
    """
    mode: WriteMode = "delegated"
    """The approval mode of such a call, at most `delegated`."""
    because: Text = ""
    """The reason, for people; it becomes the rationale of the rule."""


class StepDeclaration(Model):
    """One call of a fixed plan. `args` holds literals and bindings (`{from, pointer}`).

    A required argument that `args` leaves out is bound to the field of this name in the request's context.
    """

    tool: Name
    """The tool to call, by id or name."""
    args: OpenObject = {}
    """The arguments by name, each a literal or a binding; a required one that is left out is read from the request's
    context.
    """
    id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]{1,64}$")
    """The name of the step; by default the name of its tool with the number of the step, such as `scale_2`."""


class IntentDeclaration(Model):
    """One kind of request: who may make it (roles), with which tools, and what is denied and asked beside the pack's
    own entries.

    With `steps` the plan is fixed. Without `steps`, an agent chooses its own calls of the tools in a session, or a
    model that the runtime asks chooses them. `requires` names evidence that must be available before a write.
    """

    description: Text = ""
    """What a request of this kind asks for, for people."""
    who: Seq[Name] = ()
    """The roles that can make the request; by default those of the pack."""
    tools: Seq[Name] = ()
    """The tools that serve the request, by id or name; by default all of the pack."""
    deny: Seq[DenyDeclaration] = ()
    """The calls that nobody can make, beside those of the pack."""
    ask: Seq[AskDeclaration] = ()
    """Who is asked before a write, before the entries of the pack."""
    auto_approve: Seq[AutoApproveDeclaration] = ()
    """The writes that nobody is asked about, beside those of the pack."""
    requires: Seq[Name] = ()
    """The names of evidence that has to be available before a write."""
    steps: Seq[StepDeclaration] = ()
    """The calls of a fixed plan, in order; without them `chosen_by` says who chooses."""
    chosen_by: Literal["agent", "model"] = "agent"
    """Who chooses the calls of a session: an agent outside, or a model by `judge.plan` of `models`."""
    outputs: Map[Binding] = {}
    """The outputs of the record by name, each bound to a value."""
    channels: Seq[Name] = ()
    """The channels from which the request is accepted; by default every channel."""
    locales: Seq[Name] = ()
    """The locales for which the request is accepted; by default every locale."""


class GraphEvidence(Model):
    """Evidence from the knowledge graph: the value at the end of `path`, which begins at an entity of the type `type`.
    The request states the id of the entity at the JSON Pointer `request`. Evidence older than `max_age_s` seconds does
    not count.
    """

    type: Name
    """The type of the entity at which the path begins, such as `customer`."""
    request: Name
    """A JSON Pointer into the request to the id of that entity."""
    path: NonEmpty[Name]
    """The predicates to follow from the entity, at least one; the value at the end is the evidence."""
    max_age_s: Positive | None = None
    """The highest age of the value in seconds; by default any age counts."""


class BudgetDeclaration(Model):
    """The limits of one run: calls, replans, milliseconds, US cents and tokens."""

    max_tool_calls: Count = 20
    """The most calls of tools in a run."""
    max_replan_attempts: Count = 0
    """The most plans after the first one."""
    wall_clock_ms: Positive = 30_000
    """The longest time that a run works, in milliseconds, without time that it waits for a person."""
    max_cost_cents: Cents = 0
    """The highest cost of all calls together, in US cents with at most four decimals."""
    total_tokens: Positive = 12_000
    """The most tokens that the prompt of a run can have."""


class PermissionDeclaration(Model):
    """What a tool's arguments must be; see `Permission`."""

    arg_constraints: Map[ArgConstraint] = {}
    """Limits on arguments by name, which every call of the tool meets."""
    agrees_with: Map[Name] = {}
    """By the name of an argument, a JSON Pointer into the request; the argument has to equal the value there."""
    evidence_args: Map[Map[Name]] = {}
    """By the name of evidence: arguments of the call that produced it, each with the argument of this tool that must be
    equal to it.
    """
    consent: Name | None = None
    """The evidence that has to be `true` about the arguments of every call, as the consent of the person concerned."""
    without_sum: Text = ""
    """Why no sum limits the money that the tool moves; lint asks for a sum where nothing is said."""


class PackDeclaration(Model):
    """A pack in its short form. `expand` makes the whole Context Pack of it.

    `who` are the roles that may make a request of an intent that names none. `approver` is the role that is asked about
    every write that no entry of `ask` or `auto_approve` covers. `tools` are all that the pack may use; by default all
    that it is given. Without `intents` there is one intent, with the name of the pack, whose agent chooses its calls.
    With the `mode` `observe` the pack stops no call: the denials and questions that would have happened are recorded.
    """

    name: PackName
    """The name of the pack, which becomes `pack_meta.pack_id`."""
    version: str = Field(pattern=Semver)
    """The version of the pack as `x.y.z`."""
    tenant: TenantId
    """The tenant to which the pack belongs."""
    summary: Text = ""
    """What the pack is for, as text for people and planners."""
    owner: Name = "owner"
    """Who wrote the pack and whom to ask about it; this person can answer no approval of its runs."""
    who: Seq[Name] = ()
    """The roles that can make a request of an intent which names none."""
    approver: Name = "approver"
    """The role that is asked about every write that no entry of `ask` or `auto_approve` covers."""
    tools: Seq[Name] = ()
    """The tools that the pack can use, by id or name; by default all that it is given."""
    intents: Map[IntentDeclaration] = {}
    """The kinds of requests by name; by default one, of the pack's own name, whose agent chooses its calls."""
    deny: Seq[DenyDeclaration] = ()
    """The calls that nobody can make, in every intent."""
    ask: Seq[AskDeclaration] = ()
    """Who is asked before a write, in every intent; the first entry that matches counts."""
    auto_approve: Seq[AutoApproveDeclaration] = ()
    """The writes that nobody is asked about, in every intent but those which ask about all other calls of the tool; by
    default none.
    """
    business_hours: HoursByName = {}
    """Business hours by name; conditions read them, and the clock of their zone, as `clock.<name>.<part>`."""
    budget: BudgetDeclaration = BudgetDeclaration()
    """The limits of one run."""
    evidence: Map[GraphEvidence] = {}
    """Evidence from the graph by name; conditions read it as `evidence.<name>`."""
    permissions: Map[PermissionDeclaration] = {}
    """What the arguments of a tool have to be, by the id or name of the tool."""
    redaction: Seq[Name] = ("pan", "email", "secret")
    """The kinds of data that are removed before anything is recorded."""
    egress: Seq[EgressEndpoint] = ()
    """The endpoints that calls can reach; by default none."""
    models: Seq[ModelUse] = ()
    """What models are asked for, each operation once; by default no model is called."""
    classification: Classification = "RESTRICTED"
    """The classification of the pack's texts; the default is the strictest."""
    mode: Literal["enforce", "observe"] = "enforce"
    """With `enforce` the pack decides, and with `observe` it stops no call and records what it would have done."""


def tools_named(
    names: Sequence[str], known: Sequence[str], at: tuple[str | int, ...]
) -> tuple[list[str], list[Problem]]:
    """Return the ids of tools that a declaration names by id or by their own name, and the names that fit none or two.

    `at` is the place of the list of names.
    """
    tool_ids, faults = list[str](), list[Problem]()
    for index, name in enumerate(names):
        matches = [tool for tool in known if tool == name or tool.rpartition(".")[2] == name]
        if name in matches:
            matches = [name]
        if len(matches) > 1:
            detail = f"`{name[:80]}` means {' and '.join(f'`{tool}`' for tool in matches)}"
            faults.append(Problem(pointer((*at, index)), "ambiguous_tool", detail, "write the whole id"))
        if not matches:
            by_name = {tool.rpartition(".")[2]: tool for tool in known}
            similar = nearest_name(name.rpartition(".")[2], by_name) or nearest_name(name, known, TYPO_SIMILARITY)
            similar = by_name.get(similar or "", similar) if "." in name else similar
            remedy = f"write `{similar}`" if similar else f"use one of {', '.join(known) or 'no tool yet'}"
            faults.append(Problem(pointer((*at, index)), "unknown_tool", f"there is no tool `{name[:80]}`", remedy))
        tool_ids += matches
    return tool_ids, faults

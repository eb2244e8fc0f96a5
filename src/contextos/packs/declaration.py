"""The short form of a pack, as its author writes it in Python or YAML.

A condition is a text in the syntax of Python expressions. A tool is named by its id (`deploy.rollback`), or by its own
name (`rollback`) if no other tool of the pack has it. What is left out gets the strictest value.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from contextos.contracts.envelopes.evidence import Classification
from contextos.contracts.envelopes.pack import Semver
from contextos.contracts.envelopes.plan import Binding
from contextos.contracts.envelopes.policy import ArgConstraint
from contextos.contracts.ids import EgressEndpoint, TenantId
from contextos.contracts.model import Cents, Count, Map, Model, Name, NonEmpty, Number, OpenObject, Positive, Seq, Text

ConditionText = Annotated[str, Field(min_length=1, max_length=4_000)]
"""A condition, for example `evidence.blast_radius > 20 and args.env == "prod"`."""

PackName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]

WriteMode = Literal["local_write", "network", "delegated"]


class DenyDeclaration(Model):
    """Calls that nobody may make: those of `tools` (by default each write) for which `when` is true."""

    when: ConditionText
    tools: Seq[Name] = ()
    because: Text = ""


class AskDeclaration(Model):
    """Who is asked before a write of `tools` (by default each) is made: a person with the role `role`.

    The first entry whose `when` is true counts; one without `when` is for all other calls, and is the last.
    """

    role: Name
    when: ConditionText | None = None
    tools: Seq[Name] = ()
    timeout_s: int = Field(default=3600, ge=1, le=2_592_000)
    on_timeout: Literal["escalate", "deny"] = "escalate"


class ArgumentBounds(Model):
    """Limits of one argument of a call that nobody is asked about."""

    min: Number | None = None
    max: Number | None = None
    enum: NonEmpty[Any] | None = None


class AutoApproveDeclaration(Model):
    """Writes of `tools` that nobody is asked about: those within `bounds`, for which `when` is true.

    `bounds` limits at least one argument, by its name. `mode` is the approval mode of such a call.
    """

    tools: NonEmpty[Name]
    bounds: Annotated[dict[Name, ArgumentBounds], Field(min_length=1, max_length=100)]
    when: ConditionText | None = None
    mode: WriteMode = "delegated"
    because: Text = ""


class StepDeclaration(Model):
    """One call of a fixed plan. `args` holds literals and bindings (`{from, pointer}`).

    A required argument that `args` leaves out is bound to the field of this name in the request's context.
    """

    tool: Name
    args: OpenObject = {}
    id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_-]{1,64}$")


class IntentDeclaration(Model):
    """One kind of request: who may make it (roles), with which tools, and what is denied and asked beside the pack's
    own entries.

    With `steps` the plan is fixed. Without, an agent chooses its own calls of the tools, in a session. `requires` names
    evidence that must be there before a write.
    """

    description: Text = ""
    who: Seq[Name] = ()
    tools: Seq[Name] = ()
    deny: Seq[DenyDeclaration] = ()
    ask: Seq[AskDeclaration] = ()
    auto_approve: Seq[AutoApproveDeclaration] = ()
    requires: Seq[Name] = ()
    steps: Seq[StepDeclaration] = ()
    outputs: Map[Binding] = {}
    channels: Seq[Name] = ()
    locales: Seq[Name] = ()


class GraphEvidence(Model):
    """Evidence from the knowledge graph: from the entity `type:id`, whose id the request states at the JSON Pointer
    `request`, along the predicates of `path`. Older than `max_age_s` seconds it does not count.
    """

    type: Name
    request: Name
    path: NonEmpty[Name]
    max_age_s: Positive | None = None


class BudgetDeclaration(Model):
    """The limits of one run: calls, replans, milliseconds, US cents and tokens."""

    max_tool_calls: Count = 20
    max_replan_attempts: Count = 0
    wall_clock_ms: Positive = 30_000
    max_cost_cents: Cents = 0
    total_tokens: Positive = 12_000


class PermissionDeclaration(Model):
    """What a tool's arguments must be; see `Permission`."""

    arg_constraints: Map[ArgConstraint] = {}
    agrees_with: Map[Name] = {}
    evidence_args: Map[Map[Name]] = {}


class PackDeclaration(Model):
    """A pack in its short form. `expand` makes the whole Context Pack of it.

    `who` are the roles that may make a request of an intent that names none. `approver` is the role that is asked about
    every write that no entry of `ask` or `auto_approve` covers. `tools` are all that the pack may use; by default all
    that it is given. Without `intents` there is one, of the pack's own name, whose agent chooses its calls. In `mode`
    `observe` it stops no call: what it would have denied or asked is recorded.
    """

    name: PackName
    version: str = Field(pattern=Semver)
    tenant: TenantId
    summary: Text = ""
    owner: Name = "owner"
    who: Seq[Name] = ()
    approver: Name = "approver"
    tools: Seq[Name] = ()
    intents: Map[IntentDeclaration] = {}
    deny: Seq[DenyDeclaration] = ()
    ask: Seq[AskDeclaration] = ()
    auto_approve: Seq[AutoApproveDeclaration] = ()
    budget: BudgetDeclaration = BudgetDeclaration()
    evidence: Map[GraphEvidence] = {}
    permissions: Map[PermissionDeclaration] = {}
    redaction: Seq[Name] = ("pan", "email", "secret")
    egress: Seq[EgressEndpoint] = ()
    classification: Classification = "RESTRICTED"
    mode: Literal["enforce", "observe"] = "enforce"

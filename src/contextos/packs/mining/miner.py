"""`mine`: makes the short form of a pack with least privilege from the recorded calls of sessions.

The pack allows the used tools to the roles that used them, with arguments like the recorded ones. It asks about every
write that cannot be undone or whose arguments have no bound. Each entry names the calls that it came from. Recorded
texts are data: they are escaped in patterns, in YAML and in comments.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.defaults import is_default
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.redacted import redacted_places
from contextos.contracts.envelopes.policy import ArgConstraint
from contextos.contracts.envelopes.tool import AdapterDefinition, CapabilityDefinition, capability_id
from contextos.control.lint.money import EACH_IS_ASKED, money_of
from contextos.deployment.queries.observations import RecordedSession, SessionCall
from contextos.errors import InvalidInput, Problem
from contextos.packs.declaration import BudgetDeclaration, PackDeclaration
from contextos.packs.mining.bounds import MAX_BOUNDED_CHARS, bound_of
from contextos.packs.printing import fact_text

MAX_ORIGINS: Final = 3
"""The most calls that are named beside an entry."""
MAX_MINED_BYTES: Final = 16_384
"""The largest size of a call's arguments in bytes; a larger call is not mined."""
REVERSIBLE: Final = "write_reversible"
TIME_HEADROOM: Final = 2
"""The time that a session may work, as a multiple of the longest recorded one."""

NotePlace = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MinedPack:
    """A mined pack: its short form, notes on its entries by their place, and the number of calls that were left out, by
    reason. `unbounded` names, by tool, the arguments whose values the pack does not limit.
    """

    declaration: PackDeclaration
    notes: Mapping[NotePlace, Sequence[str]]
    left_out: Mapping[str, int]
    unbounded: Mapping[str, Sequence[str]]


@dataclass(slots=True)
class _Tool:
    """The recorded use of one tool: its calls, and the intents in which it was called."""

    definition: CapabilityDefinition
    calls: list[SessionCall] = field(default_factory=list)


def mine(
    sessions: Iterable[RecordedSession],
    adapters: Iterable[AdapterDefinition],
    *,
    name: str,
    version: str,
    tenant_id: str,
    approver: str,
) -> MinedPack:
    """Return the pack that allows the calls of these sessions and little else. `adapters` are the present adapters.

    A call counts if its tool answered. `approver` is the role that is asked.

    Raises:
        InvalidInput: no call counts, so there is nothing to mine.
        InvalidEnvelope: `name` or `version` is malformed.
    """
    definitions = {capability_id(adapter, tool): tool for adapter in adapters for tool in adapter.capabilities}
    miner = _Miner(definitions, approver)
    for session in sessions:
        miner.see(session)
    if not miner.tools:
        reasons = "; ".join(f"{count} left out: {reason}" for reason, count in miner.left_out.items())
        detail = "no recorded call can be mined" + (f" ({reasons})" if reasons else "")
        raise InvalidInput(Problem("", "nothing_recorded", detail, "record sessions with a pack that observes"))
    return miner.pack({"name": name, "version": version, "tenant": tenant_id})


class _Miner:
    """Collects what sessions did, then declares it."""

    def __init__(self, definitions: Mapping[str, CapabilityDefinition], approver: str) -> None:
        self.definitions, self.approver = definitions, approver
        self.tools: dict[str, _Tool] = {}
        self.used: dict[str, dict[str, dict[str, list[SessionCall]]]] = {}
        """The calls by intent, tool and role of the user."""
        self.left_out: dict[str, int] = {}
        self.most_calls, self.most_cost, self.most_ms = 1, 0.0, 0.0
        self.unbounded: dict[str, list[str]] = {}
        self.notes: dict[NotePlace, list[str]] = {}

    def see(self, session: RecordedSession) -> None:
        """Count the calls of a session that their tools answered."""
        intent, count, cost = session.intent, 0, 0.0
        self.most_ms = max(self.most_ms, session.wall_clock_ms)
        for call in session.calls:
            reason = self._exclusion_reason(call)
            if reason is not None:
                self.left_out[reason] = self.left_out.get(reason, 0) + 1
                continue
            definition = self.definitions[call.tool]
            self.tools.setdefault(call.tool, _Tool(definition)).calls.append(call)
            by_role = self.used.setdefault(intent, {}).setdefault(call.tool, {})
            by_role.setdefault(session.principals.user.role, []).append(call)
            count, cost = count + 1, cost + definition.cost_cents
        # Cents have four decimals, and a sum of them has more.
        self.most_calls, self.most_cost = max(self.most_calls, count), max(self.most_cost, round(cost, 4))

    def _exclusion_reason(self, call: SessionCall) -> str | None:
        """Return why a call is not mined, or None."""
        if call.status not in ("done", "failed"):
            return "no tool answered it"
        if call.tool not in self.definitions:
            return "its tool is no longer there"
        if len(canonical(dict(call.args))) > MAX_MINED_BYTES:
            return f"its arguments have more than {MAX_MINED_BYTES} bytes"
        if any(isinstance(value, str) and len(value) > MAX_BOUNDED_CHARS for value in call.args.values()):
            return f"a text in it has more than {MAX_BOUNDED_CHARS} characters"
        return "something in it was redacted" if redacted_places(dict(call.args)) else None

    def pack(self, head: Mapping[str, Any]) -> MinedPack:
        permissions: dict[str, Any] = {}
        deny: list[dict[str, Any]] = []
        automatic: list[dict[str, Any]] = []
        for name, tool in sorted(self.tools.items()):
            bounds = self._find_bounds(name, tool)
            permissions[name] = {"arg_constraints": {argument: bound.to_json() for argument, bound in bounds.items()}}
            self.notes["permissions", name] = [f"from {origin_of(tool.calls)}", *self._limit_notes(name, tool, bounds)]
            if unused := self._deniable_arguments(tool):
                self.notes["deny", str(len(deny))] = [f"in none of {origin_of(tool.calls)}"]
                condition = " or ".join(f"not missing({fact_text(f'args.{argument}')})" for argument in unused)
                deny.append({"when": condition, "tools": [name], "because": "an argument that was never given"})
            if tool.definition.kind != "write":
                continue
            if (limits := self._automatic_limits(name, tool, bounds)) is None:
                if money_of(tool.definition):
                    permissions[name]["without_sum"] = EACH_IS_ASKED
            else:
                self.notes["auto_approve", str(len(automatic))] = [
                    f"it can be undone; from {origin_of(tool.calls)}",
                    "remove this entry, and a person is asked about each call",
                ]
                automatic.append({"tools": [name], "bounds": limits, "because": "as seen while the pack observed"})
        deny += self._role_denials(len(deny))
        intents = {
            intent: {"who": sorted({role for roles in tools.values() for role in roles}), "tools": sorted(tools)}
            for intent, tools in self.used.items()
        }
        budget: dict[str, Any] = {"max_tool_calls": self.most_calls}
        if self.most_cost:
            budget["max_cost_cents"] = self.most_cost
        if (wall_clock_ms := math.ceil(TIME_HEADROOM * self.most_ms)) > BudgetDeclaration().wall_clock_ms:
            budget["wall_clock_ms"] = wall_clock_ms
            self.notes["budget",] = [f"the longest session worked for {math.ceil(self.most_ms)} ms"]
        body = {
            **head,
            "approver": self.approver,
            "tools": sorted(self.tools),
            "intents": intents,
            **({"deny": deny} if deny else {}),
            **({"auto_approve": automatic} if automatic else {}),
            "budget": budget,
            "permissions": permissions,
        }
        return MinedPack(parse(PackDeclaration, body), self.notes, self.left_out, self.unbounded)

    def _role_denials(self, number: int) -> list[dict[str, Any]]:
        """Return entries that deny each tool of an intent to the roles of the intent that did not use it. `number`
        entries are there already.
        """
        denials: list[dict[str, Any]] = []
        for intent, tools in sorted(self.used.items()):
            all_roles = {role for roles in tools.values() for role in roles}
            for name, roles in sorted(tools.items()):
                if roles.keys() == all_roles:
                    continue
                names = json.dumps(sorted(roles), ensure_ascii=False)
                calls = [call for group in roles.values() for call in group]
                self.notes["deny", str(number + len(denials))] = [f"{names} in {origin_of(calls)}"]
                texts = (json.dumps(role, ensure_ascii=False) for role in sorted(roles))
                test = " or ".join([f"user.role in {names}", *(f"{text} in default(user.roles, [])" for text in texts)])
                condition = f"request.intent == {json.dumps(intent, ensure_ascii=False)} and not ({test})"
                denials.append({"when": condition, "tools": [name], "because": "a role that never used it"})
        return denials

    def _find_bounds(self, name: str, tool: _Tool) -> dict[str, ArgConstraint]:
        """Return the bound of each argument that has one."""
        bounds = {}
        for argument in sorted({key for call in tool.calls for key in call.args}):
            calls = [call for call in tool.calls if argument in call.args]
            bound = bound_of([call.args[argument] for call in calls])
            if bound is not None:
                bounds[argument] = bound.model_copy(update={"required": len(calls) == len(tool.calls)})
                bounds[argument] = parse(ArgConstraint, _set_fields(bounds[argument]))
                self._note_range(name, argument, bound, calls)
        return bounds

    def _note_range(self, name: str, argument: str, bound: ArgConstraint, calls: Sequence[SessionCall]) -> None:
        """Name the calls behind the ends of a range: one wrong call is enough to widen it."""
        if bound.min is None:
            return
        lowest = min(calls, key=lambda call: call.args[argument])
        highest = max(calls, key=lambda call: call.args[argument])
        note = f"{json.dumps(bound.min)} in {named_call(lowest)}, {json.dumps(bound.max)} in {named_call(highest)}"
        self.notes["permissions", name, argument] = [note]

    def _limit_notes(self, name: str, tool: _Tool, bounds: Mapping[str, ArgConstraint]) -> list[str]:
        unbounded = sorted({key for call in tool.calls for key in call.args} - bounds.keys())
        if unbounded:
            self.unbounded[name] = unbounded
        names = [key for key in self._unused_arguments(tool) if "." in key]
        notes = [f"NOT BOUNDED: {', '.join(unbounded)}; only the tool's own schema limits it"] if unbounded else []
        if shapes := [key for key, bound in bounds.items() if bound.pattern is not None]:
            notes.append(f"ANY VALUE OF THE SHAPE: {', '.join(shapes)}; others than were seen fit")
        return [*notes, f"NOT DENIED: {', '.join(names)}; no rule can name an argument with a dot"] if names else notes

    def _unused_arguments(self, tool: _Tool) -> list[str]:
        properties = tool.definition.input_schema.get("properties", {})
        used = {key for call in tool.calls for key in call.args}
        return sorted(key for key in properties if key not in used)

    def _deniable_arguments(self, tool: _Tool) -> list[str]:
        """Return the arguments of the tool that no call had and that a rule can name."""
        return [key for key in self._unused_arguments(tool) if "." not in key]

    def _automatic_limits(self, name: str, tool: _Tool, bounds: Mapping[str, ArgConstraint]) -> dict[str, Any] | None:
        """Return the limits within which nobody is asked about a reversible write; None if a person is always asked."""
        unbounded = {key for call in tool.calls for key in call.args} - bounds.keys()
        limits = {
            argument: {key: value for key, value in bound.to_json().items() if key in ("min", "max", "enum")}
            for argument, bound in bounds.items()
            if bound.required and (bound.min is not None or bound.enum is not None)
        }
        if tool.definition.risk_level != REVERSIBLE:
            reason = "it cannot be undone"
        elif unbounded or all(_is_only_default(tool.definition, argument, limit) for argument, limit in limits.items()):
            reason = "no range and no list of values bounds it"
        else:
            return limits
        self.notes["permissions", name].append(f"a person is asked about each call: {reason}")
        return None


def _is_only_default(definition: CapabilityDefinition, argument: str, limit: Mapping[str, Any]) -> bool:
    """Return whether the agent always left this argument at its default, which bounds nothing that it chose."""
    values = limit.get("enum") or [limit.get("min"), limit.get("max")]
    return all(is_default(definition.input_schema, argument, value) for value in values)


def _set_fields(bound: ArgConstraint) -> dict[str, Any]:
    return {name: value for name, value in bound.to_json().items() if value is not None and value is not False} | {
        "required": bool(bound.required)
    }


def origin_of(calls: Sequence[SessionCall]) -> str:
    """Return how many calls an entry came from, and the first of them."""
    names = ", ".join(named_call(call) for call in calls[:MAX_ORIGINS])
    return f"{len(calls)} calls: {names}{', …' if len(calls) > MAX_ORIGINS else ''}"


def named_call(call: SessionCall) -> str:
    """Return the run and the call id of a call."""
    return f"{call.run_id}/{call.call_id}"

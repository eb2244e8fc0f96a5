"""The facts that policy rules can read: a closed, typed vocabulary that says who supplies each fact, and when.

`FACTS` lists every fact. The last segment of a path can be a placeholder (`<argument>`), whose values depend on the
pack; a `Vocabulary` adds what a pack and its adapters declare about them. Lint types each rule against a `Vocabulary`.
The runtime supplies facts through `supplied`, which passes on declared facts only. So a rule that passes lint reads
only facts that exist, and a rule can read every fact that the runtime supplies.
Source: docs/design/contracts.md, "Policy", "Who is asking".
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from contextos.contracts.envelopes.evidence import Classification
from contextos.contracts.envelopes.models import KNOWN_MODEL_OPERATIONS, ModelWire, Retention
from contextos.contracts.envelopes.policy import APPROVAL_MODES, POINTS, WEEKDAYS, HistoryFact, Point
from contextos.contracts.envelopes.tool import CapabilityKind, RiskLevel

Supplier = Literal[
    "caller",
    "request",
    "directory",
    "deployment",
    "intent catalog",
    "adapter definition",
    "call",
    "evidence",
    "run",
    "memory proposal",
    "model profile",
    "history index",
    "clock",
]
"""Who supplies a fact. What the `caller` supplies is only asserted; every other fact is verified."""

ENVIRONMENTS: Final = ("dev", "staging", "prod")
"""The values of `run.environment`: a deployment serves one of them."""

PROFILES: Final = ("embedded", "service")
"""The profiles of a deployment."""

_CALL_POINTS: Final[tuple[Point, ...]] = ("compile", "plan", "execute", "commit")
_LATE_POINTS: Final[tuple[Point, ...]] = ("execute", "commit")

MIN_SIMILARITY: Final = 0.6
TYPO_SIMILARITY: Final = 0.9
"""How alike two names are, from 0 to 1: above `MIN_SIMILARITY` a known name is suggested for an unknown one, above
`TYPO_SIMILARITY` the unknown name is a typing error."""


@dataclass(frozen=True, slots=True)
class DeclaredFact:
    """A fact: its dotted path, its type, who supplies it, and the points at which it is known.

    `type` is None if it depends on the pack. A fact without `always` can be absent at its points.
    """

    path: str
    type: str | None
    supplier: Supplier
    points: tuple[Point, ...]
    always: bool = True

    @property
    def root(self) -> str:
        return self.path.partition(".")[0]

    @property
    def asserted(self) -> bool:
        return self.supplier == "caller"


def _declare_facts(
    root: str, supplier: Supplier, points: tuple[Point, ...], always: str, optional: str = ""
) -> Iterator[DeclaredFact]:
    """Yield the facts of one root that are declared as `name:type` words; those of `optional` can be absent."""
    for words, is_always in ((always, True), (optional, False)):
        for word in words.split():
            name, _, kind = word.partition(":")
            yield DeclaredFact(f"{root}.{name}", kind or None, supplier, points, is_always)


FACTS: Final[tuple[DeclaredFact, ...]] = (
    *_declare_facts("request", "intent catalog", POINTS, "intent:string", "channel:string locale:string"),
    *_declare_facts("request", "request", POINTS, "mode:string"),
    *_declare_facts("request", "caller", POINTS, "message:string request_id:string", "context.<name>"),
    *_declare_facts("user", "directory", POINTS, "user_id:string role:string"),
    *_declare_facts(
        "user",
        "directory",
        POINTS,
        "",
        "roles:array<string> scopes:array<string> delegation_live:boolean organization_id:string "
        "team_ids:array<string> project_ids:array<string> platform_admin:boolean",
    ),
    *_declare_facts(
        "agent",
        "directory",
        POINTS,
        "agent_id:string agent_urn:string workload_identity:string role:string owner:string lifecycle:string "
        "ceiling:string",
        "scopes:array<string> platform_scopes:array<string> max_cost_cents:number",
    ),
    *_declare_facts("tenant", "request", POINTS, "tenant_id:string"),
    *_declare_facts("run", "run", POINTS, "run_id:string safety_mode:string mode:string"),
    *_declare_facts("run", "deployment", POINTS, "environment:string"),
    *_declare_facts(
        "capability",
        "adapter definition",
        _CALL_POINTS,
        "capability_id:string kind:string risk_level:string approval_mode:string external:boolean",
    ),
    *_declare_facts("args", "call", _LATE_POINTS, "", "<argument>"),
    *_declare_facts("provenance", "call", _LATE_POINTS, "", "<argument>:string"),
    *_declare_facts("origin", "call", _LATE_POINTS, "", "<argument>:string"),
    *_declare_facts("integrity", "call", _LATE_POINTS, "", "<argument>:string"),
    *_declare_facts("classification", "call", _LATE_POINTS, "", "<argument>:string"),
    *_declare_facts("evidence", "evidence", _LATE_POINTS, "", "<name>"),
    *_declare_facts("history", "history index", _LATE_POINTS, "", "<name>:number"),
    *_declare_facts("clock", "clock", _LATE_POINTS, "", "<business_hours>"),
    *_declare_facts(
        "memory",
        "memory proposal",
        ("memory",),
        "entity:string predicate:string write_class:string tier_target:string classification:string consent:string",
    ),
    *_declare_facts(
        "model",
        "model profile",
        ("model",),
        "profile_id:string model:string wire:string regions:array<string> data_class:string retention:string",
    ),
    *_declare_facts("model", "call", ("model",), "operation:string shown_class:string cost_cents:number"),
)
"""Every fact. `provenance.<argument>` is `literal` or `source:pointer`, as the plan binds the argument.

`origin`, `integrity` and `classification` describe the place where the run has seen the value of the argument, whatever
the plan says (`TracedArgument`): `origin.<argument>` is its first origin.

`model.shown_class` is the highest classification of the content that the call of a model shows, and `model.data_class`
the highest that the profile may see. `model.cost_cents` is the most that the call can cost, in US cents.

A rule that names no point and reads only literal arguments is also asked at `plan`.
"""

CLOCK_PARTS: Final[Mapping[str, str]] = {
    "open": "boolean",
    "weekday": "string",
    "hour": "number",
    "minute": "number",
    "date": "string",
    "holiday": "boolean",
}
"""The parts of a clock that rules read as `clock.<business hours>.<part>`, with their types (`BusinessHours.at`)."""

TRACED_ROOTS: Final = ("classification", "integrity", "origin", "provenance")
"""The roots of facts that say, as a text for each argument, where its value comes from."""

VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "capability.kind": get_args(CapabilityKind),
    "capability.risk_level": get_args(RiskLevel),
    "capability.approval_mode": APPROVAL_MODES,
    "run.safety_mode": APPROVAL_MODES,
    "request.mode": ("stream", "batch", "long_running"),
    "run.mode": ("stream", "batch", "long_running"),
    "integrity": ("trusted", "untrusted", "unknown"),
    "classification": get_args(Classification),
    "model.wire": get_args(ModelWire),
    "model.operation": KNOWN_MODEL_OPERATIONS,
    "model.data_class": get_args(Classification),
    "model.shown_class": get_args(Classification),
    "model.retention": get_args(Retention),
}
"""All texts that a fact can be, by its path or its root. A condition that compares it with another text is refused."""

ROOTS: Final = tuple(sorted({fact.root for fact in FACTS}))
"""The roots of facts, sorted like the keys of canonical JSON."""

LATE_ROOTS: Final = frozenset({fact.root for fact in FACTS if "compile" not in fact.points})
"""Roots of facts that do not exist yet at `compile`. Literal arguments exist from `plan` on."""

_DECLARED: Final = {fact.path: fact for fact in FACTS}

_ROOT_NAMES: Final = {root: frozenset(fact.path.split(".")[1] for fact in FACTS if fact.root == root) for root in ROOTS}
"""The names that are declared directly below each root."""


def declared_fact(path: str, declared: Mapping[str, DeclaredFact] = _DECLARED) -> DeclaredFact | None:
    """Return the declaration that covers a path, or None. A placeholder covers everything below it."""
    if path in declared and "<" not in path:
        return declared[path]
    matching = (fact for fact in declared.values() if "<" in fact.path and path.startswith(fact.path.partition("<")[0]))
    return next(matching, None)


def supplied(root: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of `values` that are declared below `root`: a rule can read no others."""
    return {name: value for name, value in values.items() if name in _ROOT_NAMES[root]}


EXECUTE_ROOTS: Final = frozenset({fact.root for fact in FACTS if "execute" in fact.points})
"""Roots of facts that exist at `execute`: all but those of memories and of models."""

OWN_POINTS: Final[Mapping[str, Point]] = {fact.root: fact.points[0] for fact in FACTS if len(fact.points) == 1}
"""The point of each root whose facts are known at one point alone. A rule that reads such a fact is about that point.
"""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The facts that exist for the rules of one pack, with the types that its adapters declare.

    `arguments` holds the input schema of each capability and `evidence` the schema of each piece of evidence (None:
    any type); both are None while they are not known. `complete` says that no other evidence can exist. `history` holds
    the history facts that policy bundles declare, by name, and `hours` the names of their business hours.
    """

    arguments: Mapping[str, Mapping[str, Any]] | None = None
    evidence: Mapping[str, Mapping[str, Any] | None] | None = None
    complete: bool = False
    history: Mapping[str, HistoryFact] = field(default_factory=dict)
    hours: tuple[str, ...] = ()
    environments: tuple[str, ...] = ENVIRONMENTS
    declared: Mapping[str, DeclaredFact] = field(default_factory=lambda: _DECLARED)

    def above_the_pack(self) -> Vocabulary:
        """Return the vocabulary for rules of a tenant or of the platform.

        Such rules apply to every pack, so they can read arguments and evidence that this pack does not declare.
        """
        return replace(self, arguments=None, evidence=None, complete=False)

    def find(self, path: str, capability: str | None = None) -> DeclaredFact | None:
        """Return the declaration of a path as read by a rule about `capability`, or None if there is no such fact."""
        fact = declared_fact(path, self.declared)
        if fact is None or "<" not in fact.path:
            return fact
        segments = path.split(".")
        if fact.root == "history":
            history_fact = self.history.get(path.partition(".")[2])
            is_known = history_fact is not None and capability in history_fact.counted()
            return replace(fact, path=path) if is_known else None
        if fact.root == "clock":
            name, _, part = path.removeprefix("clock.").partition(".")
            is_known = name in self.hours and part in CLOCK_PARTS
            return replace(fact, path=path, type=CLOCK_PARTS[part]) if is_known else None
        if fact.root == "evidence":
            return self._find_evidence(path, fact)
        if fact.root in ("args", *TRACED_ROOTS) and self.arguments is not None:
            if capability is not None and capability not in self.arguments:
                return fact
            schemas = list(self.arguments.values()) if capability is None else [self.arguments[capability]]
            if fact.root != "args":
                return fact if any(property_type(schema, segments[1:2]) is not NO_SUCH for schema in schemas) else None
            types = {kind for schema in schemas if (kind := property_type(schema, segments[1:])) is not NO_SUCH}
            return replace(fact, path=path, type=types.pop() if len(types) == 1 else None) if types else None
        return fact

    def values(self, path: str) -> tuple[str, ...]:
        """Return all texts that the fact at `path` can be, or an empty tuple if it can be any text."""
        if path == "run.environment":
            return self.environments
        if path.startswith("clock.") and path.endswith(".weekday"):
            return WEEKDAYS
        return VALUES.get(path) or VALUES.get(path.partition(".")[0], ())

    def _find_evidence(self, path: str, fact: DeclaredFact) -> DeclaredFact | None:
        subpath = path.partition(".")[2]
        for name, schema in (self.evidence or {}).items():
            if subpath == name:
                kind = None if schema is None else "object"
            elif subpath.startswith(f"{name}."):
                kind = None if schema is None else property_type(schema, subpath[len(name) + 1 :].split("."))
            else:
                continue
            return None if kind is NO_SUCH else replace(fact, path=path, type=kind)
        if self.complete or (self.evidence is not None and self._nearest_path(path, TYPO_SIMILARITY)):
            return None
        return fact

    def nearest(self, path: str) -> str | None:
        """Return the known path that is most like `path`, or None if no path is like it. If the root of `path` exists,
        only paths below this root are compared.
        """
        return self._nearest_path(path, MIN_SIMILARITY)

    def _nearest_path(self, path: str, min_similarity: float) -> str | None:
        known = self.paths()
        same_root = [name for name in known if name.partition(".")[0] == path.partition(".")[0]]
        return nearest_name(path, same_root or known, min_similarity)

    def paths(self) -> list[str]:
        """Return every known path, without placeholders."""
        known = [path for path in self.declared if "<" not in path] + [f"history.{name}" for name in self.history]
        known += [f"clock.{name}.{part}" for name in self.hours for part in CLOCK_PARTS]
        for schema in (self.arguments or {}).values():
            known += [f"{root}.{name}" for name in _property_names(schema) for root in ("args", *TRACED_ROOTS)]
        for name, output in (self.evidence or {}).items():
            known += [f"evidence.{name}", *(f"evidence.{name}.{member}" for member in _property_names(output or {}))]
        return sorted(set(known))


NO_SUCH: Final = "no such property"

_JSON_TYPES: Final = {"string": "string", "boolean": "boolean", "number": "number", "integer": "number"}


def property_type(schema: Mapping[str, Any], segments: list[str]) -> str | None:
    """Return the type of the property at the path `segments` of a JSON Schema, as the vocabulary of facts names types.

    `NO_SUCH` if the schema excludes the property, None if the schema does not say.
    """
    node: Any = schema
    for segment in segments:
        if not isinstance(node, Mapping) or not isinstance(node.get("properties"), Mapping):
            return NO_SUCH if isinstance(node, Mapping) and node.get("type") in _JSON_TYPES else None
        if segment not in node["properties"]:
            return NO_SUCH if node.get("additionalProperties") is False else None
        node = node["properties"][segment]
    kind = node.get("type") if isinstance(node, Mapping) else None
    if kind == "array":
        items = node.get("items")
        element = _JSON_TYPES.get(str(items.get("type"))) if isinstance(items, Mapping) else None
        return f"array<{element}>" if element else "array"
    return _JSON_TYPES.get(kind, "object" if kind == "object" else None) if isinstance(kind, str) else None


def nearest_name(name: str, known: Any, least: float = MIN_SIMILARITY) -> str | None:
    """Return the name in `known` that is most like `name`, or None if no name has at least the likeness `least`."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=least)
    return matches[0] if matches else None


def name_remedy(name: str, known: Any) -> str:
    """Return the remedy for a name that is not in `known`: the known name that is most like it, or all known names.

    >>> name_remedy("depoly", ("deploy", "refund")), name_remedy("x", ("deploy", "refund"))
    ('did you mean `deploy`?', 'use one of deploy, refund')
    """
    nearest = nearest_name(name[:200], known)
    return f"did you mean `{nearest}`?" if nearest else f"use one of {', '.join(known)}"


def tool_remedy(name: str, tools: Sequence[str]) -> str:
    """Return the remedy for a name that is not one of the ids `tools`: the id that it is most like, as a whole or in
    the part after the last dot; else all ids.

    >>> tool_remedy("scale", ("deploy.scale", "deploy.rollback"))
    'did you mean `deploy.scale`?'
    """
    short_names = {tool.rpartition(".")[2]: tool for tool in tools}
    nearest = nearest_name(name[:200], [*tools, *short_names])
    return f"did you mean `{short_names.get(nearest, nearest)}`?" if nearest else f"use one of {', '.join(tools)}"


def _property_names(schema: Mapping[str, Any]) -> list[str]:
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, Mapping) else []

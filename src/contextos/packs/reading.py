"""Reads a declaration from YAML or JSON, writes it as YAML, and drafts the first one over all tools of a deployment.

YAML is restricted to JSON's data model: no aliases, no tags, no duplicate keys, and the limits of JSON on size and
depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.pointer import pointer
from contextos.contracts.encoding.yaml_text import read_document, write_yaml
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.plan import MAX_TEMPLATE_STEPS
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.control.lint.money import EACH_IS_ASKED, money_of
from contextos.errors import InvalidArtifact, InvalidEnvelope, Problem
from contextos.packs.declaration import PackDeclaration
from contextos.packs.expressions import Place, compile_condition

WHOLE_FORM: Final = frozenset({*ContextPack.model_fields, "guardrails", "must_refuse", "must_escalate"})
"""Fields that only the whole form of a pack has."""


_HEADER: Final = """\
# The short form of a pack. `contextos pack expand {file}` prints the whole pack, `--origins` where each field is from.
# What is left out gets a strict default: every write is asked of the approver, and who is not named may not.
# A condition is like a Python expression:
#   deny:
#     - when: evidence.ci.green == False
#       because: the build is red
#   ask:
#     - role: lead
#       when: args.env == "prod"
#   auto_approve:
#     - tools: [scale]
#       bounds: {{replicas: {{min: 1, max: 5}}}}
# A call whose argument does not fit is refused, and nobody is asked:
#   permissions:
#     write_file: {{arg_constraints: {{path: {{pattern: 'notes/[a-z]+[.]txt'}}}}}}
"""


def read_declaration(raw: bytes) -> PackDeclaration:
    """Return the declaration that a file holds.

    Raises:
        MalformedJson: the bytes are neither YAML nor JSON, or exceed a limit.
        InvalidEnvelope: a field is unknown, missing or of another type.
        InvalidArtifact: the document is not an object, or as `parse_declaration`.
    """
    value = read_document(raw)
    if not isinstance(value, dict):
        detail = "the document is not a declaration of a pack"
        raise InvalidArtifact(Problem("", "not_an_object", detail, "begin with `name:`, `version:` and `tenant:`"))
    return parse_declaration(value)


def parse_declaration(value: dict[str, Any]) -> PackDeclaration:
    """Return the declaration that an object states.

    Raises:
        InvalidEnvelope: a field is unknown, missing or of another type.
        InvalidArtifact: a field is one that only the whole form of a pack has.
    """
    if foreign := [name for name in value if name in WHOLE_FORM]:
        remedy = "write the whole form, which `contextos pack expand` prints of a short one, and add it there"
        raise InvalidArtifact(
            *(Problem(pointer((name,)), "whole_form", f"the short form has no `{name}`", remedy) for name in foreign)
        )
    try:
        return parse(PackDeclaration, value)
    except InvalidEnvelope as error:
        raise InvalidEnvelope(*error.problems, *_condition_faults(value, ())) from None


def _condition_faults(value: Any, path: Place) -> Iterator[Problem]:
    """Yield the problems of the conditions of a declaration that has faults in other places too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in items:
        if step == "when" and isinstance(child, str):
            try:
                compile_condition(child, (*path, step))
            except InvalidArtifact as error:
                yield from error.problems
        else:
            yield from _condition_faults(child, (*path, step))


def write_declaration(declaration: PackDeclaration) -> str:
    """Return a declaration as YAML, with exactly the fields that were written."""
    return write_yaml(declaration.to_json())


def draft_pack(file: str, fields: Mapping[str, Any], definitions: Iterable[AdapterDefinition]) -> str:
    """Return the text of the short form of a pack over all tools of these definitions.

    `file` is the name of the file, for its comment. `fields` are the fields of `PackDeclaration` without its tools.

    Raises:
        InvalidEnvelope: a field is unknown, missing or of another type.
    """
    tools = {
        f"{adapter.adapter_id}.{tool.name}": (adapter, tool) for adapter in definitions for tool in adapter.capabilities
    }
    body = {**fields, "tools": list(tools)[:MAX_TEMPLATE_STEPS]}
    if money_tools := [name for name in body["tools"] if money_of(tools[name][1])]:
        body["permissions"] = {name: {"without_sum": EACH_IS_ASKED} for name in money_tools}
    if endpoints := {endpoint for name in body["tools"] for endpoint in tools[name][0].egress}:
        body["egress"] = sorted(endpoints)
    if max_cost := max((tool.cost_cents for _, tool in tools.values()), default=0):
        body["budget"] = {**body.get("budget", {}), "max_cost_cents": max_cost}
    text = _HEADER.format(file=file) + write_declaration(parse(PackDeclaration, body))
    if rest := list(tools)[MAX_TEMPLATE_STEPS:]:
        text += f"# A pack has at most {MAX_TEMPLATE_STEPS} tools. Not in it:\n" + "".join(
            f"# - {tool}\n" for tool in rest
        )
    return text

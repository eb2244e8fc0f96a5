"""The first draft of a pack: its short form over all tools of a deployment, with every write asked of an approver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from contextos.contracts.encoding.codec import parse
from contextos.contracts.envelopes.plan import MAX_TEMPLATE_STEPS
from contextos.contracts.envelopes.tool import AdapterDefinition
from contextos.packs.declaration import PackDeclaration
from contextos.packs.reading import write_declaration

_HEADER: Final = """\
# The short form of a pack. `contextos pack expand {file}` prints the whole pack, `--origins` where each field is from.
# What is left out gets the strictest value: every write is asked of the approver, and who is not named may not.
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


def draft_pack(file: str, fields: Mapping[str, Any], definitions: Iterable[AdapterDefinition]) -> str:
    """Return the text of the short form of a pack over all tools of these definitions.

    `file` is its name as its comment shows it. `fields` are those of `PackDeclaration` without its tools.

    Raises:
        InvalidEnvelope: a field is unknown, missing or of another type.
    """
    tools = {f"{one.adapter_id}.{tool.name}": (one, tool) for one in definitions for tool in one.capabilities}
    told = {**fields, "tools": list(tools)[:MAX_TEMPLATE_STEPS]}
    if reached := {endpoint for name in told["tools"] for endpoint in tools[name][0].egress}:
        told["egress"] = sorted(reached)
    if dearest := max((tool.cost_cents for _, tool in tools.values()), default=0):
        told["budget"] = {**told.get("budget", {}), "max_cost_cents": dearest}
    text = _HEADER.format(file=file) + write_declaration(parse(PackDeclaration, told))
    if left := list(tools)[MAX_TEMPLATE_STEPS:]:
        text += f"# A pack has at most {MAX_TEMPLATE_STEPS} tools. Not in it:\n" + "".join(
            f"# - {one}\n" for one in left
        )
    return text

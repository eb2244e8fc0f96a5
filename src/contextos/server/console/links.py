"""Links of the console: to the forms of governed operations, and to the pages of what a reference names.

Roles decide which links a page has. Each page asks the server, which decides again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from contextos.contracts.refs import EVIDENCE, parse_ref
from contextos.service.operations.operation import Operation
from contextos.service.operations.table import named_operation

FORM: Final = "/console/do"
PACK_PREFIX: Final = "ctxpack."


class ItemAct(NamedTuple):
    """An act on an item of a list: its label in the catalogue of texts, the member of the item that the act is about
    ("" if none), the members that fill in fields, and fixed fields. With `needs` an item without that member has none.
    """

    operation: str
    label: str
    about: str = ""
    members: tuple[str, ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()
    needs: str = ""


class Link(NamedTuple):
    """A link to a form: the label in the catalogue of texts, and the address."""

    label: str
    address: str


_ITEM_ACTS: Final[Mapping[str, tuple[ItemAct, ...]]] = {
    "dead-letters.list": (ItemAct("runs.retry", "retry", "run_id"),),
    "memories.list": (
        ItemAct("memories.review", "promote", "proposal_id", fixed=(("verdict", "promote"),)),
        ItemAct("memories.review", "reject", "proposal_id", fixed=(("verdict", "reject"),)),
    ),
    "packs.list": (ItemAct("packs.withdraw", "withdraw", "ref"),),
    "pins.list": (ItemAct("pins.withdraw", "end_pin", "", ("refs", "intents", "environment")),),
    "facts.list": (
        ItemAct("facts.replace", "replace", "", ("subject", "predicate", "integrity", "classification")),
        ItemAct("facts.retract", "retract", "", ("subject", "predicate")),
    ),
    "models.list": (ItemAct("models.check", "check", "ref"),),
    "adapters.list": (ItemAct("adapters.release", "release", "capability_id", needs="quarantine"),),
}
"""The acts on an item of each list."""


def may_sign(operation: Operation, roles: frozenset[str]) -> bool:
    """Return whether somebody with these roles is shown the form of an operation. The server decides again."""
    return bool(operation.signs) and (not operation.roles or not roles.isdisjoint(operation.roles))


def form_address(operation: str, about: str = "", **fields: str) -> str:
    """Return the address of a form whose fields are filled in.

    >>> form_address("runs.retry", "run_1")
    '/console/do/runs.retry?of=run_1'
    """
    query = {name: text for name, text in {"of": about, **fields}.items() if text}
    return f"{FORM}/{operation}" + (f"?{urlencode(query)}" if query else "")


def acts_on(listed: str, item: Mapping[str, Any], roles: frozenset[str]) -> list[Link]:
    """Return the links to the acts on an item of the list `listed` that somebody with these roles can sign."""
    links = []
    for act in _ITEM_ACTS.get(listed, ()):
        is_void = item.get("withdrawn") or (act.needs and not item[act.needs])
        if is_void or not may_sign(named_operation(act.operation), roles):
            continue
        members = {name: item[name] for name in act.members}
        fields = {name: "\n".join(one) if isinstance(one, list) else str(one) for name, one in members.items()}
        address = form_address(act.operation, str(item[act.about]) if act.about else "", **fields, **dict(act.fixed))
        links.append(Link(act.label, address))
    return links


def reference_address(text: str, run_id: str, roles: frozenset[str]) -> str | None:
    """Return the page of what a reference names: the facts of a subject, the entries of a call, the policies in force,
    the selections of a run, the memories, the packs or the models. None for another text, or a page of other roles.
    """
    asked = f"/console/ask/{{}}?{urlencode({'run': run_id})}" if run_id else ""
    if text.startswith(PACK_PREFIX):
        return _page("packs.list", roles, f"packs/{quote(text, safe='@')}")
    if not EVIDENCE.fits(text):
        return None
    ref = parse_ref(text)
    if ref.scheme == "kg":
        return _page("facts.list", roles, f"facts?{urlencode({'subject': ref.subject})}")
    if ref.scheme == "tool":
        return f"/console/runs/{quote(run_id)}/entries?{urlencode({'call': ref.version})}" if run_id else None
    if ref.scheme == "policy":
        return _page("policies.list", roles, "policies")
    if ref.scheme == "artifact" and asked:
        return asked.format("slots.selections")
    return _page("memories.list", roles, "ask/memories.list") if ref.scheme == "memory" else None


def _page(listing: str, roles: frozenset[str], page: str) -> str | None:
    return None if roles.isdisjoint(named_operation(listing).roles) else f"/console/{page}"

"""The pages of packs: what is published with its versions and pins, one artifact, two versions compared, and a draft;
the policies in force; and the tools of adapters, which all of these name.

A draft is checked, expanded and published over `/v1` by the script of its page, signed by its author and a publisher.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Query, Response

from contextos.contracts.documents.catalog import PINS
from contextos.contracts.encoding.pointer import MISSING
from contextos.control.artifact_repository import ActiveArtifacts
from contextos.packs.difference import pack_changes
from contextos.packs.printing import print_condition
from contextos.server.access import require_role
from contextos.server.console.links import Link, acts_on, form_address
from contextos.server.console.reading import ConsoleReader, ConsoleReaderHere, PageRoute, render_for
from contextos.server.control.packs import RefName
from contextos.server.problems import not_found
from contextos.server.shared.pages import LongCursor
from contextos.service.acts import signer_elsewhere
from contextos.service.operations.adapters import list_tools
from contextos.service.operations.operation import READER_ROLES, Asked, Paged
from contextos.service.operations.packs import PACK_READERS, unmatched_in
from contextos.trust.approvals.acts import POLICY_ADMIN_ROLE, PUBLISHER_ROLE

pack_page_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_PUBLISHED: Final = 100
"""The most artifacts, and the most other versions of one, on a page."""
MAX_CHANGES: Final = 500
"""The most fields of a comparison on one page."""


class RuleLine(NamedTuple):
    """A rule as a person reads it: what it applies to, when, and what follows. `effect` is `allow`, `deny` or ""."""

    rule_id: str
    applies_to: str
    when: str
    effect: str
    others: Sequence[str]
    rationale: str


async def pack_reader(reader: ConsoleReaderHere) -> ConsoleReader:
    """Return who reads a page of packs. Raises `HttpProblem` (403) without a role that reads them."""
    require_role(reader.roles, *PACK_READERS)
    return reader


PackReaderHere = Annotated[ConsoleReader, Depends(pack_reader)]
OtherRef = Annotated[str, Query(max_length=512)]


@pack_page_routes.get("/packs")
async def get_packs(reader: PackReaderHere, cursor: LongCursor = "") -> Response:
    """List the published artifacts, those of one name together, with what is in force of each."""
    listed = await reader.app.artifacts.list(reader.tenant_id, limit=MAX_PUBLISHED, cursor=cursor)
    active = await reader.app.artifacts.active(reader.tenant_id)
    names: dict[str, list[Any]] = {}
    for one in sorted(listed.items, key=lambda one: _version(one.ref), reverse=True):
        names.setdefault(one.ref.partition("@")[0], []).append(one)
    return render_for(
        reader,
        "packs.html",
        names=dict(sorted(names.items())),
        cursor=listed.cursor,
        begins=not cursor,
        active=active,
        uses=lambda ref: list(_uses(active, ref)),
        acts=lambda one: acts_on("packs.list", one.to_json(), reader.roles),
        may_pin=POLICY_ADMIN_ROLE in reader.roles,
    )


@pack_page_routes.get("/packs/{ref}")
async def get_pack_page(reader: PackReaderHere, ref: RefName) -> Response:
    """Show one published artifact: what it is, where it is in force, its rules and its whole content."""
    found = await reader.app.artifacts.get(reader.tenant_id, ref)
    active = await reader.app.artifacts.active(reader.tenant_id)
    return render_for(
        reader,
        "pack.html",
        found=found,
        uses=list(_uses(active, ref)),
        others=await _other_versions(reader, ref),
        rules=list(rule_lines(found.document)),
        acts=_acts(reader, found.kind, found.document, ref) if not found.withdrawn else [],
        may_draft=found.kind == "context_pack",
    )


@pack_page_routes.get("/packs/{ref}/changes")
async def get_changes(reader: PackReaderHere, ref: RefName, before: OtherRef) -> Response:
    """Show the fields in which two published artifacts differ, after their expansion."""
    new = await reader.app.artifacts.get(reader.tenant_id, ref)
    old = await reader.app.artifacts.get(reader.tenant_id, before)
    changes = pack_changes(old.document, new.document)
    return render_for(
        reader,
        "changes.html",
        ref=ref,
        before=before,
        changes=changes[:MAX_CHANGES],
        more=max(0, len(changes) - MAX_CHANGES),
        missing=MISSING,
    )


@pack_page_routes.get("/drafts")
async def get_draft_page(reader: PackReaderHere, of: OtherRef = "") -> Response:
    """Show a text to edit, lint beside it, and what publishes it: a new pack, or one that begins with a published."""
    text = ""
    if of:
        found = await reader.app.artifacts.get(reader.tenant_id, of)
        if found.kind != "context_pack":
            raise not_found()
        meta = found.document["pack_meta"]
        meta["pack_version"] = _next_version(meta["pack_version"])
        text = json.dumps(found.document, indent=2, ensure_ascii=False)
    return render_for(reader, "draft.html", of=of, text=text, may_publish=PUBLISHER_ROLE in reader.roles)


@pack_page_routes.get("/policies")
async def get_policies_page(reader: PackReaderHere) -> Response:
    """Show the policies in force above every pack: their rules as text, and what of them cannot match now."""
    active = await reader.app.artifacts.active(reader.tenant_id)
    bundles = [
        (level, ref, list(rule_lines((await reader.app.artifacts.get(reader.tenant_id, ref)).document)))
        for level, ref in active.policies
    ]
    asked = Asked(reader.app, reader.tenant_id, signer_elsewhere(reader.caller.subject))
    return render_for(
        reader,
        "policies.html",
        bundles=bundles,
        version=active.version,
        unmatched=await unmatched_in(asked),
        may_activate=POLICY_ADMIN_ROLE in reader.roles,
    )


@pack_page_routes.get("/adapters")
async def get_adapters_page(reader: ConsoleReaderHere, cursor: LongCursor = "") -> Response:
    """List the tools, those of one adapter together."""
    require_role(reader.roles, *READER_ROLES)
    asked = Asked(reader.app, reader.tenant_id, signer_elsewhere(reader.caller.subject))
    page = await list_tools(asked, Paged(cursor=cursor))
    adapters: dict[str, list[Any]] = {}
    for tool in page.items:
        adapters.setdefault(tool.adapter_id, []).append(tool)
    return render_for(
        reader,
        "adapters.html",
        adapters=adapters,
        cursor=page.cursor,
        begins=not cursor,
        acts=lambda tool: acts_on("adapters.list", tool.to_json(), reader.roles),
    )


def _version(ref: str) -> tuple[int, ...]:
    return tuple(map(int, ref.rpartition("@")[2].split(".")))


def _next_version(version: str) -> str:
    """Return the next minor version.

    >>> _next_version("5.2.1")
    '5.3.0'
    """
    major, minor, _ = version.split(".", 2)
    return f"{major}.{int(minor) + 1}.0"


def rule_lines(document: Mapping[str, Any]) -> Iterator[RuleLine]:
    """Yield the rules of a pack or a policy bundle, in their order, with conditions as the short form writes them."""
    layer = document.get("policy_layer", {})
    for bundle in [*([document["bundle"]] if "bundle" in document else []), *layer.get("policy_bundles", ())]:
        for rule in bundle["policy_dsl"]["rules"]:
            applies = ", ".join(f"{name} {value}" for name, value in rule.get("applies_to", {}).items())
            effect = {True: "allow", False: "deny"}.get(rule["then"].get("allow"), "")
            others = (f"{name} {_said(value)}" for name, value in rule["then"].items() if name != "allow")
            yield RuleLine(
                rule["rule_id"], applies, print_condition(rule["if"]), effect, list(others), rule.get("rationale", "")
            )


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _uses(active: ActiveArtifacts, ref: str) -> Iterator[str]:
    """Yield where a ref is in force: the intents of its pins by environment, and its level as a policy."""
    for pin in active.packs:
        if ref in pin.refs:
            yield f"{', '.join(pin.intents)} ({pin.environment})"
    for level, policy in active.policies:
        if policy == ref:
            yield level


async def _other_versions(reader: ConsoleReader, ref: str) -> Sequence[str]:
    """Return other published versions of the same name."""
    store = reader.app.deployment.ports.stores.tenant(reader.tenant_id)
    page = await PINS.page(store, prefix=f"{ref.partition('@')[0]}@", limit=MAX_PUBLISHED)
    return [one.key for one in page if one.key != ref]


def _acts(reader: ConsoleReader, kind: str, document: Mapping[str, Any], ref: str) -> list[Link]:
    links = acts_on("packs.list", {"ref": ref}, reader.roles)
    if kind == "context_pack" and POLICY_ADMIN_ROLE in reader.roles:
        intents = [intent["intent_id"] for intent in document["decision_layer"].get("intents", ())]
        links.insert(0, Link("pin", form_address("pins.set", refs=ref, intents="\n".join(intents))))
    return links

"""The forms of governed operations: each operation of the table that is signed has one, made from its input.

A form shows what it is about. The script of the page asks `/v1` for the statements, shows them, signs them in the
browser and sends them. Without scripts the page prints the command that does the same. No form is sent to the console.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Request, Response

from contextos.contracts.encoding.display_escape import displayed
from contextos.contracts.encoding.jcs import content_address
from contextos.contracts.model import Model
from contextos.deployment.dead_letters import dead_letter
from contextos.errors import InvalidInput, NotFound
from contextos.intelligence.memory import stored_candidate
from contextos.server.console.reading import ConsoleReader, ConsoleReaderHere, PageRoute, render_for
from contextos.server.console.tables import section_of
from contextos.server.operations import asked_by
from contextos.server.problems import not_found
from contextos.service.operations.adapters import QUARANTINED
from contextos.service.operations.operation import OF_RUN, Asked, Operation
from contextos.service.operations.packs import REF
from contextos.service.operations.table import named_operation
from contextos.trust.approvals.quarantines import open_incidents
from contextos.workspace import App

signing_routes: Final = APIRouter(include_in_schema=False, route_class=PageRoute)

MAX_FACTS_SHOWN: Final = 100
_OF_ACTIVE_SET: Final = ("packs", "pins", "policies")
"""The groups whose acts change the active set: its version is the `expected` of the act."""
_OF_RUN_SHOWN: Final = (
    "run_id",
    "request_id",
    "intent",
    "user_id",
    "agent_id",
    "state",
    "waits_for",
    "status",
    "fault",
)
_OF_FACTS: Final = ("facts.replace", "facts.retract")

FieldKind = Literal["text", "lines", "choice", "json", "time", "now", "version"]


class SignedField(NamedTuple):
    """A field of a form. `kind` says how the script makes the value from the text: `json` is JSON, `lines` a list of
    texts, `time` a local time or else now; `now` and `version` are filled in.
    """

    name: str
    description: str
    kind: FieldKind
    choices: tuple[str, ...]
    required: bool
    value: str


@signing_routes.get("/do/{name}")
async def get_form(request: Request, reader: ConsoleReaderHere, name: str) -> Response:
    """Show the form of a signed operation, with what it is about, and the command that does the same."""
    try:
        operation = named_operation(name)
    except NotFound:
        raise not_found() from None
    if not operation.signs:
        raise not_found()
    texts = dict(request.query_params.items())
    about = texts.pop("of", "")
    asked = await asked_by(operation, reader.app, reader.caller, reader.roles, about)
    if operation.about is not None and not asked.name:
        raise not_found()
    shown, filled = await _about(operation, asked, texts, reader.app)
    # A name that is not a field is left out: it would be sent, and refused, as if the person had written it.
    fields = list(fields_of(operation.input, {**filled, **texts}))
    path = operation.address[1]
    if operation.about is not None:
        path = path.replace(f"{{{operation.about.name}}}", quote(asked.name, safe=""))
    return render_for(
        reader,
        "sign.html",
        operation=operation,
        section=section_of(operation),
        of=asked.name,
        run_id=asked.name if operation.about is OF_RUN else "",
        shown=list(_leaves(shown, "")),
        seen=content_address({"roles": sorted(reader.roles & {*operation.roles}), "shown": shown}),
        fields=fields,
        depends=("subject", "predicate") if operation.name in _OF_FACTS else (),
        path=f"/v1{path}",
        command=command(operation, asked.name, fields, reader),
    )


async def _about(
    operation: Operation, asked: Asked, texts: Mapping[str, str], app: App
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what a page shows of the thing that an act is about, and the fields that follow from it.

    Raises:
        NotFound: there is no such thing in this tenant.
    """
    shown, filled = dict[str, Any](), dict[str, str]()
    store = app.deployment.ports.stores.tenant(asked.tenant_id)
    if operation.about is OF_RUN:
        run = await app.runs.get(asked.tenant_id, asked.name)
        shown = {name: getattr(run, name) for name in _OF_RUN_SHOWN}
        if run.paused is not None:
            shown["call"] = run.paused.tool_call_id
        with suppress(NotFound):
            body = (await dead_letter(store, asked.name)).body
            shown["failed"] = {"code": body.code, "detail": body.detail, "failures": body.failures}
    elif operation.about is REF:
        shown = (await app.artifacts.get(asked.tenant_id, asked.name)).to_json()
        del shown["document"]
    elif operation.about is QUARANTINED:
        incidents = await open_incidents(store, app.deployment.ports.keys, f"{asked.name}/")
        if not incidents:
            raise NotFound(f"`{asked.name}` is not in quarantine")
        shown = {"capability_id": asked.name, "incidents": list(incidents)}
    elif operation.about is not None:
        reviewed = (await stored_candidate(store, asked.name)).body
        shown = reviewed.proposal.to_json()
        shown |= {"review": reviewed.review.to_json()} if reviewed.review is not None else {}
    if operation.group in _OF_ACTIVE_SET:
        active = await app.artifacts.active(asked.tenant_id)
        policies = [{"level": level, "ref": ref} for level, ref in active.policies]
        shown |= {"version": active.version, "pins": [pin.to_json() for pin in active.packs], "policies": policies}
        filled = {"expected": str(active.version)}
        filled |= {"policies": json.dumps(policies, indent=1)} if operation.name == "policies.activate" else {}
    if operation.name in _OF_FACTS and texts.get("subject") and texts.get("predicate"):
        with suppress(InvalidInput):
            page = await app.facts.list(
                asked.tenant_id, texts["subject"], texts["predicate"], limit=MAX_FACTS_SHOWN, cursor=""
            )
            shown["facts"] = [fact.to_json() for fact in page.items]
    return shown, filled


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the members of a value by their place, as the statement names them."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for member, one in members:
        yield from _leaves(one, f"{name}.{member}" if name else str(member))
    if not members:
        yield name, value


def fields_of(model: type[Model], texts: Mapping[str, str]) -> Iterator[SignedField]:
    """Yield the fields of the input of a signed operation, with the texts that are filled in."""
    schema = model.model_json_schema()
    required = schema.get("required", ())
    for name, member in schema.get("properties", {}).items():
        kind, choices = _kind(name, member)
        default = member.get("default")
        text = default if isinstance(default, str) else json.dumps(default) if default not in (None, []) else ""
        is_required = name in required and kind not in ("time", "now")
        yield SignedField(name, member.get("description", ""), kind, choices, is_required, texts.get(name, text))


def _kind(name: str, member: Mapping[str, Any]) -> tuple[FieldKind, tuple[str, ...]]:
    filled: dict[str, FieldKind] = {"expected": "version", "at_us": "now", "observed_at_us": "time"}
    if name in filled:
        return filled[name], ()
    types = {one.get("type") for one in member.get("anyOf", [member])} - {"null"}
    if types == {"boolean"}:
        return "json", ("true", "false")
    if types == {"string"}:
        choices = tuple(map(str, member.get("enum", ())))
        return ("choice" if choices else "text"), choices
    return ("lines" if types == {"array"} and member["items"].get("type") == "string" else "json"), ()


def command(operation: Operation, about: str, fields: list[SignedField], reader: ConsoleReader) -> str:
    """Return the command that does what a form does, with what is filled in. A text with hidden characters is not
    filled in: nobody could check what they copy.
    """
    who = f"--key FILE --tenant {_word(reader.tenant_id)}"
    texts = {field.name: field.value for field in fields}
    if operation.name == "runs.settle":
        happened = {"true": "--happened", "false": "--did-not"}.get(texts["happened"], "--happened|--did-not")
        evidence = _word(texts["evidence_ref"]) if texts["evidence_ref"] else "REF"
        return f"contextos runs settle {_word(about)} {happened} --evidence {evidence} --as {_by(reader)} {who}"
    words = [f"contextos ask {operation.name}", *([_word(about)] if about else [])]
    for field in fields:
        if field.value and field.kind != "now":
            lines = field.value.splitlines()
            text = json.dumps(lines, ensure_ascii=False) if field.kind == "lines" else " ".join(lines)
            words.append(f"{field.name}={_word(text)}")
        elif field.required:
            words.append(f"{field.name}=…")
    into = [] if issubclass(operation.output, Model) else ["> FILE"]
    return " ".join((*words, f"--by {_by(reader)} {who}", *into))


def _by(reader: ConsoleReader) -> str:
    return _word(reader.caller.subject)


def _word(text: str) -> str:
    return shlex.quote(text) if displayed(text).replace("\\\\", "\\") == text else "…"

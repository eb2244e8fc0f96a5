"""Drafts the adapter file of an A2A agent from its card, as strict as possible: a person reviews and relaxes it.

A card has no schemas. A skill that takes texts is drafted with the one argument `text`. One that takes JSON alone is
drafted without arguments, and a person writes the schema. The output is drafted as texts. A skill that this adapter
cannot call is left out with a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from contextos.adapters.a2a.definitions import A2aConnection, SkillOperation, skill_digest
from contextos.adapters.foreign.drafting import (
    TEXT_OUTPUT,
    DraftRow,
    FileDraft,
    capability_names,
    check_drafted,
    drafted_capability,
    plain_name,
    require_listed,
)
from contextos.contracts.encoding.codec import parse
from contextos.errors import InvalidInput, Problem

CARD_PATH: Final = "/.well-known/agent-card.json"
TEXT_MODES: Final = frozenset({"text", "text/plain"})
JSON_MODE: Final = "application/json"
BEARER_SCHEMES: Final = frozenset({"httpAuthSecurityScheme", "oauth2SecurityScheme", "openIdConnectSecurityScheme"})
"""The kinds of security schemes that a bearer token satisfies. An `httpAuth…` scheme also has to be `bearer`."""

NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "additionalProperties": False}
TEXT_ARGUMENT: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["text"],
    "properties": {"text": {"type": "string"}},
}


def card_url(url: str) -> str:
    """Return the URL of the card of an agent: `url` itself if it ends with `.json`, else the well-known place below it.

    >>> card_url("https://agent.example/")
    'https://agent.example/.well-known/agent-card.json'
    """
    return url if url.endswith(".json") else url.rstrip("/") + CARD_PATH


def draft_agent(
    name: str, named: A2aConnection, card: Mapping[str, Any], reads: Collection[str]
) -> tuple[dict[str, Any], list[DraftRow]]:
    """Return the adapter file of an agent as an object, and a row for each skill of its card.

    `named` is the connection by which the card was read. `reads` has the ids of the skills of which a person stated
    that they only read.

    Raises:
        InvalidInput: the agent cannot be called as its card says, or no skill of it can be a capability.
    """
    connection = _find_interface(named, card)
    skills = [str(skill.get("id", "")) for skill in card["skills"]]
    require_listed(reads, skills, "skill")
    if extension := next(_required_extensions(card), None):
        detail = f"the agent requires the extension `{extension[:200]}`, which nothing here speaks"
        raise InvalidInput(Problem("", "required_extension", detail, "use another agent"))
    draft = FileDraft(external=True)
    names = capability_names({skill_id: plain_name(skill_id) for skill_id in skills}, name)
    for skill, skill_id in zip(card["skills"], skills, strict=True):
        capability = names[skill_id] if skills.count(skill_id) == 1 and skill_id else ""
        try:
            _add_skill(draft, connection, card, skill, capability, reads=skill_id in reads)
        except InvalidInput as refused:
            draft.leave_out(skill_id, refused.problems[0].detail)
    return draft.to_file(name, connection, {connection.endpoint()}), draft.rows


def _find_interface(connection: A2aConnection, card: Mapping[str, Any]) -> A2aConnection:
    """Return the connection to the first JSON-RPC interface of A2A 1 at the card's endpoint. Raises `InvalidInput`."""
    interfaces = card.get("supportedInterfaces")
    for interface in interfaces if isinstance(interfaces, list) else ():
        if not isinstance(interface, dict) or interface.get("protocolBinding") != "JSONRPC":
            continue
        url, version, tenant = (interface.get(member, "") for member in ("url", "protocolVersion", "tenant"))
        if not isinstance(url, str) or not isinstance(tenant, str) or str(version).partition(".")[0] != "1":
            continue
        try:
            candidate = connection.model_copy(update={"url": url, "tenant": tenant})
            candidate.check()
        except InvalidInput:
            continue
        return candidate
    detail = f"its card offers no JSON-RPC interface of A2A 1 at `{connection.endpoint()}`"
    raise InvalidInput(Problem("", "no_interface", detail, "use the URL of an agent that has one"))


def _required_extensions(card: Mapping[str, Any]) -> Any:
    extensions = _member(card.get("capabilities"), "extensions")
    for extension in extensions if isinstance(extensions, list) else ():
        if _member(extension, "required"):
            yield str(_member(extension, "uri"))


def _add_skill(
    draft: FileDraft,
    connection: A2aConnection,
    card: Mapping[str, Any],
    skill: Mapping[str, Any],
    capability: str,
    *,
    reads: bool,
) -> None:
    """Add a skill. Raises `InvalidInput` with the reason why it cannot be a capability."""
    skill_id = str(skill.get("id", ""))
    if not capability:
        raise _unusable_skill("its id is empty, or another skill has it")
    for requirements in (card.get("securityRequirements"), skill.get("securityRequirements")):
        _check_security(connection, card, requirements)
    takes, gives = _media_types(card, skill, "Input"), _media_types(card, skill, "Output")
    form = "text" if not takes or takes & TEXT_MODES else "data"
    if form == "data" and JSON_MODE not in takes:
        raise _unusable_skill("it takes neither texts nor JSON")
    if gives and not gives & {*TEXT_MODES, JSON_MODE}:
        raise _unusable_skill("it answers neither texts nor JSON")
    reason = "stated as a read" if reads else "unknown: at its strictest"
    if form == "data" or (gives and not gives & TEXT_MODES):
        reason += "; it speaks JSON, so its schemas are to be written"
    capability_fields = drafted_capability(
        capability,
        reads=reads,
        leaves=True,
        input_schema=TEXT_ARGUMENT if form == "text" else NO_ARGUMENTS,
        output_schema=TEXT_OUTPUT,
        description=str(skill.get("description") or skill.get("name") or ""),
    )
    operation: dict[str, Any] = {
        "skill": skill_id,
        "digest": skill_digest(card, skill),
        "input": form,
        "output": "text",
    }
    if reads:
        operation["stated_read"] = True
    parse(SkillOperation, operation)
    check_drafted(capability_fields, operation)
    draft.add(skill_id, capability_fields, operation, reason)


def _media_types(card: Mapping[str, Any], skill: Mapping[str, Any], side: str) -> set[str]:
    """Return the media types that a skill takes (`Input`) or gives (`Output`): its own, or else those of the agent."""
    skill_modes, default = skill.get(f"{side.lower()}Modes"), card.get(f"default{side}Modes")
    modes = skill_modes if skill_modes and isinstance(skill_modes, list) else default
    # A parameter (`text/plain; charset=utf-8`) does not make it another type.
    texts = [mode for mode in modes if isinstance(mode, str)] if isinstance(modes, list) else []
    return {mode.partition(";")[0].strip().lower() for mode in texts}


def _check_security(connection: A2aConnection, card: Mapping[str, Any], requirements: Any) -> None:
    """Raise `InvalidInput` unless the connection meets one of the security `requirements`."""
    if not isinstance(requirements, list) or not requirements:
        return
    alternatives = [_member(requirement, "schemes") or {} for requirement in requirements]
    if not all(alternatives):
        return
    schemes = card.get("securitySchemes")
    if not any(all(_is_bearer(_member(schemes, name)) for name in names) for names in alternatives):
        raise _unusable_skill("it asks for credentials that are not a bearer token")
    if connection.token_env is None:
        raise _unusable_skill("it asks for a bearer token; name its variable with `--token-env`")


def _is_bearer(scheme: Any) -> bool:
    if not isinstance(scheme, dict) or not BEARER_SCHEMES.intersection(scheme):
        return False
    over_http = scheme.get("httpAuthSecurityScheme")
    return over_http is None or str(_member(over_http, "scheme")).lower() == "bearer"


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _unusable_skill(reason: str) -> InvalidInput:
    return InvalidInput(Problem("", "unusable_skill", reason, "use another"))

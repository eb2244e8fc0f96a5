"""Redact a request before it is admitted, and the answers that a run gets before they are recorded.

The rules of the pack and of the tenant decide what is redacted; secrets always are. The catalog loads a pack with both
sets of rules. The original is kept nowhere (ADR 0024).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from contextos.contracts.encoding.codec import JsonValue, parse
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.contracts.envelopes.evidence import EvidenceItem, fact_digest
from contextos.contracts.envelopes.pack import ContextPack
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.ports.outside import Directory, HoldsKeys, Keys
from contextos.control.catalog import Catalog
from contextos.errors import InvalidInput, Problem
from contextos.trust.identity.principals import REDACTED_TOKEN, UNKNOWN_AGENT_TOKEN
from contextos.trust.redact import find_secrets, is_plain, redact, scan_unsafe

KEY_DISCLOSED: Final = Problem(
    "", "secret", "the text contains a private key of this runtime", "rotate the key, and take the adapter out"
)


async def redacted_request(
    request: InvokeRequest, fields: dict[str, Any], catalog: Catalog, directory: Directory
) -> tuple[InvokeRequest, dict[str, Any]]:
    """Redact the `input` of a request by the rules of its pack; return the request and its wire form. If the pack is
    not known, every rule applies.

    The original is kept nowhere, and no digest of it is made: a digest of few possible values can be inverted. A
    `token_ref` that the directory does not know can be the token itself, so a mark replaces it.

    Raises:
        InvalidInput: a text of the request looks like a secret. Nothing was stored.
    """
    if secrets := find_secrets(_without_tokens(fields), "send a reference to it, and nothing secret"):
        raise InvalidInput(*secrets)
    rules = await catalog.redaction_rules(request.context_pack_refs)
    cleaned, applied = redact(fields["input"], REDACTION_TARGETS if rules is None else rules)
    body = await _without_unknown_references(request, fields, directory)
    if not applied and body is fields:
        return request, fields
    request = parse(InvokeRequest, {**body, "input": cleaned})
    return request, request.to_json()


async def _without_unknown_references(
    request: InvokeRequest, fields: dict[str, Any], directory: Directory
) -> dict[str, Any]:
    """Return the body with a mark in place of each token reference that the directory does not know."""
    granted = request.user.delegation
    reference = granted.token_ref if granted is not None else None
    if reference is not None and await directory.delegation(request.tenant_id, reference) is None:
        delegation = {**fields["user"]["delegation"], "token_ref": REDACTED_TOKEN}
        fields = {**fields, "user": {**fields["user"], "delegation": delegation}}
    if request.agent.token_ref is not None:
        principals = await directory.resolve(request.tenant_id, request.user.user_id, request.agent.agent_id)
        if principals is None or principals.agent.token_ref != request.agent.token_ref:
            fields = {**fields, "agent": {**fields["agent"], "token_ref": UNKNOWN_AGENT_TOKEN}}
    return fields


def _without_tokens(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body without the fields for token references, for a signed claim, and for the signatures of signed
    URLs.
    """
    agent = {name: value for name, value in body["agent"].items() if name not in ("token_ref", "identity_claim")}
    user = dict(body["user"])
    if user.get("delegation"):
        user["delegation"] = {name: value for name, value in user["delegation"].items() if name != "token_ref"}
    attached = [{**item, "uri": item["uri"].partition("?")[0]} for item in body.get("attachments", ())]
    return {**body, "agent": agent, "user": user, "attachments": attached}


def redaction_rules(pack: ContextPack) -> frozenset[str]:
    """Return the rules by which a run of this pack redacts. Secrets are redacted, whatever the pack says."""
    return frozenset(pack.policy_layer.guardrails.redaction_rules) | {"secret"}


def redacted_items(items: Iterable[EvidenceItem], pack: ContextPack) -> tuple[EvidenceItem, ...]:
    """Return evidence redacted by the rules of the pack. The digest of a changed item is that of its redacted value."""
    originals = tuple(items)
    values, applied = redact([item.value for item in originals], redaction_rules(pack))
    if not applied:
        return originals
    return tuple(_with_value(item, value) for item, value in zip(originals, values, strict=True))


def _with_value(item: EvidenceItem, value: JsonValue) -> EvidenceItem:
    digest = fact_digest(item.subject, item.predicate, value)
    return item.model_copy(update={"value": value, "digest": digest})


def cleanse_output(pack: ContextPack, keys: Keys, output: Any) -> tuple[Any, tuple[str, ...], tuple[Problem, ...]]:
    """Redact the output of a tool by the rules of the pack. Returns (output, rules applied, what makes it unsafe).

    A secret that no rule of the pack redacts makes the output unsafe, and so does a private key of the runtime.
    """
    rules = pack.policy_layer.guardrails.redaction_rules
    plain = is_plain(output, rules)
    cleaned, applied = (output, ()) if plain else redact(output, rules)
    discloses: Callable[[str], bool] | None = getattr(keys, HoldsKeys.discloses.__name__, None)
    if discloses is not None and discloses(canonical(cleaned).decode()):
        return cleaned, applied, (KEY_DISCLOSED,)
    return cleaned, applied, () if plain else scan_unsafe(cleaned, declared_text=True)


def cleanse_text(pack: ContextPack, texts: Any) -> Any:
    """Redact what an adapter says beside its output (errors, mutations), secrets included."""
    return redact(texts, redaction_rules(pack))[0]

"""What an act says follows from what its signer sent and was shown: checked before it is signed, by every client.

The arguments of an act are in clear. Where they have a digest (of a pack, a fact, a memory), it is computed again from
what the signer holds. What the server alone knows stays in clear beside it, such as the number of a commit.
Source: docs/adr/0058-a-signature-is-over-what-was-shown.md, which has the table of all kinds.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any, Final

from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import content_address, same_json
from contextos.contracts.envelopes.evidence import edge_digest, fact_digest
from contextos.errors import InvalidInput

Sent = Mapping[str, Any]
"""What the signer sent: the members of the body, and what they hold beside it (`ref`, `run`, `proposal`, `facts`)."""

ACT_ROUTES: Final[Mapping[str, frozenset[str]]] = {
    "packs": frozenset({"artifact.published"}),
    "packs/{ref}/withdraw": frozenset({"artifact.withdrawn"}),
    "policies": frozenset({"policies.activated"}),
    "pins": frozenset({"packs.pinned"}),
    "pins/withdraw": frozenset({"packs.withdrawn"}),
    "facts": frozenset({"graph.written"}),
    "facts/replace": frozenset({"graph.written", "graph.withdrawn"}),
    "facts/retract": frozenset({"graph.written", "graph.withdrawn"}),
    "facts/load": frozenset({"graph.written", "graph.withdrawn"}),
    "memories/{proposal}/review": frozenset({"memory.reviewed"}),
    "runs/{run}/slot": frozenset({"slot.answered"}),
}
"""The routes of the API on which an act is done, each with the kinds that it can ask to have signed."""


def act_disagreement(act: Mapping[str, Any], route: str, sent: Sent) -> str | None:
    """Return why an act is not what its signer sent to a route of `ACT_ROUTES`, or None."""
    kind, arguments = act.get("kind"), act.get("arguments")
    if kind not in ACT_ROUTES[route] or not isinstance(arguments, Mapping):
        return "it is of another kind than was asked for"
    if "expected" in sent and not same_json(act.get("expected"), sent["expected"]):
        return "it is on another version"
    try:
        wanted = _WANTED[kind](sent, arguments)
    except (KeyError, TypeError, AttributeError, ValueError, InvalidInput):
        return "it does not follow from what was sent"
    for name in sorted({*wanted, *arguments}):
        if name not in wanted or name not in arguments or not same_json(wanted[name], arguments[name]):
            return f"it has another `{name[:80]}` than what was sent"
    return None


def _told(arguments: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """What the server alone knows, as it says it."""
    return {name: arguments[name] for name in names if name in arguments}


def _published(sent: Sent, told: Mapping[str, Any]) -> dict[str, Any]:
    payload = loads(_decoded(sent["envelope"]["payload"]))
    return {**_told(told, "ref", "kind"), "digest": content_address(payload)}


def _withdrawn(sent: Sent, told: Mapping[str, Any]) -> dict[str, Any]:
    return {"ref": sent["ref"], "reason": sent.get("reason", ""), **_told(told, "active_digest")}


def _activated(sent: Sent, told: Mapping[str, Any]) -> dict[str, Any]:
    listed = sorted(([one["level"], one["ref"]] for one in sent["policies"]), key=lambda one: one[0] != "platform")
    return {"policies": listed, **_told(told, "active_digest")}


def _pinned(sent: Sent, told: Mapping[str, Any]) -> dict[str, Any]:
    environment = sent["environment"] if sent.get("environment") is not None else told["environment"]
    lists = {name: sorted(set(sent[name])) for name in ("refs", "intents")}
    return {**lists, "environment": environment, **_told(told, "active_digest")}


def _written(sent: Sent, told: Mapping[str, Any]) -> dict[str, Any]:
    """Each edge under its id has the digest of one that was sent. What the graph has already is not signed again."""
    edges = sent["edges"] if "edges" in sent else [_edge(sent)] if "value" in sent else []
    known = {}
    for edge_id, stated in told["edges"].items():
        named = ({**edge, "edge_id": edge_id} for edge in edges if edge.get("edge_id", edge_id) == edge_id)
        known[edge_id] = stated if stated in map(edge_digest, named) else "not sent"
    return {"edges": known, **_told(told, "commit")}


def _edge(fact: Sent) -> dict[str, Any]:
    """The edge of a fact: it begins and ends at what it is about."""
    names = {"value": "value", "evidence_ref": "source", "observed_at": "observed_at_us", "predicate": "predicate"}
    subject = {"src": fact["subject"], "dst": fact["subject"]}
    kept = {name: fact[name] for name in ("integrity", "classification")}
    return {**subject, **{name: fact[given] for name, given in names.items()}, **kept}


def _ended(sent: Sent, told: Mapping[str, Any]) -> dict[str, Any]:
    """The fact that ends is one that the signer was shown, under what they named."""
    if "edges" in sent:
        [ref] = [one["evidence_ref"] for one in sent["edges"] if one.get("retracts") == told["edge_id"]]
        return {**_told(told, "edge_id", "commit", "fact_digest"), "evidence_ref": ref}
    [one] = [one for one in sent["facts"] if one["fact_id"] == told["edge_id"]]
    about = (sent["subject"], sent["predicate"])
    digest = fact_digest(*about, one["value"]) if (one["subject"], one["predicate"]) == about else "of another subject"
    return {**_told(told, "edge_id", "commit"), "fact_digest": digest, "evidence_ref": sent["source"]}


def _reviewed(sent: Sent, told: Mapping[str, Any]) -> dict[str, Any]:
    proposal = sent["proposal"]
    candidate = proposal["candidate"]
    stated = {"reason": sent.get("reason", ""), "integrity": sent.get("integrity", "untrusted")}
    digest = fact_digest(candidate["entity_ceid"], candidate["predicate"], candidate["value"])
    return {
        **_told(told, "reviewer", "supersedes") | stated,
        "proposal_id": proposal["proposal_id"],
        "verdict": sent["verdict"],
        "at_us": sent["at_us"],
        "fact_digest": digest,
        "proposal_digest": content_address(dict(proposal)),
    }


def _answered(sent: Sent, told: Mapping[str, Any]) -> dict[str, Any]:
    answer, said = sent["answer"], told["selection"]
    ids = ("artifactId", "representationRevisionId", "semanticAssertionId")
    chosen = sorted([one[name] for name in ids] for one in answer["selectedRefs"])
    refs = said["refs"] if sorted([one[name] for name in ids] for one in said["refs"]) == chosen else "not chosen"
    stated = {"slot_id": answer["slotId"], "resolution_mode": answer["resolutionMode"], "selected_at_us": sent["at_us"]}
    # Its other members are the runtime's: the id of the selection and of the run, and how the slot takes artifacts.
    mine = _told(said, "selection_id", "origin", "selection_mode", "selected_by")
    return {"run_id": sent["run"], "selection": {**mine, **stated, "refs": refs}}


def _decoded(payload: str) -> bytes:
    return base64.b64decode(payload, validate=True)


_WANTED: Final[Mapping[str, Callable[[Sent, Mapping[str, Any]], dict[str, Any]]]] = {
    "artifact.published": _published,
    "artifact.withdrawn": _withdrawn,
    "policies.activated": _activated,
    "packs.pinned": _pinned,
    "packs.withdrawn": _pinned,
    "graph.written": _written,
    "graph.withdrawn": _ended,
    "memory.reviewed": _reviewed,
    "slot.answered": _answered,
}

"""Makes the statements of an act anew, from what its signer sent and was shown, before the signer signs them.

They are compared with the statements of the server, which has to give each of them once and no other. Only the server
says how long a run is and how the edges of a large commit are divided; the time in the token bounds for how long such a
signature counts.
Source: docs/adr/0058-a-signature-is-over-what-was-shown.md, which has the table of all kinds.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from contextos.contracts.encoding.codec import loads, parse
from contextos.contracts.encoding.instants import utc_time
from contextos.contracts.encoding.jcs import canonical, content_address, same_json
from contextos.contracts.envelopes.evidence import derived_edge_id, edge_digest, fact_digest
from contextos.contracts.envelopes.identity import Settled
from contextos.contracts.envelopes.slots import SelectionOrigin, selection_id
from contextos.contracts.envelopes.tool import StatedCall, ToolCallEnvelope
from contextos.contracts.statements.settlements import settlement_statement
from contextos.errors import InvalidInput

Sent = Mapping[str, Any]
"""The data that the signer has: the members of the body that they sent, the data that they were shown (`ref`, `run`,
`proposal`, `facts`, …), and who signs in which tenant (`actor`, `tenant_id`).
"""
Acts = Sequence[Mapping[str, Any]]
"""The statements as the server gives them."""

MAX_SAME_EDGES: Final = 16
"""How often the same edge can have been written and withdrawn before."""


def acts_disagreement(
    acts: Acts, route: str, sent: Sent, tenant_id: str | None = None, actor: str | None = None
) -> str | None:
    """Return why `acts` are not the statements that follow from `sent`, which their signer sent to a route of
    `ACT_ROUTES`; None if they are, or if there are no statements and so nothing is signed.

    If `tenant_id` or `actor` is None, the value in the server's first statement counts.
    """
    if not acts:
        return None
    try:
        whose = {
            "tenant_id": tenant_id or acts[0]["tenant_id"],
            "actor": actor or acts[0]["by" if route == SETTLEMENT else "actor"],
        }
        wanted = ACT_ROUTES[route]({**sent, **whose}, acts)
    except KeyError as missing:
        return f"{str(missing)[:80]} was neither sent nor held"
    except (TypeError, AttributeError, ValueError, IndexError, InvalidInput):
        return "it does not follow from what was sent and held"
    if len(acts) != len(wanted):
        return f"it has {len(acts)} statements and not {len(wanted)}"
    differing = (_difference(act, one, "statement") for act, one in zip(acts, wanted, strict=True))
    name = next((name for name in differing if name), None)
    return f"it has another `{name[:80]}`" if name else None


def _difference(told: Any, wanted: Any, name: str) -> str | None:
    """Return the name of the first member that differs, or None."""
    if not isinstance(told, Mapping) or not isinstance(wanted, Mapping):
        return None if same_json(told, wanted) else name
    for member in sorted({*told, *wanted}):
        if member not in told or member not in wanted:
            return str(member)
        if found := _difference(told[member], wanted[member], str(member)):
            return found
    return None


def _act(sent: Sent, kind: str, arguments: Mapping[str, Any], expected: int) -> dict[str, Any]:
    whose = {"tenant_id": sent["tenant_id"], "actor": sent["actor"]}
    return {**whose, "kind": kind, "arguments": arguments, "expected": expected}


def _published(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    envelope = sent["envelope"]
    payload = loads(base64.b64decode(envelope["payload"], validate=True))
    kind = envelope["payloadType"].removeprefix("application/vnd.contextos.").removesuffix("+json").replace("-", "_")
    meta = payload.get("pack_meta") or payload.get("bundle") or payload
    [name] = [meta[one] for one in ("pack_id", "bundle_id", "catalog_id", "profile_id", "rules_id") if one in meta]
    ref = f"{name}@{meta['pack_version'] if 'pack_version' in meta else payload['version']}"
    return [_act(sent, "artifact.published", {"ref": ref, "kind": kind, "digest": content_address(payload)}, 0)]


def _on_active_set(
    sent: Sent, kind: str, arguments: dict[str, Any], change: Callable[[Sent], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the act on the set that `GET /v1/pins` and `GET /v1/policies` list, with the digest of the changed set."""
    pins, policies, expected = sent["active"]["pins"], sent["active"]["policies"], sent["expected"]
    if any(one["version"] != expected or one["cursor"] is not None for one in (pins, policies)):
        raise ValueError("they list another version, or not all of it")
    active = {"policies": [[one["level"], one["ref"]] for one in policies["items"]], "packs": pins["items"]}
    active |= {"tenant_id": sent["tenant_id"], "version": expected + 1, "withdrawn": pins["withdrawn"]}
    left = content_address({**active, **change(active)})
    return [_act(sent, kind, {**arguments, "active_digest": left}, expected)]


def _withdrawn(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    ref = sent["ref"]

    def change(active: Sent) -> dict[str, Any]:
        packs = [pin for pin in active["packs"] if ref not in pin["refs"]]
        return {"packs": packs, "withdrawn": sorted({*active["withdrawn"], ref})}

    return _on_active_set(sent, "artifact.withdrawn", {"ref": ref, "reason": sent.get("reason", "")}, change)


def _activated(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    listed = sorted(([one["level"], one["ref"]] for one in sent["policies"]), key=lambda one: one[0] != "platform")
    return _on_active_set(sent, "policies.activated", {"policies": listed}, lambda _active: {"policies": listed})


def _pinned(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    pin = _pin(sent)
    return _on_active_set(sent, "packs.pinned", pin, lambda active: {"packs": [*_without(active, pin), pin]})


def _unpinned(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    pin = _pin(sent)
    return _on_active_set(sent, "packs.withdrawn", pin, lambda active: {"packs": _without(active, pin)})


def _pin(sent: Sent) -> dict[str, Any]:
    return {**{name: sorted(set(sent[name])) for name in ("refs", "intents")}, "environment": sent["environment"]}


def _without(active: Sent, gone: Sent) -> list[dict[str, Any]]:
    """Return the pins without the intents that `gone` allows."""
    left = []
    for pin in active["packs"]:
        same = set(pin["refs"]) == set(gone["refs"]) and pin["environment"] == gone["environment"]
        intents = [one for one in pin["intents"] if not (same and one in gone["intents"])]
        left += [{**pin, "intents": intents}] if intents else []
    return left


def _loaded(sent: Sent, acts: Acts) -> list[dict[str, Any]]:
    ended = {one["retracts"]: one["evidence_ref"] for one in sent["edges"] if "retracts" in one}
    return _graph(sent, acts, [one for one in sent["edges"] if "src" in one], ended, kept=True)


def _edge(fact: Sent) -> dict[str, Any]:
    """Return the edge of a fact: it begins and ends at the subject of the fact."""
    names = {"value": "value", "evidence_ref": "source", "observed_at": "observed_at_us", "predicate": "predicate"}
    subject = {"src": fact["subject"], "dst": fact["subject"]}
    kept = {name: fact[name] for name in ("integrity", "classification")}
    return {**subject, **{name: fact[given] for name, given in names.items()}, **kept}


def _shown(sent: Sent) -> dict[str, str]:
    """Return the facts that end, each with the evidence: all shown facts of this subject and predicate."""
    about = (sent["subject"], sent["predicate"])
    return {one["fact_id"]: sent["source"] for one in sent["facts"] if (one["subject"], one["predicate"]) == about}


def _graph(
    sent: Sent, acts: Acts, edges: Sequence[Sent], ended: Mapping[str, str], *, kept: bool = False
) -> list[dict[str, Any]]:
    """Return the acts of one commit after the shown snapshot: each edge is written and each fact in `ended` ends once.

    `kept`: an edge that was shown as a fact, and does not end, is not written again.
    """
    before = int(str(sent["snapshot"]).removeprefix("kg_"))
    facts, left = {one["fact_id"]: one for one in sent.get("facts", ())}, dict(ended)
    by_id: dict[str, dict[str, Any]] = {}
    for edge in map(_kept, edges):
        for edge_id in _edge_ids(edge):
            by_id.setdefault(edge_id, edge)
    wanted: list[dict[str, Any]] = []
    written: list[dict[str, Any]] = []
    for act in acts:
        told = act["arguments"]
        arguments: dict[str, Any] = {"commit": before + 1}
        if act["kind"] == "graph.written":
            written += [by_id[edge_id] for edge_id in told["edges"]] or [{}]
            if sent.get("nodes"):
                arguments["nodes"] = content_address(sent["nodes"])
            arguments["edges"] = {one: edge_digest({**by_id[one], "edge_id": one}) for one in told["edges"]}
            wanted.append(_act(sent, "graph.written", arguments, before))
        else:
            fact, ref = facts[told["edge_id"]], left.pop(told["edge_id"])
            digest = fact_digest(fact["subject"], fact["predicate"], fact["value"])
            arguments |= {"edge_id": fact["fact_id"], "evidence_ref": ref, "fact_digest": digest}
            wanted.append(_act(sent, "graph.withdrawn", arguments, before))
    said = [canonical(one) for one in written]
    shown = {canonical(by_id[one]) for one in by_id.keys() & facts.keys() - ended.keys()} if kept else set()
    needed = {canonical(one) for one in by_id.values()} - shown
    # A commit that writes no edge says so, once.
    if left or not said or len({*said}) < len(said) or (len(said) > 1 and b"{}" in said) or not needed.issubset(said):
        raise ValueError("a statement or an edge is missing, or stands twice")
    return wanted


def _kept(edge: Sent) -> dict[str, Any]:
    """Return an edge as the graph keeps it."""
    observed = edge["observed_at"]
    return {**edge, "observed_at": utc_time(observed) if isinstance(observed, str) else observed}


def _edge_ids(edge: dict[str, Any]) -> Sequence[str]:
    """Return the ids that an edge can get: its own, or one for each number of earlier equal edges."""
    if "edge_id" in edge:
        return (edge["edge_id"],)
    body = canonical(edge)
    return [derived_edge_id(body, ordinal) for ordinal in range(MAX_SAME_EDGES)]


def _reviewed(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    proposal = sent["proposal"]
    candidate = proposal["candidate"]
    arguments = {
        "proposal_id": proposal["proposal_id"],
        "verdict": sent["verdict"],
        "reviewer": sent["actor"],
        "reason": sent.get("reason", ""),
        "at_us": sent["at_us"],
        "integrity": sent.get("integrity", "untrusted"),
        "fact_digest": fact_digest(candidate["entity_ceid"], candidate["predicate"], candidate["value"]),
        "proposal_digest": content_address(dict(proposal)),
        "supersedes": sent.get("supersedes"),
    }
    return [_act(sent, "memory.reviewed", arguments, 1)]


def _checked_model(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    stated = {"profile": sent["ref"], **{name: sent[name] for name in ("max_cost_cents", "at_us")}}
    return [_act(sent, "model.checked", stated, 0)]


def _answered(sent: Sent, acts: Acts) -> list[dict[str, Any]]:
    answer, offer = sent["answer"], sent["offer"]
    origin, slot = offer["origin"], offer["slot"]
    if (origin["parent_run_id"], origin["principal_id"], slot["slotId"]) != (
        sent["run"],
        sent["actor"],
        answer["slotId"],
    ):
        raise ValueError("the offer is of another run, to somebody else or for another slot")
    ids = ("artifactId", "representationRevisionId", "semanticAssertionId")
    chosen = [[one[name] for name in ids] for one in answer["selectedRefs"]]
    refs = [one for one in offer["offer"]["refs"] if [one[name] for name in ids] in chosen]
    selection = {
        "selection_id": selection_id(slot["slotId"], parse(SelectionOrigin, dict(origin))),
        "origin": origin,
        "slot_id": slot["slotId"],
        "resolution_mode": answer["resolutionMode"],
        "selection_mode": slot["selectionMode"],
        "selected_by": "user",
        "refs": refs,
        "selected_at_us": sent["at_us"],
    }
    if len(refs) != len(chosen):
        raise ValueError("something is chosen that was not offered")
    return [_act(sent, "slot.answered", {"run_id": sent["run"], "selection": selection}, acts[0]["expected"])]


def _on_run(kind: str, *names: str) -> Callable[[Sent, Acts], list[dict[str, Any]]]:
    """Return the maker of an act on a run, whose length is as the server says. A reason that was not sent is empty."""

    def made(sent: Sent, acts: Acts) -> list[dict[str, Any]]:
        stated = {"reason": "", **sent}
        return [_act(sent, kind, {name: stated[name] for name in ("run", *names)}, acts[0]["expected"])]

    return made


def _settled(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    call = parse(ToolCallEnvelope if "envelope_version" in sent["call"] else StatedCall, dict(sent["call"]))
    if call.run_id != sent["run"]:
        raise ValueError("the call is of another run")
    said = {name: sent[name] for name in ("happened", "evidence_ref", "output", "mutations") if name in sent}
    return [settlement_statement(sent["tenant_id"], call, parse(Settled, {**said, "by": sent["actor"]}))]


SETTLEMENT: Final = "runs/{run}/settlement"

ACT_ROUTES: Final[Mapping[str, Callable[[Sent, Acts], list[dict[str, Any]]]]] = {
    "packs": _published,
    "packs/{ref}/withdraw": _withdrawn,
    "policies": _activated,
    "pins": _pinned,
    "pins/withdraw": _unpinned,
    "facts": lambda sent, acts: _graph(sent, acts, [_edge(sent)], {}),
    "facts/replace": lambda sent, acts: _graph(sent, acts, [_edge(sent)], _shown(sent)),
    "facts/retract": lambda sent, acts: _graph(sent, acts, [], _shown(sent)),
    "facts/load": _loaded,
    "memories/{proposal}/review": _reviewed,
    "models/{ref}/check": _checked_model,
    "runs/{run}/slot": _answered,
    "runs/{run}/cancel": _on_run("run.cancelled", "request_id", "reason"),
    "runs/{run}/reask": _on_run("approval.reasked", "binding_digest", "reason"),
    "runs/{run}/retry": _on_run("run.retried", "failures"),
    "runs/{run}/erase": _on_run("entry.erased", "seq", "body_digest", "reason"),
    SETTLEMENT: _settled,
}
"""The routes of the API on which an act is done, each with the function that makes the statements to be signed."""

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
        signer = {
            "tenant_id": tenant_id or acts[0]["tenant_id"],
            "actor": actor or acts[0]["by" if route == SETTLEMENT else "actor"],
        }
        expected = ACT_ROUTES[route]({**sent, **signer}, acts)
    except KeyError as missing:
        return f"{str(missing)[:80]} was neither sent nor held"
    except (TypeError, AttributeError, ValueError, IndexError, InvalidInput):
        return "it does not follow from what was sent and held"
    if len(acts) != len(expected):
        return f"it has {len(acts)} statements and not {len(expected)}"
    differing = (_first_difference(act, statement, "statement") for act, statement in zip(acts, expected, strict=True))
    name = next((name for name in differing if name), None)
    return f"it has another `{name[:80]}`" if name else None


def _first_difference(actual: Any, expected: Any, name: str) -> str | None:
    """Return the name of the first member that differs, or None."""
    if not isinstance(actual, Mapping) or not isinstance(expected, Mapping):
        return None if same_json(actual, expected) else name
    for member in sorted({*actual, *expected}):
        if member not in actual or member not in expected:
            return str(member)
        if difference := _first_difference(actual[member], expected[member], str(member)):
            return difference
    return None


def _act(sent: Sent, kind: str, arguments: Mapping[str, Any], expected: int) -> dict[str, Any]:
    signer = {"tenant_id": sent["tenant_id"], "actor": sent["actor"]}
    return {**signer, "kind": kind, "arguments": arguments, "expected": expected}


def _publication_acts(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    envelope = sent["envelope"]
    payload = loads(base64.b64decode(envelope["payload"], validate=True))
    kind = envelope["payloadType"].removeprefix("application/vnd.contextos.").removesuffix("+json").replace("-", "_")
    meta = payload.get("pack_meta") or payload.get("bundle") or payload
    [name] = [meta[key] for key in ("pack_id", "bundle_id", "catalog_id", "profile_id", "rules_id") if key in meta]
    ref = f"{name}@{meta['pack_version'] if 'pack_version' in meta else payload['version']}"
    return [_act(sent, "artifact.published", {"ref": ref, "kind": kind, "digest": content_address(payload)}, 0)]


def _active_set_acts(
    sent: Sent, kind: str, arguments: dict[str, Any], change: Callable[[Sent], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the act on the set that `GET /v1/pins` and `GET /v1/policies` list, with the digest of the changed set."""
    pins, policies, expected = sent["active"]["pins"], sent["active"]["policies"], sent["expected"]
    if any(page["version"] != expected or page["cursor"] is not None for page in (pins, policies)):
        raise ValueError("they list another version, or not all of it")
    active = {"policies": [[policy["level"], policy["ref"]] for policy in policies["items"]], "packs": pins["items"]}
    active |= {"tenant_id": sent["tenant_id"], "version": expected + 1, "withdrawn": pins["withdrawn"]}
    digest = content_address({**active, **change(active)})
    return [_act(sent, kind, {**arguments, "active_digest": digest}, expected)]


def _withdrawal_acts(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    ref = sent["ref"]

    def change(active: Sent) -> dict[str, Any]:
        packs = [pin for pin in active["packs"] if ref not in pin["refs"]]
        return {"packs": packs, "withdrawn": sorted({*active["withdrawn"], ref})}

    return _active_set_acts(sent, "artifact.withdrawn", {"ref": ref, "reason": sent.get("reason", "")}, change)


def _activation_acts(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    pairs = [[policy["level"], policy["ref"]] for policy in sent["policies"]]
    policies = sorted(pairs, key=lambda pair: pair[0] != "platform")
    return _active_set_acts(sent, "policies.activated", {"policies": policies}, lambda _active: {"policies": policies})


def _pin_acts(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    pin = _sent_pin(sent)
    return _active_set_acts(sent, "packs.pinned", pin, lambda active: {"packs": [*_pins_without(active, pin), pin]})


def _unpin_acts(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    pin = _sent_pin(sent)
    return _active_set_acts(sent, "packs.withdrawn", pin, lambda active: {"packs": _pins_without(active, pin)})


def _sent_pin(sent: Sent) -> dict[str, Any]:
    return {**{name: sorted(set(sent[name])) for name in ("refs", "intents")}, "environment": sent["environment"]}


def _pins_without(active: Sent, removed: Sent) -> list[dict[str, Any]]:
    """Return the pins without the intents that `gone` allows."""
    remaining = []
    for pin in active["packs"]:
        same = set(pin["refs"]) == set(removed["refs"]) and pin["environment"] == removed["environment"]
        intents = [intent for intent in pin["intents"] if not (same and intent in removed["intents"])]
        remaining += [{**pin, "intents": intents}] if intents else []
    return remaining


def _load_acts(sent: Sent, acts: Acts) -> list[dict[str, Any]]:
    ended = {edge["retracts"]: edge["evidence_ref"] for edge in sent["edges"] if "retracts" in edge}
    return _graph_acts(sent, acts, [edge for edge in sent["edges"] if "src" in edge], ended, keep_shown=True)


def _fact_edge(fact: Sent) -> dict[str, Any]:
    """Return the edge of a fact: it begins and ends at the subject of the fact."""
    names = {"value": "value", "evidence_ref": "source", "observed_at": "observed_at_us", "predicate": "predicate"}
    subject = {"src": fact["subject"], "dst": fact["subject"]}
    labels = {name: fact[name] for name in ("integrity", "classification")}
    return {**subject, **{name: fact[member] for name, member in names.items()}, **labels}


def _ended_facts(sent: Sent) -> dict[str, str]:
    """Return the facts that end, each with the evidence: all shown facts of this subject and predicate."""
    key = (sent["subject"], sent["predicate"])
    return {fact["fact_id"]: sent["source"] for fact in sent["facts"] if (fact["subject"], fact["predicate"]) == key}


def _graph_acts(
    sent: Sent, acts: Acts, edges: Sequence[Sent], ended: Mapping[str, str], *, keep_shown: bool = False
) -> list[dict[str, Any]]:
    """Return the acts of one commit after the shown snapshot: each edge is written and each fact in `ended` ends once.

    `keep_shown`: an edge that was shown as a fact, and does not end, is not written again.
    """
    last_commit = int(str(sent["snapshot"]).removeprefix("kg_"))
    facts, remaining = {fact["fact_id"]: fact for fact in sent.get("facts", ())}, dict(ended)
    by_id: dict[str, dict[str, Any]] = {}
    for edge in map(_normalized_edge, edges):
        for edge_id in _edge_ids(edge):
            by_id.setdefault(edge_id, edge)
    expected: list[dict[str, Any]] = []
    written_edges: list[dict[str, Any]] = []
    for act in acts:
        actual = act["arguments"]
        arguments: dict[str, Any] = {"commit": last_commit + 1}
        if act["kind"] == "graph.written":
            written_edges += [by_id[edge_id] for edge_id in actual["edges"]] or [{}]
            if sent.get("nodes"):
                arguments["nodes"] = content_address(sent["nodes"])
            edge_ids = actual["edges"]
            arguments["edges"] = {edge_id: edge_digest({**by_id[edge_id], "edge_id": edge_id}) for edge_id in edge_ids}
            expected.append(_act(sent, "graph.written", arguments, last_commit))
        else:
            fact, ref = facts[actual["edge_id"]], remaining.pop(actual["edge_id"])
            digest = fact_digest(fact["subject"], fact["predicate"], fact["value"])
            arguments |= {"edge_id": fact["fact_id"], "evidence_ref": ref, "fact_digest": digest}
            expected.append(_act(sent, "graph.withdrawn", arguments, last_commit))
    actual_edges = [canonical(edge) for edge in written_edges]
    shown_ids = by_id.keys() & facts.keys() - ended.keys() if keep_shown else set()
    needed = {canonical(edge) for edge in by_id.values()} - {canonical(by_id[edge_id]) for edge_id in shown_ids}
    # A commit that writes no edge says so, once.
    repeats = len({*actual_edges}) < len(actual_edges) or (len(actual_edges) > 1 and b"{}" in actual_edges)
    if remaining or not actual_edges or repeats or not needed.issubset(actual_edges):
        raise ValueError("a statement or an edge is missing, or stands twice")
    return expected


def _normalized_edge(edge: Sent) -> dict[str, Any]:
    """Return an edge as the graph keeps it."""
    observed = edge["observed_at"]
    return {**edge, "observed_at": utc_time(observed) if isinstance(observed, str) else observed}


def _edge_ids(edge: dict[str, Any]) -> Sequence[str]:
    """Return the ids that an edge can get: its own, or one for each number of earlier equal edges."""
    if "edge_id" in edge:
        return (edge["edge_id"],)
    body = canonical(edge)
    return [derived_edge_id(body, ordinal) for ordinal in range(MAX_SAME_EDGES)]


def _review_acts(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
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


def _model_check_acts(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    arguments = {"profile": sent["ref"], **{name: sent[name] for name in ("max_cost_cents", "at_us")}}
    return [_act(sent, "model.checked", arguments, 0)]


def _release_acts(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    arguments = {"capability_id": sent["capability"], **{name: sent[name] for name in ("incidents", "reason")}}
    return [_act(sent, "capability.released", arguments, 0)]


def _slot_answer_acts(sent: Sent, acts: Acts) -> list[dict[str, Any]]:
    answer, offer = sent["answer"], sent["offer"]
    origin, slot = offer["origin"], offer["slot"]
    if (origin["parent_run_id"], origin["principal_id"], slot["slotId"]) != (
        sent["run"],
        sent["actor"],
        answer["slotId"],
    ):
        raise ValueError("the offer is of another run, to somebody else or for another slot")
    id_names = ("artifactId", "representationRevisionId", "semanticAssertionId")
    chosen_ids = [[ref[name] for name in id_names] for ref in answer["selectedRefs"]]
    refs = [ref for ref in offer["offer"]["refs"] if [ref[name] for name in id_names] in chosen_ids]
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
    if len(refs) != len(chosen_ids):
        raise ValueError("something is chosen that was not offered")
    return [_act(sent, "slot.answered", {"run_id": sent["run"], "selection": selection}, acts[0]["expected"])]


def _run_act_maker(kind: str, *names: str) -> Callable[[Sent, Acts], list[dict[str, Any]]]:
    """Return the function that makes an act on a run. The server says how long the run is. `reason` can be absent."""

    def make_acts(sent: Sent, acts: Acts) -> list[dict[str, Any]]:
        members = {"reason": "", **sent}
        return [_act(sent, kind, {name: members[name] for name in ("run", *names)}, acts[0]["expected"])]

    return make_acts


def _settlement_acts(sent: Sent, _acts: Acts) -> list[dict[str, Any]]:
    call = parse(ToolCallEnvelope if "envelope_version" in sent["call"] else StatedCall, dict(sent["call"]))
    if call.run_id != sent["run"]:
        raise ValueError("the call is of another run")
    members = {name: sent[name] for name in ("happened", "evidence_ref", "output", "mutations") if name in sent}
    return [settlement_statement(sent["tenant_id"], call, parse(Settled, {**members, "by": sent["actor"]}))]


SETTLEMENT: Final = "runs/{run}/settlement"

ACT_ROUTES: Final[Mapping[str, Callable[[Sent, Acts], list[dict[str, Any]]]]] = {
    "packs": _publication_acts,
    "packs/{ref}/withdraw": _withdrawal_acts,
    "policies": _activation_acts,
    "pins": _pin_acts,
    "pins/withdraw": _unpin_acts,
    "facts": lambda sent, acts: _graph_acts(sent, acts, [_fact_edge(sent)], {}),
    "facts/replace": lambda sent, acts: _graph_acts(sent, acts, [_fact_edge(sent)], _ended_facts(sent)),
    "facts/retract": lambda sent, acts: _graph_acts(sent, acts, [], _ended_facts(sent)),
    "facts/load": _load_acts,
    "memories/{proposal}/review": _review_acts,
    "models/{ref}/check": _model_check_acts,
    "adapters/{capability}/release": _release_acts,
    "runs/{run}/slot": _slot_answer_acts,
    "runs/{run}/cancel": _run_act_maker("run.cancelled", "request_id", "reason"),
    "runs/{run}/reask": _run_act_maker("approval.reasked", "binding_digest", "reason"),
    "runs/{run}/retry": _run_act_maker("run.retried", "failures"),
    "runs/{run}/erase": _run_act_maker("entry.erased", "seq", "body_digest", "reason"),
    SETTLEMENT: _settlement_acts,
}
"""The routes of the API on which an act is done, each with the function that makes the statements to be signed."""

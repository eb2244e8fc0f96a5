"""An attacker between the signer of a governed act and the server alters each place of each statement, or what
the signer sent. Nothing is signed that does not follow from what they sent and were shown.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from contextos.client import connect
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.envelopes.evidence import derived_edge_id, edge_digest, fact_digest
from contextos.contracts.envelopes.slots import SelectionOrigin, selection_id
from contextos.contracts.statements.acts import ACT_ROUTES, SETTLEMENT, acts_disagreement
from contextos.control.artifacts import PACK_TYPE
from contextos.errors import ContextOSError, InvalidInput, UnfitAnswer
from contextos.trust.approvals.acts import sign_act
from contextos.trust.seal import listed_key
from tests.altering_proxy import Alteration, alterations, altering
from tests.attacks.test_g54_a_signature_is_over_the_call_in_clear import Signer
from tests.http_face import OPERATOR, REQUESTER, TENANT, HttpFace, begin_refunds, http_face, served_url
from tests.loopback import Answer, Asked, serving
from tests.unit.service.operations.test_packs import another_pack
from tests.unit.service.operations.test_policies import HOUSE
from tests.unit.service.operations.test_slots import begin_slots, chosen, waiting

JSON = {"Content-Type": "application/json"}

FACT = {
    "subject": "customer:cus_900",
    "predicate": "tier",
    "value": "gold",
    "source": "artifact:crm#rev_1",
    "integrity": "trusted",
    "classification": "INTERNAL",
    "observed_at_us": 1_764_000_000_000_000,
}
EDGE = {
    "src": FACT["subject"],
    "dst": FACT["subject"],
    "predicate": "tier",
    "value": "gold",
    "evidence_ref": FACT["source"],
    "observed_at": FACT["observed_at_us"],
    "integrity": "trusted",
    "classification": "INTERNAL",
}
PROPOSAL = {
    "proposal_id": "mwp_0000000000000001",
    "candidate": {
        "entity_ceid": "customer:c",
        "predicate": "likes",
        "value": "tea",
        "evidence_refs": [],
        "confidence": 1,
    },
}
PACK = {"pack_meta": {"pack_id": "pack", "pack_version": "1.2.0"}, "limit": 5}
ENVELOPE = {"payloadType": PACK_TYPE, "payload": base64.b64encode(canonical(PACK)).decode()}
REF = {
    "artifactId": "a",
    "representationRevisionId": "r",
    "semanticAssertionId": "s",
    "extension": "e@1",
    "sourceScope": "user",
    "ownerId": "o",
}
ANSWER = {
    "slotId": "s",
    "resolutionMode": "override",
    "selectedRefs": [{name: REF[name] for name in ("artifactId", "representationRevisionId", "semanticAssertionId")}],
}
ORIGIN = {
    "org_id": "org_a",
    "parent_run_id": "run_1",
    "parent_package_name": "urn:agent",
    "principal_id": "o",
    "act_key": "k",
}
OFFER = {
    "run_id": "run_1",
    "slot": {"slotId": "s", "selectionMode": "interactive"},
    "origin": ORIGIN,
    "offer": {"refs": [{**REF, "artifactId": "other"}, REF]},
}
PIN = {"refs": ["a@1.0.0", "b@1.0.0"], "intents": ["i", "j"], "environment": "service"}
OTHER_PIN = {"refs": ["c@1.0.0"], "intents": ["i"], "environment": "service"}
ACTIVE = {
    "pins": {"version": 3, "items": [PIN, OTHER_PIN], "withdrawn": ["z@1.0.0"], "cursor": None},
    "policies": {"version": 3, "items": [{"level": "platform", "ref": "b@1.0.0"}], "cursor": None},
}
FACTS = [{**FACT, "fact_id": "edge_1", "snapshot": "kg_2"}]
CALL = json.loads((Path(__file__).parents[1] / "spec/tool_call_envelope.json").read_text("utf-8"))


NODES = [{"ceid": FACT["subject"], "type": "customer", "properties": {"name": "Ann"}}]
BRONZE = {**EDGE, "value": "bronze", "observed_at": 1}


def active_digest(**after: Any) -> str:
    now = {"policies": [["platform", "b@1.0.0"]], "packs": [PIN, OTHER_PIN], "withdrawn": ["z@1.0.0"]}
    return content_address({"tenant_id": "t", "version": 4, **now, **after})


def written(*edges: dict[str, Any], **nodes: str) -> dict[str, Any]:
    ids = [derived_edge_id(canonical(edge), 0) for edge in edges]
    stated = {one: edge_digest({**edge, "edge_id": one}) for one, edge in zip(ids, edges, strict=True)}
    return {"kind": "graph.written", "arguments": {"commit": 8, "edges": stated, **nodes}, "expected": 7}


def ended(edge_id: str = "edge_1") -> dict[str, Any]:
    digest = fact_digest(FACT["subject"], FACT["predicate"], FACT["value"])
    said = {"commit": 8, "edge_id": edge_id, "evidence_ref": FACT["source"], "fact_digest": digest}
    return {"kind": "graph.withdrawn", "arguments": said, "expected": 7}


def one_act(kind: str, arguments: dict[str, Any], expected: int) -> list[dict[str, Any]]:
    return [{"kind": kind, "arguments": arguments, "expected": expected}]


CHANGE = {"expected": 3, "active": ACTIVE}
SHOWN = {"snapshot": "kg_7", "facts": FACTS}
RUN = {"run": "run_1", "reason": "x"}
SENT: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "packs": (
        {"envelope": ENVELOPE},
        one_act(
            "artifact.published", {"ref": "pack@1.2.0", "kind": "context_pack", "digest": content_address(PACK)}, 0
        ),
    ),
    "packs/{ref}/withdraw": (
        {"ref": "a@1.0.0", "reason": "x", **CHANGE},
        one_act(
            "artifact.withdrawn",
            {
                "ref": "a@1.0.0",
                "reason": "x",
                "active_digest": active_digest(packs=[OTHER_PIN], withdrawn=["a@1.0.0", "z@1.0.0"]),
            },
            3,
        ),
    ),
    "policies": (
        {"policies": [{"level": "tenant", "ref": "a@1.0.0"}, {"level": "platform", "ref": "b@1.0.0"}], **CHANGE},
        one_act(
            "policies.activated",
            {
                "policies": [["platform", "b@1.0.0"], ["tenant", "a@1.0.0"]],
                "active_digest": active_digest(policies=[["platform", "b@1.0.0"], ["tenant", "a@1.0.0"]]),
            },
            3,
        ),
    ),
    "pins": (
        {"refs": ["b@1.0.0", "a@1.0.0"], "intents": ["j"], "environment": "service", **CHANGE},
        one_act(
            "packs.pinned",
            {
                **PIN,
                "intents": ["j"],
                "active_digest": active_digest(packs=[{**PIN, "intents": ["i"]}, OTHER_PIN, {**PIN, "intents": ["j"]}]),
            },
            3,
        ),
    ),
    "pins/withdraw": (
        {"refs": ["c@1.0.0"], "intents": ["i"], "environment": "service", **CHANGE},
        one_act("packs.withdrawn", {**OTHER_PIN, "active_digest": active_digest(packs=[PIN])}, 3),
    ),
    "facts": ({**FACT, "snapshot": "kg_7"}, [written(EDGE)]),
    "facts/replace": ({**FACT, "value": "silver", **SHOWN}, [written({**EDGE, "value": "silver"}), ended()]),
    "facts/retract": (
        {**{name: FACT[name] for name in ("subject", "predicate", "source")}, **SHOWN},
        [written(), ended()],
    ),
    "facts/load": (
        {
            "nodes": NODES,
            "edges": [
                EDGE,
                {**EDGE, "value": "silver"},
                BRONZE,
                {"retracts": "edge_1", "evidence_ref": FACT["source"]},
            ],
            "snapshot": "kg_7",
            "facts": [*FACTS, {**FACTS[0], "fact_id": derived_edge_id(canonical(BRONZE), 0), "value": "bronze"}],
        },
        [
            written({**EDGE, "value": "silver"}, nodes=content_address(NODES)),
            written(EDGE, nodes=content_address(NODES)),
            ended(),
        ],
    ),
    "memories/{proposal}/review": (
        {"proposal": PROPOSAL, "verdict": "promote", "at_us": 5, "supersedes": "memory:mwp_0"},
        one_act(
            "memory.reviewed",
            {
                "proposal_id": PROPOSAL["proposal_id"],
                "verdict": "promote",
                "reviewer": "o",
                "reason": "",
                "at_us": 5,
                "integrity": "untrusted",
                "fact_digest": fact_digest("customer:c", "likes", "tea"),
                "proposal_digest": content_address(PROPOSAL),
                "supersedes": "memory:mwp_0",
            },
            1,
        ),
    ),
    "runs/{run}/slot": (
        {"run": "run_1", "answer": ANSWER, "at_us": 5, "offer": OFFER},
        one_act(
            "slot.answered",
            {
                "run_id": "run_1",
                "selection": {
                    "selection_id": selection_id("s", SelectionOrigin(**ORIGIN)),
                    "origin": ORIGIN,
                    "slot_id": "s",
                    "resolution_mode": "override",
                    "selection_mode": "interactive",
                    "selected_by": "user",
                    "selected_at_us": 5,
                    "refs": [REF],
                },
            },
            9,
        ),
    ),
    "models/{ref}/check": (
        {"ref": "model.fast@1.0.0", "max_cost_cents": 5, "at_us": 5},
        one_act("model.checked", {"profile": "model.fast@1.0.0", "max_cost_cents": 5, "at_us": 5}, 0),
    ),
    "adapters/{capability}/release": (
        {"capability": "desk.look_up", "incidents": ["desk.look_up/sha256:1/tc_1"], "reason": "x"},
        one_act(
            "capability.released",
            {"capability_id": "desk.look_up", "incidents": ["desk.look_up/sha256:1/tc_1"], "reason": "x"},
            0,
        ),
    ),
    "runs/{run}/cancel": ({**RUN, "request_id": "req_1"}, one_act("run.cancelled", {**RUN, "request_id": "req_1"}, 9)),
    "runs/{run}/reask": (
        {**RUN, "binding_digest": "sha256:1"},
        one_act("approval.reasked", {**RUN, "binding_digest": "sha256:1"}, 9),
    ),
    "runs/{run}/retry": ({"run": "run_1", "failures": 5}, one_act("run.retried", {"run": "run_1", "failures": 5}, 2)),
    "runs/{run}/erase": (
        {**RUN, "seq": 3, "body_digest": "sha256:2"},
        one_act("entry.erased", {**RUN, "seq": 3, "body_digest": "sha256:2"}, 9),
    ),
    "runs/{run}/settlement": (
        {
            "run": CALL["run_id"],
            "call": CALL,
            "happened": True,
            "evidence_ref": "kg:order:ord_881#snapshot_kg_1",
            "output": {"paid": 42},
            "mutations": ["refund:1"],
        },
        [
            {
                "run_id": CALL["run_id"],
                "tool_call_id": CALL["tool_call_id"],
                "capability_id": CALL["capability_id"],
                "mode": CALL["approval_mode_effective"],
                "args": CALL["args"],
                "requester_chain": CALL["principal_chain"],
                "idempotency_key": CALL["idempotency_key"],
                "happened": True,
                "output": {"paid": 42},
                "mutations": ["refund:1"],
                "evidence_ref": "kg:order:ord_881#snapshot_kg_1",
                "by": "o",
            }
        ],
    ),
}
LENGTH_TOLD = {f"runs/{{run}}/{act}" for act in ("slot", "cancel", "reask", "retry", "erase")}
"""Where `expected` is the length of the run, which the server alone knows; the time in the token bounds it."""


def stated(route: str) -> list[dict[str, Any]]:
    whose = {"tenant_id": "t"} if route == SETTLEMENT else {"tenant_id": "t", "actor": "o"}
    return [{**whose, **one} for one in SENT[route][1]]


def test_every_route_of_an_act_is_tried() -> None:
    assert set(SENT) == set(ACT_ROUTES)


@pytest.mark.parametrize("route", SENT)
def test_each_place_of_the_statements_follows_from_what_was_sent_and_shown(route: str) -> None:
    sent, acts = SENT[route][0], stated(route)
    assert acts_disagreement(acts, route, sent, "t", "o") is None
    assert acts_disagreement(acts, route, sent) is None
    for one in alterations(acts):
        if route in LENGTH_TOLD and one.name.startswith("set /0/expected"):
            continue
        # Without any statement nothing is signed.
        if one.name != "remove /0" or len(acts) > 1:
            assert acts_disagreement(one.of(acts), route, sent, "t", "o") is not None, one.name
    assert acts_disagreement([*acts, *acts], route, sent, "t", "o") is not None
    assert acts_disagreement([{**acts[0], "kind": "run.resolved"}, *acts[1:]], route, sent, "t", "o") is not None


@pytest.mark.parametrize("route", SENT)
def test_what_was_altered_on_its_way_or_was_not_shown_is_not_signed(route: str) -> None:
    """The statement follows from another value than the signer has, or from one that they do not have."""
    sent, acts = SENT[route][0], stated(route)
    for name in sent:
        without = {key: value for key, value in sent.items() if key != name}
        assert acts_disagreement(acts, route, without, "t", "o") is not None, name
    told = {name: value for name, value in sent.items() if name not in ("call", "active", "offer", "facts")}
    for one in alterations(told):
        if one.name.startswith("set"):
            assert acts_disagreement(acts, route, {**sent, **one.of(told)}, "t", "o") is not None, one.name


@pytest.fixture(scope="module")
def face(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    with http_face(tmp_path_factory.mktemp("http"), begin_refunds) as made:
        yield made


@pytest.fixture(scope="module")
def upstream(face: HttpFace) -> Iterator[str]:
    with served_url(face) as url:
        yield url


def test_a_fact_is_written_replaced_and_retracted_by_the_client_and_by_nobody_in_between(
    face: HttpFace, upstream: str
) -> None:
    altered: list[Alteration] = []

    def alter(_method: str, path: str, document: Any) -> Any:
        return altered[0].of(document) if altered and path.endswith("/statement") else document

    fact = {**FACT, "observed_at_us": 1}
    query = {"subject": str(FACT["subject"]), "predicate": "tier"}
    with altering(upstream, alter) as url, connect(url, face.token(OPERATOR), tenant=TENANT, person=OPERATOR) as client:

        def shown() -> dict[str, Any]:
            page = client.read("/facts", **query)
            return {"facts": page["items"], "snapshot": page["snapshot"]}

        said = face.send("POST", "/v1/facts/statement", by=OPERATOR, json=fact).json()
        held = shown()
        for one in alterations(said):
            altered[:] = [one]
            signed = signed_by(face, lambda sign: client.act("facts", fact, held=held, sign=sign))
            assert signed in ([], [said["statements"][0]["statement"]]), one.name
        altered[:] = [Alteration("a commit to come", later)]
        assert signed_by(face, lambda sign: client.act("facts", fact, held=held, sign=sign)) == []
        altered.clear()
        signer = Signer(face, OPERATOR)
        with pytest.raises(UnfitAnswer, match="'snapshot' was neither"):
            client.act("facts", fact, sign=signer.sign)
        client.act("facts", fact, held=held, sign=signer.sign)
        held = shown()
        assert [one["value"] for one in held["facts"]] == ["gold"]
        client.act("facts/replace", {**fact, "value": "silver"}, held=held, sign=signer.sign)
        retraction = {**query, "source": "artifact:crm#rev_2"}
        with pytest.raises(UnfitAnswer, match="nothing was signed"):
            client.act("facts/retract", retraction, held=held, sign=signer.sign)
        client.act("facts/retract", retraction, held=shown(), sign=signer.sign)
        assert shown()["facts"] == []
        edges = [{**EDGE, "value": tier, "observed_at": "2025-01-01T02:00:00+02:00"} for tier in ("gold", "silver")]
        client.act("facts/load", {"nodes": [], "edges": edges[:1]}, held=shown(), sign=signer.sign)
        load = {"nodes": NODES, "edges": edges}
        with pytest.raises(UnfitAnswer, match="does not follow"):
            client.act("facts/load", load, held={**shown(), "facts": []}, sign=signer.sign)
        client.act("facts/load", load, held=shown(), sign=signer.sign)
        assert sorted(one["value"] for one in shown()["facts"]) == ["gold", "silver"]
        with pytest.raises(InvalidInput, match="not a route of acts"):
            client.act("runs", {}, sign=signer.sign)
        with pytest.raises(InvalidInput, match="parameter"):
            client.act("packs/{ref}/withdraw", {}, sign=signer.sign)


def later(document: Any) -> Any:
    """The statement as it will be after two other writes, and the bytes to sign with it."""
    [one] = document["statements"]
    one["statement"]["arguments"]["commit"] += 2
    one["statement"]["expected"] += 2
    segment = base64.urlsafe_b64encode(canonical(one["statement"])).rstrip(b"=").decode()
    one["signing_inputs"] = {kid: f"{said.split('.')[0]}.{segment}" for kid, said in one["signing_inputs"].items()}
    return document


def signed_by(face: HttpFace, act: Callable[[Callable[[bytes], bytes]], Any]) -> list[dict[str, Any]]:
    """What an operator signs in `act`, which ends there or is refused."""
    signer = Signer(face, OPERATOR)

    def sign(signed: bytes) -> bytes:
        signer.sign(signed)
        raise InterruptedError

    try:
        act(sign)
    except (InterruptedError, ContextOSError):
        return signer.signed
    raise AssertionError("it was not signed, and not refused")


def test_a_token_that_was_kept_counts_no_more_after_a_quarter_of_an_hour(face: HttpFace, upstream: str) -> None:
    """Even where a proxy showed another snapshot too: the signer states when they signed, and the server's clock
    counts.
    """
    fact = {**FACT, "subject": "customer:cus_kept", "observed_at_us": 1}
    kept: list[Asked] = []
    subject = {"subject": "customer:cus_kept"}
    server = connect(upstream, face.token(OPERATOR), tenant=TENANT, person=OPERATOR)

    def keep(asked: Asked) -> Answer:
        if not asked.path.endswith("/statement"):
            kept.append(asked)
            return 503, b"", {}
        answer = face.send("POST", asked.path, by=OPERATOR, content=asked.body, headers=JSON)
        return 200, json.dumps(answer.json()).encode(), JSON

    with serving(keep) as url, connect(url, face.token(OPERATOR), patience_s=0) as client, server as honest:
        held = {"snapshot": honest.read("/facts", **subject)["snapshot"]}
        with pytest.raises(ContextOSError):
            client.act("facts", fact, held=held, sign=Signer(face, OPERATOR).sign)
    [body] = [json.loads(one.body) for one in kept]

    def sent_later(seconds: int, token: str) -> Any:
        clock, now_us = type(face.app.deployment.ports.clock), time.time_ns() // 1_000 + seconds * 1_000_000
        with patch.object(clock, "now_us", lambda _clock: now_us):
            return face.send("POST", "/v1/facts", by=OPERATOR, json={**body, "tokens": [token]})

    [token] = body["tokens"]
    _, payload, _ = token.split(".")
    statement = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    key = bytes.fromhex((face.path / "keys" / f"{OPERATOR}.key").read_text("utf-8"))
    undated = sign_act(key, listed_key(key)["kid"], statement)
    for seconds, sent, code in (
        (16 * 60, token, "assertion_expired"),
        (-120, token, "assertion_expired"),
        (0, undated, "assertion_invalid"),
    ):
        refused = sent_later(seconds, sent)
        assert (refused.status_code, refused.json()["code"]) == (403, code), refused.text
    assert face.send("GET", "/v1/facts", by=OPERATOR, params=subject).json()["items"] == []
    assert sent_later(14 * 60, token).status_code == 201


def test_a_stop_says_which_request_it_stops_and_each_altered_place_is_found(face: HttpFace, upstream: str) -> None:
    run = face.waiting_run()
    said = face.send("POST", f"/v1/runs/{run}/cancel/statement", by=OPERATOR, json={"reason": "x"}).json()
    shown = said["statements"][0]["statement"]
    other = face.waiting_run()
    altered: list[Alteration] = []

    def alter(method: str, path: str, document: Any) -> Any:
        if altered and altered[0].name == "another run" and method == "GET":
            return face.send("GET", f"/v1/runs/{other}", by=OPERATOR).json()
        return altered[0].of(document) if altered and path.endswith("/statement") else document

    with altering(upstream, alter) as url, connect(url, face.token(OPERATOR), tenant=TENANT, person=OPERATOR) as client:
        for one in [*alterations(said), Alteration("another run", lambda found: found)]:
            altered[:] = [one]
            signed = signed_by(face, lambda sign: client.cancel(run, "x", sign=sign))
            # How long the run is, the server alone knows.
            length = [{**shown, "expected": shown["expected"] + 1}]
            assert signed in ([], [shown]) or (signed == length and "/expected" in one.name), one.name
    [request] = [shown["arguments"]["request_id"]]
    assert request == face.send("GET", f"/v1/runs/{run}", by=OPERATOR).json()["request_id"]
    assert not face.send("GET", f"/v1/runs/{run}", by=OPERATOR).json()["ended"]
    assert json.loads(canonical(shown))["arguments"]["run"] == run


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpFace]:
    """An API whose payments promise nothing."""
    with patch.dict("os.environ", SHOP_PAYMENTS="none"), http_face(tmp_path_factory.mktemp("settle")) as made:
        yield made


def test_a_settlement_is_of_the_call_that_the_operator_was_shown(losing: HttpFace) -> None:
    altered: list[Alteration] = []

    def alter(_method: str, path: str, document: Any) -> Any:
        return altered[0].of(document) if altered and path.endswith("/statement") else document

    with patch.dict("os.environ", SHOP_FAILPOINT="lose_reply"):
        run = losing.send("POST", "/v1/runs", json=losing.request("lost")).json()["run_id"]
    settled: dict[str, Any] = {"happened": False, "evidence_ref": "kg:order:ord_881#snapshot_kg_1"}
    said = losing.send("POST", f"/v1/runs/{run}/settlement/statement", by=OPERATOR, json=settled).json()
    token = losing.token(OPERATOR)
    with (
        served_url(losing) as upstream,
        altering(upstream, alter) as url,
        connect(url, token, tenant=TENANT, person=OPERATOR) as client,
    ):
        sent = [one.body for one in client.ledger(run, "effect").items if one.kind == "tool.dispatching"]
        call = sent[-1]["envelope"]
        for one in alterations(said):
            altered[:] = [one]
            signed = signed_by(losing, lambda sign: client.settle(call, **settled, sign=sign))
            assert signed in ([], [said["statements"][0]["statement"]]), one.name
        altered.clear()
        other = {**call, "args": {**call["args"], "amount": 1}}
        assert signed_by(losing, lambda sign: client.settle(other, **settled, sign=sign)) == []
        client.settle(call, **settled, sign=Signer(losing, OPERATOR).sign)
    assert losing.ended(run)["ended"] is True


def test_what_governs_a_tenant_is_changed_by_the_client_from_what_was_shown(face: HttpFace, upstream: str) -> None:
    """Each statement of the real server is the one that the client makes."""
    signer = Signer(face, OPERATOR)
    with connect(upstream, face.token(OPERATOR), tenant=TENANT, person=OPERATOR) as client:

        def change(route: str, body: dict[str, Any], **held: Any) -> None:
            active = {"pins": client.read("/pins"), "policies": client.read("/policies")}
            body = {**body, "expected": active["pins"]["version"]}
            stale = {**active, "pins": {**active["pins"], "withdrawn": ["other@1.0.0"]}}
            with pytest.raises(UnfitAnswer, match="`active_digest`"):
                client.act(route, body, held={**held, "active": stale}, sign=signer.sign)
            client.act(route, body, held={**held, "active": active}, sign=signer.sign)

        published = client.act("packs", {"envelope": another_pack(face, "7.0.0")}, sign=signer.sign)["ref"]
        intent = client.read("/pins")["items"][0]["intents"][0]
        pin = {"refs": [published], "intents": [intent], "environment": "dev"}
        change("pins", pin)
        change("pins/withdraw", pin)
        change("pins", pin)
        change("packs/{ref}/withdraw", {"reason": "x"}, ref=published)
        assert published in client.read("/pins")["withdrawn"]
        house = json.loads((face.path / "policies" / "house.json").read_text("utf-8"))
        assert client.act("packs", {"envelope": house}, sign=signer.sign) == {"ref": HOUSE["ref"]}
        change("policies", {"policies": [HOUSE]})
        assert client.read("/policies")["items"] == [HOUSE]
        change("policies", {"policies": []})
        face.ended(face.send("POST", "/v1/runs", json=face.request()).json()["run_id"])
        promoted, rejected, *_ = client.read("/memories")["items"]
        for proposal, verdict in ((promoted, "promote"), (rejected, "reject")):
            review = {"verdict": verdict, "at_us": time.time_ns() // 1_000}
            held = {"proposal": proposal}
            assert client.act("memories/{proposal}/review", review, held=held, sign=signer.sign)["verdict"] == verdict


def test_a_selection_that_leaves_out_what_was_chosen_is_not_signed() -> None:
    """The server leaves the chosen artifact out of both the offer and the statement."""
    sent, [act] = SENT["runs/{run}/slot"][0], stated("runs/{run}/slot")
    offer = {**OFFER, "offer": {"refs": [{**REF, "artifactId": "other"}]}}
    selection = {**act["arguments"]["selection"], "refs": []}
    left_out = {**act, "arguments": {**act["arguments"], "selection": selection}}
    assert acts_disagreement([left_out], "runs/{run}/slot", {**sent, "offer": offer}, "t", "o") is not None


def test_a_selection_is_signed_from_the_offer_that_was_shown(tmp_path: Path) -> None:
    with http_face(tmp_path, begin_slots) as asking, served_url(asking) as url:
        run, sign = waiting(asking), Signer(asking, REQUESTER).sign
        with connect(url, asking.token(REQUESTER), tenant=TENANT, person=REQUESTER) as client:
            offer = client.read(f"/runs/{run}/slot")
            other = {**offer, "origin": {**offer["origin"], "act_key": "other"}}
            with pytest.raises(UnfitAnswer, match="nothing was signed"):
                client.act("runs/{run}/slot", chosen(asking, run), held={"run": run, "offer": other}, sign=sign)
            fewer = {**offer, "offer": {**offer["offer"], "refs": []}}
            with pytest.raises(UnfitAnswer, match="nothing was signed"):
                client.act("runs/{run}/slot", chosen(asking, run), held={"run": run, "offer": fewer}, sign=sign)
            client.act("runs/{run}/slot", chosen(asking, run), held={"run": run, "offer": offer}, sign=sign)
        assert asking.ended(run)["status"] == "DECIDED"

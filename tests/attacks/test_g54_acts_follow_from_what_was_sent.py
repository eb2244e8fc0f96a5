"""An attacker between the signer of a governed act and the server alters each place of each statement, or what
the signer sent. Nothing is signed that does not follow from what they sent and were shown.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from contextos.client import connect
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.envelopes.evidence import edge_digest, fact_digest
from contextos.contracts.statements.acts import ACT_ROUTES, act_disagreement
from contextos.errors import ContextOSError, InvalidInput, UnfitAnswer
from tests.altering_proxy import Alteration, alterations, altering
from tests.attacks.test_g54_a_signature_is_over_the_call_in_clear import Signer
from tests.http_face import OPERATOR, TENANT, HttpFace, begin_refunds, http_face, served_url

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
ENVELOPE = {"payloadType": "x", "payload": base64.b64encode(canonical({"id": "pack", "limit": 5})).decode()}
REF = {"artifactId": "a", "representationRevisionId": "r", "semanticAssertionId": "s"}
ANSWER = {"slotId": "s", "resolutionMode": "user_override", "selectedRefs": [REF]}

SENT: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "artifact.published": ("packs", {"envelope": ENVELOPE}, {"digest": content_address({"id": "pack", "limit": 5})}),
    "artifact.withdrawn": (
        "packs/{ref}/withdraw",
        {"ref": "p@1.0.0", "reason": "x", "expected": 3},
        {"ref": "p@1.0.0", "reason": "x"},
    ),
    "policies.activated": (
        "policies",
        {"policies": [{"level": "tenant", "ref": "a@1.0.0"}, {"level": "platform", "ref": "b@1.0.0"}], "expected": 3},
        {"policies": [["platform", "b@1.0.0"], ["tenant", "a@1.0.0"]]},
    ),
    "packs.pinned": (
        "pins",
        {"refs": ["b@1.0.0", "a@1.0.0"], "intents": ["i"], "environment": "service", "expected": 3},
        {"refs": ["a@1.0.0", "b@1.0.0"], "intents": ["i"], "environment": "service"},
    ),
    "packs.withdrawn": (
        "pins/withdraw",
        {"refs": ["a@1.0.0"], "intents": ["i"], "environment": "service", "expected": 3},
        {"refs": ["a@1.0.0"], "intents": ["i"], "environment": "service"},
    ),
    "graph.written": ("facts", FACT, {"edges": {"edge_1": edge_digest({**EDGE, "edge_id": "edge_1"})}}),
    "graph.withdrawn": (
        "facts/retract",
        {
            "subject": "customer:c",
            "predicate": "tier",
            "source": "artifact:crm#rev_2",
            "facts": [{"fact_id": "edge_1", "subject": "customer:c", "predicate": "tier", "value": "gold"}],
        },
        {
            "edge_id": "edge_1",
            "evidence_ref": "artifact:crm#rev_2",
            "fact_digest": fact_digest("customer:c", "tier", "gold"),
        },
    ),
    "memory.reviewed": (
        "memories/{proposal}/review",
        {"proposal": PROPOSAL, "verdict": "promote", "at_us": 5},
        {
            "proposal_id": PROPOSAL["proposal_id"],
            "verdict": "promote",
            "reason": "",
            "at_us": 5,
            "integrity": "untrusted",
            "fact_digest": fact_digest("customer:c", "likes", "tea"),
            "proposal_digest": content_address(PROPOSAL),
        },
    ),
    "slot.answered": (
        "runs/{run}/slot",
        {"run": "run_1", "answer": ANSWER, "at_us": 5},
        {
            "run_id": "run_1",
            "selection": {"slot_id": "s", "resolution_mode": "user_override", "selected_at_us": 5, "refs": [REF]},
        },
    ),
}


FREE = {"remove /edges/edge_1", "add //selection/refs/0/added", "add /selection/refs/0/added"}
"""An edge that the graph has already, and what the server says beside the three ids of an artifact."""


def test_every_route_of_an_act_is_tried() -> None:
    assert {kind for kinds in ACT_ROUTES.values() for kind in kinds} == set(SENT)


@pytest.mark.parametrize("kind", SENT)
def test_each_place_of_the_arguments_follows_from_what_was_sent(kind: str) -> None:
    route, sent, arguments = SENT[kind]
    act = {"tenant_id": "t", "kind": kind, "actor": "o", "arguments": arguments, "expected": 3}
    assert act_disagreement(act, route, sent) is None
    for one in alterations(arguments):
        if "/owner" in one.name or one.name in FREE:
            continue
        assert act_disagreement({**act, "arguments": one.of(arguments)}, route, sent) is not None, one.name
    assert act_disagreement({**act, "kind": "run.cancelled"}, route, sent) is not None
    if "expected" in sent:
        assert act_disagreement({**act, "expected": 4}, route, sent) is not None


@pytest.mark.parametrize("kind", SENT)
def test_what_was_altered_on_its_way_is_not_signed(kind: str) -> None:
    """The statement follows from another value than the signer has."""
    route, sent, arguments = SENT[kind]
    act = {"tenant_id": "t", "kind": kind, "actor": "o", "arguments": arguments, "expected": 3}
    told = {name: value for name, value in sent.items() if name not in ("envelope", "proposal", "facts")}
    for one in alterations(told):
        # A member that is left out is of the server's choice, or the default; the server refuses one that it needs.
        if one.name.startswith("set") and not one.name.startswith("set /environment 2"):
            assert act_disagreement(act, route, {**sent, **one.of(told)}) is not None, one.name


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
    with altering(upstream, alter) as url, connect(url, face.token(OPERATOR), tenant=TENANT, person=OPERATOR) as client:
        said = face.send("POST", "/v1/facts/statement", by=OPERATOR, json=fact).json()
        for one in alterations(said):
            altered[:] = [one]
            signer = Signer(face, OPERATOR)

            def sign(signed: bytes, signer: Signer = signer) -> bytes:
                signer.sign(signed)
                raise InterruptedError

            try:
                client.act("facts", fact, sign=sign)
            except InterruptedError:
                assert [canonical(each) for each in signer.signed] == [
                    canonical(said["statements"][0]["statement"])
                ] or ("/arguments/commit" in one.name or "/expected" in one.name), one.name
            except ContextOSError:
                assert signer.signed == [], one.name
        altered.clear()
        signer = Signer(face, OPERATOR)
        client.act("facts", fact, sign=signer.sign)
        query = {"subject": fact["subject"], "predicate": "tier"}
        held = {"facts": face.send("GET", "/v1/facts", by=OPERATOR, params=query).json()["items"]}
        assert [one["value"] for one in held["facts"]] == ["gold"]
        client.act("facts/replace", {**fact, "value": "silver"}, held=held, sign=signer.sign)
        with pytest.raises(UnfitAnswer, match="nothing was signed"):
            client.act("facts/retract", {**query, "source": "artifact:crm#rev_2"}, held=held, sign=signer.sign)
        held = {"facts": face.send("GET", "/v1/facts", by=OPERATOR, params=query).json()["items"]}
        client.act("facts/retract", {**query, "source": "artifact:crm#rev_2"}, held=held, sign=signer.sign)
        assert face.send("GET", "/v1/facts", by=OPERATOR, params=query).json()["items"] == []
        with pytest.raises(InvalidInput, match="no route of acts"):
            client.act("runs", {}, sign=signer.sign)
        with pytest.raises(InvalidInput, match="parameter"):
            client.act("packs/{ref}/withdraw", {}, sign=signer.sign)


def test_a_stop_says_which_request_it_stops_and_each_altered_place_is_found(face: HttpFace, upstream: str) -> None:
    run = face.waiting_run()
    said = face.send("POST", f"/v1/runs/{run}/cancel/statement", by=OPERATOR, json={"reason": "x"}).json()
    other = face.waiting_run()
    altered: list[Alteration] = []

    def alter(method: str, path: str, document: Any) -> Any:
        if altered and altered[0].name == "another run" and method == "GET":
            return face.send("GET", f"/v1/runs/{other}", by=OPERATOR).json()
        return altered[0].of(document) if altered and path.endswith("/statement") else document

    with altering(upstream, alter) as url, connect(url, face.token(OPERATOR), tenant=TENANT, person=OPERATOR) as client:
        for one in [*alterations(said), Alteration("another run", lambda found: found)]:
            altered[:] = [one]
            signer = Signer(face, OPERATOR)

            def sign(signed: bytes, signer: Signer = signer) -> bytes:
                signer.sign(signed)
                raise InterruptedError

            try:
                client.cancel(run, "x", sign=sign)
            except InterruptedError:
                assert signer.signed == [said["statement"]] or "/expected" in one.name, one.name
            except ContextOSError:
                assert signer.signed == [], one.name
    [request] = [said["statement"]["arguments"]["request_id"]]
    assert request == face.send("GET", f"/v1/runs/{run}", by=OPERATOR).json()["request_id"]
    assert not face.send("GET", f"/v1/runs/{run}", by=OPERATOR).json()["ended"]
    assert json.loads(canonical(said["statement"]))["arguments"]["run"] == run

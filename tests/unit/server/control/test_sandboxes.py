"""A request is tried with a pack in memory: what it compiles to, what becomes of it, and why."""

from __future__ import annotations

from typing import Any

from tests.http_face import OPERATOR, HttpFace
from tests.unit.service.operations.test_packs import PACK, SHORT
from tests.world import EXAMPLE, example

ELIGIBLE = {"adp_policy.eval": {"eligible": True, "refundable_inr": 9900, "policy_version": "returns-4"}}


def tried(face: HttpFace, **of: Any) -> dict[str, Any]:
    body = {"request": face.request(), "facts": example("graph.json"), "outputs": ELIGIBLE, **of}
    answer = face.send("POST", "/v1/packs/sandbox", by=OPERATOR, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_published_pack_is_tried_and_nothing_is_stored(face: HttpFace) -> None:
    before = face.send("GET", "/v1/runs", by=OPERATOR).json()
    report = tried(face, request=face.request("large"))
    run = report["run"]
    assert (report["problems"], report["request"]["context_pack_refs"]) == ([], [PACK])
    assert (run["state"], run["waits_for"]) == ("waiting", "approval")
    assert run["run_context"]["safety_mode"] == "destructive"
    assert run["compiled"]["context_ledger"]["compiled_context_hash"].startswith("sha256:")
    assert any("GATE_FINANCE_APPROVAL has to approve" in one["text"] for one in run["reasons"])
    assert run["made_up"] == ["adp_orders.lookup"], "its answer was made from its schema"
    assert face.send("GET", "/v1/runs", by=OPERATOR).json() == before


def test_the_answer_of_a_person_and_the_facts_are_what_is_stated(face: HttpFace) -> None:
    large = face.request("large")
    ends = {answer: tried(face, request=large, answer=answer)["run"]["state"] for answer in ("approved", "denied")}
    assert ends == {"approved": "completed", "denied": "rejected"}
    unknown = tried(face, request=large, facts={})["run"]
    assert unknown["state"] == "escalated", "nobody verified the customer"


def test_equal_input_has_equal_hashes_and_a_lower_mode_another_one(face: HttpFace) -> None:
    def digests(**runtime: Any) -> dict[str, str]:
        ledger = tried(face, request={**face.request("large"), "runtime": runtime})["run"]["compiled"]["context_ledger"]
        found: dict[str, str] = ledger["stage_digests"]
        return found

    first, again, lowered = digests(), digests(), digests(safety_mode="read_only")
    assert first == again
    assert first["tool_surfacing"] != lowered["tool_surfacing"]
    assert first["intent_classification"] == lowered["intent_classification"]


def test_a_draft_is_linted_and_tried(face: HttpFace) -> None:
    draft = (EXAMPLE / "short.yaml").read_text("utf-8")
    request = face.request("large", context_pack_refs=[])
    report = tried(face, document=draft, request=request, adapters=None)
    assert report["problems"] == []
    assert report["run"]["state"] == "waiting"
    lower = draft.replace("max: 3000", "max: 9000")
    assert tried(face, document=lower, request=request)["run"]["state"] == "completed"


def test_a_draft_with_a_fault_is_not_run_and_its_place_is_named(face: HttpFace) -> None:
    report = tried(face, document=SHORT.replace("adp_orders.lookup", "adp_orders.lookpu"))
    assert "run" not in report
    assert "lookpu" in report["problems"][0]["detail"]
    assert report["problems"][0]["pointer"].startswith("/tools")


def test_the_fault_of_a_request_is_placed_in_the_request(face: HttpFace) -> None:
    for of, place in (
        ({"request": {**face.request(), "mode": "fast"}}, "/request/mode"),
        ({"request": face.request(), "facts": {"edges": [{"src": 1}]}}, "/facts/edges/0"),
        ({"request": face.request(), "calls": [{"tool": "lookup"}]}, "/calls/0"),
        ({"request": face.request(context_pack_refs=["ctxpack.nothing@1.0.0"])}, "/request/context_pack_refs"),
    ):
        answer = face.send("POST", "/v1/packs/sandbox", by=OPERATOR, json={"outputs": ELIGIBLE, **of})
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["pointer"].startswith(place), answer.text


def test_the_facts_of_the_tenant_are_used_where_they_are_asked_for(face: HttpFace) -> None:
    large = face.request("large")
    assert tried(face, request=large, facts={})["run"]["state"] == "escalated"
    known = tried(face, request=large, facts={}, facts_of=["order:ord_881"])["run"]
    assert known["waits_for"] == "approval", "the customer of the order is verified"
    nothing = {"request": large, "outputs": ELIGIBLE, "facts_of": ["order:nothing"]}
    assert tried(face, **nothing, facts={})["run"]["state"] == "escalated"

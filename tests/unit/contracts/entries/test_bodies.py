"""Each kind has one type, and a body that does not fit it is found."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

import contextos
from contextos.contracts.entries.bodies import CONTROL_BODIES, INDEX_BODIES, body_fault
from contextos.contracts.entries.kinds import KINDS
from contextos.contracts.entries.of_context import CONTEXT_KINDS
from contextos.contracts.entries.of_decision import DECISION_KINDS
from contextos.contracts.entries.of_effect import EFFECT_KINDS
from contextos.contracts.entries.of_model import MODEL_KINDS
from contextos.contracts.entries.of_run import RUN_KINDS
from contextos.contracts.journal import CONTEXT, CONTROL, DECISION, EFFECT, INDEX, NONE


def act(kind: str, **arguments: object) -> dict[str, object]:
    said = {"tenant_id": "tenant_a", "kind": kind, "actor": "op", "arguments": arguments, "expected": 0}
    return {
        "act": said,
        "role": "operator",
        "assertion": {"kind": "unsafe_local"},
        "seal": {"kid": "kid_1", "signature": "00"},
    }


def test_the_arguments_of_an_act_are_checked_too() -> None:
    raw = orjson.dumps(act("run.cancelled", run="run_1", request_id="req_1", reason="", more=1))
    assert "more" in (body_fault(CONTROL, "run.cancelled", raw) or "")


def test_every_row_is_in_the_module_of_its_ledger() -> None:
    context = {**CONTEXT_KINDS, **MODEL_KINDS}
    ledgers = {NONE: RUN_KINDS, CONTEXT: context, DECISION: DECISION_KINDS, EFFECT: EFFECT_KINDS}
    for ledger, rows in ledgers.items():
        assert {row.ledger for row in rows.values()} == {ledger}
    assert len(KINDS) == sum(map(len, ledgers.values()))


def test_every_kind_is_written_as_its_row_says() -> None:
    """The journal does not look whether a kind that it records or derives is one that is recorded or derived."""
    verbs = r'(?:\.(record|record_found|derive)|(RecordRequest))\(\s*"([a-z_.]+)"'
    written = [
        (found[3], found[1] != "derive")
        for file in Path(contextos.__file__).parent.rglob("*.py")
        for found in re.finditer(verbs, file.read_text("utf-8"))
    ]
    assert len({kind for kind, _ in written}) > 40
    assert [kind for kind, is_recorded in written if KINDS[kind].recorded is not is_recorded] == []


@pytest.mark.parametrize(
    ("stream", "kind", "body"),
    [
        ("run_1", "run.resumed", {"request_digest": "sha256:aa", "answer": {"cause": "recovery"}}),
        ("run_1", "run.ended", {"end": "completed", "record_id": "rec_1", "record_hash": "sha256:aa", "entries": 7}),
        ("run_1", "evidence.retrieved", {"request_digest": "sha256:aa", "answer": []}),
        ("run_1", "identity.resolved", {"request_digest": "sha256:aa", "answer": {"principals": None}}),
        (INDEX, "run.indexed", {"run": "run_1"}),
        (INDEX, "run.closed", {"run": "run_1", "entries": 7, "head": "sha256:aa"}),
        (INDEX, "run.dispatched", {"run": "run_1", "entries": 5, "head": "sha256:aa"}),
        (CONTROL, "run.cancelled", act("run.cancelled", run="run_1", request_id=None, reason="")),
        (CONTROL, "effect.settled", {"run": "run_1", "by": "op", "happened": False, "evidence_ref": "bank:1"}),
        (CONTROL, "store.restored", act("store.restored", epoch="ab", at_us=7, left={"index": 3, "control": 0})),
        (
            CONTROL,
            "policies.activated",
            act("policies.activated", policies=[["platform", "policy:a@1"]], active_digest=f"sha256:{0:064x}"),
        ),
    ],
)
def test_a_body_fits_its_type_and_a_changed_one_does_not(stream: str, kind: str, body: dict[str, object]) -> None:
    assert body_fault(stream, kind, orjson.dumps(body)) is None
    recorded = "answer" in body
    for broken in ({**body, "more": 1}, {}, [], dict.fromkeys(body, 7.5)):
        assert body_fault(stream, kind, orjson.dumps(broken)), broken
    if recorded and isinstance(body["answer"], dict):
        assert body_fault(stream, kind, orjson.dumps({**body, "answer": {**body["answer"], "more": 1}}))


@pytest.mark.parametrize(("stream", "kind"), [("run_1", "run.closed"), (INDEX, "run.ended"), (CONTROL, "no.such")])
def test_a_kind_belongs_to_its_stream(stream: str, kind: str) -> None:
    assert "is not a kind of the stream" in (body_fault(stream, kind, b"{}") or "")


def test_a_body_that_is_no_json_is_a_fault() -> None:
    assert "no JSON" in (body_fault(INDEX, next(iter(INDEX_BODIES)), b"{") or "")
    assert "no JSON" in (body_fault(CONTROL, next(iter(CONTROL_BODIES)), b"") or "")


@pytest.mark.parametrize("kind", ["planner.answered", "slot.selected", "run.pinned"])
def test_an_answer_that_says_neither_yes_nor_no_is_a_fault(kind: str) -> None:
    pinned = {"snapshot": "kg_1", "semantics": 3, "runtime_version": "1", "profile": "embedded", "estimator": "e@1"}
    answer = pinned if kind == "run.pinned" else {}
    raw = orjson.dumps({"request_digest": "sha256:0", "answer": answer})
    assert "exactly one of" in (body_fault("run_0000000000000001", kind, raw) or "")

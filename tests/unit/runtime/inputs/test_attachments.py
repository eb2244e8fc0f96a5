"""What a run does with the files that its request names."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.audit.replay import replay
from contextos.contracts.trace import parse_traceparent, parse_tracestate
from contextos.errors import Unavailable
from tests.attached_files import NOTE, attaching, bodies, decided
from tests.world import TENANT, request, run


def test_a_text_is_untrusted_evidence_and_its_digest_is_on_record(tmp_path: Path) -> None:
    with attaching(tmp_path) as (world, files):
        note, scan = files.attach("note", NOTE), files.attach("scan", b"%PDF-1.7 \xff", "application/pdf")
        record, run_id = run(decided(world, note, scan))
        assert record["outcome"] == "approved"
        fetched = [one["answer"] for one in run(bodies(world, run_id, "attachment.fetched"))]
        assert {(one["size_bytes"], one.get("text")) for one in fetched} == {(len(NOTE), NOTE.decode()), (10, None)}
        [compiled] = run(world.contexts(run_id))
        [shown] = [one for one in compiled["compiled_prompt"]["context_blocks"] if "acc_666" in one["content"]]
        assert shown["provenance"]["integrity"] == "untrusted"
        assert shown["provenance"]["instruction_treatment"] == "data_only"
        listed = [one for one in compiled["manifests"]["evidence_manifest"] if "attachment:" in one["evidence_ref"]]
        assert [one["hash"] for one in listed] == [f"sha256:{note['sha256']}", f"sha256:{scan['sha256']}"]
        run(replay(world.deployment, TENANT, run_id))
        assert sorted(files.asked) == ["/acme/note", "/acme/scan"]


def test_each_fetch_is_in_the_trace_of_the_run_and_carries_nothing_else_of_it(tmp_path: Path) -> None:
    """A server of files is outside: no baggage, and no tracestate but ours, goes there."""
    trace = {
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "span_id": "00f067aa0ba902b7",
        "trace_flags": "01",
        "tracestate": "tenant=acme,other=1",
        "baggage": "secret=word,run_id=run_of_another",
    }
    with attaching(tmp_path) as (world, files):
        named = [files.attach("note", NOTE), files.attach("other", b"more")]
        run(world.invoke(request(900, "req_1") | {"attachments": named, "trace": trace}))
    parents = [parse_traceparent(one["traceparent"]) for one in files.heard]
    assert {one.trace_id for one in parents if one} == {trace["trace_id"]}
    assert len({one.parent_id for one in parents if one} - {trace["span_id"]}) == 2
    for one in files.heard:
        assert "baggage" not in one
        assert [key for key, _ in parse_tracestate(one["tracestate"])] == ["contextos"]
        assert not {"acme", "other=1", "secret", "run_of_another"} & set(" ".join(one.values()).split())


def test_what_was_fetched_before_a_fault_is_not_fetched_again(tmp_path: Path) -> None:
    with attaching(tmp_path) as (world, files):
        note, other = files.attach("note", NOTE), files.attach("other", b"more")
        files.down.add("/acme/other")
        with pytest.raises(Unavailable, match=f"attachment `{other['artifact_id']}` cannot be fetched now"):
            run(decided(world, note, other))
        files.down.clear()
        record, run_id = run(decided(world, note, other))
        assert record["outcome"] == "approved"
        assert sorted(files.asked) == ["/acme/note", "/acme/other", "/acme/other"]
        run(replay(world.deployment, TENANT, run_id))


def test_pack_rules_redact_what_a_text_says_before_it_is_recorded(tmp_path: Path) -> None:
    with attaching(tmp_path, redaction={TENANT: ("email",)}) as (world, files):
        record, run_id = run(decided(world, files.attach("note", b"write to mallory@evil.example")))
        assert record["outcome"] == "approved"
        [fetched] = run(bodies(world, run_id, "attachment.fetched"))
        assert "mallory@" not in fetched["answer"]["text"]

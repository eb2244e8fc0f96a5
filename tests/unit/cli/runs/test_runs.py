"""Requests, answers and lists of runs: outcomes and exit codes as a user meets them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from contextos.cli.demo.workspace import EXAMPLE_OPERATOR_ID, example_operator
from contextos.contracts.entries.linked import KEPT_BYTES, RecentlyUsed
from contextos.deployment.operator import erase_entry
from contextos.deployment.queries import run_index
from contextos.deployment.queries.timeline import PARTS
from contextos.store.shared import segments
from contextos.store.sqlite.stores import SqliteStore
from contextos.workspace import open_app
from contextos.workspace.settings import Settings


def test_a_small_refund_is_decided_at_once(shop) -> None:
    request = json.loads(Path(shop.request("small")).read_text()) | {"request_id": "req_again"}
    path = shop.path / "again.json"
    path.write_text(json.dumps(request))
    said = shop.say("invoke", str(path), "--json")
    assert said.code == 0
    assert (said.json["state"], said.json["record"]["status"]) == ("completed", "DECIDED")


def test_the_same_request_is_the_same_run_and_pays_once(shop) -> None:
    before = shop.refunds()
    first, second = (shop.say("invoke", shop.request("large"), "--json").json["run_id"] for _ in range(2))
    assert first == second
    assert shop.refunds() == before


def test_a_request_id_with_another_body_is_refused(shop) -> None:
    path = shop.path / "other.json"
    request = json.loads(Path(shop.request("large")).read_text())
    request["input"]["context"]["refund_amount"] = 4300
    path.write_text(json.dumps(request))
    said = shop.say("invoke", str(path), "--json")
    assert said.code == 2
    assert said.json["error"]["code"] == "conflicting_request"


def test_a_request_of_the_mode_stream_prints_its_events_and_then_its_answer(shop) -> None:
    path = shop.path / "stream.json"
    request = json.loads(Path(shop.request("small")).read_text())
    path.write_text(json.dumps(request | {"request_id": "req_stream", "mode": "stream"}))
    said = shop.say("invoke", str(path), "--json")
    assert (said.code, said.json["state"]) == (0, "completed")
    told = said.err.splitlines()
    assert (told[0], told[-1]) == ("RUN_STARTED", "RUN_FINISHED")
    assert "TOOL_CALL_START adp_orders.lookup" in told
    path.write_text(json.dumps(request | {"request_id": "req_batch"}))
    assert shop.say("invoke", str(path), "--json").err == ""


def test_an_unknown_intent_is_named_as_such_with_the_nearest_one(shop) -> None:
    path = shop.path / "typo.json"
    request = json.loads(Path(shop.request("small")).read_text()) | {"request_id": "req_typo"}
    request["input"]["intent"] = "support.refnud"
    path.write_text(json.dumps(request))
    said = shop.say("invoke", str(path))
    assert said.code == 1
    assert "unknown_intent at /input/intent: " in said.out
    assert "did you mean `support.refund`?" in said.out


def test_a_large_refund_waits_is_approved_with_a_key_and_pays_once(shop) -> None:
    waiting = shop.say("invoke", shop.request("next"), "--json")
    assert waiting.code == 5
    assert waiting.json["waiting"]["gate_id"] == "GATE_FINANCE_APPROVAL"
    assert ("ord_895", 5000) not in shop.refunds()
    said = shop.say("approvals", "approve", "req_next", *shop.binding("req_next"), *shop.key, "--json")
    assert (said.code, said.json["state"]) == (0, "completed")
    assert shop.refunds().count(("ord_895", 5000)) == 1
    again = shop.say("approvals", "approve", "req_next", *shop.binding("req_next"), *shop.key, "--json")
    assert (again.code, again.json["error"]["reason"]) == (1, "already_answered")


def test_who_approves_is_shown_the_whole_question_first(shop) -> None:
    shop.say("invoke", shop.request("next"))
    said = shop.say("approvals", "approve", "req_next", *shop.binding("req_next"), *shop.key)
    assert "amount_inr 5000" in said.err
    assert "evidence   identity_verified = true" in said.err


def key_file(workspace: Path, owner: str) -> Path:
    """The key of a person, or one of the runtime's own."""
    return next((workspace / "keys").glob("kid_*.key" if owner == "runtime" else f"{owner}.key"))


@pytest.mark.parametrize(
    ("who", "key", "code", "reason"),
    [
        ("user_finance_lead_78", "user_finance_lead_77", 1, "assertion_invalid"),
        ("user_finance_lead_77", "runtime", 1, "assertion_invalid"),
        ("user_support_lead_5", "user_finance_lead_77", 1, "not_approver"),
        ("usr_771", "user_finance_lead_77", 1, "not_approver"),
        ("usr_owner_1", "user_finance_lead_77", 1, "self_approval"),
    ],
)
def test_an_answer_that_does_not_count_changes_nothing(shop, who: str, key: str, code: int, reason: str) -> None:
    shop.say("invoke", shop.request("next"))
    path = key_file(shop.path, key)
    said = shop.say(
        "approvals", "approve", "req_next", *shop.binding("req_next"), "--as", who, "--key", str(path), "--json"
    )
    assert (said.code, said.json["error"]["reason"]) == (code, reason)
    assert [one["request_id"] for one in shop.say("runs", "list", "--waiting", "--json").json["runs"]] == ["req_next"]
    assert ("ord_895", 5000) not in shop.refunds()


def test_an_unsigned_answer_is_refused_where_settings_do_not_allow_it(shop) -> None:
    shop.say("invoke", shop.request("next"))
    said = shop.say(
        "approvals",
        "approve",
        "req_next",
        *shop.binding("req_next"),
        "--as",
        "user_finance_lead_77",
        "--unsafe-local",
        "--json",
    )
    assert (said.code, said.json["error"]["reason"]) == (1, "unsafe_not_allowed")


def test_an_unsigned_answer_marks_the_record_where_settings_allow_it(shop) -> None:
    settings = shop.path / "contextos.toml"
    settings.write_text(
        settings.read_text().replace('"unsafe_local_keys"', '"unsafe_local_keys", "unsafe_local_approvals"')
    )
    shop.say("invoke", shop.request("next"))
    said = shop.say(
        "approvals",
        "approve",
        "req_next",
        *shop.binding("req_next"),
        "--as",
        "user_finance_lead_77",
        "--unsafe-local",
        "--json",
    )
    assert said.code == 0
    assert "unsafe_local_approvals" in " ".join(said.json["record"]["lineage"]["unsafe"])


def test_a_denial_ends_the_run_and_pays_nothing(shop) -> None:
    shop.say("invoke", shop.request("deny"))
    said = shop.say(
        "approvals", "deny", "req_deny", *shop.binding("req_deny"), *shop.key, "--reason", "paid before", "--json"
    )
    assert (said.code, said.json["state"]) == (1, "rejected")
    assert ("ord_895", 7000) not in shop.refunds()


def test_a_waiting_run_is_cancelled(shop) -> None:
    shop.say("invoke", shop.request("cancel"))
    said = shop.say("runs", "cancel", "req_cancel", *shop.by, "--json")
    assert (said.code, said.json["state"]) == (0, "cancelled")
    assert ("ord_895", 8000) not in shop.refunds()


@pytest.fixture
def lost(shop, monkeypatch: pytest.MonkeyPatch):
    """A run whose refund was paid and whose answer was lost, with payments that promise nothing."""
    monkeypatch.setenv("SHOP_PAYMENTS", "none")
    monkeypatch.setenv("SHOP_FAILPOINT", "lose_reply")
    assert shop.say("invoke", shop.request("lost")).code == 5
    monkeypatch.delenv("SHOP_FAILPOINT")
    return shop


def test_an_uncertain_effect_that_happened_is_settled_and_not_sent_again(lost) -> None:
    output = {"transaction_id": "txn_seen", "refund_amount_inr": 1200, "currency": "INR"}
    said = lost.say(
        "runs",
        "settle",
        "req_lost",
        "--happened",
        "--evidence",
        "kg:order:ord_881#snapshot_kg_1",
        *lost.operator,
        "--output",
        json.dumps(output),
        "--mutation",
        "refund:txn_seen",
        "--json",
    )
    assert (said.code, said.json["state"]) == (0, "completed")
    assert lost.refunds().count(("ord_882", 1200)) == 1


def test_an_uncertain_effect_that_did_not_happen_is_settled_and_not_sent_again(lost) -> None:
    said = lost.say(
        "runs",
        "settle",
        "req_lost",
        "--did-not",
        "--evidence",
        "kg:order:ord_881#snapshot_kg_1",
        *lost.operator,
        "--json",
    )
    assert said.code == 1
    assert lost.refunds().count(("ord_882", 1200)) == 1


def test_a_settlement_whose_output_does_not_fit_changes_nothing(lost) -> None:
    given = ("--evidence", "kg:order:ord_881#snapshot_kg_1", *lost.operator, "--output", '{"paid": true}')
    assert lost.say("runs", "settle", "req_lost", "--happened", *given).code == 2
    assert lost.say("runs", "list", "--waiting", "--json").json["runs"][0]["waits_for"] == "settlement"


@pytest.mark.parametrize(
    ("who", "key", "reason"),
    [
        ("usr_771", EXAMPLE_OPERATOR_ID, "self_settlement"),
        ("user_finance_lead_77", "user_finance_lead_77", "not_operator"),
        (EXAMPLE_OPERATOR_ID, "runtime", "assertion_invalid"),
        (EXAMPLE_OPERATOR_ID, None, "unsafe_not_allowed"),
    ],
)
def test_a_settlement_that_does_not_count_changes_nothing(lost, who: str, key: str | None, reason: str) -> None:
    vouched = ["--key", str(key_file(lost.path, key))] if key else ["--unsafe-local"]
    given = ("--evidence", "kg:order:ord_881#snapshot_kg_1", "--as", who, *vouched)
    said = lost.say("runs", "settle", "req_lost", "--did-not", *given, "--json")
    assert (said.code, said.json["error"]["reason"]) == (1, reason)
    assert lost.say("runs", "list", "--waiting", "--json").json["runs"][0]["waits_for"] == "settlement"


def test_a_stranger_cannot_cancel(shop) -> None:
    shop.say("invoke", shop.request("cancel"))
    key = ["--key", str(shop.path / "keys" / f"{EXAMPLE_OPERATOR_ID}.key")]
    said = shop.say("runs", "cancel", "req_cancel", "--by", "user_ops_1", *key, "--json")
    assert (said.code, said.json["error"]["reason"]) == (1, "unknown_actor")
    assert [one["request_id"] for one in shop.say("runs", "list", "--waiting", "--json").json["runs"]] == ["req_cancel"]


def test_runs_are_listed_newest_first_in_pages(shop) -> None:
    shop.say("invoke", shop.request("next"))
    whole = shop.say("runs", "list", "--json").json
    assert [one["request_id"] for one in whole["runs"]] == ["req_next", "req_large", "req_small"]
    paged, after = [], ""
    for _ in range(3):
        page = shop.say("runs", "list", "--limit", "1", "--after", after, "--json").json
        paged += page["runs"]
        after = page["next_after"]
    assert after is None
    assert paged == whole["runs"]


def test_a_page_of_runs_is_read_from_the_end_of_the_index_and_never_the_whole_of_it(shop, monkeypatch) -> None:
    shop.say("invoke", shop.request("next"))
    read = []
    real = SqliteStore.read

    async def noted(self, stream, *, after=0, limit=None):
        read.append((stream, after, limit))
        return await real(self, stream, after=after, limit=limit)

    monkeypatch.setattr(SqliteStore, "read", noted)
    monkeypatch.setattr(run_index, "PAGE", 2)
    (newest,) = shop.say("runs", "list", "--limit", "1", "--json").json["runs"]
    assert newest["request_id"] == "req_next"
    pages = [(after, limit) for stream, after, limit in read if stream == "index" and limit != 1]
    assert pages == [(8, 2), (6, 2), (4, 2), (2, 2)], "ten lines: what the last run and the one before it left there"
    refused = shop.say("runs", "list", "--after", str(10**27))
    assert (refused.code, "names nothing here" in refused.err) == (2, True)


def test_a_run_that_ended_by_the_index_is_not_read_to_find_waiting_runs(shop, monkeypatch) -> None:
    shop.say("invoke", shop.request("next"))
    listed = shop.say("runs", "list", "--json").json["runs"]
    read = []
    real = SqliteStore.read

    async def noted(self, stream, **bounds):
        read.append(stream)
        return await real(self, stream, **bounds)

    monkeypatch.setattr(SqliteStore, "read", noted)
    assert shop.say("runs", "list", "--waiting", "--json").json["runs"] == listed[:1]
    assert not {one["run_id"] for one in listed[1:]} & set(read)


def test_a_run_is_shown_with_every_part_of_its_story_and_every_entry(shop) -> None:
    shown = shop.say("runs", "show", "req_large", "--json").json
    assert list(shown["story"]) == [part for part in PARTS.values() if part != "What was erased"]
    assert [one["seq"] for one in shown["entries"]] == list(range(1, len(shown["entries"]) + 1))
    assert shown["record"]["status"] == "DECIDED"


def erase_all(path: Path, run_id: str) -> None:
    async def act() -> None:
        app = await open_app(Settings.read(path))
        for entry in await app.stores.tenant("tenant_acme_prod").read(run_id):
            await erase_entry(
                app.deployment, "tenant_acme_prod", run_id, entry.seq, by=example_operator(path), reason="asked"
            )
        app.close()

    asyncio.run(act())


def test_a_run_of_another_dictionary_is_unreadable_and_not_erased(shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that an earlier commit wrote: its rows name a dictionary that this code does not have."""
    monkeypatch.setattr(segments, "dictionary_id", lambda: bytes(8))
    monkeypatch.setattr(segments, "_ENTRY_CACHE", RecentlyUsed(KEPT_BYTES))
    listed = shop.say("runs", "list", "--json").json["runs"][0]
    assert (listed["request_id"], listed["intent"], listed["state"]) == ("(unreadable)", "(unreadable)", "unreadable")
    assert "begin with a new store, or run the contextos that wrote this one" in listed["fault"]
    assert "(erased)" not in shop.say("runs", "list").out


def test_erased_content_is_reported_and_every_command_still_answers(shop) -> None:
    run_id = shop.say("runs", "show", "req_large", "--json").json["run_id"]
    erase_all(shop.path, run_id)
    said = shop.say("runs", "show", "req_large")
    assert said.code == 0
    assert "the content of entries 1, 2," in said.out
    assert "What it knew" not in said.out
    assert shop.say("runs", "list", "--json").json["runs"][0]["request_id"] == "(erased)"
    assert shop.say("invoke", shop.request("large")).code in (0, 1)
    assert shop.say("verify").code == 0
    assert shop.say("replay", "req_large").code == 3


def test_hostile_text_is_shown_as_escapes(shop) -> None:
    request = json.loads(Path(shop.request("small")).read_text())
    request["request_id"] = "req_hostile"
    request["input"]["message"] = "\x1b[2Jpay \u202e0009\r\nWho approved"
    path = shop.path / "hostile.json"
    path.write_text(json.dumps(request))
    shop.say("invoke", str(path))
    said = shop.say("runs", "show", "req_hostile")
    assert "\\u001b[2Jpay \\u202e0009\\u000d\\nWho approved" in said.out
    assert not set("\x1b\u202e\r") & set(said.out)


def test_compile_shows_the_context_and_makes_no_run(shop) -> None:
    before = shop.say("runs", "list", "--json").json
    said = shop.say("compile", shop.request("next"), "--json")
    assert said.code == 0
    assert said.json["budget_report"]["tokens_used_at_compile"] > 0
    assert shop.say("runs", "list", "--json").json == before
    run = shop.say("invoke", shop.request("next"), "--json").json["run_id"]
    (entry,) = [
        one for one in shop.say("runs", "show", run, "--json").json["entries"] if one["kind"] == "context.compiled"
    ]
    made, shown = shop.say("context", "show", run, "--plan", "0", "--json").json, said.json
    ledger, stated = made["context_ledger"], entry["body"]["context_ledger"]
    digests = stated["stage_digests"]
    assert stated == {name: ledger[name] for name in stated} | {"stage_digests": digests}
    assert digests == {name: ledger["stage_digests"][name] for name in digests} != {}
    assert "compiled_prompt" not in entry["body"], "no planner reads it"
    for one in (made, shown):
        # The manifests name the run, and a preview has one of its own.
        own, run_id = one["manifests"]["trace_context"]["baggage"].split("run_id=")
        assert run_id.startswith("run_")
        one["manifests"]["trace_context"]["baggage"] = own
        del one["context_ledger"]["compiled_context_hash"]
        del one["context_ledger"]["stage_digests"]["manifests_and_controls"]
    assert {name: shown[name] for name in made} == made
    assert shop.say("context", "show", run).out.splitlines()[1].endswith("tokens by bytes_div_4@1")


def test_a_context_that_a_run_has_not_compiled_is_refused(shop) -> None:
    run = shop.say("invoke", shop.request("next"), "--json").json["run_id"]
    said = shop.say("context", "show", run, "--plan", "7")
    assert (said.code, "has compiled no such context" in said.err) == (2, True)


def test_compile_says_why_a_request_would_be_refused(shop) -> None:
    request = json.loads(Path(shop.request("next")).read_text())
    request["agent"]["agent_id"] = "agt_unknown"
    path = shop.path / "unknown.json"
    path.write_text(json.dumps(request))
    said = shop.say("compile", str(path), "--json")
    assert said.code == 1
    assert said.json["failures"][0]["code"] == "identity_refused"


def test_memory_is_queued_promoted_and_then_recalled(shop) -> None:
    waiting = shop.say("memory", "list", "--json").json["proposals"]
    order = next(one for one in waiting if one["candidate"]["entity_ceid"] == "order:ord_881")
    assert shop.say("memory", "review", order["proposal_id"], "--promote", *shop.by).code == 0
    again = shop.say("memory", "review", order["proposal_id"], "--promote", *shop.by, "--json")
    assert (again.code, again.json["refused"]["reason"]) == (1, "already_reviewed")
    left = shop.say("memory", "list", "--json").json["proposals"]
    assert order["proposal_id"] not in [one["proposal_id"] for one in left]
    compiled = shop.say("compile", shop.request("large"), "--json").json
    assert any(order["proposal_id"] in ref for ref in compiled["context_ledger"]["memory_refs"])
    assert shop.say("verify").code == 0

"""What a person sees of overload and of a circuit that is open."""

from __future__ import annotations

import pytest

from contextos.contracts.admission_limits import AdmissionLimits
from contextos.workspace import build
from contextos.workspace.engine.admission_controller import AdmissionController


def settings(shop, text: str) -> None:
    where = shop.path / "contextos.toml"
    where.write_text(f"{where.read_text()}\n[pressure]\n{text}\n")


@pytest.mark.requirement("A-BREAKER-SAYS")
def test_an_open_circuit_is_listed_with_when_it_may_be_tried(shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shop.say("breakers", "list").out == "no circuit breaker has ever opened\n"
    settings(shop, "breaker_failures_in_a_row = 1\nbreaker_cool_down_ms = 3_600_000")
    monkeypatch.setenv("SHOP_FAILPOINT", "lose_reply")
    held_up = shop.say("invoke", shop.request("lost"))
    assert held_up.code == 4
    assert "is held up" in held_up.out
    (listed,) = shop.say("breakers", "list", "--json").json["breakers"]
    assert (listed["capability_id"], listed["state"], listed["failures"]) == ("adp_payments.issue_refund", "open", 1)
    assert listed["retry_at_us"] - listed["since_us"] == 3_600_000_000
    lines = shop.say("breakers", "list").out.splitlines()
    assert lines[1].split()[:2] == ["open", "1"]
    assert lines[1].endswith("adp_payments.issue_refund")


@pytest.mark.requirement("R-OVERLOADED")
def test_a_caller_refused_for_overload_gets_a_retry_time(shop, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(AdmissionController):
        def begin(self, tenant_id: str) -> None:
            for _ in range(2):
                super().begin(tenant_id)

    monkeypatch.setattr(
        build,
        "AdmissionController",
        lambda _, clock: Full(AdmissionLimits(max_new_runs_per_minute_per_tenant=1), clock),
    )
    said = shop.say("invoke", shop.request("next"), "--json")
    assert said.code == 4
    assert said.json["error"]["code"] == "overloaded"
    assert 0 < said.json["error"]["retry_after_ms"] <= 60_000

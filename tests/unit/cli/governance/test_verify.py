"""`contextos verify` lists a bounded number of streams, counts all of them, and says what it did not verify."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.cli.governance import verify


def test_of_many_streams_the_first_are_listed_and_all_are_counted(shop, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shop.say("verify", "--json").json
    assert (whole["streams"], len(whole["verified"])) == (4, 4)
    assert [one["stream"] for one in whole["verified"]][::3] == ["index", "control"]
    monkeypatch.setattr(verify, "MAX_LISTED", 2)
    said = shop.say("verify", "--json").json
    assert (said["streams"], said["entries"]) == (4, whole["entries"])
    assert [one["stream"] for one in said["verified"]] == [
        "index",
        *(one["stream"] for one in whole["verified"][1:3]),
        "control",
    ]
    monkeypatch.setattr(verify, "MAX_LISTED", 1)
    assert "... and 1 more streams" in shop.say("verify").out


def test_a_range_with_an_end_says_what_it_does_not_verify(shop) -> None:
    said = shop.say("verify", "--runs", ":3")
    assert said.code == 0
    assert f"not verified: {verify.BELONGS_TO_NO_RUN}; the range without an end does that" in said.out
    assert "control  " not in said.out
    rest = shop.say("verify", "--runs", "4:")
    assert "not verified" not in rest.out


@pytest.mark.parametrize("option", ["--runs", "--since", "--checkpoint"])
def test_an_option_for_a_tenant_is_refused_for_an_export(shop, tmp_path: Path, option: str) -> None:
    out = tmp_path / "runs.jsonl"
    assert shop.say("runs", "export", "req_small", "--out", str(out), *shop.by).code == 0
    said = shop.say("verify", str(out), option, "1:2")
    assert (said.code, "are for a tenant" in said.err) == (2, True)

"""`--person`: keys that an auditor has from the people themselves, of both commands that read an export."""

from __future__ import annotations

from pathlib import Path


def test_both_commands_check_given_keys_and_refuse_those_of_somebody_who_signs_nothing(shop, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "runs.jsonl"
    assert shop.say("runs", "export", "req_large", "--out", str(out), *shop.by).code == 0
    for command in ("verify", "replay"):
        signer = shop.say(command, str(out), "--json").json["signers"]["keys_from_operator"][0]
        assert "the operator states the keys of" in shop.say(command, str(out)).out
        other = shop.say(command, str(out), "--person", f"{signer}={'ab' * 32}")
        assert other.code == 3
        assert signer in other.out + other.err
        assert shop.say(command, str(out), "--person", f"user_nobody={'ab' * 32}").code == 2
        assert shop.say(command, str(out), "--person", "user_nobody").code == 2
    assert shop.say("replay", "req_large", "--person", f"a={'ab' * 32}").code == 2
    assert shop.say("verify", "--person", f"a={'ab' * 32}").code == 2

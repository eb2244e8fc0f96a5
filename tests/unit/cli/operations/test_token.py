"""`token` prints a token and nothing else, and says why where it makes none. The attacks are in `test_e35`."""

from __future__ import annotations

from typing import Any

from contextos.trust.identity.jws import unverified_payload


def test_the_output_is_the_token_alone(shop: Any) -> None:
    said = shop.say("token", "--user", "usr_771", "--agent", "agt_support")
    assert (said.code, said.out.count("\n")) == (0, 1)
    stated = unverified_payload(said.out.strip())
    assert stated is not None
    assert (stated["user_id"], stated["agent_id"], stated["roles"]) == ("usr_771", "agt_support", ["support_agent"])
    assert stated["exp"] - stated["iat"] == 3_600
    assert "named and not proved" in said.err


def test_as_json_it_says_whom_it_names(shop: Any) -> None:
    said = shop.say("token", "--user", "user_finance_lead_77", "--ttl", "60", "--json").json
    assert (said["user_id"], said["agent_id"], said["roles"]) == ("user_finance_lead_77", None, ["finance_lead"])


def test_in_a_service_it_says_why_it_makes_none(shop: Any) -> None:
    settings = shop.path / "contextos.toml"
    settings.write_text(settings.read_text().replace("unsafe =", 'profile = "service"\nenvironment = "prod"\nunsafe ='))
    said = shop.say("token", "--user", "usr_771")
    assert (said.code, said.out) == (2, "")
    assert "service" in said.err


def test_nobody_is_refused(shop: Any) -> None:
    for arguments in ([], ["--user", "usr_none"], ["--agent", "agt_support_old"], ["--user", "usr_771", "--ttl", "0"]):
        said = shop.say("token", *arguments)
        assert (said.code, said.out) == (2, ""), arguments

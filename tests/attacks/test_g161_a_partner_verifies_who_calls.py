"""G161: a message to an agent of somebody else says, signed, which user and agent call. A stranger verifies it with the
public keys and `joserfc` alone, and nobody can use it elsewhere, change it, or find it on record.

The attacker is the partner that got a claim, and who listens.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jwt import JWTClaimsRegistry

import contextos
from contextos.adapters.a2a.connection import EXTENSIONS_HEADER, HOP_EXTENSION
from contextos.cli import run_command_line
from contextos.cli.demo.workspace import EXAMPLE_OPERATOR_ID, make_workspace
from contextos.contracts.ports.gates import Done
from contextos.errors import SignatureInvalid
from contextos.testing import in_memory
from contextos.trust.identity.claims import open_token
from contextos.trust.identity.jws import unverified_payload
from contextos.trust.seal import KeyRing, jwk_set
from tests.servers.processes import hostile_skill

ROOT = Path(__file__).resolve().parents[2]
TENANT, AGENT = "acme", "agt_deploy"


def strangers_claims(token: str, keys: dict[str, Any], *, audience: str, at_s: int) -> dict[str, Any]:
    """What a partner does who has the page and a library: `docs/adapters.md`, "Who calls"."""
    opened = jwt.decode(token, KeySet.import_key_set(keys), algorithms=["Ed25519"])
    if opened.header.get("typ") != "ctxhop+jwt":
        raise ValueError("another kind of token")
    wanted: dict[str, Any] = {"aud": {"essential": True, "value": audience}, "jti": {"essential": True}}
    JWTClaimsRegistry(now=at_s, **wanted, exp={"essential": True}).validate(opened.claims)
    return dict(opened.claims)


async def called(adapter: Any, token: str | None) -> tuple[str, Any, Any]:
    """Call the skill in a session of ana's. Returns what is on record, the answer, and the keys of the runtime."""
    people = json.loads((ROOT / "examples" / "deploy_rollback" / "directory.json").read_text("utf-8"))
    for one in people[TENANT]["agents"]:
        one["platform_scopes"] = ["tools:read", "tools:write", "a2a:send"]
    egress = list(adapter.describe().egress)
    pack = contextos.pack(
        "acme.lab", version="1.0.0", tenant=TENANT, tools=[adapter], who=["deployer"], approver="oncall", egress=egress
    )
    async with in_memory(packs=[pack], directory=people, egress={TENANT: tuple(egress)}, lint=False) as app:
        gate = await app.gate(session="s", user="ana", token=token, agent=AGENT)
        answer = await gate.call("lab.say", {"text": "a"}, call_id="one")
        assert isinstance(answer, Done), answer
        entries = await app.deployment.ports.stores.tenant(TENANT).read(gate.run_id)
        return "".join(str(one.body) for one in entries), answer, app.deployment.ports.keys


def keys_of(keys: Any) -> dict[str, Any]:
    return jwk_set({kid: keys.public_key("claim", kid) for kid in keys.kids("claim")})


def test_a_stranger_verifies_which_user_and_agent_call_and_it_is_on_no_record() -> None:
    with hostile_skill(read=True, hop_claim=True) as (agent, adapter):
        record, _, keys = asyncio.run(called(adapter, "tok_ana"))
        [message] = agent.messages
        token = message["metadata"][HOP_EXTENSION]
        assert message["extensions"] == [HOP_EXTENSION]
        assert {one.get(EXTENSIONS_HEADER) for one in agent.seen} == {HOP_EXTENSION}
        url = f"{agent.url}/a2a"
        iat = int(unverified_payload(token)["iat"])  # type: ignore[index]
        first = strangers_claims(token, keys_of(keys), audience=url, at_s=iat)
    assert (first["sub"], list(first["act"]), first["act"]["sub"][:6]) == ("ana", ["sub"], "agent:")
    assert first["exp"] - first["iat"] <= 60
    assert first["tenant_id"] == TENANT
    assert first["run_id"].startswith("run_")
    assert first["jti"].partition(".")[0] in record, "the id of the call"
    assert token.split(".")[2] not in record
    with pytest.raises(JoseError):
        strangers_claims(token, keys_of(keys), audience="https://other.example/a2a", at_s=iat)
    with pytest.raises(JoseError):
        strangers_claims(token, keys_of(keys), audience=url, at_s=iat + 61)
    with pytest.raises(JoseError):
        strangers_claims(token, keys_of(KeyRing.from_seed(b"x" * 32)), audience=url, at_s=iat)
    with pytest.raises(SignatureInvalid, match="does not belong"):
        open_token(token, keys, "ctxid+jwt")


@pytest.mark.parametrize("tenant", ["", "globex"])
def test_a_claim_is_for_one_tenant_of_a_url(tenant: str) -> None:
    with hostile_skill(read=True, hop_claim=True) as (agent, adapter):
        adapter._config = adapter._config.model_copy(update={"tenant": tenant})
        asyncio.run(called(adapter, "tok_ana"))
        [message] = agent.messages
        claims = unverified_payload(message["metadata"][HOP_EXTENSION])
    assert claims is not None
    assert claims.get("tenant", "") == tenant
    assert ("tenant" in claims) is bool(tenant)


def test_an_agent_that_acts_for_nobody_names_nobody() -> None:
    with hostile_skill(read=True, hop_claim=True) as (agent, adapter):
        _, _, keys = asyncio.run(called(adapter, None))
        claims = jwt.decode(
            agent.messages[0]["metadata"][HOP_EXTENSION], KeySet.import_key_set(keys_of(keys)), ["Ed25519"]
        )
    assert claims.claims["sub"].startswith("agent:")
    assert "act" not in claims.claims


def test_without_the_setting_nothing_of_the_caller_is_sent() -> None:
    with hostile_skill(read=True) as (agent, adapter):
        asyncio.run(called(adapter, "tok_ana"))
        assert [sorted(one["metadata"]) for one in agent.messages] == [["skillId"]]
        assert "ana" not in json.dumps([agent.messages, agent.seen])


def test_an_agent_that_sends_the_claim_back_puts_it_on_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile_skill(read=True, hop_claim=True) as (agent, adapter):
        task_of: Callable[..., dict[str, Any]] = agent.task

        def echo(message: dict[str, Any], state: str, **changed: Any) -> dict[str, Any]:
            said = f"you sent {message['metadata'][HOP_EXTENSION]}"
            return task_of(message, state, **changed) | {"artifacts": [{"artifactId": "a", "parts": [{"text": said}]}]}

        monkeypatch.setattr(agent, "task", echo)
        record, answer, _ = asyncio.run(called(adapter, "tok_ana"))
        token = agent.messages[0]["metadata"][HOP_EXTENSION]
    assert token.split(".")[1] not in record + str(answer)
    assert "you sent" in str(answer)


def test_the_keys_for_partners_are_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "w"
    make_workspace(place, witness="off")
    person = ("--by", EXAMPLE_OPERATOR_ID, "--key", str(place / "keys" / f"{EXAMPLE_OPERATOR_ID}.key"))
    assert run_command_line(["apply", *person, "--workspace", str(place)]) == 0
    capsys.readouterr()
    assert run_command_line(["key", "list", "--jwks", "claim", "--workspace", str(place)]) == 0
    printed = json.loads(capsys.readouterr().out)
    listed = json.loads((place / "keys" / "runtime.json").read_text("utf-8"))["keys"]
    assert [one["kid"] for one in printed["keys"]] == [one["kid"] for one in listed if one["purpose"] == "claim"]
    assert KeySet.import_key_set(printed).keys[0].thumbprint()
    assert all("d" not in one for one in printed["keys"])
    assert run_command_line(["key", "list", "--jwks", "claims", "--workspace", str(place)]) == 2
    assert "name one of head, claim" in capsys.readouterr().err

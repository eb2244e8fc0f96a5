"""G171: an agent of a partner calls with a signed claim. It counts for one request, here and now, for the user of the
request, and the agents that called one another are in the record, in the question and in what is sent on.

The attacker is a partner, who has a claim of another's agent, and who can send requests.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import contextos
from contextos.adapters.a2a.connection import HOP_EXTENSION
from contextos.audit.replay import replay
from contextos.audit.verify import verify_tenant
from contextos.contracts.documents.runs import HOP_CLAIMS, HopUse, hop_key
from contextos.contracts.encoding.codec import parse
from contextos.contracts.encoding.jcs import digest
from contextos.contracts.entries.reading import read_body
from contextos.contracts.envelopes.identity import HopClaim
from contextos.contracts.envelopes.run import InvokeRequest
from contextos.contracts.journal import CONTROL, Batch
from contextos.contracts.ports.gates import Done
from contextos.deployment.gate.gate import CallGate
from contextos.deployment.preview import preview
from contextos.errors import ChainBroken, InvalidInput, InvalidSettings, SignatureInvalid
from contextos.testing import in_memory
from contextos.trust.identity.claims import mint_hop_claim, sign_token
from contextos.trust.identity.hops import MAX_HOPS, Partner, use_once, verify_hop_claim
from contextos.trust.identity.jws import unverified_payload
from contextos.trust.identity.oidc import TrustedIssuer
from contextos.trust.seal import KeyRing, jwk_set
from contextos.workspace.settings.callers import HopsSetting
from contextos.workspace.settings.reading import read_table
from tests.servers.processes import hostile_skill
from tests.world import TENANT, TestWorld, open_world, request, run

ROOT = Path(__file__).resolve().parents[2]
US, PARTNER, OTHER = "https://us.example", "https://partner.example", "https://other.example"
USER, CALLER, BEFORE = "usr_771", "agent:partner/buyer@2.0.0", "agent:first/shopper@1.0.0"
KEYS, OTHERS = KeyRing.from_seed(b"p" * 32), KeyRing.from_seed(b"q" * 32)
OURS = "agent:contextos/support-refund@1.2.0"
PRV = digest(b"the claim before")


def public(keys: Any) -> dict[str, Any]:
    return jwk_set({kid: keys.public_key("claim", kid) for kid in keys.kids("claim")})


def partner(issuer: str, jwks: dict[str, Any], tenants: tuple[str, ...] = (TENANT,)) -> Partner:
    async def listed(_kid: str) -> Mapping[str, Any]:
        return jwks

    return Partner(TrustedIssuer(issuer, US, ("Ed25519", "EdDSA"), 0, "ctxhop+jwt"), tenants, listed, lambda: False)


async def trusting(tmp_path: Path, *partners: Partner) -> TestWorld:
    world = await open_world(tmp_path)
    listed = partners or (partner(PARTNER, public(KEYS)),)
    ports, config = world.deployment.ports, world.deployment.config
    world.deployment.ports = replace(ports, partners={one.issuer.issuer: one for one in listed})
    world.deployment.config = replace(config, address=US)
    return world


def claim(now_us: int, keys: KeyRing = KEYS, kind: str = "ctxhop+jwt", **changed: Any) -> str:
    """The claim of the partner's agent that was called by the agent of another one. None leaves a member out."""
    now_s = now_us // 1_000_000
    body = {
        "iss": PARTNER,
        "sub": USER,
        "act": {"sub": CALLER, "act": {"sub": BEFORE, "iss": OTHER}},
        "prv": PRV,
        "aud": US,
        "iat": now_s,
        "nbf": now_s,
        "exp": now_s + 60,
        "jti": "call_1.1",
        **changed,
    }
    return sign_token(keys, kind, {name: value for name, value in body.items() if value is not None})


def calling(token: str, request_id: str = "req_1", amount: int = 900) -> dict[str, Any]:
    return request(amount, request_id) | {"hop_claim": token}


async def refused(world: TestWorld, body: dict[str, Any]) -> str:
    with pytest.raises(InvalidInput) as caught:
        await world.invoke(body)
    [problem] = caught.value.problems
    assert problem.code == "identity_refused"
    return f"{problem.pointer}: {problem.detail}; {problem.remedy}"


def test_the_agents_of_partners_are_in_the_chain_of_the_record_and_the_token_nowhere(tmp_path: Path) -> None:
    async def go() -> None:
        world = await trusting(tmp_path)
        token = claim(world.clock.now_us())
        view = await world.invoke(calling(token))
        assert view.state == "completed"
        chain = (view.record or {})["agent_identity"]["principal_chain"]
        assert [(one["id"], one.get("issuer")) for one in chain] == [
            (USER, None),
            (BEFORE, OTHER),
            (CALLER, PARTNER),
            (OURS, None),
        ]
        entries = await world.stores.tenant(TENANT).read(view.run_id)
        record = "".join(str(one.body) for one in entries)
        assert (token in record, token.split(".")[2] in record) == (False, False)
        assert (read_body(entries[0]) or {})["request"]["hop"]["claim_hash"] == digest(token.encode())
        assert (await replay(world.deployment, TENANT, view.run_id)).record_hash == (view.record or {})["record_hash"]
        store = world.stores.tenant(TENANT)
        await verify_tenant(store, TENANT, world.keys)
        key = hop_key(PARTNER, "call_1.1")
        altered = HOP_CLAIMS.write(key, 1, HopUse("req_2", digest(token.encode())))
        await store.commit(Batch(run=CONTROL, writes=(altered,)))
        with pytest.raises(ChainBroken, match="hop_claims"):
            await verify_tenant(store, TENANT, world.keys)
        await world.aclose()

    run(go())


def test_an_approver_sees_through_whom_the_question_came(tmp_path: Path) -> None:
    async def go() -> None:
        world = await trusting(tmp_path)
        view = await world.invoke(calling(claim(world.clock.now_us()), amount=4300))
        assert view.state == "waiting"
        shown = (view.waiting or {})["shown"]["requester"]
        assert shown == [f"user:{USER}", f"agent:{BEFORE} of {OTHER}", f"agent:{CALLER} of {PARTNER}", f"agent:{OURS}"]
        assert (await world.approve(view.run_id)).state == "completed"
        await world.aclose()

    run(go())


def test_a_claim_counts_for_one_request_and_the_same_request_is_the_same_run(tmp_path: Path) -> None:
    async def go() -> None:
        world = await trusting(tmp_path)
        token = claim(world.clock.now_us())
        view = await world.invoke(calling(token))
        assert "does not count" in await refused(world, calling(token, "req_2"))
        assert (await world.invoke(calling(token))).run_id == view.run_id
        again = claim(world.clock.now_us(), jti="call_1.2")
        assert (await world.invoke(calling(again))).run_id == view.run_id, "the next attempt of the same call"
        assert "does not count" in await refused(world, calling(again, "req_3"))
        assert "does not count" in await refused(world, calling(claim(world.clock.now_us(), scope="more"), "req_1"))
        await world.aclose()

    run(go())


class _Together:
    """A store in which two requests find a claim unused before one of them writes."""

    def __init__(self, store: Any) -> None:
        self._store, self._both_read = store, asyncio.Barrier(2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, batch: Batch) -> Any:
        await self._both_read.wait()
        return await self._store.commit(batch)


@pytest.mark.parametrize(("names", "refused"), [(("req_1", "req_2"), 1), (("req_1", "req_1"), 0)])
def test_of_two_requests_that_bring_a_claim_at_once_one_uses_it(
    names: tuple[str, str], refused: int, tmp_path: Path
) -> None:
    caller = {"kind": "agent", "id": CALLER, "issuer": PARTNER}
    hop = {"issuer": PARTNER, "jti": "a", "claim_hash": PRV, "chain": [caller]}

    async def go() -> None:
        world = await trusting(tmp_path)
        store: Any = _Together(world.stores.tenant(TENANT))
        sent = [parse(InvokeRequest, request(900, name) | {"hop": hop}) for name in names]
        found = await asyncio.gather(*(use_once(store, one) for one in sent), return_exceptions=True)
        assert [type(one) for one in found if one is not None] == [InvalidInput] * refused
        await world.aclose()

    run(go())


WRONG: dict[str, dict[str, Any]] = {
    "another audience": {"aud": PARTNER},
    "several audiences": {"aud": [US, PARTNER], "azp": US},
    "another user": {"sub": "usr_772"},
    "nobody": {"sub": CALLER, "act": None, "prv": None},
    "no agent": {"act": None, "prv": None},
    "an issuer that is not listed": {"iss": OTHER},
    "ours, sent back": {"iss": US},
    "no issuer": {"iss": None},
    "expired": {"exp": 1},
    "of the future": {"iat": 9_000_000_000, "exp": 9_000_000_060},
    "for a day": {"exp": 1_793_080_000},
    "no id": {"jti": None},
    "an id that is none": {"jti": "a\nb"},
    "no name": {"act": {"sub": "usr_owner_1"}, "prv": None},
    "an act that is none": {"act": CALLER, "prv": None},
    "cut": {"act": {"sub": CALLER}},
    "grown without the claim before": {"prv": None},
    "grown by two": {"act": {"sub": CALLER, "act": {"sub": BEFORE, "iss": PARTNER}}},
    "grown by nobody": {"act": {"sub": CALLER, "act": {"sub": BEFORE}}},
    "grown by nobody below another": {
        "act": {"sub": CALLER, "act": {"sub": BEFORE, "iss": OTHER, "act": {"sub": BEFORE}}}
    },
    "grown by what is no issuer": {"act": {"sub": CALLER, "act": {"sub": BEFORE, "iss": "two words"}}},
    "in the name of another": {"act": {"sub": CALLER, "iss": OTHER}, "prv": None},
    "a digest that is none": {"prv": "x"},
    "for another tenant of ours": {"tenant": "tenant_other"},
    "for no tenant": {"tenant": ""},
    "for several tenants": {"tenant": [TENANT]},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_claim_is_refused_without_the_reason_which_the_log_has(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        world = await trusting(tmp_path)
        caplog.set_level(logging.WARNING, "contextos.identity")
        token = claim(world.clock.now_us(), **WRONG[what])
        said = await refused(world, calling(token))
        assert said == "/hop_claim: the claim of the caller does not count; have the caller make a new one"
        [line] = [one.getMessage() for one in caplog.records if one.name == "contextos.identity"]
        assert ("is refused" in line, token in line) == (True, False)
        with pytest.raises(InvalidInput, match="does not count"):
            await preview(world.deployment, json.dumps(calling(token)))
        await world.aclose()

    run(go())


@pytest.mark.parametrize("kind", ["ctxid+jwt", "ctxsub+jwt", "JWT", "at+jwt"])
def test_no_other_token_passes_for_a_claim(kind: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await trusting(tmp_path)
        assert "does not count" in await refused(world, calling(claim(world.clock.now_us(), kind=kind)))
        assert "does not count" in await refused(world, calling("no token"))
        await world.aclose()

    run(go())


def test_a_partner_signs_for_itself_alone_though_its_key_has_the_id_of_anothers(tmp_path: Path) -> None:
    async def go() -> None:
        [kid] = KEYS.kids("claim")
        [own] = public(OTHERS)["keys"]
        same_id = {"keys": [own | {"kid": kid}]}
        world = await trusting(tmp_path, partner(PARTNER, public(KEYS)), partner(OTHER, same_id))
        now_us = world.clock.now_us()
        lone: dict[str, Any] = {"act": {"sub": CALLER}, "prv": None}
        assert "does not count" in await refused(world, calling(claim(now_us, iss=OTHER, **lone)))
        assert (await world.invoke(calling(claim(now_us, **lone)))).state == "completed"
        await world.aclose()

    run(go())


def test_a_partner_of_another_tenant_is_none_here(tmp_path: Path) -> None:
    async def go() -> None:
        world = await trusting(tmp_path, partner(PARTNER, public(KEYS), ("tenant_other",)))
        assert "does not count" in await refused(world, calling(claim(world.clock.now_us())))
        await world.aclose()

    run(go())


@pytest.mark.parametrize("stated", [{}, {"tenant": None}], ids=["none", "null"])
def test_a_claim_that_names_no_tenant_counts_nowhere_if_its_partner_is_listed_for_two(
    tmp_path: Path, stated: dict[str, Any]
) -> None:
    """It would count once in each: a use is noted in the store of the tenant."""

    async def go() -> None:
        world = await trusting(tmp_path, partner(PARTNER, public(KEYS), (TENANT, "tenant_other")))
        token = claim(world.clock.now_us(), tenant=TENANT)
        body = {name: value for name, value in (unverified_payload(token) or {}).items() if name != "tenant"}
        assert "does not count" in await refused(world, calling(sign_token(KEYS, "ctxhop+jwt", body | stated)))
        assert (await world.invoke(calling(token))).state == "completed"
        await world.aclose()

    run(go())


def test_a_claim_for_another_tenant_of_ours_is_refused_and_the_log_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The partner is listed for both tenants, and both have a user of this id."""

    async def go() -> None:
        world = await trusting(tmp_path, partner(PARTNER, public(KEYS), (TENANT, "tenant_other")))
        caplog.set_level(logging.WARNING, "contextos.identity")
        now_us = world.clock.now_us()
        assert "does not count" in await refused(world, calling(claim(now_us, tenant="tenant_other")))
        [line] = [one.getMessage() for one in caplog.records if one.name == "contextos.identity"]
        assert f"claim tenant: expected `{TENANT}`, found `tenant_other`" in line
        assert (await world.invoke(calling(claim(now_us, tenant=TENANT)))).state == "completed"
        await world.aclose()

    run(go())


def test_without_partners_and_without_a_delegation_a_claim_is_refused_with_what_to_write(tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path)
        token = claim(world.clock.now_us())
        assert "[[hops.issuers]]" in await refused(world, calling(token))
        world.deployment.ports = replace(world.deployment.ports, partners={PARTNER: partner(PARTNER, public(KEYS))})
        body = calling(token)
        del body["user"]["delegation"]
        assert "state `user.delegation`" in await refused(world, body)
        stated = {"issuer": PARTNER, "jti": "a", "claim_hash": PRV, "chain": [{"kind": "agent", "id": CALLER}]}
        assert "only the runtime" in await refused(world, request(900, "req_9") | {"hop": stated})
        await world.aclose()

    run(go())


def sent_on(hop: HopClaim, now_us: int) -> str:
    return mint_hop_claim(
        keys=OTHERS,
        issuer=US,
        audience=OTHER,
        tenant_id=TENANT,
        run_id="run_0000000000000000",
        user_id=USER,
        agent_urn=OURS,
        hop=hop,
        scopes=frozenset(),
        now_us=now_us,
        ttl_s=60,
        jti="b",
    )


def test_what_is_sent_on_has_one_agent_more_and_the_digest_of_what_was_received() -> None:
    now_us = 1_793_000_000_000_000
    received = claim(now_us)
    to_us = TrustedIssuer(PARTNER, US, ("Ed25519",), 0, "ctxhop+jwt")
    hop = verify_hop_claim(
        received, to_us, public(KEYS), tenant_id=TENANT, names_tenant=False, user_id=USER, now_us=now_us
    )
    token = sent_on(hop, now_us)
    body = unverified_payload(token) or {}
    act = {"sub": OURS, "act": {"sub": CALLER, "iss": PARTNER, "act": {"sub": BEFORE, "iss": OTHER}}}
    assert (body["act"], body["prv"], body["sub"]) == (act, digest(received.encode()), USER)
    to_next = TrustedIssuer(US, OTHER, ("Ed25519",), 0, "ctxhop+jwt")
    last = verify_hop_claim(
        token, to_next, public(OTHERS), tenant_id=TENANT, names_tenant=False, user_id=USER, now_us=now_us
    )
    assert [one.issuer for one in last.chain] == [OTHER, PARTNER, US]
    with pytest.raises(SignatureInvalid):
        verify_hop_claim(
            token, to_us, public(OTHERS), tenant_id=TENANT, names_tenant=False, user_id=USER, now_us=now_us
        )


def test_a_run_that_was_called_nests_its_caller_in_the_message_that_it_sends(tmp_path: Path) -> None:
    with hostile_skill(read=True, hop_claim=True) as (agent, adapter):
        people = json.loads((ROOT / "examples" / "deploy_rollback" / "directory.json").read_text("utf-8"))
        for one in people["acme"]["agents"]:
            one["platform_scopes"] = ["tools:read", "a2a:send"]
        egress = tuple(adapter.describe().egress)
        pack = contextos.pack(
            "acme.lab",
            version="1.0.0",
            tenant="acme",
            tools=[adapter],
            who=["deployer"],
            approver="oncall",
            egress=egress,
        )

        async def go() -> tuple[str, str]:
            async with in_memory(packs=[pack], directory=people, egress={"acme": egress}, lint=False) as app:
                deployment = app.deployment
                listed = {PARTNER: partner(PARTNER, public(KEYS), ("acme",))}
                deployment.ports = replace(deployment.ports, partners=listed)
                deployment.config = replace(deployment.config, address=US)
                first = await app.gate(session="s", user="ana", agent="agt_deploy", token="tok_ana")
                received = await app.stores.tenant("acme").read(first.run_id, limit=1)
                body = (read_body(received[0]) or {})["request"] | {"request_id": "req_hop", "session_id": "t"}
                token = claim(deployment.ports.clock.now_us(), sub="ana")
                view = await deployment.invoke(body | {"hop_claim": token})
                calls = CallGate(deployment, "acme", view.run_id, "t")
                answer = await calls.call("lab.say", {"text": "a"}, call_id="one")
                assert isinstance(answer, Done), answer
                return token, str(agent.messages[0]["metadata"][HOP_EXTENSION])

        received, sent = run(go())
    body = unverified_payload(sent) or {}
    assert (body["iss"], body["sub"], body["prv"]) == (US, "ana", digest(received.encode()))
    nested = {"sub": CALLER, "iss": PARTNER, "act": {"sub": BEFORE, "iss": OTHER}}
    assert (body["act"]["act"], sorted(body["act"])) == (nested, ["act", "sub"])


def test_the_ninth_agent_is_one_too_many() -> None:
    now_us = 1_793_000_000_000_000
    trusted = TrustedIssuer(PARTNER, US, ("Ed25519",), 0, "ctxhop+jwt")
    for depth in (MAX_HOPS, MAX_HOPS + 1, 500):
        act: dict[str, Any] = {"sub": BEFORE, "iss": OTHER}
        for number in range(depth - 2):
            act = {"sub": BEFORE, "iss": f"https://{number}.example", "act": act}
        token = claim(now_us, act={"sub": CALLER, "act": act}) if depth < 100 else ""
        if depth == MAX_HOPS:
            assert (
                len(
                    verify_hop_claim(
                        token, trusted, public(KEYS), tenant_id=TENANT, names_tenant=False, user_id=USER, now_us=now_us
                    ).chain
                )
                == MAX_HOPS
            )
            continue
        with pytest.raises(SignatureInvalid):
            verify_hop_claim(
                token, trusted, public(KEYS), tenant_id=TENANT, names_tenant=False, user_id=USER, now_us=now_us
            )


BAD_SETTINGS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"issuers": []}, "address"),
    ({"address": ""}, "address"),
    ({"address": US, "issuers": [{"issuer": US, "tenants": ["t"], "jwks_file": "k"}]}, "as its own"),
    ({"address": US, "issuers": [{"issuer": OTHER, "tenants": ["t"], "jwks_file": "k"}] * 2}, "twice"),
    ({"address": US, "issuers": [{"issuer": OTHER, "tenants": ["t"]}]}, "exactly one"),
    ({"address": US, "issuers": [{"issuer": OTHER, "tenants": [], "jwks_file": "k"}]}, "tenants"),
    ({"address": US, "issuers": [{"issuer": OTHER, "tenants": ["t"], "jwks_url": "http://o.example/k"}]}, "https"),
    (
        {"address": US, "issuers": [{"issuer": OTHER, "tenants": ["t"], "jwks_file": "k", "algorithms": ["HS256"]}]},
        "this algorithm is not accepted",
    ),
    ({"address": US, "issuers": "x"}, "issuers"),
)


@pytest.mark.parametrize(("table", "why"), BAD_SETTINGS)
def test_a_wrong_setting_is_refused(table: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidSettings, match=why):
        read_table(HopsSetting, "", deepcopy(table), {})


def test_the_settings_of_a_workspace_are_what_counts(tmp_path: Path) -> None:
    from contextos.cli.demo.workspace import make_workspace

    place = tmp_path / "w"
    make_workspace(place, witness="off")
    (place / "partner.json").write_text(json.dumps(public(KEYS)), "utf-8")
    written = f"""
[hops]
address = "{US}"

[[hops.issuers]]
issuer = "{PARTNER}"
tenants = ["{TENANT}"]
jwks_file = "partner.json"
"""
    settings = place / "contextos.toml"
    settings.write_text(settings.read_text("utf-8") + written, "utf-8")

    async def go() -> None:
        async with contextos.open(place) as app:
            now_us = app.deployment.ports.clock.now_us()
            body = json.loads((place / "requests" / "next.json").read_text("utf-8"))
            with pytest.raises(InvalidInput, match="does not count"):
                await app.deployment.invoke(body | {"hop_claim": claim(now_us, aud=OTHER)})
            view = await app.deployment.invoke(body | {"hop_claim": claim(now_us)})
            [received, *_] = await app.stores.tenant(TENANT).read(view.run_id)
            hop = (read_body(received) or {})["request"]["hop"]
            assert [one["issuer"] for one in hop["chain"]] == [OTHER, PARTNER]

    run(go())

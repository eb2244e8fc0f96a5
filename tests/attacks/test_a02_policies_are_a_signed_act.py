"""Attack: a start, an older machine or a writer of the database puts a tenant's policies out of force.

Source: docs/adr/0021-an-operator-signs-what-is-in-force.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.verify import verify_tenant
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import CONTROL, Batch, Draft
from contextos.control.artifacts import POLICY_TYPE
from contextos.deployment.acts.governance import activate_policies
from contextos.deployment.signing import act_signer
from contextos.errors import ApprovalRefused, ChainBroken, Integrity, InvalidArtifact, InvalidSettings, Unavailable
from contextos.trust.seal import seal
from contextos.workspace import GivenPorts, build, open_app, open_unchecked
from contextos.workspace.settings import Settings
from tests.attacks.conftest import DatabaseOwner
from tests.attacks.shop import Shop
from tests.unit.control.example import policy_json
from tests.world import OPERATOR, OPERATOR_KEY, TENANT, TestWorld, open_world, request, run

HOUSE = "POLICY_HOUSE@1.0.0"


def in_force(shop: Shop) -> list[str]:
    return [one["ref"] for one in shop.say("policies", "list").json["policies"]]


@pytest.fixture
def guarded(initialised: Shop) -> Shop:
    """A shop in whose tenant a policy is in force."""
    assert (
        initialised.say("pack", "publish", str(initialised.path / "policies" / "house.json"), *initialised.by).code == 0
    )
    version = initialised.say("policies", "list").json["version"]
    assert initialised.say("policies", "activate", HOUSE, "--expect", str(version), *initialised.by).code == 0
    assert in_force(initialised) == [HOUSE]
    return initialised


@pytest.mark.parametrize("settings", ["", "policies = []\n", 'policies = [["tenant", "POLICY_OTHER@1.0.0"]]\n'])
def test_another_machine_with_older_settings_loosens_nothing(guarded: Shop, settings: str) -> None:
    guarded.settings(settings)
    for words in (["runs"], ["invoke", str(guarded.request("small"))], ["resume"], ["verify"]):
        guarded.say(*words)
    assert in_force(guarded) == [HOUSE]


@pytest.mark.parametrize("settings", ["policies = []\n", 'policies = [["platform", "POLICY_HOUSE@1.0.0"]]\n'])
def test_a_start_whose_settings_differ_from_the_store_is_refused_with_the_difference(
    guarded: Shop, settings: str
) -> None:
    guarded.settings(settings)
    said = guarded.say("invoke", str(guarded.request("small")))
    assert (said.code, said.json["error"]["problems"][0]["code"]) == (2, "policies_differ")
    assert HOUSE in said.json["error"]["detail"]
    assert "contextos policies" in said.json["error"]["detail"]
    assert guarded.runs() == []


def test_a_start_that_names_the_policies_in_force_goes_on(guarded: Shop) -> None:
    guarded.settings(f'policies = [["tenant", "{HOUSE}"]]\n')
    assert guarded.say("invoke", str(guarded.request("small"))).code == 0


def test_a_new_store_runs_nothing_before_an_explicit_act(fresh: Shop) -> None:
    said = fresh.say("invoke", str(fresh.request("small")))
    assert said.code == 1
    assert said.json["record"]["rationale"]["failures"][0]["code"] == "unpinned_ref"
    assert "contextos apply" in said.json["record"]["rationale"]["failures"][0]["detail"]
    fresh.settings("policies = []\n")
    assert fresh.say("invoke", str(fresh.request("small"))).json["error"]["problems"][0]["code"] == "not_initialised"


@pytest.mark.parametrize("key", ["user_finance_lead_77", "kid_*"])
def test_somebody_elses_key_changes_no_policy(guarded: Shop, key: str) -> None:
    version = str(guarded.say("policies", "list").json["version"])
    file = next((guarded.path / "keys").glob(f"{key}.key"))
    by = ["--by", "user_operator_5", "--key", str(file)]
    said = guarded.say("policies", "deactivate", HOUSE, "--expect", version, *by)
    assert (said.code, said.json["error"]["reason"]) == (1, "assertion_invalid")
    assert in_force(guarded) == [HOUSE]


def test_who_lacks_the_role_changes_no_policy(guarded: Shop) -> None:
    version = str(guarded.say("policies", "list").json["version"])
    by = ["--by", "user_finance_lead_77", "--key", str(guarded.path / "keys" / "user_finance_lead_77.key")]
    said = guarded.say("policies", "deactivate", HOUSE, "--expect", version, *by)
    assert (said.code, said.json["error"]["reason"]) == (1, "not_allowed")
    assert in_force(guarded) == [HOUSE]


def test_an_act_on_a_version_that_is_gone_changes_nothing(guarded: Shop) -> None:
    said = guarded.say("policies", "deactivate", HOUSE, "--expect", "1", *guarded.by)
    assert (said.code, said.json["error"]["problems"][0]["code"]) == (2, "stale_version")
    assert in_force(guarded) == [HOUSE]


async def world_with_policy(path: Path, stores: str) -> TestWorld:
    world = await open_world(path, stores=stores)
    ref = await world.publish(seal(POLICY_TYPE, canonical(policy_json(tenant=TENANT)), world.keys, "pack"))
    await world.activate(("tenant", ref))
    return world


def fresh_process(world: TestWorld) -> None:
    """What another process knows: nothing but the store."""
    world.deployment._catalogs.clear()


@pytest.mark.parametrize("what", ["emptied", "unsigned", "older", "renumbered", "removed"])
def test_a_writer_of_the_database_puts_no_policy_out_of_force(
    tmp_path: Path, stores: str, owner: DatabaseOwner, what: str
) -> None:
    """Even the owner of the database, whom no trigger and no grant stops: the runtime sealed what is active."""

    async def go() -> None:
        world = await world_with_policy(tmp_path, stores)
        store = world.stores.tenant(TENANT)
        await world.activate()
        [loose] = await store.scan("active")
        await world.activate(("tenant", HOUSE))
        [tight] = await store.scan("active")
        assert (loose.version, tight.version) == (4, 5)
        unsigned = canonical({**json.loads(loose.body), "signatures": []})
        body = {"emptied": b"{}", "unsigned": unsigned}.get(what, loose.body)
        version = loose.version if what == "renumbered" else tight.version
        change = f"UPDATE {{documents}} SET body = {owner.blob(body)}, version = {version} WHERE collection = 'active'"
        await owner.execute("DELETE FROM {documents} WHERE collection = 'active'" if what == "removed" else change)
        fresh_process(world)
        if what == "removed":
            assert (await world.invoke(request(900, "req_1"))).state == "rejected"
            assert world.refunds() == []
        elif what != "renumbered":
            with pytest.raises(Integrity):
                await world.invoke(request(900, "req_1"))
        with pytest.raises(ChainBroken, match="active set"):
            await verify_tenant(store, TENANT, world.keys)
        await world.aclose()

    run(go())


def test_a_signature_counts_for_one_change_of_one_version(tmp_path: Path, stores: str) -> None:
    """An assertion of an earlier act, sent again with the same arguments, is refused."""

    async def go() -> None:
        world = await world_with_policy(tmp_path, stores)
        kept: list[Any] = []
        sign = act_signer(OPERATOR_KEY)

        def keeping(statement: Any) -> Any:
            kept.append(sign(statement))
            return kept[-1]

        deployment, by = world.deployment, replace(world.actor(), vouch=keeping)
        await activate_policies(deployment, TENANT, (), expected=3, by=by)
        await world.activate(("tenant", HOUSE))
        again = replace(by, vouch=lambda _statement: kept[0])
        with pytest.raises(InvalidArtifact):
            await activate_policies(deployment, TENANT, (), expected=3, by=again)
        with pytest.raises(ApprovalRefused):
            await activate_policies(deployment, TENANT, (), expected=5, by=again)
        assert (await deployment.catalog(TENANT).active()).policies == (("tenant", HOUSE),)
        await world.aclose()

    run(go())


def test_an_act_that_nobody_signed_does_not_verify(tmp_path: Path, stores: str) -> None:
    """A writer of the store appends a well-formed line about policies, as an operator."""

    async def go() -> None:
        world = await world_with_policy(tmp_path, stores)
        store = world.stores.tenant(TENANT)
        last = (await store.read(CONTROL))[-1]
        body = json.loads(last.body or b"")
        body["act"] |= {"expected": 3, "arguments": {"policies": []}}
        line = Draft(last.kind, "", last.at_us + 1, OPERATOR, canonical(body), bytes(16))
        await store.commit(Batch(run=CONTROL, shared=((CONTROL, line),)))
        with pytest.raises(ChainBroken, match="the runtime did not seal it"):
            await verify_tenant(store, TENANT, world.keys)
        await world.aclose()

    run(go())


READING = (
    ["runs", "list"],
    ["runs", "show", "req_small"],
    ["verify"],
    ["replay", "req_small"],
    ["runs", "sessions"],
    ["runs", "dead-letters"],
    ["breakers", "list"],
    ["memory", "list"],
    ["policies", "list"],
    ["pack", "list"],
)


def test_commands_that_only_read_change_nothing(guarded: Shop) -> None:
    assert guarded.say("invoke", str(guarded.request("small"))).code == 0
    before = digests(guarded.path)
    for words in READING:
        assert guarded.say(*words).code == 0, words
    assert digests(guarded.path) == before


def test_commands_that_only_read_open_the_store_for_reading(guarded: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ["compile", str(guarded.request("small"))]
    assert guarded.say(*compiled).code == 0, "also before any run"
    assert guarded.say("invoke", str(guarded.request("small"))).code == 0
    opened: list[bool] = []
    stores = build.stores_of

    async def noted(settings: Settings, given: GivenPorts, *, read_only: bool) -> Any:
        opened.append(read_only)
        return await stores(settings, given, read_only=read_only)

    monkeypatch.setattr(build, "stores_of", noted)
    selections = ["slots", "selections", "run_1", "--org", "org_acme"]
    for words in (*READING, compiled, selections):
        opened.clear()
        assert guarded.say(*words).code == 0, words
        assert opened == [True], words


def digests(path: Path) -> dict[str, str]:
    """The files of the store, but for the marks that SQLite keeps in shared memory, and every file of the workspace
    that the runtime could write.
    """
    return {
        str(one.relative_to(path)): hashlib.sha256(one.read_bytes()).hexdigest()
        for one in sorted(path.rglob("*"))
        if one.is_file()
        and one.stat().st_size
        and one.name.startswith(("contextos", "directory"))
        and one.suffix != ".db-shm"
    }


def test_a_store_that_is_open_for_reading_takes_no_commit(guarded: Shop) -> None:
    async def go() -> None:
        app = await open_unchecked(Settings.read(guarded.path), read_only=True)
        line = Draft("artifact.withdrawn", "x", 1, "mallory", b"{}", bytes(16))
        with pytest.raises(Unavailable, match=r"read(ing |.)?only"):
            await app.stores.tenant(TENANT).commit(Batch(run=CONTROL, shared=((CONTROL, line),)))
        app.close()

    asyncio.run(go())


def test_from_code_a_start_is_refused_as_on_the_command_line(guarded: Shop) -> None:
    with pytest.raises(InvalidSettings, match=HOUSE):
        asyncio.run(open_app(replace(Settings.read(guarded.path), policies=())))

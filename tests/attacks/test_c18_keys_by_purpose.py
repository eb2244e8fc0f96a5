"""Attack: who has one key of the runtime, or one that was retired, signs what it is not for; a rotation strands a run.

The attackers: somebody who read one key file, and the owner of the database with a key that was retired.
Source: docs/adr/0027-a-key-for-each-purpose.md.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from contextos.audit.export import EXPORT_TYPE
from contextos.contracts.documents.catalog import ACTIVE_SET_KEY, ACTIVE_SETS
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.control.artifacts import ACTIVE_SET_TYPE
from contextos.trust.journal.signed_heads import head_payload
from contextos.trust.seal import PURPOSES, KeyRing, seal
from contextos.workspace import open_unchecked
from contextos.workspace.settings import Settings
from tests.attacks.conftest import DatabaseOwner
from tests.attacks.shop import Shop
from tests.world import TENANT

pytestmark = pytest.mark.slow


def listed(shop: Shop) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = shop.say("key", "list").json["keys"]
    return found


def signing(shop: Shop, purpose: str) -> dict[str, Any]:
    return next(one for one in listed(shop) if one["purpose"] == purpose and one["retired_at_us"] is None)


def seed_of(shop: Shop, purpose: str) -> bytes:
    return bytes.fromhex((shop.path / "keys" / f"{signing(shop, purpose)['kid']}.key").read_text())


def rotate(shop: Shop, purpose: str) -> dict[str, Any]:
    said = shop.say("key", "rotate", "--now", "--purpose", purpose, *shop.by)
    assert said.code == 0, said
    new: dict[str, Any] = said.json
    return new


def an_hour_passes(shop: Shop) -> None:
    """The overlap is over: every key that was rotated is retired since now."""
    path = shop.path / "keys" / "runtime.json"
    content = json.loads(path.read_text())
    for one in content["keys"]:
        if one["retired_at_us"] is not None:
            one["retired_at_us"] = time.time_ns() // 1_000
    path.write_text(json.dumps(content))


def test_no_file_of_a_workspace_signs_for_two_purposes(initialised: Shop) -> None:
    found = listed(initialised)
    assert sorted(one["purpose"] for one in found) == sorted(PURPOSES)
    files = sorted((initialised.path / "keys").glob("kid_*.key"))
    assert [one.stem for one in files] == sorted(one["kid"] for one in found)
    for file in (*files, initialised.path / "keys" / "runtime.json"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    derived = {kid for file in files for kid in all_kids(KeyRing.from_seed(bytes.fromhex(file.read_text())))}
    assert derived.isdisjoint({one["kid"] for one in found}), "no key is made from another"


def all_kids(ring: KeyRing) -> list[str]:
    return [kid for purpose in PURPOSES for kid in ring.kids(purpose)]


def forge_last_head(shop: Shop, owner: DatabaseOwner, run_id: str, seed: bytes, purpose: str) -> None:
    """The owner of the database signs the last head of a run again, with this key."""

    async def go() -> None:
        app = await open_unchecked(Settings.read(shop.path), read_only=True)
        entries = await app.stores.tenant(TENANT).read(run_id)
        app.close()
        last = entries[-1]
        payload = head_payload(TENANT, run_id, last.seq, last.hash)
        kid, signature = KeyRing({purpose: seed}).sign(purpose, payload)
        await DatabaseOwner(shop.path, owner.database).execute(
            f"UPDATE {{heads}} SET kid = '{kid}', sig = {owner.blob(signature)} "
            f"WHERE stream = '{run_id}' AND seq = {last.seq}"
        )

    asyncio.run(go())


@pytest.mark.parametrize("purpose", [one for one in PURPOSES if one != "head"])
def test_a_key_of_another_purpose_signs_no_head(initialised: Shop, owner: DatabaseOwner, purpose: str) -> None:
    run_id = initialised.say("invoke", str(initialised.request("small"))).json["run_id"]
    assert initialised.say("verify").code == 0
    forge_last_head(initialised, owner, run_id, seed_of(initialised, purpose), purpose)
    said = initialised.say("verify")
    assert (said.code, said.json["error"]["code"]) == (3, "chain_broken")
    assert "signed head" in said.json["error"]["detail"]


def test_a_run_that_waits_goes_on_after_every_key_was_rotated(initialised: Shop) -> None:
    waiting = initialised.say("invoke", str(initialised.request("large"))).json
    before = {one["kid"] for one in listed(initialised)}
    for purpose in PURPOSES:
        rotate(initialised, purpose)
    an_hour_passes(initialised)
    assert {signing(initialised, purpose)["kid"] for purpose in PURPOSES}.isdisjoint(before)
    shown = initialised.say("runs", "show", waiting["run_id"]).json
    lead = ["--as", "user_finance_lead_77", "--key", str(initialised.path / "keys" / "user_finance_lead_77.key")]
    digest = shown["waiting"]["binding_digest"]
    said = initialised.say("approvals", "approve", waiting["run_id"], "--binding", digest, *lead)
    assert (said.code, said.json["state"]) == (0, "completed"), said
    assert initialised.say("invoke", str(initialised.request("small"))).json["state"] == "completed"
    assert initialised.say("replay", waiting["run_id"]).code == 0
    assert initialised.say("verify").code == 0
    exported = initialised.path / "runs.jsonl"
    said = initialised.say("runs", "export", waiting["run_id"], "--out", str(exported), *initialised.by)
    assert said.code == 0
    trusted = [f"--trusted-key={purpose}={key}" for purpose, keys in said.json["public_keys"].items() for key in keys]
    verified = initialised.say("verify", str(exported), *trusted)
    assert (verified.code, verified.json["unproved"]) == (0, [])


def other_machine(shop: Shop, tmp_path: Path) -> Shop:
    """A second machine that shares the store, with a copy of the workspace as it is now."""
    copy = tmp_path / "other"
    shutil.copytree(shop.path, copy)
    return Shop(copy, lambda *said: shop.say(*said, "--workspace", str(copy)))


@pytest.mark.parametrize("stores", ["postgresql"], indirect=True)
def test_a_machine_that_has_not_copied_the_new_keys_yet_goes_on(initialised: Shop, tmp_path: Path) -> None:
    other = other_machine(initialised, tmp_path)
    before = {one["kid"] for one in listed(initialised)}
    for purpose in PURPOSES:
        assert initialised.say("key", "rotate", "--purpose", purpose, *initialised.by).code == 0
    again = initialised.say("key", "rotate", "--purpose", "head", *initialised.by)
    assert (again.code, again.json["error"]["problems"][0]["code"]) == (2, "pending")
    waiting = initialised.say("invoke", str(initialised.request("large"))).json
    assert {kid for kid in before if (initialised.path / "keys" / f"{kid}.key").exists()} == before
    digest = other.say("runs", "show", waiting["run_id"]).json["waiting"]["binding_digest"]
    lead = ["--as", "user_finance_lead_77", "--key", str(other.path / "keys" / "user_finance_lead_77.key")]
    said = other.say("approvals", "approve", waiting["run_id"], "--binding", digest, *lead)
    assert (said.code, said.json["state"]) == (0, "completed"), said
    assert other.say("verify").code == 0

    shutil.copytree(initialised.path / "keys", other.path / "keys", dirs_exist_ok=True)
    later = (time.time_ns() // 1_000) - 1
    for shop in (initialised, other):
        path = shop.path / "keys" / "runtime.json"
        content = json.loads(path.read_text())
        for one in content["keys"]:
            one["activated_at_us"] = min(one["activated_at_us"], later)
        path.write_text(json.dumps(content))
    for shop in (initialised, other):
        assert shop.say("invoke", str(shop.request("small"))).json["state"] == "completed"
        assert [kid for kid in before if (shop.path / "keys" / f"{kid}.key").exists()] == []
        assert shop.say("verify").code == 0


@pytest.mark.parametrize("stores", ["postgresql"], indirect=True)
def test_a_key_that_signs_at_once_is_unknown_elsewhere_until_it_is_copied(initialised: Shop, tmp_path: Path) -> None:
    other = other_machine(initialised, tmp_path)
    rotate(initialised, "head")
    run_id = initialised.say("invoke", str(initialised.request("small"))).json["run_id"]
    said = other.say("verify")
    assert (said.code, said.json["error"]["code"]) == (3, "chain_broken")
    assert run_id in said.json["error"]["detail"]
    shutil.copytree(initialised.path / "keys", other.path / "keys", dirs_exist_ok=True)
    assert other.say("verify").code == 0


def test_a_retired_key_signs_nothing_any_more(initialised: Shop, owner: DatabaseOwner) -> None:
    stolen = seed_of(initialised, "head")
    run_id = initialised.say("invoke", str(initialised.request("small"))).json["run_id"]
    new = rotate(initialised, "head")
    assert not (initialised.path / "keys" / f"{new['old_kid']}.key").exists(), "its private half is deleted"
    an_hour_passes(initialised)
    later = initialised.say("invoke", str(initialised.request("large"))).json["run_id"]
    assert initialised.say("verify").code == 0, "what it signed in its time still counts"
    forge_last_head(initialised, owner, later, stolen, "head")
    said = initialised.say("verify")
    assert (said.code, said.json["error"]["code"]) == (3, "chain_broken")
    assert later in said.json["error"]["detail"]
    assert "retired" in said.json["error"]["detail"]
    assert run_id not in said.json["error"]["detail"]


def test_an_export_that_a_retired_key_signed_later_is_refused(initialised: Shop, tmp_path: Path) -> None:
    stolen = seed_of(initialised, "export")
    files: list[str] = []
    for name in ("small", "large"):
        run_id = initialised.say("invoke", str(initialised.request(name))).json["run_id"]
        files.append(str(tmp_path / f"{name}.jsonl"))
        assert initialised.say("runs", "export", run_id, "--out", files[-1], *initialised.by).code == 0
        if name == "small":
            rotate(initialised, "export")
            an_hour_passes(initialised)
    assert [initialised.say("verify", file).code for file in files] == [0, 0], "the old key signed one in its time"
    first, _, rest = Path(files[1]).read_bytes().partition(b"\n")
    payload = base64.b64decode(json.loads(first)["manifest"]["payload"])
    sealed = seal(EXPORT_TYPE, payload, KeyRing({"export": stolen}), "export")
    Path(files[1]).write_bytes(canonical({"manifest": sealed}) + b"\n" + rest)
    said = initialised.say("verify", files[1])
    assert (said.code, said.json["error"]["code"]) == (3, "signature_invalid")


async def put_out_of_force(shop: Shop, owner: DatabaseOwner, seed: bytes) -> None:
    """The owner of the database seals the active set again without its pins, with this key."""
    app = await open_unchecked(Settings.read(shop.path), read_only=True)
    stored = await ACTIVE_SETS.one(app.stores.tenant(TENANT), ACTIVE_SET_KEY)
    app.close()
    assert stored is not None
    content = json.loads(base64.b64decode(stored.body["payload"])) | {"packs": []}
    sealed = seal(ACTIVE_SET_TYPE, canonical(content), KeyRing({"active": seed}), "active")
    await DatabaseOwner(shop.path, owner.database).rewrite("active", ACTIVE_SET_KEY, sealed)


@pytest.mark.parametrize("retired", [True, False])
def test_who_stole_the_key_of_the_active_set_changes_nothing_that_is_active(
    initialised: Shop, owner: DatabaseOwner, retired: bool
) -> None:
    stolen = seed_of(initialised, "active")
    if retired:
        rotate(initialised, "active")
        an_hour_passes(initialised)
    asyncio.run(put_out_of_force(initialised, owner, stolen))
    for command in (["verify"], ["invoke", str(initialised.request("small"))], ["pack", "list"]):
        said = initialised.say(*command)
        assert said.code == 3, said
        assert "active set" in said.json["error"]["detail"]
    assert initialised.runs() == []


@pytest.mark.parametrize("in_place", [True, False])
def test_who_stole_a_retired_key_of_packs_replaces_no_published_pack(
    initialised: Shop, owner: DatabaseOwner, in_place: bool
) -> None:
    stolen = KeyRing({"pack": seed_of(initialised, "pack")})
    rotate(initialised, "pack")
    an_hour_passes(initialised)

    async def swap() -> None:
        app = await open_unchecked(Settings.read(initialised.path), read_only=True)
        pins = await app.stores.tenant(TENANT).scan("pins", prefix="ctxpack.support")
        pin = json.loads(pins[0].body)
        [stored] = await app.stores.tenant(TENANT).scan("artifacts", key=pin["digest"])
        app.close()
        envelope = json.loads(stored.body)
        content = json.loads(base64.b64decode(envelope["payload"]))
        content["policy_layer"]["policy_bundles"] = []
        sealed = seal(envelope["payloadType"], canonical(content), stolen, "pack")
        at = DatabaseOwner(initialised.path, owner.database)
        await at.rewrite("artifacts", pin["digest"], sealed)
        if not in_place:
            digest = content_address(content)
            await at.execute(f"UPDATE {{documents}} SET key = '{digest}' WHERE key = '{pin['digest']}'")
            await at.rewrite("pins", pins[0].key, pin | {"digest": digest})

    asyncio.run(swap())
    said = initialised.say("invoke", str(initialised.request("small")))
    assert (said.code, said.json["error"]["code"]) == (3, "integrity")
    assert all(one["state"] != "completed" for one in initialised.runs())


def test_a_pack_that_a_retired_key_signed_is_not_published(initialised: Shop) -> None:
    rotate(initialised, "pack")
    house = str(initialised.path / "policies" / "house.json")
    an_hour_passes(initialised)
    said = initialised.say("pack", "publish", house, *initialised.by)
    assert (said.code, said.json["error"]["code"]) == (3, "signature_invalid")
    assert initialised.say("apply", *initialised.by).code == 0, "what is published stays so"
    assert initialised.say("invoke", str(initialised.request("small"))).json["state"] == "completed"


@pytest.mark.parametrize(
    ("who", "code"), [("user_finance_lead_77", "not_allowed"), ("user_operator_5", "assertion_invalid")]
)
def test_who_is_no_operator_rotates_no_key(initialised: Shop, who: str, code: str) -> None:
    before = listed(initialised)
    key = str(initialised.path / "keys" / "user_finance_lead_77.key")
    said = initialised.say("key", "rotate", "--purpose", "head", "--by", who, "--key", key)
    assert (said.code, said.json["error"]["reason"]) == (1, code)
    assert listed(initialised) == before


def test_a_purpose_that_does_not_exist_is_refused(initialised: Shop) -> None:
    said = initialised.say("key", "rotate", "--purpose", "everything", *initialised.by)
    assert (said.code, said.json["error"]["problems"][0]["code"]) == (2, "unknown_purpose")


def test_the_rotation_is_on_record_and_signed_by_the_old_key(initialised: Shop, tmp_path: Path) -> None:
    new = rotate(initialised, "act")
    assert rotate(initialised, "act")["old_kid"] == new["kid"]
    assert initialised.say("verify").code == 0

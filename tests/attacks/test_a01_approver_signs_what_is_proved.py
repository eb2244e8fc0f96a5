"""A1: an approver or an operator signs only what the journal proves, and only after it was shown to them.

The attacker owns the database and holds no key. They change the question that is shown, or point a request or the
question's stored state at something else. Nothing may be signed, recorded or paid.
"""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from contextos.cli import run_command_line
from contextos.cli.demo.workspace import APPROVER as LEAD
from contextos.contracts.encoding.jcs import canonical, content_address
from contextos.contracts.journal import Draft, Entry, link
from contextos.deployment import operator
from contextos.errors import ApprovalRefused, Integrity
from tests.attacks.conftest import DatabaseOwner
from tests.e2e.test_settlements import DID_NOT, uncertain
from tests.world import APPROVER, TENANT, TestWorld, open_world, request, run


class SignerSpy:
    """The approver's key. It records every statement that it was asked to sign."""

    def __init__(self) -> None:
        self.statements: list[Mapping[str, Any]] = []

    def __call__(self, statement: Mapping[str, Any]) -> Mapping[str, Any]:
        self.statements.append(statement)
        return {"kind": "jws", "token": "not needed"}


async def answer(world: TestWorld, run_id: str, signer: SignerSpy, binding_digest: str | None = None) -> None:
    """Answer as an approver whose client takes the digest from what the store says now."""
    await operator.answer_approval(
        world.deployment,
        TENANT,
        run_id,
        approver_id=APPROVER,
        verdict="approved",
        reason="looks right",
        binding_digest=binding_digest or await world.binding_digest(run_id),
        vouch=signer,
    )


async def question_entry(world: TestWorld, run_id: str) -> tuple[list[Entry], Entry]:
    entries = list(await world.stores.tenant(TENANT).read(run_id))
    return entries, next(one for one in reversed(entries) if one.kind == "approval.asked")


def smaller(body: dict[str, Any], *, everywhere: bool) -> dict[str, Any]:
    """The question with INR 5 in place of 4,200; `everywhere`: with digests that agree with it."""
    body["args"]["amount_inr"] = 5
    if everywhere:
        body["binding"]["args_digest"] = content_address(body["args"])
        body["binding_digest"] = content_address(body["binding"])
    return body


@pytest.mark.parametrize("forged", ["text", "digests", "chain"])
def test_an_altered_question_is_not_signed(stores: str, owner: DatabaseOwner, forged: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        entries, asked = await question_entry(world, waiting.run_id)
        body = canonical(smaller(orjson.loads(asked.body or b""), everywhere=forged != "text"))
        changed = [asked]
        if forged == "chain":
            # Every later entry is linked again, so that only the signed head still knows.
            changed, head = [], asked.prev_hash
            for old in entries[asked.seq - 1 :]:
                raw = body if old is asked else old.body
                assert raw is not None
                assert old.salt is not None
                draft = Draft(old.kind, old.key, old.at_us, old.by, raw, old.salt)
                changed.append(link(old.tenant, old.run, old.seq, head, draft))
                head = changed[-1].hash
        for one in changed:
            raw = one.body if forged == "chain" and one.body is not None else body
            await owner.execute(
                f"UPDATE {{journal}} SET body = {owner.blob(raw)}, body_digest = '{one.body_digest}',"
                f" prev_hash = '{one.prev_hash}', hash = '{one.hash}'"
                f" WHERE run = '{waiting.run_id}' AND seq = {one.seq}"
            )
        signer = SignerSpy()
        with pytest.raises(Integrity):
            await answer(world, waiting.run_id, signer)
        assert signer.statements == []
        assert await world.stores.tenant(TENANT).length(waiting.run_id) == len(entries), "nothing was added"
        assert world.refunds() == []
        await world.aclose()

    run(go())


@pytest.mark.parametrize(
    "change",
    [{"run_id": "run_0000000000000000"}, {"binding_digest": "sha256:" + "0" * 64}, {"required_role": "intern"}],
)
def test_an_altered_state_of_the_question_is_not_signed(
    stores: str, owner: DatabaseOwner, change: dict[str, str], tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        (document,) = await world.stores.tenant(TENANT).scan("approvals")
        raw = canonical({**orjson.loads(document.body), **change})
        await owner.execute(f"UPDATE {{documents}} SET body = {owner.blob(raw)} WHERE collection = 'approvals'")
        signer = SignerSpy()
        with pytest.raises(Integrity):
            await answer(world, waiting.run_id, signer)
        assert signer.statements == []
        await world.aclose()

    run(go())


def test_a_question_that_was_answered_is_not_opened_again_by_its_stored_state(
    stores: str, owner: DatabaseOwner, tmp_path: Path
) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        waiting = await world.invoke(request(4200, "req_1"))
        (document,) = await world.stores.tenant(TENANT).scan("approvals")
        await world.answer(waiting.run_id, "denied")
        await owner.execute(
            f"UPDATE {{documents}} SET body = {owner.blob(document.body)} WHERE collection = 'approvals'"
        )
        signer = SignerSpy()
        with pytest.raises(ApprovalRefused) as refused:
            await answer(world, waiting.run_id, signer)
        assert (refused.value.reason, signer.statements) == ("already_answered", [])
        await world.aclose()

    run(go())


def test_an_answer_to_another_question_than_the_one_asked_is_not_signed(stores: str, tmp_path: Path) -> None:
    async def go() -> None:
        world = await open_world(tmp_path, stores=stores)
        first = await world.invoke(request(4200, "req_1"))
        second = await world.invoke(request(4300, "req_2"))
        signer = SignerSpy()
        with pytest.raises(ApprovalRefused) as refused:
            await answer(world, first.run_id, signer, await world.binding_digest(second.run_id))
        assert (refused.value.reason, signer.statements) == ("other_binding", [])
        await world.aclose()

    run(go())


def test_an_altered_dispatch_is_not_settled(stores: str, owner: DatabaseOwner, tmp_path: Path) -> None:
    async def go() -> None:
        world, run_id = await uncertain(tmp_path, stores=stores)
        entries = await world.stores.tenant(TENANT).read(run_id)
        sent = next(one for one in reversed(entries) if one.kind == "tool.dispatching")
        body = orjson.loads(sent.body or b"")
        body["envelope"]["args"]["amount_inr"] = 5
        await owner.execute(
            f"UPDATE {{journal}} SET body = {owner.blob(canonical(body))} WHERE run = '{run_id}' AND seq = {sent.seq}"
        )
        signer = SignerSpy()
        with pytest.raises(Integrity):
            await operator.settle_effect(world.deployment, TENANT, run_id, DID_NOT, vouch=signer)
        assert signer.statements == []
        await world.aclose()

    run(go())


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The demo's workspace with one run that waits: `req_next`, INR 5,000."""
    path = tmp_path / "shop"
    assert run_command_line(["demo", "--yes", "--keep", str(path)]) == 0
    monkeypatch.chdir(path)
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", ".")
    assert run_command_line(["invoke", "requests/next.json"]) == 5
    capsys.readouterr()
    return path


SIGNER = ["--as", LEAD, "--key", f"keys/{LEAD}.key"]


def waiting_now(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    run_command_line(["runs", "show", "req_next", "--json"])
    return dict(orjson.loads(capsys.readouterr().out)["waiting"] or {})


def test_a_request_that_was_pointed_at_another_run_approves_nothing(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command_line(["invoke", "requests/deny.json"]) == 5
    requests = "FROM {documents} WHERE collection = 'requests'"
    other = f"SELECT body {requests} AND key = 'req_deny'"
    run(
        DatabaseOwner(shop, None).execute(
            f"UPDATE {{documents}} SET body = ({other}) WHERE collection = 'requests' AND key = 'req_next'"
        )
    )
    assert run_command_line(["approvals", "approve", "req_next", *SIGNER, "--binding", "sha256:any"]) == 3
    assert "`req_deny` made that run" in capsys.readouterr().err


def test_without_a_terminal_the_digest_has_to_be_named(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = waiting_now(capsys)["binding_digest"]
    assert run_command_line(["approvals", "approve", "req_next", *SIGNER]) == 2
    printed = capsys.readouterr().err
    assert "amount_inr 5000" in printed
    assert f"--binding {digest}" in printed
    assert run_command_line(["approvals", "approve", "req_next", *SIGNER, "--binding", "sha256:" + "0" * 64]) == 1
    assert waiting_now(capsys)["binding_digest"] == digest
    assert run_command_line(["approvals", "approve", "req_next", *SIGNER, "--binding", digest, "--json"]) == 0
    streams = capsys.readouterr()
    assert orjson.loads(streams.err)["question"]["shown"]["args"]["amount_inr"] == 5000
    assert orjson.loads(streams.out)["state"] == "completed"


@pytest.mark.parametrize(("typed", "code"), [("n\n", 1), ("\n", 1), ("y\n", 0)])
def test_on_a_terminal_the_question_is_shown_and_then_confirmed(shop: Path, typed: str, code: int) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "contextos.cli", "approvals", "approve", "req_next", *SIGNER])
    os.write(terminal, typed.encode())
    printed = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        printed += chunk
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == code, printed
    assert printed.index(b"amount_inr 5000") < printed.index(b"Sign that this is approved?")

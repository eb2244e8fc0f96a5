"""A client whose server is killed and started again: its stream goes on, and its request is one run."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from contextos.client import connect
from tests.http_face import LEAD, REQUESTER, TENANT, begin_refunds
from tests.service_process import service
from tests.world import run

pytestmark = pytest.mark.slow

PATIENCE_S = 300


def test_a_stream_and_a_request_go_on_over_a_killed_server(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    workspace = tmp_path / "w"
    run(begin_refunds(workspace))
    toml = workspace / "contextos.toml"
    toml.write_text("lease_ttl_s = 2\n" + toml.read_text("utf-8"), "utf-8")
    body = json.loads((workspace / "requests" / "next.json").read_text("utf-8"))
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex((workspace / "keys" / f"{LEAD}.key").read_text("utf-8")))

    async def play() -> None:
        with service(workspace, TENANT, REQUESTER, LEAD) as server:
            port = server.url.rpartition(":")[2]
            async with connect(server.url, server.tokens[REQUESTER], patience_s=PATIENCE_S) as requester:
                sent = await requester.invoke(body)
                seen, asked = [], asyncio.Event()

                async def follow() -> None:
                    async for event in requester.stream(sent.run_id):
                        seen.append(event.id)
                        if event.document.get("name") == "contextos.approval.asked":
                            asked.set()

                following = asyncio.create_task(follow())
                await asked.wait()
                server.process.kill()
                await asyncio.to_thread(server.process.wait, 60)
                # Sent while there is no server; the next one answers it.
                again = asyncio.create_task(requester.invoke(body))
                with ExitStack() as stack:
                    starting = service(workspace, TENANT, REQUESTER, LEAD, port=port)
                    last = await asyncio.to_thread(stack.enter_context, starting)
                    assert (await again).run_id == sent.run_id
                    async with connect(last.url, last.tokens[LEAD]) as lead:
                        question = await lead.question(sent.run_id)
                        await lead.answer(question, "approved", sign=key.sign)
                    await following
                    assert seen == [event.id async for event in requester.stream(sent.run_id)]
                    assert (await requester.record(sent.run_id)).outcome == "approved"
                    assert len((await requester.runs()).items) == 1

    asyncio.run(play())

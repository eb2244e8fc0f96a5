"""Tools behind an HTTP API from the first command to the replay, and a server that dies in the middle of a payment."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from contextos.audit.replay import replay as replay_run
from examples.support_refund import shop
from tests.attacks.test_d21_keyed_write_survives_an_outage import sweep_until_quiet
from tests.servers.adapters import FOLDER, foreign_adapter, reviewed_openapi
from tests.servers.places import DEPLOY, REFUND, ExampleTools, openapi_files
from tests.servers.processes import serving
from tests.world import TENANT, TestWorld, open_world, request, run

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent


class Terminal:
    """A shell in a workspace: every command is a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, command: str, exit_code: int = 0) -> str:
        state = {"XDG_STATE_HOME": str(self.folder.parent / "state"), "PATH": f"{BIN}:{os.environ['PATH']}"}
        done = subprocess.run(
            shlex.split(command), cwd=self.folder, env={**os.environ, **state}, capture_output=True, text=True
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return " ".join((done.stdout + done.stderr).split())


def test_from_a_document_to_a_replayed_decision_with_commands_only(tmp_path: Path) -> None:
    Terminal(tmp_path)("contextos init shop")
    folder = tmp_path / "shop"
    terminal, file = Terminal(folder), folder / "adapters" / "deploy.json"
    settings, pack = folder / "contextos.toml", folder / "packs" / "deploy.yaml"
    apply = "contextos apply --by otto --key keys/otto.key"
    with serving("http_api.py", "cluster", str(folder)) as port:
        server = f"http://127.0.0.1:{port}"
        document = httpx.get(f"{server}/openapi.json", trust_env=False).content
        (folder / "cluster_api.json").write_bytes(document)
        settings.write_text(settings.read_text("utf-8").partition("# The tools.")[0], "utf-8")
        stated = f"--server {server} --internal --read getBuild --read getImpact"
        said = terminal(f"contextos adapters add openapi deploy cluster_api.json {stated}")
        assert "createRollback write destructive strictest: nothing is known of it" in said
        draft = json.loads(file.read_text("utf-8"))
        file.write_text(json.dumps(reviewed_openapi(draft, DEPLOY.definitions[0], DEPLOY.operation_ids)), "utf-8")
        terminal("contextos adapters publish adapters/deploy.json")
        assert "deploy openapi pinned file ci_status, impact, scale, rollback" in terminal("contextos adapters list")
        assert "which the pack does not allow" in terminal(apply, 2)
        pack.write_text(f'{pack.read_text("utf-8")}egress: ["127.0.0.1:{port}"]\n', "utf-8")
        assert "which the tenant does not allow" in terminal(apply, 2)
        settings.write_text(f'{settings.read_text("utf-8")}\n[egress]\nacme = ["127.0.0.1:{port}"]\n', "utf-8")
        terminal(apply)
        assert terminal("python agent.py s1 checkout prod").startswith("waiting: ")
        assert live(folder) == "b42"
        binding = terminal("contextos runs show s1").partition("binding ")[2].split()[0]
        # The session goes on when its agent makes its next call.
        terminal(f"contextos approvals approve s1 --as olga --key keys/olga.key --binding {binding}", 5)
        assert terminal("python agent.py s1 checkout prod") == "DECIDED, approved: {'result': 'prod'}"
        assert live(folder) == "b41"
    # The server is gone, and a replay asks nobody.
    assert "equal" in terminal("contextos replay s1")
    terminal("contextos verify")


def live(folder: Path) -> str:
    """The build of `checkout` that is in service."""
    build: str = json.loads((folder / "cluster.json").read_text("utf-8"))["services"]["checkout"]["live"]["prod"]
    return build


@contextmanager
def supervised(tools: ExampleTools, folder: Path, dies_in: str) -> Iterator[int]:
    """The port of an HTTP API whose process dies in an operation, and whose next process takes over at once."""
    with ExitStack() as on_exit:
        bound = on_exit.enter_context(socket.create_server(("127.0.0.1", 0)))
        command = [sys.executable, str(FOLDER / "http_api.py"), tools.api, str(folder), str(bound.fileno())]

        def started(**environment: str) -> subprocess.Popen[bytes]:
            env, descriptors = {**os.environ, **environment}, [bound.fileno()]
            process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, pass_fds=descriptors)
            on_exit.callback(process.wait)
            on_exit.callback(process.kill)
            return process

        first, second = started(DIES_IN=dies_in), started()

        def take_over() -> None:
            first.wait()
            second.communicate(b"\n")

        assert first.stdin is not None
        first.stdin.write(b"\n")
        first.stdin.close()
        supervisor = threading.Thread(target=take_over)
        supervisor.start()
        on_exit.callback(supervisor.join)
        on_exit.callback(second.kill)
        on_exit.callback(first.kill)
        yield bound.getsockname()[1]


async def world_behind(port: int, tools: ExampleTools, folder: Path, payments: str) -> TestWorld:
    """The world of the refund example with its tools behind the HTTP API at a port."""
    endpoint = f"127.0.0.1:{port}"

    def allow(pack: dict[str, Any]) -> None:
        pack["tooling_layer"]["egress"] = [endpoint]

    world = await open_world(folder, payments=payments, pack=allow, egress={TENANT: (endpoint,)})
    for file in openapi_files(tools, port):
        world.adapters[file["definition"]["adapter_id"]] = foreign_adapter(file, folder)
    return world


def asked(folder: Path, operation: str) -> list[str]:
    """The key of each call of an operation that reached the server."""
    lines = (folder / "asked").read_text("utf-8").splitlines()
    return [key for named, _, key in (line.partition(" ") for line in lines) if named == operation]


@pytest.mark.requirement("A-NO-BLIND-RETRY")
def test_a_server_that_dies_after_a_keyed_payment_is_asked_again_under_the_key(tmp_path: Path) -> None:
    async def act(port: int) -> None:
        world = await world_behind(port, REFUND, tmp_path, "keyed")
        view = await world.invoke(request(900, "req_1"))
        await sweep_until_quiet(world)
        view = await world.deployment.view(TENANT, view.run_id)
        assert (view.state, [one["amount_inr"] for one in world.refunds()]) == ("completed", [900])
        first, second = asked(tmp_path, "createRefund")
        assert first == second == world.refunds()[0]["key"]
        assert (await replay_run(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        world.close()

    with supervised(REFUND, tmp_path, "createRefund") as port:
        run(act(port))


BLIND = replace(REFUND, definitions=(*REFUND.definitions[:2], shop.payments_adapter("none")), api="shop_without_keys")


@pytest.mark.requirement("A-NO-BLIND-RETRY")
def test_a_server_without_keys_that_dies_after_a_payment_is_not_asked_again(tmp_path: Path) -> None:
    async def act(port: int) -> None:
        world = await world_behind(port, BLIND, tmp_path, "none")
        view = await world.invoke(request(900, "req_1"))
        await sweep_until_quiet(world)
        view = await world.deployment.view(TENANT, view.run_id)
        assert view.waiting is not None
        assert (view.waiting["for"], asked(tmp_path, "createRefund")) == ("settlement", [""])
        view = await world.settle(view.run_id, world.by_the_books())
        assert (view.state, len(world.refunds())) == ("completed", 1)
        assert (await replay_run(world.deployment, TENANT, view.run_id)).record_hash == view.record["record_hash"]
        world.close()

    with supervised(BLIND, tmp_path, "createRefund") as port:
        run(act(port))


def test_a_server_that_dies_in_a_read_is_asked_again(tmp_path: Path) -> None:
    async def act(port: int) -> None:
        world = await world_behind(port, REFUND, tmp_path, "keyed")
        view = await world.invoke(request(900, "req_1"))
        assert (view.state, len(world.refunds())) == ("completed", 1)
        assert (len(asked(tmp_path, "getOrder")), len(asked(tmp_path, "createRefund"))) == (2, 1)
        world.close()

    with supervised(REFUND, tmp_path, "getOrder") as port:
        run(act(port))

"""`contextos serve` refuses what other machines reach, and a deployment whose people log in elsewhere."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from fastapi import FastAPI

from contextos.errors import InvalidSettings, Problem
from contextos.workspace import App
from tests.certificates import certificate
from tests.unit.cli.conftest import Shop


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.com"])
def test_an_address_that_other_machines_reach_is_refused(shop: Shop, host: str) -> None:
    said = shop.say("serve", "--host", host, "--port", "0")
    assert said.code == 2
    assert "other machines can reach the address, and there is no TLS" in said.err


def test_tls_needs_a_certificate_and_its_key(shop: Shop, tmp_path: Path) -> None:
    chain, key = certificate(tmp_path)
    for given in (["--tls-cert", str(chain)], ["--tls-key", str(key)]):
        said = shop.say("serve", "--port", "0", *given)
        assert (said.code, "a certificate needs its key" in said.err) == (2, True)
    key.chmod(0o644)
    said = shop.say("serve", "--port", "0", "--tls-cert", str(chain), "--tls-key", str(key))
    assert (said.code, "`tls.key` can be read by others" in said.err) == (2, True)


def test_a_proxy_in_front_of_this_machine_alone_changes_nothing(shop: Shop) -> None:
    said = shop.say("serve", "--port", "0", "--behind-tls-proxy")
    assert (said.code, "leave `--behind-tls-proxy` out" in said.err) == (2, True)


def test_development_tokens_do_not_count_where_other_machines_connect(shop: Shop, tmp_path: Path) -> None:
    """Neither behind a proxy nor with TLS: a deployment in which nobody else can come is refused."""
    chain, key = certificate(tmp_path)
    tls = ["--tls-cert", str(chain), "--tls-key", str(key)]
    for given in (["--behind-tls-proxy"], tls):
        said = shop.say("serve", "--host", "0.0.0.0", "--port", "0", *given)
        assert (said.code, "can be reached from other machines" in said.err) == (2, True), said.err


def test_a_port_that_is_taken_is_named(shop: Shop) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = shop.say("serve", "--port", str(taken.getsockname()[1]))
    assert (said.code, "address already in use" in said.err) == (2, True)


def test_a_directory_that_is_no_file_is_refused_before_anything_is_served(
    shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_self: App, *, bound_to: str) -> None:
        assert bound_to == "127.0.0.1"
        raise InvalidSettings(Problem("/directory", "no_tokens", "the directory is no file", "use one"))

    monkeypatch.setattr(App, "bearer_tokens", refuse)
    said = shop.say("serve", "--port", "0")
    assert (said.code, "the directory is no file" in said.err) == (2, True)


def test_a_missing_extra_is_named(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    said = shop.say("serve", "--port", "0")
    assert (said.code, "contextos[service]" in said.err) == (2, True)


def test_metrics_that_nobody_could_read_are_refused(shop: Shop) -> None:
    with (shop.path / "contextos.toml").open("a") as settings:
        settings.write("\n[telemetry]\n")
    said = shop.say("worker")
    assert (said.code, "name a collector, or leave `[telemetry]` out" in said.err) == (2, True), said.err


def test_a_server_has_metrics_without_a_collector(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[bytes | None] = []

    async def serve_nobody(api: FastAPI, _bound: socket.socket, **_how: object) -> None:
        served.append(api.state.contextos.prometheus_text())

    monkeypatch.setattr("contextos.server.hosting.serve_api", serve_nobody)
    with (shop.path / "contextos.toml").open("a") as settings:
        settings.write("\n[telemetry]\n")
    assert shop.say("serve", "--port", "0").code == 0
    assert served != [None]
    assert len(served) == 1

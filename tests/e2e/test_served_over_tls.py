"""`contextos serve` with a certificate: clients that check it are answered at the address that it prints."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
from pathlib import Path

import httpx

from tests.certificates import certificate
from tests.http_face import REQUESTER, TENANT, begin_refunds
from tests.processes import ended
from tests.world import run


def test_a_workspace_is_served_over_tls(tmp_path: Path) -> None:
    run(begin_refunds(tmp_path / "w"))
    chain, key = certificate(tmp_path)
    tls = ["--tls-cert", str(chain), "--tls-key", str(key)]
    command = [sys.executable, "-m", "contextos.cli", "serve", "--port", "0", "-w", str(tmp_path / "w"), *tls]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with ended(subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)) as process:
        assert process.stderr is not None
        url = token = ""
        while not token:
            line = process.stderr.readline().decode()
            assert line, "the server ended before it served"
            words = line.split()
            url = words[1].removesuffix(";") if words[0] == "serving" else url
            token = words[2] if words[:2] == [TENANT, REQUESTER] else ""
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(chain))
        with httpx.Client(verify=trusted, trust_env=False, headers={"Authorization": f"Bearer {token}"}) as client:
            assert client.get(f"{url}/caller").json()["subject"] == REQUESTER
            assert client.get(f"{url}/ready").json() == {"status": "ready"}

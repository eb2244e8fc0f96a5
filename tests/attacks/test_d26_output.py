"""D26, output: what was done is reported by the exit code, wherever the output goes.

The outputs are a full disk, closed descriptors, a pipe whose reader has gone, and an ASCII terminal.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Shop

pytestmark = pytest.mark.slow

Start = tuple[list[str], dict[str, str]]
Ran = subprocess.CompletedProcess[bytes]


def with_shell(command: Start, shop: Shop, arguments: list[str], redirection: str, **environment: str) -> Ran:
    """Run a command line under `sh`, which redirects its output."""
    start, known = command
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *start, *arguments],
        env={**known, "CONTEXTOS_WORKSPACE": str(shop.path), **environment},
        capture_output=True,
        timeout=120,
        check=False,
    )


BROKEN = {
    "a full disk": ">/dev/full",
    "closed stdout": ">&-",
    "both full": ">/dev/full 2>/dev/full",
    "both closed": ">&- 2>&-",
    "everything closed": "<&- >&- 2>&-",
}


@pytest.mark.parametrize(
    ("name", "as_json"),
    [
        *((name, False) for name in BROKEN),
        *(pytest.param(name, True, marks=[] if name == "a full disk" else pytest.mark.soak) for name in BROKEN),
    ],
)
def test_a_paid_run_exits_0_where_its_output_cannot_be_written(
    command: Start, shop: Shop, name: str, as_json: bool
) -> None:
    paid = len(shop.refunds())
    shop.say("invoke", shop.request("next"))
    arguments = ["approvals", "approve", "req_next", *shop.binding("req_next"), *shop.key]
    ran = with_shell(command, shop, arguments + ["--json"] * as_json, BROKEN[name])
    assert len(shop.refunds()) == paid + 1
    assert ran.returncode == 0, ran
    assert b"Traceback" not in ran.stderr
    assert b"Exception ignored" not in ran.stderr
    if name == "a full disk":
        assert b"cannot be written" in ran.stderr


@pytest.mark.parametrize("name", BROKEN)
def test_a_refusal_and_a_wait_keep_their_exit_codes(command: Start, shop: Shop, name: str) -> None:
    waits = with_shell(command, shop, ["invoke", shop.request("next")], BROKEN[name])
    refused = with_shell(command, shop, ["runs", "show", "req_nobody"], BROKEN[name])
    helped = with_shell(command, shop, ["--help"], BROKEN[name])
    assert (waits.returncode, refused.returncode, helped.returncode) == (5, 2, 0), (waits, refused, helped)
    for ran in (waits, refused, helped):
        assert b"Traceback" not in ran.stderr
        assert b"Exception ignored" not in ran.stderr


def test_a_reader_that_has_gone_changes_no_exit_code(command: Start, shop: Shop) -> None:
    shop.say("invoke", shop.request("next"))
    start, known = command
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run(
        [*start, "approvals", "approve", "req_next", *shop.binding("req_next"), *shop.key],
        env={**known, "CONTEXTOS_WORKSPACE": str(shop.path)},
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (ran.returncode, ran.stderr.count(b"Traceback"), ran.stderr.count(b"Exception ignored")) == (0, 0, 0), ran


def test_an_ascii_terminal_shows_escapes(command: Start, shop: Shop, tmp_path: Path) -> None:
    reason = "nicht nötig – 払い済み"
    shop.say("invoke", shop.request("deny"))
    arguments = ["approvals", "deny", "req_deny", *shop.binding("req_deny"), *shop.key, "--reason", reason]
    ran = with_shell(command, shop, arguments, "", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert ran.returncode == 1, ran
    assert b"Traceback" not in ran.stderr
    shown = with_shell(command, shop, ["runs", "show", "req_deny"], "", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert shown.returncode == 0, shown
    assert b"n\\xf6tig" in shown.stdout


def test_a_closed_descriptor_is_not_reused_for_the_store(command: Start, shop: Shop) -> None:
    """Where 1 and 2 are closed, the next file that a process opens gets their numbers, and output would land in it."""
    before = (shop.path / "contextos.db").read_bytes()[:16]
    with_shell(command, shop, ["invoke", shop.request("next")], ">&- 2>&-")
    assert (shop.path / "contextos.db").read_bytes()[:16] == before
    assert shop.say("verify", "--json").code == 0

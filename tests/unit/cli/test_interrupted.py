"""Ctrl-C ends a command with 130 and without a word of Python, also while the command line still loads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

LOADING = """
import sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "contextos.cli":
            print("loading", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
sys.argv = ["contextos", "runs", "list"]
from contextos.__main__ import start
start()
"""


def test_an_interrupt_while_the_command_line_loads_ends_with_130_and_no_traceback() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-c", LOADING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"loading\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, said) == (130, b"")

"""What code imports, and whether it runs other code, is found by reading it."""

from __future__ import annotations

import pytest

from contextos.adapters.function.imports import read_imports

RUNNING = [
    "import importlib",
    "from importlib import import_module as go",
    "import importlib.util",
    "exec('x = 1')",
    "eval('1')",
    "__import__('x')",
    "import runpy",
    "import subprocess as sp",
    "from os import system",
    "import os\nos.execv('x', [])",
    "import os\nos.popen('x')",
    "import asyncio\nasyncio.create_subprocess_exec('x')",
    "import multiprocessing",
    "from concurrent.futures import ProcessPoolExecutor",
    "import pickle",
    "import ctypes",
    "import builtins",
    "__builtins__['exec']",
    "__loader__.load_module('x')",
    "import timeit",
    "from logging.config import dictConfig",
    "import os as o\nx = 'sys'\ngetattr(o, x + 'tem')",
    "import os\ngetattr(os, 'system')",
    "import os\nos.__dict__['x']",
    "import sys\nsys.modules['x']",
    "globals()['x']",
    "from pydantic import ImportString",
]


@pytest.mark.parametrize("code", RUNNING)
def test_code_that_runs_other_code_by_a_name_or_a_path_is_known(code: str) -> None:
    assert read_imports(code.encode(), "shop", is_package=False).runs_others


@pytest.mark.parametrize(
    "code",
    [
        "import re\nre.compile('x')",
        "import os\nos.path.join('a')",
        "import json, sqlite3",
        "import os\ngetattr(os, 'sep')",
    ],
)
def test_other_code_is_not_taken_for_it(code: str) -> None:
    assert not read_imports(code.encode(), "shop", is_package=False).runs_others

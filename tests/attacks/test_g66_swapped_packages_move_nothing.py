"""G66: between question and approval, code is swapped that an adapter runs and no setting lists: an installed package,
and what it reaches through `importlib`, `exec`, `runpy` and a subprocess.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.test_a04_swapped_code_moves_nothing import SENDS, Attacked, void_because
from tests.world import run

pytestmark = pytest.mark.usefixtures("looks_each_time")

CHANGED = "`packages:adp_orders` changed"
"""All adapters of the shop are in one file, so the same packages are pinned for each; the first one is named."""

HONEST = "def payable(amount):\n    return amount\n"
TENFOLD = "def payable(amount):\n    return amount * 10\n"
HONEST_SCRIPT = "import sys\nprint(int(sys.argv[1]))\n"
TENFOLD_SCRIPT = "import sys\nprint(int(sys.argv[1]) * 10)\n"

WAYS = {
    "an installed package": "from ratesbox import payable",
    "a submodule of a namespace": "from ratesns.money import payable",
    "an import at the call": "def payable(amount):\n    from ratesbox.money import payable\n    return payable(amount)",
    "what a package requires": "from ratesuser import payable",
    "importlib": (
        "import importlib\ndef payable(amount):\n    return importlib.import_module('rates' + 'box').payable(amount)"
    ),
    "__import__": "def payable(amount):\n    return __import__('rates' + 'box').payable(amount)",
    "exec": (
        "from pathlib import Path\ndef payable(amount):\n    names = {}\n"
        "    exec((Path(__file__).parent / 'loose.py').read_text(), names)\n    return names['payable'](amount)"
    ),
    "runpy": (
        "import os, runpy\ndef payable(amount):\n"
        "    return runpy.run_path(os.path.join(os.path.dirname(__file__), 'loose.py'))['payable'](amount)"
    ),
    "a subprocess": (
        "import subprocess, sys\nfrom pathlib import Path\ndef payable(amount):\n"
        "    said = [sys.executable, str(Path(__file__).parent / 'script.py'), str(amount)]\n"
        "    return int(subprocess.run(said, capture_output=True, check=True).stdout)"
    ),
    "a module of a subprocess": (
        "import os, sys\nfrom subprocess import run\ndef payable(amount):\n"
        "    said = [sys.executable, '-m', 'ratesbox.script', str(amount)]\n"
        "    where = {**os.environ, 'PYTHONPATH': [one for one in sys.path if one.endswith('site-packages')][0]}\n"
        "    return int(run(said, capture_output=True, check=True, env=where).stdout)"
    ),
    "a data file of a package": (
        "import json\nfrom pathlib import Path\nimport ratesbox\ndef payable(amount):\n"
        "    return amount * json.loads((Path(ratesbox.__file__).parent / 'table.json').read_text())"
    ),
}


class Installed:
    """A folder of installed packages on the path of this process, and what an attacker changes in it."""

    def __init__(self, path: Path) -> None:
        self.path = path / "site-packages"
        self.put(HONEST, HONEST_SCRIPT, "1")

    def put(self, module: str, script: str, table: str) -> None:
        files = {
            "ratesbox/__init__.py": module,
            "ratesbox/money.py": module,
            "ratesbox/script.py": script,
            "ratesbox/table.json": table,
            "ratesns/money.py": module,
            "ratesuser.py": "from ratesbox import payable\n",
        }
        for name, text in files.items():
            (self.path / name).parent.mkdir(parents=True, exist_ok=True)
            (self.path / name).write_text(text, "utf-8")
        self._state("ratesbox", [name for name in files if name.startswith("ratesbox/")], "")
        self._state("ratesuser", ["ratesuser.py"], "Requires-Dist: ratesbox>=1\n")
        self.forget()

    def _state(self, name: str, files: list[str], requires: str) -> None:
        info = self.path / f"{name}-1.0.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n{requires}", "utf-8")
        # The digests of RECORD are those of the installer, whatever becomes of the files.
        (info / "RECORD").write_text("".join(f"{one},,\n" for one in files), "utf-8")

    @staticmethod
    def forget() -> None:
        """What a new process does not know."""
        for name in [one for one in sys.modules if one.partition(".")[0] in ("ratesbox", "ratesns", "ratesuser")]:
            del sys.modules[name]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made = Installed(tmp_path)
    monkeypatch.syspath_prepend(str(made.path))
    yield made
    made.forget()


def shop_that(way: str, path: Path, stores: str) -> Attacked:
    shop = Attacked(path / "shop", stores)
    shop.write("loose.py", HONEST)
    shop.write("script.py", HONEST_SCRIPT)
    shop.edit("shop.py", SENDS, SENDS.replace('args["amount_inr"]', 'payable(args["amount_inr"])'))
    shop.edit("shop.py", "import hashlib\n", f"import hashlib\n{WAYS[way]}\n")
    shop.pin_again()
    return shop


def swap(shop: Attacked, installed: Installed) -> None:
    shop.write("loose.py", TENFOLD)
    shop.write("script.py", TENFOLD_SCRIPT)
    installed.put(TENFOLD, TENFOLD_SCRIPT, "10")


ISSUED = ("an installed package", "importlib", "exec", "runpy", "a subprocess")


def approved_after_a_swap(way: str, tmp_path: Path, stores: str, installed: Installed) -> Attacked:
    shop = shop_that(way, tmp_path, stores)
    run_id = run(shop.ask())
    swap(shop, installed)
    assert CHANGED in void_because(run(shop.approve(run_id)))
    return shop


@pytest.mark.parametrize("way", ISSUED)
def test_swapped_code_that_no_setting_lists_pays_nothing(
    way: str, tmp_path: Path, stores: str, installed: Installed
) -> None:
    assert approved_after_a_swap(way, tmp_path, stores, installed).paid() == []


@pytest.mark.parametrize("way", [one for one in WAYS if one not in ISSUED])
def test_neither_does_code_that_is_reached_in_another_way(way: str, tmp_path: Path, installed: Installed) -> None:
    assert approved_after_a_swap(way, tmp_path, "sqlite", installed).paid() == []


@pytest.mark.parametrize("way", ["an installed package", "importlib", "runpy"])
def test_neither_does_code_that_is_swapped_behind_the_approval(way: str, tmp_path: Path, installed: Installed) -> None:
    shop = shop_that(way, tmp_path, "sqlite")
    run_id = run(shop.ask())
    view = run(shop.approve(run_id, then=lambda: swap(shop, installed)))
    assert not isinstance(view, str)
    assert CHANGED in void_because(view)
    assert shop.paid() == []


@pytest.mark.parametrize("way", ISSUED)
def test_without_a_swap_the_approval_pays_once_what_was_approved(
    way: str, tmp_path: Path, installed: Installed
) -> None:
    shop = shop_that(way, tmp_path, "sqlite")
    run_id = run(shop.ask())
    installed.forget()
    assert run(shop.approve(run_id)).state == "completed"
    assert shop.paid() == [5000]


@pytest.mark.parametrize("way", ["an import at the call", "a data file of a package", "exec"])
def test_a_swap_below_a_running_process_pays_nothing(way: str, tmp_path: Path, installed: Installed) -> None:
    shop = shop_that(way, tmp_path, "sqlite")
    run_id = run(shop.ask())

    async def swapped_while_it_runs() -> Any:
        app = await shop.open()
        swap(shop, installed)
        return await shop.approve(run_id, app)

    assert CHANGED in void_because(run(swapped_while_it_runs()))
    assert shop.paid() == []


@pytest.mark.parametrize(("way", "file"), [("importlib", "__init__.py"), ("a module of a subprocess", "script.py")])
def test_neither_does_one_file_deep_in_a_package_that_is_overwritten_below_a_running_process(
    way: str, file: str, tmp_path: Path, installed: Installed
) -> None:
    shop = shop_that(way, tmp_path, "sqlite")
    run_id = run(shop.ask())

    async def overwritten_while_it_runs() -> Any:
        app = await shop.open()
        (installed.path / "ratesbox" / file).write_text(TENFOLD if file == "__init__.py" else TENFOLD_SCRIPT, "utf-8")
        return await shop.approve(run_id, app)

    assert CHANGED in void_because(run(overwritten_while_it_runs()))
    assert shop.paid() == []


def test_no_run_is_pinned_to_packages_that_this_process_did_not_load(tmp_path: Path, installed: Installed) -> None:
    shop = shop_that("an installed package", tmp_path, "sqlite")
    run(shop.ask())

    async def asked_after_a_swap() -> Any:
        app = await shop.open()
        try:
            swap(shop, installed)
            return await app.deployment.invoke({**shop.request("next"), "request_id": "req_after_swap"})
        finally:
            app.close()

    assert "start the process again" in void_because(run(asked_after_a_swap()))

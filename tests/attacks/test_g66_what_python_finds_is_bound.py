"""G66: code is swapped that Python finds where nobody looks: in an archive, before the standard library, in a second
portion of a namespace, in a start file, or by what runs code without saying so.
"""

from __future__ import annotations

import importlib
import os
import py_compile
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contextos.errors import InvalidSettings
from tests.attacks.test_a04_swapped_code_moves_nothing import SENDS, Attacked, void_because
from tests.attacks.test_g66_swapped_packages_move_nothing import (
    CHANGED,
    HONEST,
    HONEST_SCRIPT,
    TENFOLD,
    TENFOLD_SCRIPT,
    Installed,
    installed,
)
from tests.world import run

pytestmark = pytest.mark.usefixtures("looks_each_time")

__all__ = ["installed"]

FOUND = ("zipped", "ratesns", "ratesuser", "ratesextra", "ratesmid", "edited", "sitecustomize", "colorsys")


def forget() -> None:
    """What a new process does not know."""
    for name in [one for one in sys.modules if one.partition(".")[0] in FOUND]:
        del sys.modules[name]
    for known in (sys.path_importer_cache, sys.modules["zipimport"].__dict__["_zip_directory_cache"]):
        known.clear()
    importlib.invalidate_caches()


@pytest.fixture
def ahead(installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder before all others on the path, as `PYTHONPATH` puts one."""
    (tmp_path / "ahead").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "ahead"))
    forget()
    yield tmp_path / "ahead"
    forget()


def shop_with(code: str, path: Path) -> Attacked:
    shop = Attacked(path / "shop", "sqlite")
    shop.edit("shop.py", SENDS, SENDS.replace('args["amount_inr"]', 'payable(args["amount_inr"])'))
    shop.edit("shop.py", "import hashlib\n", f"import hashlib\n{code}\n")
    shop.pin_again()
    return shop


def put(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def archive(folder: Path, text: str) -> None:
    with zipfile.ZipFile(folder.parent / "lib.zip", "w") as file:
        file.writestr("zipped.py", text)


def compiled(folder: Path) -> None:
    """A package without source, which Python takes before the module of this name."""
    put(folder.parent / "tenfold.py", TENFOLD)
    (folder / "ratesns" / "money").mkdir()
    py_compile.compile(str(folder.parent / "tenfold.py"), cfile=str(folder / "ratesns" / "money" / "__init__.pyc"))


def extra(folder: Path, text: str) -> None:
    """What a package requires by an extra of a package that it requires."""
    site = Installed.__new__(Installed)
    site.path = folder.parent / "site-packages"
    put(site.path / "ratesextra.py", text)
    put(site.path / "ratesmid.py", "from ratesextra import payable\n")
    put(site.path / "ratesuser.py", "from ratesmid import payable\n")
    site._state("ratesextra", ["ratesextra.py"], "")
    site._state("ratesmid", ["ratesmid.py"], "Provides-Extra: fast\nRequires-Dist: ratesextra; extra == 'fast'\n")
    site._state("ratesuser", ["ratesuser.py"], "Requires-Dist: ratesmid[fast]\n")


LUMA = "import colorsys\ndef payable(amount):\n    return int(amount * round(colorsys.rgb_to_yiq(1, 1, 1)[0]))"
TABLE = (
    "import json\nfrom pathlib import Path\ndef payable(amount):\n"
    "    return amount * json.loads((Path(__file__).parent / 't.json').read_text())\n"
)
Step = Callable[[Path], Any]
PLACES: dict[str, tuple[str, Step, Step]] = {
    "an archive": ("from zipped import payable", lambda at: archive(at, HONEST), lambda at: archive(at, TENFOLD)),
    "the name of a standard module": (
        "from colorsys import payable",
        lambda at: put(at / "colorsys.py", HONEST),
        lambda at: put(at / "colorsys.py", TENFOLD),
    ),
    "a file that takes the place of a standard module": (
        LUMA,
        lambda at: None,
        lambda at: put(at / "colorsys.py", "def rgb_to_yiq(*_):\n    return (10, 0, 0)\n"),
    ),
    "another portion of a namespace": (
        "from ratesns.fees import payable",
        lambda at: put(at / "ratesns" / "fees.py", HONEST),
        lambda at: put(at / "ratesns" / "fees.py", TENFOLD),
    ),
    "a compiled package beside a module": (
        "from ratesns.money import payable",
        lambda at: (put(at / "ratesns" / "__init__.py", ""), put(at / "ratesns" / "money.py", HONEST)),
        compiled,
    ),
    "an extra of what a package requires": (
        "from ratesuser import payable",
        lambda at: extra(at, HONEST),
        lambda at: extra(at, TENFOLD),
    ),
    "data beside a module of no distribution": (
        "from edited import payable",
        lambda at: (put(at / "edited" / "__init__.py", TABLE), put(at / "edited" / "t.json", "1")),
        lambda at: put(at / "edited" / "t.json", "10"),
    ),
    "a start file": (
        "from ratesbox import payable",
        lambda at: put(at.parent / "site-packages" / "zz.pth", ""),
        lambda at: put(at.parent / "site-packages" / "zz.pth", "import tenfold\n"),
    ),
    "a new start module": (
        "def payable(amount):\n    return amount",
        lambda at: None,
        lambda at: put(at / "sitecustomize.py", TENFOLD),
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_code_pays_nothing_that_is_swapped_where_python_finds_it(
    place: str, tmp_path: Path, ahead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, honest, swapped = PLACES[place]
    monkeypatch.syspath_prepend(str(tmp_path / "lib.zip"))
    honest(ahead)
    shop = shop_with(code, tmp_path)
    run_id = run(shop.ask())
    forget()
    swapped(ahead)
    assert CHANGED in void_because(run(shop.approve(run_id)))
    assert shop.paid() == []


LOOSE = "(Path(__file__).parent / 'loose.txt').read_text()"
RUNNERS = {
    "a text of any ending": f"    exec({LOOSE}, names)\n    return names['payable'](amount)",
    "timeit": (
        f"    timeit.Timer({LOOSE} + '\\nsaid[0] = payable(amount)', globals=names).timeit(1)\n    return said[0]"
    ),
    "a hidden folder": (
        "    said = [sys.executable, str(Path(__file__).parent / '.tools' / 'script.py'), str(amount)]\n"
        "    return int(subprocess.check_output(said))"
    ),
    "sys.modules": (
        "    said = [sys.executable, str(Path(__file__).parent / 'script.sh'), str(amount)]\n"
        "    return int(sys.modules['sub' + 'process'].check_output(said))"
    ),
    "getattr of a module": (
        "    script = Path(__file__).parent / 'script.sh'\n"
        "    getattr(os, 'sys' + 'tem')(f'{sys.executable} {script} {amount} > said.out')\n"
        "    return int(Path('said.out').read_text())"
    ),
    "globals": f"    globals()['__built' + 'ins__']['ex' + 'ec']({LOOSE}, names)\n    return names['payable'](amount)",
}
IMPORTED = {"timeit": "timeit", "a hidden folder": "subprocess"}


@pytest.mark.parametrize("way", RUNNERS)
def test_neither_does_code_that_runs_without_saying_so(
    way: str, tmp_path: Path, ahead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    head = f"import {IMPORTED.get(way, 'sys')}\nimport os, sys\nfrom pathlib import Path\ndef payable(amount):\n"
    body = "    said = [0]\n    names = {'said': said, 'amount': amount}\n"
    shop = shop_with(head + body + RUNNERS[way], tmp_path)

    def write(module: str, script: str) -> None:
        shop.write("loose.txt", module)
        shop.write("script.sh", script)
        put(shop.path / ".tools" / "script.py", script)

    write(HONEST, HONEST_SCRIPT)
    run_id = run(shop.ask())
    write(TENFOLD, TENFOLD_SCRIPT)
    assert CHANGED in void_because(run(shop.approve(run_id)))
    assert shop.paid() == []


def module_of_a_subprocess(path: str) -> str:
    """Code that runs a module below a path which it does not import from itself."""
    return (
        "import os, sys\nfrom subprocess import check_output\ndef payable(amount):\n"
        f"    where = {{**os.environ, 'PYTHONPATH': {path!r}}}\n"
        "    return int(check_output([sys.executable, '-m', 'ratesbox.script', str(amount)], env=where))"
    )


def taken_back(at: Path) -> None:
    """A package takes the place of a module, and the folder gets its old time again."""
    folder = at.parent / "site-packages" / "ratesbox"
    before = os.stat(folder)
    put(folder / "script" / "__main__.py", TENFOLD_SCRIPT)
    put(folder / "script" / "__init__.py", "")
    os.utime(folder, ns=(before.st_atime_ns, before.st_mtime_ns))


def linked(at: Path, to: str) -> None:
    (at / "current").unlink(missing_ok=True)
    for name, text in (("v1", HONEST_SCRIPT), ("v2", TENFOLD_SCRIPT)):
        put(at / name / "ratesbox" / "script.py", text)
    (at / "current").symlink_to(at / to)


APPEARS = (
    "def payable(amount):\n    try:\n        from edited.fast import payable\n"
    "    except ImportError:\n        from edited.slow import payable\n    return payable(amount)"
)
BELOW: dict[str, tuple[Callable[[Path], str], Step, Step]] = {
    "a folder with its old time": (
        lambda at: module_of_a_subprocess(str(at.parent / "site-packages")),
        lambda at: None,
        taken_back,
    ),
    "a module that was not there": (
        lambda at: APPEARS,
        lambda at: (put(at / "edited" / "__init__.py", ""), put(at / "edited" / "slow.py", HONEST)),
        lambda at: put(at / "edited" / "fast.py", TENFOLD),
    ),
    "a link to another version": (
        lambda at: module_of_a_subprocess(str(at / "current")),
        lambda at: linked(at, "v1"),
        lambda at: linked(at, "v2"),
    ),
}


@pytest.mark.parametrize("what", BELOW)
def test_nor_what_is_swapped_below_a_running_process_without_a_trace(
    what: str, tmp_path: Path, ahead: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, honest, swapped = BELOW[what]
    honest(ahead)
    monkeypatch.syspath_prepend(str(ahead / "current"))
    shop = shop_with(code(ahead), tmp_path)
    run_id = run(shop.ask())

    async def swapped_while_it_runs() -> Any:
        app = await shop.open()
        swapped(ahead)
        return await shop.approve(run_id, app)

    assert CHANGED in void_because(run(swapped_while_it_runs()))
    assert shop.paid() == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys\nsys.path.insert(0, '/tmp')\ndef payable(_):\n    import outside", "changes_path"),
        ("def payable(amount):\n    import sys\n    sys.path[:0] = ['/tmp']\n    return amount", "changes_path"),
        ("import of_no_file\npayable = int", "no_file"),
    ],
)
def test_an_adapter_whose_imports_nobody_can_know_is_refused_at_the_start(
    code: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "of_no_file", type(sys)("of_no_file"))
    with pytest.raises(InvalidSettings) as refused:
        run(shop_with(code, tmp_path).open())
    assert refused.value.problems[0].code == reason


PROGRAM = """
import contextos
from contextos.adapters.code import SourceCode
{imports}


class Bank:
    def __init__(self, given):
        self.given = given

    @contextos.read()
    def pay(self, amount: int) -> int:
        \"\"\"Pay.\"\"\"
        return payable(amount)


def made(given):
    @contextos.read()
    def pay(amount: int) -> int:
        \"\"\"Pay.\"\"\"
        return given(amount)

    return contextos.toolset("bank", [pay])


def pins(adapter):
    code = SourceCode()
    print(code.adapter(adapter), code.packages(adapter)())
"""
HANDED = {
    "an object": "bank.contextos.tools_of(bank.Bank(rates.Rates()))",
    "a method": "bank.contextos.tools_of(bank.Bank({'a': rates.Rates().payable}))",
    "a function": "bank.made(rates.payable)",
    "an argument": "bank.made(functools.partial(map, rates.payable))",
    "one beside a proxy, which has every attribute": (
        "bank.contextos.tools_of(bank.Bank([xmlrpc.client.ServerProxy('http://a'), rates.payable]))"
    ),
}
"""What a program hands to the code of a tool, which does not import it."""
START = "import functools, xmlrpc.client\nfrom app import bank, rates\n"


@pytest.mark.parametrize("program", ["start.py", "-m app.bank"])
def test_a_tool_of_an_application_is_bound_to_what_was_handed_to_it(program: str, tmp_path: Path) -> None:
    imports, last = ("from .rates import payable", "pins(made(payable))") if "-m" in program else ("", "")
    put(tmp_path / "app" / "__init__.py", "")
    put(tmp_path / "app" / "bank.py", PROGRAM.format(imports=imports) + last)
    put(tmp_path / "start.py", START + "".join(f"bank.pins({one})\n" for one in HANDED.values()))
    said = []
    for code in (HONEST, TENFOLD):
        put(tmp_path / "app" / "rates.py", f"{code}\n\nclass Rates:\n    def payable(self, amount): return amount\n")
        command = [sys.executable, *program.split()]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True, timeout=60)
        said.append(run.stdout.splitlines())
    assert "None" not in str(said)
    assert [one for one, other in zip(*said, strict=True) if one == other] == [], "an approval is bound to these"

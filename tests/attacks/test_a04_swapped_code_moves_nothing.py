"""A4: the code behind an approval is exchanged: the adapter's module, a helper beside it, the runtime itself."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contextos.cli.demo.workspace import example_operator, make_workspace, seed_graph
from contextos.deployment import operator
from contextos.errors import ApprovalRefused, InvalidSettings
from contextos.trust.approvals.assertion import sign_approval
from contextos.trust.seal import kid_of
from contextos.workspace import App, open_app
from contextos.workspace.settings import Settings
from tests.world import APPROVER, TENANT, public_key, run

SENDS = 'shop.refund(args["order_id"], args["amount_inr"], args["currency"], key, mode)'
HELPED = 'shop.refund(args["order_id"], rates.payable(args["amount_inr"]), args["currency"], key, mode)'
HONEST_RATES = "def payable(amount_inr):\n    return amount_inr\n"
TENFOLD_RATES = "def payable(amount_inr):\n    return amount_inr * 10\n"


class Attacked:
    """A workspace on disk whose code the attacker can change; each `open` is a new start of the runtime."""

    def __init__(self, path: Path, stores: str, *, helper: str | None = None) -> None:
        self.path = path
        self.workspace = make_workspace(path)
        self.store = "" if stores == "sqlite" else f'store = "{stores}"\n'
        self.helper = helper
        if helper is not None:
            self.write("rates.py", HONEST_RATES)
            self.edit("shop.py", SENDS, HELPED)
            self.edit("shop.py", "import hashlib\n", f"import hashlib\n{helper}\n")
        self.pin_again()

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, "utf-8")

    def edit(self, name: str, old: str, new: str) -> None:
        text = (self.path / name).read_text("utf-8")
        assert old in text
        self.write(name, text.replace(old, new, 1))

    def pin_again(self, *listed: str) -> None:
        """Put the digests of the code as it is now into the settings, as a deployment does."""
        names = listed or (("rates.py",) if self.helper else ())
        files = ", ".join(f'"{name}" = "{self.digest(name)}"' for name in names)
        made = (
            f'{self.store}packs = ["packs"]\nunsafe = ["unsafe_local_directory", "unsafe_local_keys"]\n'
            f'[[adapters]]\npath = "shop.py:adapters"\ndigest = "{self.digest("shop.py")}"\n'
        )
        self.write("contextos.toml", made + (f"files = {{ {files} }}\n" if files else ""))

    def digest(self, name: str) -> str:
        return "sha256:" + hashlib.sha256((self.path / name).read_bytes()).hexdigest()

    async def open(self) -> App:
        return await open_app(Settings.read(self.path))

    def request(self, name: str, **runtime: Any) -> dict[str, Any]:
        return {**self.workspace.requests[name], **runtime}

    async def ask(self) -> str:
        """A refund of INR 5000, which waits for the finance lead."""
        app = await self.open()
        try:
            await app.initialise(TENANT, by=example_operator(self.path))
            await seed_graph(app, self.workspace)
            view = await app.deployment.invoke(self.request("next"))
            assert view.state == "waiting"
            return view.run_id
        finally:
            app.close()

    async def approve(self, run_id: str, app: App | None = None, *, then: Callable[[], None] | None = None) -> Any:
        """The finance lead agrees, after a new start of the runtime, and the run goes on; or why they cannot.

        `then` is done between the two, and the runtime is started anew.
        """
        seed = bytes.fromhex((self.path / "keys" / f"{APPROVER}.key").read_text().strip())

        def vouch(said: Any) -> dict[str, Any]:
            return {"kind": "jws", "token": sign_approval(seed, kid_of(public_key(seed)), said)}

        deployment = (opened := app or await self.open()).deployment
        try:
            asked = [one for one in await opened.stores.tenant(TENANT).read(run_id) if one.kind == "approval.asked"]
            await operator.answer_approval(
                deployment,
                TENANT,
                run_id,
                approver_id=APPROVER,
                verdict="approved",
                reason="fine",
                binding_digest=json.loads(asked[-1].body)["binding_digest"],
                vouch=vouch,
            )
            if then is not None:
                opened.close()
                then()
                opened = await self.open()
            await opened.deployment.advance(TENANT, run_id)
            return await opened.deployment.view(TENANT, run_id)
        except ApprovalRefused as refused:
            assert refused.reason == "approval_void"
            return str(refused)
        finally:
            opened.close()

    def paid(self) -> list[int]:
        with closing(sqlite3.connect(self.path / "shop.db")) as books:
            return [amount for (amount,) in books.execute("SELECT amount_inr FROM refunds ORDER BY number")]


def void_because(view: Any) -> str:
    if isinstance(view, str):
        return view
    assert view.state != "completed"
    return str(view.record["rationale"]["failures"][0]["detail"])


def test_swapped_code_pays_nothing_on_an_approval_for_the_old_code(tmp_path: Path, stores: str) -> None:
    shop = Attacked(tmp_path / "shop", stores)
    run_id = run(shop.ask())
    shop.edit("shop.py", SENDS, SENDS.replace('args["amount_inr"]', 'args["amount_inr"] * 10'))
    shop.pin_again()
    assert "`code:adp_" in void_because(run(shop.approve(run_id)))
    assert shop.paid() == []


@pytest.mark.parametrize("imported", ["import rates", "from rates import payable\nimport rates"])
def test_a_swapped_helper_pays_nothing_either(tmp_path: Path, stores: str, imported: str) -> None:
    shop = Attacked(tmp_path / "shop", stores, helper=imported)
    run_id = run(shop.ask())
    shop.write("rates.py", TENFOLD_RATES)
    shop.pin_again()
    assert "`code:adp_" in void_because(run(shop.approve(run_id)))
    assert shop.paid() == []


def test_code_that_is_swapped_behind_the_approval_pays_nothing(tmp_path: Path, stores: str) -> None:
    shop = Attacked(tmp_path / "shop", stores)
    run_id = run(shop.ask())

    def swap() -> None:
        shop.edit("shop.py", SENDS, SENDS.replace('args["amount_inr"]', 'args["amount_inr"] * 10'))
        shop.pin_again()

    view = run(shop.approve(run_id, then=swap))
    assert not isinstance(view, str)
    assert "`code:adp_" in void_because(view)
    assert shop.paid() == []


def test_with_the_same_code_the_approval_pays_once_what_was_approved(tmp_path: Path, stores: str) -> None:
    shop = Attacked(tmp_path / "shop", stores, helper="import rates")
    run_id = run(shop.ask())
    assert run(shop.approve(run_id)).state == "completed"
    assert shop.paid() == [5000]


def test_a_helper_with_another_digest_stops_the_start(tmp_path: Path) -> None:
    shop = Attacked(tmp_path / "shop", "sqlite", helper="import rates")
    shop.write("rates.py", TENFOLD_RATES)
    with pytest.raises(InvalidSettings, match=r"`rates\.py` has the digest"):
        run(shop.open())


UNLISTED = {
    "import": "import rates",
    "from": "from rates import payable",
    "relative": "from . import rates",
    "inside a function": "def later():\n    import rates\n",
    "through the path": "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport rates",
    "through importlib": (
        "import importlib, os, sys\nsys.path.insert(0, os.path.dirname(__file__))\n"
        "rates = importlib.import_module('rates')"
    ),
}


@pytest.mark.parametrize("imported", UNLISTED.values(), ids=UNLISTED)
def test_an_import_from_the_workspace_that_is_not_listed_fails_at_the_start(
    tmp_path: Path, imported: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "rates", raising=False)
    shop = Attacked(tmp_path / "shop", "sqlite")
    shop.write("rates.py", HONEST_RATES)
    shop.edit("shop.py", "import hashlib\n", f"import hashlib\n{imported}\n")
    shop.pin_again()
    with pytest.raises(InvalidSettings, match=r"`rates` from the workspace.*not listed"):
        run(shop.open())
    sys.modules.pop("rates", None)


def test_a_swap_without_a_restart_runs_the_code_that_was_loaded(tmp_path: Path, stores: str) -> None:
    shop = Attacked(
        tmp_path / "shop", stores, helper="def rates_now():\n    import rates\n    return rates\nimport rates"
    )
    run_id = run(shop.ask())

    async def swapped_while_it_runs() -> Any:
        app = await shop.open()
        shop.write("rates.py", TENFOLD_RATES)
        shop.edit("shop.py", HELPED, HELPED.replace("rates.payable", "rates_now().payable"))
        return await shop.approve(run_id, app)

    assert run(swapped_while_it_runs()).state == "completed"
    assert shop.paid() == [5000]


def test_another_build_of_the_runtime_is_on_record_and_voids_nothing(
    tmp_path: Path, stores: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextos.adapters import code

    shop = Attacked(tmp_path / "shop", stores)
    run_id = run(shop.ask())
    package = tmp_path / "contextos"
    shutil.copytree(code.RUNTIME_FOLDER, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert code.tree_digest(package) == code.tree_digest(code.RUNTIME_FOLDER), "a copy is the same build"
    with (package / "errors.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    monkeypatch.setattr(code, "runtime_digest", lambda: code.tree_digest(package))
    assert run(shop.approve(run_id)).state == "completed"
    assert shop.paid() == [5000]

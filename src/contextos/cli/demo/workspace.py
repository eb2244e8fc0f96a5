"""Make a workspace from the shipped example: keys, a signed pack, a directory of people, graph, shop and requests.

It has everything that the other commands need. Its keys and its directory are local files, so each record made in it
names these development stand-ins. Refuses a directory that is not empty.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contextos.errors import InvalidInput, Problem

if TYPE_CHECKING:
    from contextos.app import App
    from contextos.operations.acts.act import Actor

EXAMPLE: Final = "support_refund"
EXAMPLE_AGENT: Final = "email_outreach"
"""The example agent with a context slot; it is copied into the workspace."""
APPROVER: Final = "user_finance_lead_77"
EXAMPLE_OPERATOR_ID: Final = "user_operator_5"
PAYMENTS_MODULE: Final = ("keyed", "lookup", "none")
COPIED_FILES: Final = ("shop.py", "graph.json", "pack.json", "request.json")
DEMO_WITNESS: Final = "witness.jsonl"
"""The witness of a workspace that is not kept; it goes with the workspace."""
DEMO_UNSAFE: Final = ("unsafe_local_directory", "unsafe_local_keys")

EXAMPLE_REQUESTS: Final[dict[str, tuple[str, str, int]]] = {
    "small": ("req_small", "ord_881", 900),
    "large": ("req_large", "ord_881", 4200),
    "next": ("req_next", "ord_895", 5000),
    "deny": ("req_deny", "ord_895", 7000),
    "cancel": ("req_cancel", "ord_895", 8000),
    "lost": ("req_lost", "ord_882", 1200),
}
"""Under `requests/`: file, request id, order and amount in INR. Above 3000 a finance lead is asked."""

HOUSE_POLICY: Final[dict[str, Any]] = {
    "version": "1.0.0",
    "bundle": {
        "bundle_id": "POLICY_HOUSE",
        "policy_dsl": {
            "language": "jsonlogic",
            "rules": [
                {"rule_id": "R_NO_INTERNS", "if": {"==": [{"var": "user.role"}, "intern"]}, "then": {"allow": False}}
            ],
        },
    },
}
"""A policy of the tenant, signed beside the pack: `contextos pack publish` and `policies activate` put it in force."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace that `make_workspace` made: its paths and ids."""

    path: Path
    tenant_id: str
    requests: dict[str, dict[str, Any]]


def example_folder(name: str = EXAMPLE) -> Path:
    """Return the directory of a shipped example, in the installed package or in the source tree."""
    import contextos

    package = Path(contextos.__file__).parent
    for place in (package / "_examples" / name, package.parents[1] / "examples" / name):
        if place.is_dir():
            return place
    raise InvalidInput(Problem("", "no_example", f"the example `{name}` is not installed", "install contextos again"))


def make_workspace(path: Path, payments: str = "keyed", *, witness: str = "") -> Workspace:
    """Make a workspace in `path`, which is created if it does not exist. `witness` is the setting of this name.

    Raises:
        InvalidInput: the directory is not empty or cannot be written.
    """
    from contextos.app import make_keys, write_seed
    from contextos.contracts.encoding.codec import loads
    from contextos.contracts.encoding.jcs import digest
    from contextos.control.artifacts import PACK_TYPE, POLICY_TYPE

    source = example_folder()
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise _refused(path, "it is not empty", "name a new directory")
        for name in COPIED_FILES:
            shutil.copyfile(source / name, path / name)
        shutil.copytree(
            example_folder(EXAMPLE_AGENT), path / EXAMPLE_AGENT, ignore=shutil.ignore_patterns("__pycache__")
        )
        keys = make_keys(path / "keys")
        people = {name: write_seed(path / "keys" / f"{name}.key") for name in (APPROVER, EXAMPLE_OPERATOR_ID)}
        pack = loads((source / "pack.json").read_bytes())
        tenant_id: str = pack["pack_meta"]["tenant"]
        directory = loads((source / "directory.json").read_bytes())
        _write(path / "directory.json", {**directory, tenant_id: _with_keys(directory[tenant_id], people)})
        _write(path / "packs" / "support.json", _sealed(PACK_TYPE, pack, keys))
        _write(path / "policies" / "house.json", _sealed(POLICY_TYPE, {**HOUSE_POLICY, "tenant": tenant_id}, keys))
        entry = _payments_entry(path / "shop.py", payments)
        settings = _settings(entry, digest((path / "shop.py").read_bytes()))
        named = f"witness = {json.dumps(witness)}\n" if witness else ""
        (path / "contextos.toml").write_text(named + settings, encoding="utf-8")
        return Workspace(path, tenant_id, _requests(path, loads((source / "request.json").read_bytes())))
    except OSError as error:
        raise _refused(path, f"it cannot be used: {error.strerror}", "name a directory that you can write to") from None


def example_operator(path: Path) -> Actor:
    """The example's operator, who signs with the key that `make_workspace` put into the workspace."""
    from contextos.app import read_seed
    from contextos.operations.acts.act import Actor

    return Actor.with_key(EXAMPLE_OPERATOR_ID, read_seed(path / "keys" / f"{EXAMPLE_OPERATOR_ID}.key"))


async def seed_graph(app: App, workspace: Workspace) -> None:
    """Write the example's facts into the knowledge graph of its tenant."""
    from contextos.contracts.encoding.codec import loads
    from contextos.operations.acts.facts import write_facts

    facts = loads((workspace.path / "graph.json").read_bytes())
    by = example_operator(workspace.path)
    await write_facts(app.deployment, workspace.tenant_id, facts["nodes"], facts["edges"], by=by)


def _with_keys(directory: dict[str, Any], seeds: dict[str, bytes]) -> dict[str, Any]:
    """A tenant of the example's directory, with the public keys of its finance lead and its operator."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from contextos.trust.seal import kid_of

    held = {}
    for name, seed_bytes in seeds.items():
        public = Ed25519PrivateKey.from_private_bytes(seed_bytes).public_key().public_bytes_raw()
        held[name] = [{"kid": kid_of(public), "public_key": public.hex()}]
    approvers = [{**one, "keys": held.get(one["approver_id"], one["keys"])} for one in directory["approvers"]]
    return {**directory, "approvers": approvers}


def _sealed(payload_type: str, artifact: dict[str, Any], keys: Any) -> dict[str, Any]:
    from contextos.contracts.encoding.jcs import canonical
    from contextos.trust.seal import seal

    return seal(payload_type, canonical(artifact), keys, "pack")


def _payments_entry(shop: Path, payments: str) -> str:
    """The entry point of the adapters. For another mode than the shop's own, one is appended to the copied module."""
    if payments == PAYMENTS_MODULE[0]:
        return "shop.py:adapters"
    with shop.open("a", encoding="utf-8") as file:
        file.write(f'\n\ndef {payments}_adapters(workspace):\n    return adapters(workspace, "{payments}")\n')
    return f"shop.py:{payments}_adapters"


def _settings(entry: str, digest: str) -> str:
    return (
        f'packs = ["packs"]\nunsafe = {json.dumps(list(DEMO_UNSAFE))}\n\n'
        f'[[adapters]]\npath = "{entry}"\ndigest = "{digest}"\n'
    )


def _requests(path: Path, template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    made = {}
    for name, (request_id, order_id, amount) in EXAMPLE_REQUESTS.items():
        asked = {
            **template["input"],
            "message": f"Refund order {order_id} for INR {amount}.",
            "context": {**template["input"]["context"], "order_id": order_id, "refund_amount": amount},
        }
        made[name] = {**template, "request_id": request_id, "input": asked}
        _write(path / "requests" / f"{name}.json", made[name])
    return made


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + os.linesep, encoding="utf-8")


def _refused(path: Path, why: str, remedy: str) -> InvalidInput:
    return InvalidInput(Problem("", "not_a_directory", f"`{path}`: {why}", remedy))

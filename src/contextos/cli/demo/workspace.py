"""Makes a workspace from the shipped example: keys, a signed pack, a directory of people, graph, shop and requests.

It has everything that the other commands need. Its keys and its directory are local files, so each record made in it
names these development stand-ins.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contextos.cli.demo.templates import (
    DIRECTORY_FILE,
    KEYS_FOLDER,
    example_folder,
    new_workspace,
    with_new_keys,
    write_json,
)

if TYPE_CHECKING:
    from contextos.deployment.acts.act import Actor
    from contextos.workspace import App

EXAMPLE: Final = "support_refund"
EXAMPLE_AGENT: Final = "email_outreach"
"""The example agent with a context slot; it is copied into the workspace."""
APPROVER: Final = "user_finance_lead_77"
EXAMPLE_OPERATOR_ID: Final = "user_operator_5"
PAYMENTS_MODULE: Final = ("keyed", "lookup", "none")
COPIED_FILES: Final = ("README.md", "shop.py", "graph.json", "pack.json", "request.json")
DEMO_WITNESS: Final = "witness.jsonl"
"""The witness file of a workspace that is not kept. It is removed with the workspace."""
DEMO_UNSAFE: Final = ("unsafe_local_directory", "unsafe_local_keys")

EXAMPLE_REQUESTS: Final[dict[str, tuple[str, str, int]]] = {
    "small": ("req_small", "ord_881", 900),
    "large": ("req_large", "ord_881", 4200),
    "next": ("req_next", "ord_895", 5000),
    "deny": ("req_deny", "ord_895", 7000),
    "cancel": ("req_cancel", "ord_895", 8000),
    "lost": ("req_lost", "ord_882", 1200),
}
"""The files in `requests/`, with request id, order and amount in INR. Above 3000 a finance lead is asked."""

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


DECISION_CATALOG: Final[dict[str, Any]] = {"catalog_id": "decision-catalog.support", "version": "2.1.0"}
"""The catalog beside the pack, with the decision spec of the pack: a request can name both."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """A workspace that `make_workspace` made: its paths and ids."""

    path: Path
    tenant_id: str
    requests: dict[str, dict[str, Any]]


def make_workspace(path: Path, payments: str = PAYMENTS_MODULE[0], *, witness: str = "") -> Workspace:
    """Make a workspace in `path`, which must be empty or new. `witness` is the setting of this name.

    Raises:
        InvalidInput: as `new_workspace`.
    """
    from contextos.contracts.encoding.codec import loads
    from contextos.contracts.encoding.jcs import digest
    from contextos.control.artifacts import PACK_TYPE, POLICY_TYPE, SPECS_TYPE
    from contextos.workspace import make_keys

    source = example_folder(EXAMPLE)
    with new_workspace(path) as folder:
        for name in COPIED_FILES:
            shutil.copyfile(source / name, folder / name)
        shutil.copytree(
            example_folder(EXAMPLE_AGENT), folder / EXAMPLE_AGENT, ignore=shutil.ignore_patterns("__pycache__")
        )
        keys = make_keys(folder / KEYS_FOLDER)
        pack = loads((source / "pack.json").read_bytes())
        tenant_id: str = pack["pack_meta"]["tenant"]
        directory = loads((source / DIRECTORY_FILE).read_bytes())
        tenant_part = with_new_keys(directory[tenant_id], folder / KEYS_FOLDER, (APPROVER, EXAMPLE_OPERATOR_ID))
        write_json(folder / DIRECTORY_FILE, {**directory, tenant_id: tenant_part})
        write_json(folder / "packs" / "support.json", _seal(PACK_TYPE, pack, keys))
        catalog = {**DECISION_CATALOG, "tenant": tenant_id, "decision_specs": pack["decision_layer"]["decision_specs"]}
        write_json(folder / "packs" / "decisions.json", _seal(SPECS_TYPE, catalog, keys))
        write_json(folder / "policies" / "house.json", _seal(POLICY_TYPE, {**HOUSE_POLICY, "tenant": tenant_id}, keys))
        entry = _payments_entry(folder / "shop.py", payments)
        settings = _settings(entry, digest((folder / "shop.py").read_bytes()))
        witness_line = f"witness = {json.dumps(witness)}\n" if witness else ""
        (folder / "contextos.toml").write_text(witness_line + settings, encoding="utf-8")
        requests = _requests(folder, loads((source / "request.json").read_bytes()))
    return Workspace(path, tenant_id, requests)


def example_operator(path: Path) -> Actor:
    """Return the example's operator, who signs with the key that `make_workspace` put into the workspace."""
    from contextos.deployment.acts.act import Actor
    from contextos.workspace import read_seed

    return Actor.with_key(EXAMPLE_OPERATOR_ID, read_seed(path / "keys" / f"{EXAMPLE_OPERATOR_ID}.key"))


async def seed_graph(app: App, workspace: Workspace) -> None:
    """Write the example's facts into the knowledge graph of its tenant."""
    from contextos.contracts.encoding.codec import loads
    from contextos.deployment.acts.facts import write_facts

    facts = loads((workspace.path / "graph.json").read_bytes())
    by = example_operator(workspace.path)
    await write_facts(app.deployment, workspace.tenant_id, facts["nodes"], facts["edges"], by=by)


def _seal(payload_type: str, artifact: dict[str, Any], keys: Any) -> dict[str, Any]:
    from contextos.contracts.encoding.jcs import canonical
    from contextos.trust.seal import seal

    return seal(payload_type, canonical(artifact), keys, "pack")


def _payments_entry(shop: Path, payments: str) -> str:
    """Return the entry point of the adapters. For another mode than the shop's own, append one to the copied module."""
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
    requests = {}
    for name, (request_id, order_id, amount) in EXAMPLE_REQUESTS.items():
        request_input = {
            **template["input"],
            "message": f"Refund order {order_id} for INR {amount}.",
            "context": {**template["input"]["context"], "order_id": order_id, "refund_amount": amount},
        }
        requests[name] = {**template, "request_id": request_id, "input": request_input, "mode": "batch"}
        write_json(path / "requests" / f"{name}.json", requests[name])
    return requests

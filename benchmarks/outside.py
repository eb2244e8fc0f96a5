"""The external systems of the benchmarks: a small shop over two SQLite files, the refund request, and stubs."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from benchmarks import refund_pack
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.contracts.journal import Batch, Document, Entry, Look, StoredRun
from contextos.contracts.ports.storage import Store
from contextos.deployment.deployment import Deployment

THRESHOLD_INR = 3000
FAILPOINT = "BENCH_FAILPOINT"


def connect(path: Path) -> sqlite3.Connection:
    """Connect with WAL and `synchronous=FULL`: an acknowledged commit is on disk."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def request(number: int, amount: int) -> dict[str, Any]:
    """Return the example's refund request for this amount, with its own request id and order."""
    body: dict[str, Any] = json.loads((refund_pack.EXAMPLE / "request.json").read_text("utf-8"))
    body["request_id"] = f"req_bench{number:06d}"
    order = refund_pack.order_of(number)
    body["input"] |= {"message": f"Refund order {order} for INR {amount}."}
    body["input"]["context"] |= {"order_id": order, "refund_amount": amount}
    body["runtime"]["max_cost_cents"] = 25
    return body


class Shop:
    """Orders and payments in two files. `BENCH_FAILPOINT=after_payment` kills the process once a payment is on disk."""

    def __init__(self, path: Path, *, keyed: bool) -> None:
        self.keyed, self._lock = keyed, Lock()
        self._orders, self._payments = connect(path / "orders.db"), connect(path / "payments.db")
        self._orders.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, total INT, status TEXT)")
        orders = [(refund_pack.order_of(number), 9900, "delivered") for number in range(refund_pack.ORDERS)]
        self._orders.execute("BEGIN")
        self._orders.executemany("INSERT OR IGNORE INTO orders VALUES (?, ?, ?)", orders)
        self._orders.execute("COMMIT")
        self._payments.execute(
            "CREATE TABLE IF NOT EXISTS payments"
            " (number INTEGER PRIMARY KEY, request TEXT, key TEXT UNIQUE, amount INT)"
        )

    def orders_lookup(self, order_id: str) -> dict[str, Any]:
        with self._lock:
            row = self._orders.execute("SELECT id, total, status FROM orders WHERE id = ?", (order_id,)).fetchone()
        return {"order_id": row[0], "total": row[1], "currency": "INR", "status": row[2]}

    def policy_eval(self, given: Mapping[str, Any]) -> dict[str, Any]:
        context = given["context"]
        gates = ["GATE_FINANCE_APPROVAL"] if context["refund_amount"] > THRESHOLD_INR else []
        return {"allowed": context["identity_verified"] is True, "gates": gates}

    def issue_refund(self, request_id: str, order_id: str, amount: int) -> dict[str, Any]:
        key = request_id if self.keyed else None
        with self._lock:
            self._payments.execute(
                "INSERT OR IGNORE INTO payments (request, key, amount) VALUES (?, ?, ?)", (request_id, key, amount)
            )
            query = "SELECT max(number) FROM payments WHERE request = ?"
            number = self._payments.execute(query, (request_id,)).fetchone()[0]
        if os.environ.get(FAILPOINT) == "after_payment":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"transaction_id": f"txn_{number}", "amount": amount}

    def payments(self, request_id: str) -> int:
        """Return how many times this request was paid."""
        query = "SELECT count(*) FROM payments WHERE request = ?"
        return int(self._payments.execute(query, (request_id,)).fetchone()[0])

    def close(self) -> None:
        self._orders.close()
        self._payments.close()


class Stub:
    """An adapter that answers at once, so that only the governance of a call is measured."""

    def __init__(self, definition: AdapterDefinition) -> None:
        self._definition = definition

    def describe(self) -> AdapterDefinition:
        return self._definition

    async def call(self, capability: str, args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        if capability == "lookup":
            order = {"customer_id": "cus_77", "total_inr": 9900, "currency": "INR", "status": "delivered"}
            return AdapterReply(output={"order_id": args["order_id"], **order})
        if capability == "eval":
            return AdapterReply(output={"eligible": True, "refundable_inr": 9900, "policy_version": "returns-4"})
        output = {"transaction_id": "txn_1", "refund_amount_inr": args["amount_inr"], "currency": "INR"}
        return AdapterReply(output=output, mutations=("refund:txn_1",), cost_cents=0.31)

    async def lookup(self, capability: str, idempotency_key: str, context: CallContext) -> AdapterReply | None:
        return None


class Stubs(refund_pack.Tools):
    """The refund's tools, all stubs."""

    def __init__(self, *, keyed: bool = True) -> None:
        super().__init__(None, "", keyed=keyed)

    def adapters(self) -> tuple[Any, ...]:
        return tuple(Stub(adapter.describe()) for adapter in super().adapters())


class Watched:
    """A tenant's store that records the batches committed through it and counts its calls."""

    def __init__(self, store: Store) -> None:
        self._store, self.batches, self.calls = store, list[Batch](), Counter[str]()
        self.commits_us: list[float] = []

    async def commit(self, batch: Batch) -> None:
        self.calls["commit"] += 1
        self.batches.append(batch)
        start = time.perf_counter_ns()
        await self._store.commit(batch)
        self.commits_us.append((time.perf_counter_ns() - start) / 1000)

    async def read(self, stream: str, *, after: int = 0, limit: int | None = None) -> Sequence[Entry]:
        self.calls["read"] += 1
        return await self._store.read(stream, after=after, limit=limit)

    async def length(self, stream: str) -> int:
        self.calls["length"] += 1
        return await self._store.length(stream)

    async def scan(self, collection: str, **where: Any) -> Sequence[Document]:
        self.calls[f"scan {collection}"] += 1
        return await self._store.scan(collection, **where)

    async def look(self, places: Sequence[tuple[str, str]], **more: Any) -> Look:
        self.calls["look"] += 1
        return await self._store.look(places, **more)

    async def lines(self, stream: str, *keys: str) -> Sequence[Entry]:
        self.calls["lines"] += 1
        return await self._store.lines(stream, *keys)

    async def read_run(self, run: str) -> StoredRun:
        self.calls["read_run"] += 1
        return await self._store.read_run(run)

    async def latest_us(self) -> int:
        self.calls["latest_us"] += 1
        return await self._store.latest_us()


class WatchedStores:
    """The stores of a deployment, with each tenant's store watched."""

    def __init__(self, stores: Any) -> None:
        self._stores, self.watched = stores, dict[str, Watched]()

    def tenant(self, tenant_id: str) -> Watched:
        if tenant_id not in self.watched:
            self.watched[tenant_id] = Watched(self._stores.tenant(tenant_id))
        return self.watched[tenant_id]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stores, name)


async def watched(path: Path) -> tuple[Deployment, Watched]:
    """Return a deployment over SQLite in `path` with stub adapters, and its tenant's watched store."""
    deployment = await refund_pack.open_deployment(path, Stubs(), 0)
    return watch(deployment)


def watch(deployment: Deployment) -> tuple[Deployment, Watched]:
    """Return the deployment as a new process would open it, with empty caches and a watched store."""
    stores = WatchedStores(deployment.ports.stores)
    ports = replace(deployment.ports, stores=stores)
    fresh = Deployment(ports=ports, config=deployment.config)
    return fresh, stores.tenant(refund_pack.TENANT)


def close(deployment: Deployment) -> None:
    """Close the database of a deployment that `refund_pack.open_deployment` opened."""
    stores: Any = deployment.ports.stores
    stores.close()


def cpu_ns() -> int:
    """Return the CPU time of this process in ns, all threads together."""
    return time.process_time_ns()

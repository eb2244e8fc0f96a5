"""A small real shop: orders, customers, payments and refunds in one SQLite file, and the adapters that govern it.

`adapters(workspace)` returns `adp_orders.lookup`, `adp_policy.eval` and `adp_payments.issue_refund` over `shop.db`.
Money is in whole rupees. The payments have one of three modes, as payment services do. The mode decides what is
possible after a lost reply:

- `keyed`: a refund carries its idempotency key, the key is UNIQUE, and the same key returns the same answer again.
- `lookup`: nothing is deduplicated, but a key can be looked up, and a call after its `not_after` is refused.
- `none`: neither. Only a person can find out what happened.

For tests, `SHOP_FAILPOINT` breaks the shop just after a refund is durable: `after_payment` kills the process (SIGKILL),
`lose_reply` loses the reply. `SHOP_PAYMENTS` sets the mode if the caller passes none.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from contextos.adapters.function.adapter import BusinessError, FunctionAdapter
from contextos.contracts.envelopes.tool import AdapterDefinition, AdapterReply, CallContext
from contextos.errors import LostReply

FILE = "shop.db"
PAYMENTS_MODES = ("keyed", "lookup", "none")
POLICY_VERSION = "returns-4"
REFUNDABLE_STATUSES = ("delivered", "returned")

SCHEMA = """
CREATE TABLE IF NOT EXISTS customers (
  customer_id TEXT PRIMARY KEY, name TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS orders (
  order_id TEXT PRIMARY KEY, customer_id TEXT NOT NULL REFERENCES customers, total_inr INTEGER NOT NULL,
  currency TEXT NOT NULL, status TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS payments (
  transaction_id TEXT PRIMARY KEY, order_id TEXT NOT NULL REFERENCES orders, amount_inr INTEGER NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS refunds (
  number INTEGER PRIMARY KEY, order_id TEXT NOT NULL REFERENCES orders,
  amount_inr INTEGER NOT NULL CHECK (amount_inr > 0), currency TEXT NOT NULL, transaction_id TEXT NOT NULL UNIQUE,
  key TEXT NOT NULL, unique_key TEXT UNIQUE
) STRICT;
CREATE INDEX IF NOT EXISTS refunds_of_order ON refunds (order_id);
CREATE INDEX IF NOT EXISTS refunds_by_key ON refunds (key);
"""

CUSTOMERS = (("cus_77", "Asha Rao"), ("cus_78", "Vikram Iyer"), ("cus_79", "Meera Nair"), ("cus_80", "Rohan Das"))
ORDERS = (
    ("ord_881", "cus_77", 9900, "INR", "delivered"),
    ("ord_882", "cus_77", 1500, "INR", "delivered"),
    ("ord_883", "cus_77", 2400, "INR", "shipped"),
    ("ord_890", "cus_78", 5200, "INR", "delivered"),
    ("ord_895", "cus_79", 250000, "INR", "delivered"),
    ("ord_896", "cus_80", 5200, "INR", "delivered"),
)


class Shop:
    """The shop's database. One connection writes, behind a lock; another reads without waiting for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = Lock()
        self._writer = self._open()
        self._writer.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + SCHEMA)
        self._seed()
        self._reader = self._open()

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _seed(self) -> None:
        with self._lock, self._writer:
            self._writer.execute("BEGIN IMMEDIATE")
            if self._writer.execute("SELECT count(*) FROM orders").fetchone()[0] == 0:
                self._writer.executemany("INSERT INTO customers VALUES (?, ?)", CUSTOMERS)
                self._writer.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", ORDERS)
                paid = [(f"txn_paid_{order[0]}", order[0], order[2]) for order in ORDERS]
                self._writer.executemany("INSERT INTO payments VALUES (?, ?, ?)", paid)

    def add_order(self, order_id: str, customer_id: str, total_inr: int, status: str = "delivered") -> None:
        """Add an order, for tests and benchmarks; add its customer if it is new."""
        with self._lock, self._writer:
            self._writer.execute("BEGIN IMMEDIATE")
            self._writer.execute("INSERT OR IGNORE INTO customers VALUES (?, ?)", (customer_id, customer_id))
            order, paid = (order_id, customer_id, total_inr, status), (f"txn_paid_{order_id}", order_id, total_inr)
            self._writer.execute("INSERT INTO orders VALUES (?, ?, ?, 'INR', ?)", order)
            self._writer.execute("INSERT INTO payments VALUES (?, ?, ?)", paid)

    def refunds(self, order_id: str | None = None) -> list[dict[str, Any]]:
        """Return every refund in order, for tests and the demo."""
        where, parameters = ("WHERE order_id = ?", (order_id,)) if order_id else ("", ())
        query = f"SELECT order_id, amount_inr, currency, transaction_id, key FROM refunds {where} ORDER BY number"
        return [dict(row) for row in self._reader.execute(query, parameters)]

    def close(self) -> None:
        self._reader.close()
        self._writer.close()

    def order(self, order_id: str) -> dict[str, Any]:
        row = self._reader.execute("SELECT * FROM orders WHERE order_id = ?", (order_id,)).fetchone()
        if row is None:
            raise BusinessError("order_not_found", "there is no such order")
        return dict(row)

    def eligibility(
        self, order_id: str, amount_inr: int, connection: sqlite3.Connection | None = None
    ) -> dict[str, Any]:
        """Apply the returns policy: how much of the order can still be refunded, and whether this amount can."""
        order = self.order(order_id)
        query = "SELECT coalesce(sum(amount_inr), 0) FROM refunds WHERE order_id = ?"
        refunded = (connection or self._reader).execute(query, (order_id,)).fetchone()[0]
        refundable = order["total_inr"] - refunded if order["status"] in REFUNDABLE_STATUSES else 0
        eligible = 0 < amount_inr <= refundable
        return {"eligible": eligible, "refundable_inr": refundable, "policy_version": POLICY_VERSION}

    def refund(self, order_id: str, amount_inr: int, currency: str, key: str, mode: str) -> dict[str, Any]:
        """Pay a refund durably. In `keyed` mode a key pays once and returns the same answer again."""
        with self._lock, self._writer:
            self._writer.execute("BEGIN IMMEDIATE")
            earlier = self._by_key(self._writer, key) if mode == "keyed" else None
            if earlier is not None:
                if tuple(earlier[1:4]) != (order_id, amount_inr, currency):
                    raise BusinessError("key_reused", "this key paid another refund")
                return _answer(earlier)
            if currency != self.order(order_id)["currency"]:
                raise BusinessError("wrong_currency", "the order was paid in another currency")
            if not self.eligibility(order_id, amount_inr, self._writer)["eligible"]:
                raise BusinessError("not_refundable", "the order has not that much left to refund")
            number = self._writer.execute("SELECT coalesce(max(number), 0) + 1 FROM refunds").fetchone()[0]
            transaction_id = "txn_" + hashlib.sha256(f"{number}:{key}".encode()).hexdigest()[:12]
            self._writer.execute(
                "INSERT INTO refunds VALUES (?, ?, ?, ?, ?, ?, ?)",
                (number, order_id, amount_inr, currency, transaction_id, key, key if mode == "keyed" else None),
            )
        _failpoint()
        return {"transaction_id": transaction_id, "refund_amount_inr": amount_inr, "currency": currency}

    def refund_by_key(self, key: str) -> dict[str, Any] | None:
        """Return the answer of the refund with this key, or None."""
        row = self._by_key(self._reader, key)
        return None if row is None else _answer(row)

    @staticmethod
    def _by_key(connection: sqlite3.Connection, key: str) -> sqlite3.Row | None:
        query = "SELECT * FROM refunds WHERE key = ? ORDER BY number"
        row: sqlite3.Row | None = connection.execute(query, (key,)).fetchone()
        return row


def _answer(row: sqlite3.Row) -> dict[str, Any]:
    transaction_id, amount_inr, currency = row["transaction_id"], row["amount_inr"], row["currency"]
    return {"transaction_id": transaction_id, "refund_amount_inr": amount_inr, "currency": currency}


def _failpoint() -> None:
    where = os.environ.get("SHOP_FAILPOINT")
    if where == "after_payment":
        os.kill(os.getpid(), signal.SIGKILL)
    if where == "lose_reply":
        raise LostReply("the shop's answer was lost on the way; look it up")


def unix_us() -> int:
    return time.time_ns() // 1000


def adapters(
    workspace: Path, payments_mode: str | None = None, now_us: Callable[[], int] = unix_us
) -> tuple[FunctionAdapter, ...]:
    """Return the shop's three adapters over `shop.db` in `workspace`, or over `workspace` itself if it is a file.

    `now_us` is the shop's own clock, by which it recognises a late call.
    """
    mode = payments_mode or os.environ.get("SHOP_PAYMENTS", "keyed")
    assert mode in PAYMENTS_MODES, f"`{mode}` is no payments mode; use one of {PAYMENTS_MODES}"
    shop = Shop(workspace / FILE if workspace.is_dir() else workspace)
    return (orders(shop), policy(shop), payments(shop, mode, now_us))


def orders(shop: Shop) -> FunctionAdapter:
    def lookup(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        return shop.order(args["order_id"])

    return FunctionAdapter(ORDERS_ADAPTER, {"lookup": lookup}, inline=("lookup",))


def policy(shop: Shop) -> FunctionAdapter:
    def evaluate(args: Mapping[str, Any], context: CallContext) -> dict[str, Any]:
        return shop.eligibility(args["order_id"], args["amount_inr"])

    return FunctionAdapter(POLICY_ADAPTER, {"eval": evaluate}, inline=("eval",))


def payments(shop: Shop, mode: str, now_us: Callable[[], int]) -> FunctionAdapter:
    def issue_refund(args: Mapping[str, Any], context: CallContext) -> AdapterReply:
        if mode == "lookup" and now_us() > context.not_after_us:
            raise BusinessError("too_late", "the call came after its `not_after`; nothing was paid")
        key = context.idempotency_key or context.tool_call_id
        return _paid(shop.refund(args["order_id"], args["amount_inr"], args["currency"], key, mode))

    def look_up(idempotency_key: str, context: CallContext) -> AdapterReply | None:
        found = shop.refund_by_key(idempotency_key)
        return None if found is None else _paid(found)

    lookups = {"issue_refund": look_up} if mode == "lookup" else {}
    return FunctionAdapter(payments_adapter(mode), {"issue_refund": issue_refund}, lookups)


def _paid(output: dict[str, Any]) -> AdapterReply:
    return AdapterReply(output=output, mutations=(f"refund:{output['transaction_id']}",), cost_cents=0.31)


ORDER_ID = {"type": "string", "pattern": "^ord_[a-z0-9_]{1,40}$"}
AMOUNT = {"type": "integer", "minimum": 1, "maximum": 100_000_000}
RUPEES = {"type": "integer", "minimum": 0}
CURRENCY = {"type": "string", "pattern": "^[A-Z]{3}$"}


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": sorted(properties), "properties": properties}


def _read(
    name: str, produces: str, description: str, scopes: list[str], input_schema: Any, output_schema: Any
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": "read",
        "risk_level": "read",
        "approval_mode": "read_only",
        "input_schema": input_schema,
        "output_schema": output_schema,
        "idempotency": {"strategy": "none"},
        "timeout_s": 5,
        "cost_cents": 0.1,
        "required_scopes": scopes,
        "produces": [produces],
        "output_integrity": "trusted",
        "description": description,
    }


ORDERS_ADAPTER = AdapterDefinition.model_validate(
    {
        "adapter_id": "adp_orders",
        "type": "function",
        "version": "2.0.0",
        "capabilities": [
            _read(
                "lookup",
                "order_lookup",
                "One order by its id, as the shop has it now.",
                ["orders.read"],
                _object(order_id=ORDER_ID),
                _object(
                    order_id=ORDER_ID,
                    customer_id={"type": "string"},
                    total_inr=RUPEES,
                    currency=CURRENCY,
                    status={"type": "string"},
                ),
            )
        ],
    }
)

POLICY_ADAPTER = AdapterDefinition.model_validate(
    {
        "adapter_id": "adp_policy",
        "type": "function",
        "version": "4.0.0",
        "capabilities": [
            _read(
                "eval",
                "policy.eval",
                "Whether the returns policy allows this refund, and how much it would allow.",
                ["orders.read"],
                _object(order_id=ORDER_ID, amount_inr=AMOUNT),
                _object(eligible={"type": "boolean"}, refundable_inr=RUPEES, policy_version={"type": "string"}),
            )
        ],
    }
)


def payments_adapter(mode: str) -> AdapterDefinition:
    """Return the definition of the payments in this mode. Requests for one refund are one effect, over all runs."""
    return AdapterDefinition.model_validate(
        {
            "adapter_id": "adp_payments",
            "type": "function",
            "version": f"3.0.0-{mode}",
            "capabilities": [
                {
                    "name": "issue_refund",
                    "kind": "write",
                    "risk_level": "write_irreversible",
                    "approval_mode": "destructive",
                    "input_schema": _object(order_id=ORDER_ID, amount_inr=AMOUNT, currency=CURRENCY),
                    "output_schema": _object(
                        transaction_id={"type": "string"}, refund_amount_inr=AMOUNT, currency=CURRENCY
                    ),
                    "output_repeats": {"amount_inr": "/refund_amount_inr", "currency": "/currency"},
                    "idempotency": {
                        "strategy": mode,
                        "honours_not_after": mode == "lookup",
                        "scope": "tenant",
                        "identity_args": ["order_id", "amount_inr", "currency"],
                    },
                    "timeout_s": 10,
                    "cost_cents": 0.31,
                    "required_scopes": ["payments.refund"],
                    "description": "Pays money back to the customer of an order. It cannot be taken back.",
                }
            ],
        }
    )

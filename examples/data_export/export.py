"""Tools of an agent that exports customers (from `customers.db` to `outbox/`), and the pack that governs them."""

import json
import sqlite3
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

import contextos

Region = Literal["eu", "us", "in"]
Columns = Literal["name", "email", "orders"]
Destination = Annotated[str, Field(pattern=r"^[a-z0-9.-]{3,60}$")]


class Size(BaseModel):
    """How many rows a query has, and whether one of its columns is personal."""

    rows: int
    personal: bool


def _rows(region, columns):
    with sqlite3.connect("customers.db") as store:
        return store.execute(f"SELECT {', '.join(columns)} FROM customers WHERE region = ?", (region,)).fetchall()


@contextos.read(integrity="trusted", produces="size")
def count(region: Region, columns: Annotated[list[Columns], Field(min_length=1, max_length=3)]) -> Size:
    """The size of an export of these columns of a region's customers."""
    return Size(rows=len(_rows(region, columns)), personal=bool({"name", "email"} & set(columns)))


@contextos.write(risk="irreversible", idempotency="keyed")
def export(
    region: Region,
    columns: Annotated[list[Columns], Field(min_length=1, max_length=3)],
    destination: Destination,
    key: contextos.Key,
) -> int:
    """Send these columns of a region's customers to a destination, and return the number of rows."""
    rows = _rows(region, columns)
    Path("outbox").mkdir(exist_ok=True)
    # The name is the key: the same export again is the same file.
    Path("outbox", f"{key}.json").write_text(json.dumps({"to": destination, "rows": rows}), "utf-8")
    return len(rows)


TOOLS = contextos.toolset("data", [count, export])
PACK = contextos.read_pack(Path(__file__).with_name("pack.yaml"), tools=[TOOLS])

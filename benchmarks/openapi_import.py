"""How long a document of 5 MB takes to import, and how much memory: `python -m benchmarks.openapi_import`.

Each round is a process of its own, so that its peak is that of one import: read, convert, check and compile every
schema. The bar is on the time that a person waits; the CPU time is printed beside it, for a machine that does other
work. The document has 1,000 operations over schemas that refer to each other, as generated ones do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.bars import is_quick, note, report_bar

OPERATIONS, SCHEMAS, FIELDS = 1_000, 1_000, 22
IMPORT = """
import resource, sys, time
from pathlib import Path
from contextos.adapters.openapi.draft import draft_openapi
raw = Path(sys.argv[1]).read_bytes()
start, began = time.process_time(), time.perf_counter()
draft = draft_openapi("adp_large", raw)
took, waited = time.process_time() - start, time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(took, waited, peak, len(draft.operations), len(draft.refused))
"""


def large_document() -> bytes:
    """A document of about 5 MB."""
    text = "What this field holds, in the words of somebody who described it at some length for a reader of the pages."
    field = {"type": "string", "maxLength": 200, "description": text}
    schemas = {}
    for number in range(SCHEMAS):
        properties: dict[str, Any] = {f"field_{place}": field for place in range(FIELDS)}
        later = [below for below in (number * 2 + 1, number * 2 + 2) if below < SCHEMAS]
        properties |= {f"part_{below}": {"$ref": f"#/components/schemas/S{below}"} for below in later}
        schemas[f"S{number}"] = {"type": "object", "properties": properties, "required": ["field_0"]}
    paths = {}
    for number in range(OPERATIONS):
        # Beside the leaves of the tree also its inner schemas, whose parts have parts.
        content = {"application/json": {"schema": {"$ref": f"#/components/schemas/S{number % SCHEMAS}"}}}
        paths[f"/things_{number}/{{id}}"] = {
            "put": {
                "operationId": f"put_{number}",
                "description": text * 6,
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
                "requestBody": {"required": True, "content": content},
                "responses": {"200": {"description": text, "content": content}},
            }
        }
    info = {"title": "Large", "version": "1"}
    root = {"openapi": "3.1.0", "info": info, "servers": [{"url": "https://large.example"}], "paths": paths}
    return json.dumps(root | {"components": {"schemas": schemas}}).encode()


def report(rounds: int) -> None:
    raw = large_document()
    seconds, waited, megabytes, counted = [], [], [], ""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "large.json"
        place.write_bytes(raw)
        for _ in range(rounds):
            command = [sys.executable, "-c", IMPORT, str(place)]
            said = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout.split()
            seconds.append(float(said[0]))
            waited.append(float(said[1]))
            megabytes.append(float(said[2]))
            counted = f"{said[3]} operations, {said[4]} refused, of {len(raw) / 1e6:.1f} MB"
    report_bar("import of an OpenAPI document of 5 MB, p50", median(waited), 3, " s", best=min(waited))
    report_bar("the peak memory of that process", max(megabytes), 300, " MB")
    note("CPU time of the same, p50", f"{median(seconds):9.2f} s; best {min(seconds):.2f} s")
    note("what was imported", counted)


def main() -> None:
    report(3 if is_quick() else 7)


if __name__ == "__main__":
    main()

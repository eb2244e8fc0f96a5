"""`python -m tests.messages [MODULE...] [--write]`: print the table of messages, or keep what they say now."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.messages.rows import keep, markdown, readers, rows_of

named = [one for one in sys.argv[1:] if not one.startswith("-")]
every = []
for module in named or readers():
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(module, Path(folder))
    if "--write" in sys.argv:
        keep(module, rows)
    every += rows
print("\n".join(markdown(every)))

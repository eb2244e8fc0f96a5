"""Makes the dictionary with which segments of the journal are compressed:
`PYTHONPATH=src:. python tests/golden/journal_dictionary.py`.

It is the text of entries of the golden runs, which are dry runs of the repository's pack: people and orders that do not
exist. Everything that differs between two runs (digests, ids, keys, signatures, times) is a placeholder of the same
length. A real run must never be a source: what a dictionary holds cannot be erased from it.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path

from contextos.audit.exported import read_export
from contextos.store.shared.segments import DICTIONARY_FILE, header_line, zstd
from contextos.trust.seal import KeyRing

HERE = Path(__file__).resolve().parent
SEED = b"k" * 32
SOURCES = ("sessions", "refunds")
MAX_BYTES = 64 << 10
KNOWN = 0.06
"""A text that compresses to less than this share with the dictionary so far adds nothing to it."""
PLACEHOLDERS = (
    (rb"eyJ[\w-]+\.[\w-]*\.[\w-]+", lambda found: b"eyJ"),
    (rb"[0-9a-f]{16,}", lambda found: b"0" * len(found[0])),
    (rb"ik_[a-z0-9]{16}", lambda found: b"ik_0000000000000000"),
    (rb"\d{16}", lambda found: b"0" * 16),
    (rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", lambda found: b"0000-00-00T00:00:00.000000Z"),
)


def with_placeholders(text: bytes) -> bytes:
    for pattern, placeholder in PLACEHOLDERS:
        text = re.sub(pattern, placeholder, text)
    return text


def texts() -> list[bytes]:
    """The texts of all entries, those of the most common course last, where zstd reaches them with the fewest bytes."""
    keys = KeyRing.from_seed(SEED)
    found: list[bytes] = []
    for name in SOURCES:
        streams = read_export(gzip.decompress((HERE / f"{name}.jsonl.gz").read_bytes()), keys).streams
        for entries in sorted(streams.values(), key=lambda entries: "approval.asked" not in {e.kind for e in entries}):
            found.append(with_placeholders(header_line(tuple(zip(*entries, strict=True)))))
            found += [with_placeholders(one.body) for one in entries if one.body is not None]
    return found


def made() -> bytes:
    """The dictionary: each text that the texts behind it do not hold already."""
    kept: list[bytes] = []
    size = 0
    for text in dict.fromkeys(reversed(texts())):
        if kept:
            known = zstd.ZstdDict(b"".join(reversed(kept)), is_raw=True)
            packed = zstd.compress(text, level=3, zstd_dict=known)
            if len(packed) < max(48, KNOWN * len(text)):
                continue
        if size + len(text) > MAX_BYTES:
            continue
        kept.append(text)
        size += len(text)
    return b"".join(reversed(kept))


if __name__ == "__main__":
    DICTIONARY_FILE.write_bytes(made())
    print(f"{DICTIONARY_FILE.name}: {DICTIONARY_FILE.stat().st_size} bytes")

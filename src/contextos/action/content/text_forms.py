"""Bring a text into the forms in which it can say the same: folded to letters and digits, decoded, and in parts.

Forms serve to look for one text in another (`action.content.seen_content`). All functions are pure. Texts come from
outside, so all work that can grow is charged to a `WorkLimit`, and ends with `WorkExceeded` before it takes long.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from base64 import b32decode, b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from contextos.contracts.encoding.entities import unescape_html
from contextos.contracts.encoding.jcs import canonical

MIN_PART_CHARS: Final = 4
"""A shorter value is looked for only as a whole word, because any long text contains its letters by chance."""
MIN_TURNED_CHARS: Final = 8
"""A shorter value is not looked for backwards or in ROT13, because such forms of short values occur by chance."""
MAX_PARTS: Final = 256
"""The most parts of a value that are looked for."""
MAX_LABELS: Final = 127
"""The most labels of a host name (RFC 1035)."""
MAX_DECODINGS: Final = 3
"""The most nested encodings that are decoded."""
MAX_DECODED: Final = 32
"""The most texts that are decoded from one text."""
DECODING_WORK: Final = 256
"""The cost of decoding one character: about as many characters could be searched in the same time."""
DECODING_CHARS: Final = 64
"""The fixed cost of decoding a text, added to its length in characters."""
MIN_ENCODED_CHARS: Final = 8
MAX_CACHED_CHARS: Final = 128
"""The decodings of a text up to this length are kept in memory."""
MAX_SHORT_WORK: Final = 1 << 62
"""A limit on work that the decodings of a text of at most `MAX_CACHED_CHARS` characters never reach."""

_NON_WORD: Final = re.compile(r"[\W_]+")
_OTHER_DIGIT: Final = re.compile(r"(?![0-9])\d")
_SHORT_WORDS: Final = re.compile(rf"(?<![^\W_])[^\W_]{{1,{MIN_PART_CHARS - 1}}}(?![^\W_])")
_MARKED: Final = re.compile(r"[%&\\=]")
_ENCODED: Final = re.compile(rf"[A-Za-z0-9+/_-]{{{MIN_ENCODED_CHARS},}}={{0,2}}")
_HEX: Final = re.compile(r"[0-9a-fA-F]{8,}")
_BASE32: Final = re.compile(r"[A-Z2-7]{16,}")
_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ufffd]{4,}")
_ASCII_NON_WORD: Final = bytes(byte for byte in range(128) if not chr(byte).isalnum())
_DIGITS_ONLY: Final = bytes(byte if chr(byte) in "0123456789" else 32 for byte in range(256))
_NUMBER: Final = re.compile(r"[0-9]+")
_ESCAPE: Final = re.compile(
    r"\\U(00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|\\u\{0{0,4}((?:0?[0-9a-fA-F]|10)?[0-9a-fA-F]{1,4})\}"
    r"|\\[uU]([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})"
)
_MARKED_HEX: Final = re.compile(
    r"(?:0[xX])?[0-9a-fA-F]{2}(?:[\s,;:-]{0,3}0[xX][0-9a-fA-F]{2}|[\s,;:-]{1,3}[0-9a-fA-F]{2}){3,}"
)
_HEX_MARKS: Final = re.compile(r"0[xX]|[\s,;:-]+")
_WIDE: Final = re.compile(rb"(?:[\x20-\x7e\xa0-\xff]\x00){4,}[\x20-\x7e]?")
_QUOTED: Final = re.compile(r"=(?:\r?\n|([0-9A-F]{2}))")
_PARTS: Final = re.compile(r"[^\s/?#&=,;:<>()\[\]{}\"'|\\]+")
_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]{0,30}:(?://)?")
_PLACE_MARK: Final = re.compile(r"[\d.@_-]")


class WorkExceeded(Exception):
    """The work on texts exceeds its `WorkLimit`, or a text has more forms than are looked at."""


@dataclass(slots=True)
class WorkLimit:
    """The number of characters that can still be searched. Time is not counted, so a replay ends where the run did."""

    left: int

    def spend(self, chars: int) -> None:
        """Charge work that is about to be done.

        Raises:
            WorkExceeded: the work is more than what is left.
        """
        self.left -= chars
        if self.left < 0:
            raise WorkExceeded


class ValueForm(NamedTuple):
    """One form of a value. `number` is its longest run of digits, which is looked for first because that is quick."""

    text: str
    number: bytes


class Wanted(NamedTuple):
    """The `forms` in which a value is looked for in content. A short value has no forms and is looked for as `word`."""

    forms: tuple[ValueForm, ...]
    word: str | None

    @classmethod
    def of(cls, text: str, work: WorkLimit) -> Wanted:
        """Return the forms of `text`.

        Raises:
            WorkExceeded: the text has more forms than are looked at.
        """
        folded = fold(text)
        if len(folded) < MIN_PART_CHARS:
            return cls((), folded or None)
        forms = [folded, *map(fold, decodings(text, work))]
        if len(folded) >= MIN_TURNED_CHARS:
            forms += [folded[::-1], codecs.encode(folded, "rot13")]
        return cls(tuple(_value_form(form) for form in dict.fromkeys(forms) if len(form) >= MIN_PART_CHARS), None)


def leaves(value: Any) -> Iterator[str]:
    """Yield the texts and numbers of a JSON value, with the names of its members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, child in value.items():
            yield str(name)
            yield from leaves(child)
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from leaves(child)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield canonical(value).decode()


def fold(text: str) -> str:
    """Return the letters and digits of a text, in one case.

    >>> fold("Ana@Acme.example, No. 7")
    'anaacmeexampleno7'
    """
    return letters(normal(text))


def letters(text: str) -> str:
    """Return the letters and digits of a text that `normal` returned."""
    if text.isascii():
        return text.encode().translate(None, _ASCII_NON_WORD).decode()
    return _NON_WORD.sub("", text)


def normal(text: str) -> str:
    """Return a text in one case, in which characters that mean the same are replaced by one of them."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKC", text).casefold()
    return _OTHER_DIGIT.sub(lambda match: str(unicodedata.decimal(match[0])), plain)


def short_words(texts: Iterable[str]) -> frozenset[str]:
    """Return the words of these texts, which `normal` returned, that are too short to be looked for within others."""
    return frozenset(_SHORT_WORDS.findall("\n".join(texts)))


def numbers(folded: str) -> bytes:
    """Return the runs of digits of a folded text.

    >>> numbers("no7and42")
    b'7 42'
    """
    return b" ".join(folded.encode().translate(_DIGITS_ONLY).split())


def parts(text: str) -> Iterator[str]:
    """Yield the parts of a value that can name a destination: words that look like an address or a number, the host and
    the mailbox of an address, the domains above a host, and the last name in a path.

    Raises:
        WorkExceeded: there are more than `MAX_PARTS` parts.
    """
    yielded: set[str] = {text}
    for part in _candidate_parts(text):
        if part not in yielded and len(fold(part)) >= MIN_PART_CHARS:
            if len(yielded) > MAX_PARTS:
                raise WorkExceeded
            yielded.add(part)
            yield part


def decodings(text: str, work: WorkLimit) -> list[str]:
    """Return the texts that a text can be decoded to, also through several encodings.

    Raises:
        WorkExceeded: there are more than `MAX_DECODED` texts, or decoding exceeds `work`.
    """
    if len(text) < MIN_ENCODED_CHARS and not _MARKED.search(text):
        return []
    if len(text) > MAX_CACHED_CHARS:
        return _decode_layers(text, work)
    decoded, spent = _short_decodings(text)
    # The same work is charged whether the text was decoded before or not, so that a replay ends where the run did.
    work.spend(spent)
    return list(decoded)


@lru_cache(maxsize=4096)
def _short_decodings(text: str) -> tuple[tuple[str, ...], int]:
    """Return (decodings of a short text, work spent). They are cached because short texts of answers often repeat.

    Raises `WorkExceeded` if there are more than `MAX_DECODED` texts.
    """
    work = WorkLimit(MAX_SHORT_WORK)
    decoded = _decode_layers(text, work)
    return tuple(decoded), MAX_SHORT_WORK - work.left


def _decode_layers(text: str, work: WorkLimit) -> list[str]:
    decoded_forms: dict[str, None] = {}
    layer: Iterable[str] = (text,)
    work.spend(DECODING_WORK * (len(text) + DECODING_CHARS))
    for _ in range(MAX_DECODINGS):
        decoded: list[str] = []
        for form in (form for encoded in layer for form in _decode_once(encoded)):
            if form == text or form in decoded_forms:
                continue
            work.spend(DECODING_WORK * (len(form) + DECODING_CHARS))
            if len(decoded_forms) >= MAX_DECODED:
                raise WorkExceeded
            decoded_forms[form] = None
            decoded.append(form)
        layer = decoded
    return list(decoded_forms)


def unescaped(text: str) -> str:
    """Return a text with its backslash escapes replaced by the characters that they mean.

    >>> unescaped(r"\\x6d\\u0061\\u{6c}\\U0000006c")
    'mall'
    """
    return _ESCAPE.sub(lambda match: chr(int(match[match.lastindex or 0], 16)), text)


def joined_hex(text: str) -> str:
    """Return a text in which bytes written in hex are joined, without separators and `0x` prefixes.

    >>> joined_hex("6d:61:6c:6c, 0x6d, 0x61, 0x6c, 0x6c")
    '6d616c6c6d616c6c'
    """
    return _MARKED_HEX.sub(lambda match: _HEX_MARKS.sub("", match[0]), text)


def _value_form(text: str) -> ValueForm:
    return ValueForm(text, max(_NUMBER.findall(text), key=len, default="").encode())


def _candidate_parts(text: str) -> Iterator[str]:
    bare = _SCHEME.sub("", text.strip())
    if "/" in bare:
        yield bare.partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]
    for match in _PARTS.finditer(bare):
        part = match[0]
        if not _PLACE_MARK.search(part):
            continue
        part = part.strip(".-_")
        yield part
        mailbox, separator, host = part.rpartition("@")
        if separator:
            yield mailbox.partition("+")[0]
        labels = host.rsplit(".", MAX_LABELS)
        yield from (".".join(labels[start:]) for start in range(len(labels) - 1))


def _decode_once(text: str) -> Iterator[str]:
    if "%" in text:
        yield unquote(text)
    if "&" in text:
        yield unescape_html(text)
    if "\\" in text:
        yield unescaped(text)
    if "=" in text:
        yield _QUOTED.sub(lambda match: chr(int(match[1], 16)) if match[1] else "", text)
    # Mail wraps encoded lines, and an author can put blanks between the characters.
    joined = "".join(text.split())
    forms = dict.fromkeys((text, joined, joined_hex(text)))
    texts = [decoded for form in forms for decoded in _decode_runs(form)]
    if texts:
        yield "\n".join(dict.fromkeys(texts))


def _decode_runs(text: str) -> Iterator[str]:
    """Yield the texts in runs of characters that could be Base64, hex or Base32, for every alignment of their start.

    All runs are decoded at once, with zero bytes between them, which are not text.
    """
    # A run of lower-case letters is taken as a plain word: Base64 also has other characters, and hex has digits.
    runs = " ".join(run for run in _ENCODED.findall(text) if not (run.isalpha() and run.islower()))
    if not runs:
        return
    plain = runs.replace("=", "").replace("-", "+").replace("_", "/").split(" ")
    for start in range(4):
        cut = [run[start:] for run in plain]
        yield from _texts_in(b64decode("AAAA".join([run + "AAA"[: -len(run) % 4] for run in cut])))
    digits = _HEX.findall(runs)
    for start in range(2 if digits else 0):
        pairs = [run[start : len(run) - (len(run) - start) % 2] for run in digits]
        yield from _texts_in(bytes.fromhex("00".join(pairs)))
    if letters := _BASE32.findall(runs):
        yield from _texts_in(b32decode("AAAAAAAA".join([run[: len(run) // 8 * 8] for run in letters])))


def _texts_in(raw: bytes) -> list[str]:
    """Return the stretches of bytes that are text in UTF-8, or Latin letters in UTF-16."""
    wide = [run.replace(b"\0", b"").decode("latin-1") for run in _WIDE.findall(raw)]
    return _TEXT.findall(raw.decode("utf-8", "replace")) + wide

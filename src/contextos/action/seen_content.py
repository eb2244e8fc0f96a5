"""What a run has seen, and where the values of a call's arguments were found in it.

Seen content is the request, the values of the pack's plans, retrieved evidence, recalled memories, the contents of
slots, and what tools answered. Each has an integrity and a classification; those of an answer come from the definition
of the tool (`CapabilityDefinition.output_integrity`), never from its text.

A value is `trusted` if trusted content states it exactly, as a whole value or as words of a text. Else it is
`untrusted` if it occurs in untrusted content: as a part of a longer text, in another case or spacing, with invisible
characters, or encoded (percent, HTML, `\\u`, quoted-printable, Base64, hex, reversed, ROT13). A part of the value that
looks like an address, a number or a name in a path counts as the value. A value that is found nowhere is `unknown`: the
planner made it.
Source: docs/adr/0040-where-arguments-come-from.md.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from base64 import b32decode, b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import unquote

from contextos.contracts.encoding.entities import unescape_html
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.entries.derived import TracedArgument
from contextos.contracts.envelopes.evidence import CLASSIFICATION_LEVELS, Classification, IntegrityLevel
from contextos.contracts.journal import Logged
from contextos.contracts.scope import RunScope

MIN_PART_CHARS: Final = 4
"""A shorter value is untrusted only where it is a word of its own: each of its letters occurs in any long text."""
MIN_TURNED_CHARS: Final = 8
"""A shorter value is not looked for backwards and in ROT13: letters in any order make others by chance."""
MAX_LOOKED_FOR: Final = 256
"""How many values of an argument, or parts of a value, are looked for. Of an argument with more nobody knows where they
come from, so it counts as untrusted.
"""
MAX_DECODINGS: Final = 3
"""How many encodings inside each other are taken off."""
MAX_DECODED: Final = 32
MAX_DECODED_CHARS: Final = 4 << 20
"""How many texts, and how much of them, come out of one text. Content with more counts as if it had every value."""

_NO_WORD: Final = re.compile(r"[\W_]+")
_OTHER_DIGIT: Final = re.compile(r"(?![0-9])\d")
_SHORT_WORDS: Final = re.compile(rf"(?<![^\W_])[^\W_]{{1,{MIN_PART_CHARS - 1}}}(?![^\W_])")
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_HEX: Final = re.compile(r"[0-9a-fA-F]{8,}")
_BASE32: Final = re.compile(r"[A-Z2-7]{16,}")
_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\ufffd]{4,}")
_NO_ASCII_WORD: Final = bytes(byte for byte in range(128) if not chr(byte).isalnum())
_ESCAPE: Final = re.compile(r"\\[uU]([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})")
_QUOTED: Final = re.compile(r"=(?:\r?\n|([0-9A-F]{2}))")
_PARTS: Final = re.compile(r"[^\s/?#&=,;:<>()\[\]{}\"'|\\]+")
_SCHEME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]{0,30}:(?://)?")
_NAMES_A_PLACE: Final = re.compile(r".*[\d.@_-].*", re.DOTALL)
_INSIDE: Final = r"\w.@/+:%~#?&=\\-"
"""Characters that join words to one value, such as those of an address or a path."""
_JOINS: Final = r",;'!$*|"
"""Characters that do so between two words only."""


class _Raw(NamedTuple):
    """One piece of content as it was found. `leaves` are its texts and numbers, read once and only if needed."""

    origin: str
    integrity: IntegrityLevel
    classification: Classification
    leaves: Iterable[str]


class _Content(NamedTuple):
    """One piece of content. `values` are the texts and numbers of trusted content as they are. `folded` is what a value
    is looked for in, and `short` the words of untrusted content that are too short for that.
    """

    origin: str
    integrity: IntegrityLevel
    classification: Classification
    values: tuple[str, ...]
    folded: str
    short: frozenset[str]
    has_everything: bool = False


@dataclass(slots=True)
class SeenContent:
    """The content that one run has seen. `log` is the run's journal, which grows; its entries are read once each."""

    log: Sequence[Logged]
    _read: int = 0
    _found: list[_Raw] = field(default_factory=list)
    _contents: list[_Content] = field(default_factory=list)
    _not_trusted: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    """By call, its folded arguments that no trusted content states; None if they say more than can be looked at."""

    def trace(
        self, key: str, args: Mapping[str, Any], scope: RunScope, *, always: bool
    ) -> dict[str, TracedArgument] | None:
        """Return where each argument of the call `key` (`<plan revision>/<step id>`) was found, by name.

        None if the run has seen nothing untrusted, unless `always`: nothing can be untrusted then.
        """
        self._take_in(scope)
        if not always and all(one.integrity == "trusted" for one in self._found):
            return None
        self._contents += [_content(one) for one in self._found[len(self._contents) :]]
        unstated = scope.pinned.pack.pack_meta.data_classification
        traced = {name: self._traced(args[name], unstated) for name in sorted(args)}
        own = [args[name] for name, one in traced.items() if one.integrity != "trusted"]
        self._not_trusted[key] = _said(own)
        return traced

    def _take_in(self, scope: RunScope) -> None:
        if not self._found:
            pack, received = scope.pinned.pack, scope.received.fields
            planned = [step.params for one in pack.decision_layer.task_templates for step in one.steps]
            label = pack.pack_meta.data_classification
            self._found += [
                _Raw("request", "trusted", label, _leaves(received)),
                _Raw("pack", "trusted", label, _leaves(planned)),
            ]
        for entry in self.log[self._read :]:
            self._found += self._contents_of(entry, scope)
        self._read = len(self.log)

    def _contents_of(self, entry: Logged, scope: RunScope) -> Iterator[_Raw]:
        """The content that an entry brought into the run."""
        label = scope.pinned.pack.pack_meta.data_classification
        if entry.kind in ("evidence.retrieved", "memory.recalled"):
            for item in entry.body:
                name = f"evidence:{item.get('name') or item['predicate']}"
                origin = "memory" if entry.kind == "memory.recalled" else name
                values = _leaves([item["subject"], item["value"]])
                yield _Raw(origin, item["integrity"], item["classification"], values)
        elif entry.kind == "attachment.fetched":
            yield _Raw("attachment", "untrusted", label, _leaves(entry.body.get("text")))
        elif entry.kind == "slot.pinned":
            # A person chose it, and did not read each line of it.
            yield _Raw("slot", "untrusted", label, _leaves(entry.body))
        elif entry.kind == "effect.settled":
            yield _Raw("settlement", "untrusted", label, _leaves(entry.body))
        elif entry.kind in ("tool.returned", "tool.refused"):
            # A later attempt of a call has its number behind the key of the call.
            yield from self._answer("/".join(entry.key.split("/")[:2]), entry.body["envelope"], label, scope)

    def _answer(self, call: str, envelope: Mapping[str, Any], label: Classification, scope: RunScope) -> Iterator[_Raw]:
        """What a tool answered. What an answer repeats of the arguments is no more trusted than they were."""
        capability = scope.tools.capabilities.get(envelope["capability_id"])
        values = _leaves([envelope.get("output"), envelope.get("error")])
        if capability is None or envelope["status"] in ("blocked", "rejected"):
            return
        origin = f"tool:{capability.capability_id}"
        label = capability.definition.output_classification or label
        if not capability.adapter.trusts_output(capability.definition):
            yield _Raw(origin, "untrusted", label, values)
            return
        arguments = self._not_trusted.get(call, ())
        if not arguments:
            yield _Raw(origin, "untrusted" if arguments is None else "trusted", label, values)
            return
        repeats = {one: _repeats(one, arguments) for one in values}
        yield _Raw(origin, "trusted", label, [one for one in repeats if not repeats[one]])
        if any(repeats.values()):
            yield _Raw(origin, "untrusted", label, [one for one in repeats if repeats[one]])

    def _traced(self, value: Any, unstated: Classification) -> TracedArgument:
        """What is found out about the parts of one argument: the worst of them counts."""
        texts = list(dict.fromkeys(_leaves(value)))
        try:
            found = [self._look_for(text) for text in texts[:MAX_LOOKED_FOR]]
        except _TooMuch:
            found = [self._too_much()]
        if len(texts) > MAX_LOOKED_FOR:
            found.append(self._too_much())
        worst = min(found, key=lambda one: _ORDER.index(one.integrity), default=_Found("trusted", ("planner",), ()))
        labels = [label for one in found for label in one.labels] or [unstated]
        highest = max(labels, key=CLASSIFICATION_LEVELS.index)
        return TracedArgument(origins=worst.origins, integrity=worst.integrity, classification=highest)

    def _look_for(self, text: str) -> _Found:
        trusted = [one for one in self._contents if one.integrity == "trusted"]
        stating = [one for one in trusted if _states(one, text)]
        holding = _holding(text, self._contents)
        if stating:
            return _Found.in_contents("trusted", stating, (*stating, *holding))
        untrusted = [one for one in holding if one.integrity == "untrusted"]
        if not untrusted:
            # A part of the value can be an address that only untrusted content has.
            parts = [part for part in _parts(text) if not any(_states(one, part) for one in trusted)]
            if len(parts) > MAX_LOOKED_FOR:
                return self._too_much()
            others = [one for one in self._contents if one.integrity == "untrusted"]
            untrusted = [one for part in parts for one in _holding(part, others)]
        if untrusted:
            return _Found.in_contents("untrusted", untrusted, (*holding, *untrusted))
        return _Found.in_contents("unknown", (), holding)

    def _too_much(self) -> _Found:
        untrusted = [one for one in self._contents if one.integrity == "untrusted"]
        return _Found.in_contents("untrusted" if untrusted else "unknown", untrusted, self._contents)


def _holding(text: str, contents: Sequence[_Content]) -> list[_Content]:
    wanted = _Wanted.of(text)
    return [one for one in contents if _occurs(one, wanted)]


class _Found(NamedTuple):
    integrity: Literal["trusted", "untrusted", "unknown"]
    origins: tuple[str, ...]
    labels: tuple[Classification, ...]

    @classmethod
    def in_contents(
        cls,
        integrity: Literal["trusted", "untrusted", "unknown"],
        where: Sequence[_Content],
        labelled: Sequence[_Content],
    ) -> _Found:
        origins = tuple(dict.fromkeys(one.origin for one in where)) or ("planner",)
        return cls(integrity, origins, tuple(one.classification for one in labelled))


_ORDER: Final = ("untrusted", "unknown", "trusted")


class _Wanted(NamedTuple):
    """The forms of one value in which it is looked for in content; of a short value the word that it is."""

    forms: tuple[str, ...]
    word: str | None

    @classmethod
    def of(cls, text: str) -> _Wanted:
        folded = _fold(text)
        if len(folded) < MIN_PART_CHARS:
            return cls((), folded or None)
        forms = [folded, *map(_fold, _decodings(text))]
        if len(folded) >= MIN_TURNED_CHARS:
            forms += [folded[::-1], codecs.encode(folded, "rot13")]
        return cls(tuple(dict.fromkeys(one for one in forms if len(one) >= MIN_PART_CHARS)), None)


def _occurs(content: _Content, wanted: _Wanted) -> bool:
    if content.has_everything or any(form in content.folded for form in wanted.forms):
        return True
    return wanted.word in content.short


def _states(content: _Content, text: str) -> bool:
    """Whether content states a value exactly: it is one of its values, or a part of one between words.

    A part of an address or of a number is another address and another number.
    """
    stripped = text.strip()
    if not stripped:
        return True
    if any(stripped == value for value in content.values):
        return True
    around = None
    for value in content.values:
        if stripped in value:
            around = around or re.compile(
                rf"(?<![{_INSIDE}])(?<!\w[{_JOINS}]){re.escape(stripped)}(?=[.,;:!?]*(?:[^{_INSIDE}]|$))(?![{_JOINS}]\w)"
            )
            if around.search(value):
                return True
    return False


def _said(value: Any) -> tuple[str, ...] | None:
    """The folded texts of a value, and what they encode; None if that is more than can be looked at."""
    try:
        said = [form for text in _leaves(value) for form in (text, *_decodings(text))]
    except _TooMuch:
        return None
    return tuple(dict.fromkeys(one for one in map(_fold, said) if one))


def _repeats(value: str, arguments: Sequence[str]) -> bool:
    """Whether an answer has an argument in it, or is a part of one, also of what the argument encodes."""
    folded = _fold(value)
    if len(folded) < MIN_PART_CHARS:
        return folded in arguments
    parts = [folded, *(one for one in map(_fold, _parts(value)) if len(one) >= MIN_PART_CHARS)]
    return any(
        (len(one) >= MIN_PART_CHARS and one in folded) or any(part in one for part in parts) for one in arguments
    )


def _content(raw: _Raw) -> _Content:
    origin, integrity, classification, leaves = raw
    values = tuple(dict.fromkeys(leaves))
    if integrity == "trusted":
        return _Content(origin, integrity, classification, values, "\n".join(map(_fold, values)), frozenset())
    try:
        texts = [form for one in values for form in (one, *_decodings(one))]
    except _TooMuch:
        return _Content(origin, integrity, classification, (), "", frozenset(), has_everything=True)
    words = _SHORT_WORDS.findall(_normal("\n".join(texts)))
    return _Content(origin, integrity, classification, (), "\n".join(map(_fold, texts)), frozenset(words))


def _leaves(value: Any) -> Iterator[str]:
    """The texts and numbers of a JSON value, with the names of its members."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, child in value.items():
            yield str(name)
            yield from _leaves(child)
    elif isinstance(value, (list, tuple)):
        for child in value:
            yield from _leaves(child)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield canonical(value).decode()


def _normal(text: str) -> str:
    if text.isascii():
        return text.casefold()
    plain = unicodedata.normalize("NFKC", text).casefold()
    return _OTHER_DIGIT.sub(lambda match: str(unicodedata.decimal(match[0])), plain)


def _fold(text: str) -> str:
    """The letters and digits of a text, in one case."""
    if text.isascii():
        return text.encode().lower().translate(None, _NO_ASCII_WORD).decode()
    return _NO_WORD.sub("", _normal(text))


def _parts(text: str) -> list[str]:
    """The parts of a value that can decide where something goes: what looks like an address or a number, the host and
    the mailbox of an address, the domains above a host, and the last name in a path.
    """
    found: dict[str, None] = {}
    bare = _SCHEME.sub("", text.strip())
    if "/" in bare:
        found[bare.partition("?")[0].partition("#")[0].rstrip("/").rpartition("/")[2]] = None
    for part in _PARTS.findall(bare):
        if not _NAMES_A_PLACE.match(part):
            continue
        mailbox, at, host = part.strip(".-_").rpartition("@")
        labels = host.split(".")
        found |= dict.fromkeys((part.strip(".-_"), mailbox.partition("+")[0] if at else ""))
        found |= dict.fromkeys(".".join(labels[start:]) for start in range(len(labels) - 1))
    return [part for part in found if part != text and len(_fold(part)) >= MIN_PART_CHARS]


def _decodings(text: str) -> list[str]:
    """What a text says once the encodings that it can be in are taken off.

    Raises:
        _TooMuch: it says more than can be looked at.
    """
    found: dict[str, None] = {}
    layer: Iterable[str] = (text,)
    left = MAX_DECODED_CHARS
    for _ in range(MAX_DECODINGS):
        decoded: list[str] = []
        for one in (one for each in layer for one in _decoded(each)):
            if one == text or one in found:
                continue
            left -= len(one)
            if left < 0 or len(found) >= MAX_DECODED:
                raise _TooMuch
            found[one] = None
            decoded.append(one)
        layer = decoded
    return list(found)


class _TooMuch(Exception):
    """A text has more encodings in it than are taken off."""


def _decoded(text: str) -> Iterator[str]:
    if "%" in text:
        yield unquote(text)
    if "&" in text:
        yield unescape_html(text)
    if "\\" in text:
        yield _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
    if "=" in text:
        yield _QUOTED.sub(lambda match: chr(int(match[1], 16)) if match[1] else "", text)
    # Mail wraps encoded lines, and an author can put blanks between the characters.
    joined = "".join(text.split())
    said = [one for whole in dict.fromkeys((text, joined)) for run in _ENCODED.findall(whole) for one in _runs(run)]
    if said:
        yield "\n".join(dict.fromkeys(said))


def _runs(run: str) -> Iterator[str]:
    """What a run of characters says that could be Base64, Base32 or hex, from wherever it begins."""
    # A word in lower case is a word: Base64 of a few letters has others, and hex has digits.
    if run.isalpha() and run.islower():
        return
    plain = run.rstrip("=").replace("-", "+").replace("_", "/")
    for start in range(4):
        cut = plain[start:]
        yield from _texts_in(b64decode(cut[: len(cut) - (len(cut) % 4 == 1)] + "=" * (-len(cut) % 4)))
    for digits in _HEX.findall(run):
        for start in range(2):
            cut = digits[start:]
            yield from _texts_in(bytes.fromhex(cut[: len(cut) - len(cut) % 2]))
    for letters in _BASE32.findall(run):
        yield from _texts_in(b32decode(letters[: len(letters) - len(letters) % 8]))


def _texts_in(raw: bytes) -> list[str]:
    """The stretches of bytes that are text."""
    return _TEXT.findall(raw.decode("utf-8", "replace"))

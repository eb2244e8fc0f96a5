"""Keep the content that a run has seen, and find where in it the values of a call's arguments are.

Seen content is the request, the values of the pack's plans, retrieved evidence, recalled memories, attachments, the
contents of slots, and the answers of tools. Each content has an integrity and a classification. The definition of a
tool states both for its answers (such as `CapabilityDefinition.output_integrity`); the text of an answer never does.

A value is `trusted` if trusted content states it exactly, as a whole value or as words of a text. Else it is
`untrusted` if it occurs in untrusted content: as a part of a longer text, in another case or spacing, with invisible
characters, or encoded (percent, HTML, `\\u`, quoted-printable, Base64, hex, reversed, ROT13). A part of the value that
looks like an address, a number or a name in a path counts as the value. A value that is found nowhere is `unknown`: the
planner made it.
Source: docs/adr/0040-where-arguments-come-from.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from contextos.action.content.text_forms import (
    DECODING_WORK,
    MIN_PART_CHARS,
    ValueForm,
    Wanted,
    WorkExceeded,
    WorkLimit,
    decodings,
    fold,
    leaves,
    letters,
    normal,
    numbers,
    parts,
    short_words,
)
from contextos.contracts.envelopes.evidence import CLASSIFICATION_LEVELS, Classification, IntegrityLevel, TracedArgument
from contextos.contracts.journal import Logged
from contextos.contracts.scope import Capability, RunScope

MAX_LOOKED_FOR: Final = 256
"""The most values of one argument that are looked for. An argument with more values counts as untrusted, because nobody
knows where the others come from.
"""
MAX_SEARCHED_CHARS: Final = 256 << 20
MIN_SEARCHES: Final = 64
"""The characters that are searched for one call: `MAX_SEARCHED_CHARS`, or `MIN_SEARCHES` times all that the run has
seen if that is more. An argument that needs more counts as untrusted.
"""
PASS_WORK: Final = 256
"""The cost of each step of a search, counted in characters and added to the characters that the step reads."""
MAX_DECODED_CHARS: Final = 4 << 20
"""The most characters that are decoded of one content. Content that needs more counts as if it held every value."""

_INSIDE: Final = r"\w.@/+:%~#?&=\\-"
"""Characters that join words to one value, such as those of an address or a path."""
_JOINS: Final = r",;'!$*|"
"""Characters that join words to one value only if they are between two words."""
_BEFORE: Final = re.compile(rf"(?<![{_INSIDE}])(?<!\w[{_JOINS}])")
_AFTER: Final = re.compile(rf"(?=[.,;:!?]*(?:[^{_INSIDE}]|$))(?![{_JOINS}]\w)")


class _Raw(NamedTuple):
    """One piece of content as it was found. `leaves` are its texts and numbers, read once and only if needed."""

    origin: str
    integrity: IntegrityLevel
    classification: Classification
    leaves: Iterable[str]


class _Content(NamedTuple):
    """One piece of content. `values` are the unchanged texts and numbers of trusted content, empty for other content.
    `folded` is the folded text in which values are looked for, and `numbers` are its runs of digits. `short` are the
    words of untrusted content that are too short to be looked for in `folded`.
    """

    origin: str
    integrity: IntegrityLevel
    classification: Classification
    values: tuple[str, ...]
    folded: str
    numbers: bytes
    short: frozenset[str]
    has_everything: bool = False
    joined: str = ""
    """All `values` in one text, one a line: a text that is not found in it is not in any of them."""
    work: int = 0
    """The cost of looking through all `values`, in characters."""


_ITEMS: Final = ("evidence.retrieved", "memory.recalled")
_ANSWERS: Final = ("tool.returned", "tool.refused")
_TAKEN_IN: Final = {*_ITEMS, *_ANSWERS, "attachment.fetched", "slot.pinned", "effect.settled", "answer.compared"}
"""The kinds of entries that bring content into a run, or state which values of an answer earlier runs wrote."""

_GROWS: Final = ("_found", "_contents", "_trusted", "_writes")
"""The fields that grow as a run goes on. A copy that looks ahead gets copies of them."""


@dataclass(slots=True)
class SeenContent:
    """The content that one run has seen. `log` is the run's journal, which grows; its entries are read once each."""

    log: Sequence[Logged]
    _read: int = 0
    _found: list[_Raw] = field(default_factory=list)
    _has_untrusted: bool = False
    _contents: list[_Content] = field(default_factory=list)
    _trusted: list[_Content] = field(default_factory=list)
    """Those of `_contents` that are trusted."""
    _folded_chars: int = 0
    """The number of characters of `_contents` that are searched."""
    _not_trusted: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    """The folded untrusted arguments of each call, by the key of the call; None where they exceed the limit on work."""
    _writes: dict[str, None] = field(default_factory=dict)
    """The calls that wrote something, in order. What they wrote can be read again."""

    def to_compare(self, scope: RunScope) -> list[tuple[str, str, list[str]]]:
        """Return (entry key, adapter id, values) of the new trusted answers that earlier runs can have written."""
        found = []
        for entry in [one for one in self.log[self._read :] if one.kind in _ANSWERS]:
            capability = scope.tools.capabilities.get(entry.body["envelope"]["capability_id"])
            if capability is not None and _can_be_written(capability):
                values = list(dict.fromkeys(_texts_of(entry.body["envelope"])))
                found.append((entry.key, capability.adapter.adapter_id, values))
        return found

    def trace(
        self, key: str, args: Mapping[str, Any], scope: RunScope, *, always: bool
    ) -> dict[str, TracedArgument] | None:
        """Return where each argument of the call `key` (`<plan revision>/<step id>`) was found, by name.

        Unless `always` is set, returns None if the run has seen nothing untrusted: no argument can be untrusted then.
        """
        if not self.take_in(scope) and not always:
            return None
        traced = self._look_for_all(args, scope)
        own = [args[name] for name, one in traced.items() if one.integrity != "trusted"]
        self._not_trusted[key] = _said(own)
        return traced

    @property
    def has_untrusted(self) -> bool:
        """Return whether the run had seen untrusted content when it traced the last call."""
        return self._has_untrusted

    def look_ahead(self, args: Mapping[str, Any], scope: RunScope) -> dict[str, TracedArgument]:
        """Return where each argument was found, by name, without keeping anything of the search. An answer that is not
        yet compared with the values that earlier runs wrote (`to_compare`) counts as untrusted.
        """
        # Content that was taken in before is read here and not in the copy, so that it is read only once.
        self._read_in()
        grows: dict[str, Any] = {name: copy(getattr(self, name)) for name in _GROWS}
        return replace(self, **grows)._look_for_all(args, scope)

    def _look_for_all(self, args: Mapping[str, Any], scope: RunScope) -> dict[str, TracedArgument]:
        self.take_in(scope)
        self._read_in()
        unstated = scope.pinned.pack.pack_meta.data_classification
        work = WorkLimit(max(MAX_SEARCHED_CHARS, MIN_SEARCHES * self._folded_chars))
        texts = {name: list(dict.fromkeys(leaves(args[name]))) for name in sorted(args)}
        # Short arguments come first, so that a long one uses up the work only for itself.
        by_length = sorted(texts, key=lambda name: sum(map(len, texts[name])))
        found = {name: self._traced(texts[name], unstated, work) for name in by_length}
        return {name: found[name] for name in texts}

    def _read_in(self) -> None:
        new = [_content(one) for one in self._found[len(self._contents) :]]
        self._contents += new
        self._trusted += [one for one in new if one.integrity == "trusted"]
        self._folded_chars += sum(len(one.folded) for one in new)

    def take_in(self, scope: RunScope) -> bool:
        """Take in what is new in the journal, and return whether the run has seen untrusted content."""
        if not self._found:
            pack, received = scope.pinned.pack, scope.received.fields
            planned = [step.params for one in pack.decision_layer.task_templates for step in one.steps]
            label = pack.pack_meta.data_classification
            self._found += [
                _Raw("request", "trusted", label, leaves(received)),
                _Raw("pack", "trusted", label, leaves(planned)),
            ]
        upto = len(self.log)
        new = [one for one in self.log[self._read : upto] if one.kind in _TAKEN_IN]
        compared = {one.key: one.body["repeats"] for one in new if one.kind == "answer.compared"}
        for entry in new:
            for one in self._contents_of(entry, scope, compared):
                self._found.append(one)
                self._has_untrusted = self._has_untrusted or one.integrity != "trusted"
        self._read = upto
        return self._has_untrusted

    def _contents_of(
        self, entry: Logged, scope: RunScope, compared: Mapping[str, Sequence[int] | None]
    ) -> Iterator[_Raw]:
        """Yield the content that an entry brought into the run. `compared` has, by the key of an answer's entry, the
        numbers of the values that earlier runs wrote; None means that they can have written all.
        """
        label = scope.pinned.pack.pack_meta.data_classification
        if entry.kind in _ITEMS:
            for item in entry.body:
                name = f"evidence:{item.get('name') or item['predicate']}"
                origin = "memory" if entry.kind == "memory.recalled" else name
                values = leaves([item["subject"], item["value"]])
                yield _Raw(origin, item["integrity"], item["classification"], values)
        elif entry.kind == "attachment.fetched":
            yield _Raw("attachment", "untrusted", label, leaves(entry.body.get("text")))
        elif entry.kind == "slot.pinned":
            # A person chose the artifacts of the slot, and did not read each line of them.
            yield _Raw("slot", "untrusted", label, leaves(entry.body))
        elif entry.kind == "effect.settled":
            self._writes[entry.key] = None
            yield _Raw("settlement", "untrusted", label, leaves(entry.body))
        elif entry.kind in _ANSWERS:
            yield from self._answer(entry, label, scope, compared.get(entry.key))

    def _answer(
        self, entry: Logged, label: Classification, scope: RunScope, earlier: Sequence[int] | None
    ) -> Iterator[_Raw]:
        """Yield the content of a tool's answer. In a trusted answer, a value is untrusted if it repeats an untrusted
        argument of this call or of an earlier write of this run, or if an earlier run wrote it (`earlier`).
        """
        # The key of a later attempt is the key of the call, followed by the number of the attempt.
        call, envelope = "/".join(entry.key.split("/")[:2]), entry.body["envelope"]
        capability = scope.tools.capabilities.get(envelope["capability_id"])
        if capability is None or envelope["status"] in ("blocked", "rejected"):
            return
        if capability.definition.kind == "write":
            self._writes[call] = None
        origin, values = f"tool:{capability.capability_id}", _texts_of(envelope)
        label = capability.definition.output_classification or label
        if capability.definition.output_integrity != "trusted":
            yield _Raw(origin, "untrusted", label, values)
            return
        arguments = self._repeatable(call)
        if not _can_be_written(capability):
            earlier = ()
        if arguments is None or earlier is None:
            yield _Raw(origin, "untrusted", label, values)
            return
        if not arguments and not earlier:
            yield _Raw(origin, "trusted", label, values)
            return
        work, distinct = WorkLimit(MAX_SEARCHED_CHARS), dict.fromkeys(values)
        try:
            repeats = {one: _repeats(one, arguments, work) for one in distinct}
        except WorkExceeded:
            repeats = dict.fromkeys(distinct, True)
        repeats |= {one: True for place, one in enumerate(repeats) if place in earlier}
        yield _Raw(origin, "trusted", label, [one for one in repeats if not repeats[one]])
        if any(repeats.values()):
            yield _Raw(origin, "untrusted", label, [one for one in repeats if repeats[one]])

    def _repeatable(self, call: str) -> tuple[str, ...] | None:
        """Return the folded untrusted arguments that the answer of a call can repeat; None as in `_not_trusted`."""
        found: dict[str, None] = {}
        for one in (call, *self._writes):
            arguments = self._not_trusted.get(one, ())
            if arguments is None:
                return None
            found |= dict.fromkeys(arguments)
        return tuple(found)

    def _traced(self, texts: Sequence[str], unstated: Classification, work: WorkLimit) -> TracedArgument:
        """Return where the values of one argument were found. The least trusted value decides for the argument."""
        try:
            found = [self._look_for(text, work) for text in texts[:MAX_LOOKED_FOR]]
        except WorkExceeded:
            found = [self._too_much()]
        if len(texts) > MAX_LOOKED_FOR:
            found.append(self._too_much())
        worst = min(found, key=lambda one: _ORDER.index(one.integrity), default=_Found("trusted", ("planner",), ()))
        labels = [label for one in found for label in one.labels] or [unstated]
        highest = max(labels, key=CLASSIFICATION_LEVELS.index)
        return TracedArgument(origins=worst.origins, integrity=worst.integrity, classification=highest)

    def _look_for(self, text: str, work: WorkLimit) -> _Found:
        stating = [one for one in self._trusted if _states(one, text, work)]
        holding = _holding(text, self._contents, work)
        if stating:
            return _Found.in_contents("trusted", stating, (*stating, *holding))
        untrusted = [one for one in holding if one.integrity == "untrusted"]
        if not untrusted:
            # A part of the value can be an address that only untrusted content has.
            others = [one for one in self._contents if one.integrity == "untrusted"]
            named = [part for part in parts(text) if not any(_states(one, part, work) for one in self._trusted)]
            untrusted = [one for part in named for one in _holding(part, others, work)]
        if untrusted:
            return _Found.in_contents("untrusted", untrusted, (*holding, *untrusted))
        return _Found.in_contents("unknown", (), holding)

    def _too_much(self) -> _Found:
        untrusted = [one for one in self._contents if one.integrity == "untrusted"]
        return _Found.in_contents("untrusted" if untrusted else "unknown", untrusted, self._contents)


def _holding(text: str, contents: Sequence[_Content], work: WorkLimit) -> list[_Content]:
    wanted = Wanted.of(text, work)
    return [one for one in contents if _occurs(one, wanted, work)]


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


def _occurs(content: _Content, wanted: Wanted, work: WorkLimit) -> bool:
    if content.has_everything:
        return True
    # Called for every content with every value, so it is a loop, which takes half the time of `any`.
    for form in wanted.forms:
        if _has(content, form, work):
            return True
    return wanted.word in content.short


def _has(content: _Content, form: ValueForm, work: WorkLimit) -> bool:
    if form.number:
        # Most texts have few digits, so this is quick.
        work.spend(len(content.numbers))
        if form.number not in content.numbers:
            return False
    work.spend(len(content.folded))
    return form.text in content.folded


def _states(content: _Content, text: str, work: WorkLimit) -> bool:
    """Return whether content states a value exactly: as one of its values, or as whole words within one of them.

    A part of an address or of a number does not count, because it is another address or another number.
    """
    stripped = text.strip()
    if stripped and stripped not in content.joined:
        work.spend(content.work)
        return False
    return not stripped or any(_is_in(stripped, value, work) for value in content.values)


def _is_in(stripped: str, value: str, work: WorkLimit) -> bool:
    work.spend(len(value) + PASS_WORK)
    if stripped == value:
        return True
    at = value.find(stripped)
    while at >= 0:
        work.spend(2 * len(stripped) + PASS_WORK)
        if _BEFORE.match(value, at) and _AFTER.match(value, at + len(stripped)):
            return True
        at = value.find(stripped, at + 1)
    return False


def _can_be_written(capability: Capability) -> bool:
    """Return whether the answers of a tool are trusted although a run can write through the same adapter."""
    trusted = capability.definition.output_integrity == "trusted"
    return trusted and any(one.kind == "write" for one in capability.adapter.capabilities)


def _texts_of(envelope: Mapping[str, Any]) -> Iterator[str]:
    made = [[one["name"], one.get("content")] for one in envelope.get("artifacts", ())]
    return leaves([envelope.get("output"), envelope.get("error"), made])


def _said(value: Any) -> tuple[str, ...] | None:
    """Return the folded texts of a value and of their decodings; None if decoding them exceeds the limit on work."""
    work = WorkLimit(MAX_SEARCHED_CHARS)
    try:
        said = [form for text in leaves(value) for form in (text, *decodings(text, work))]
    except WorkExceeded:
        return None
    return tuple(dict.fromkeys(one for one in map(fold, said) if one))


def _repeats(value: str, arguments: Sequence[str], work: WorkLimit) -> bool:
    """Return whether an answer's value contains one of these folded arguments, or it or a part of it is within one."""
    folded = fold(value)
    if len(folded) < MIN_PART_CHARS:
        return folded in arguments
    within = [folded, *(one for one in map(fold, parts(value)) if len(one) >= MIN_PART_CHARS)]
    for one in arguments:
        work.spend(len(folded) + len(within) * (len(one) + PASS_WORK))
        if (len(one) >= MIN_PART_CHARS and one in folded) or any(part in one for part in within):
            return True
    return False


def _content(raw: _Raw) -> _Content:
    origin, integrity, classification, texts = raw
    values = tuple(dict.fromkeys(texts))
    if integrity == "trusted":
        folded = "\n".join(map(fold, values))
        found = _Content(origin, integrity, classification, values, folded, numbers(folded), frozenset())
        work_of_all = sum(map(len, values)) + PASS_WORK * len(values)
        return found._replace(joined="\n".join(values), work=work_of_all)
    work = WorkLimit(DECODING_WORK * (MAX_DECODED_CHARS + sum(map(len, values))))
    try:
        said = [normal(form) for one in values for form in (one, *decodings(one, work))]
    except WorkExceeded:
        return _Content(origin, integrity, classification, (), "", b"", frozenset(), has_everything=True)
    folded = "\n".join(map(letters, said))
    return _Content(origin, integrity, classification, (), folded, numbers(folded), short_words(said))

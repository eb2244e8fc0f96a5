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

_WORD_CHARS: Final = r"\w.@/+:%~#?&=\\-"
"""Characters that join words to one value, such as those of an address or a path."""
_JOINING_CHARS: Final = r",;'!$*|"
"""Characters that join words to one value only if they are between two words."""
_WORD_START: Final = re.compile(rf"(?<![{_WORD_CHARS}])(?<!\w[{_JOINING_CHARS}])")
_WORD_END: Final = re.compile(rf"(?=[.,;:!?]*(?:[^{_WORD_CHARS}]|$))(?![{_JOINING_CHARS}]\w)")


class _RawContent(NamedTuple):
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


_ITEM_KINDS: Final = ("evidence.retrieved", "memory.recalled")
_ANSWER_KINDS: Final = ("tool.returned", "tool.refused")
_OTHER_KINDS: Final = ("attachment.fetched", "slot.pinned", "effect.settled", "answer.compared")
_CONTENT_KINDS: Final = {*_ITEM_KINDS, *_ANSWER_KINDS, *_OTHER_KINDS}
"""The kinds of entries that bring content into a run, or state which values of an answer earlier runs wrote."""

_GROWING_FIELDS: Final = ("_raw_contents", "_contents", "_trusted", "_writes")
"""The fields that grow as a run goes on. A copy that looks ahead gets copies of them."""


@dataclass(slots=True)
class SeenContent:
    """The content that one run has seen. `log` is the run's journal, which grows; its entries are read once each."""

    log: Sequence[Logged]
    _entries_read: int = 0
    _raw_contents: list[_RawContent] = field(default_factory=list)
    _has_untrusted: bool = False
    _contents: list[_Content] = field(default_factory=list)
    _trusted: list[_Content] = field(default_factory=list)
    """The trusted items of `_contents`."""
    _folded_chars: int = 0
    """The number of characters of `_contents` that are searched."""
    _untrusted_args: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    """The folded untrusted arguments of each call, by the key of the call; None where they exceed the limit on work."""
    _writes: dict[str, None] = field(default_factory=dict)
    """The keys of the calls that wrote something, in order. A later answer can repeat their arguments."""

    def to_compare(self, scope: RunScope) -> list[tuple[str, str, list[str]]]:
        """Return (entry key, adapter id, values) of the new trusted answers that earlier runs can have written."""
        answers = []
        for entry in [logged for logged in self.log[self._entries_read :] if logged.kind in _ANSWER_KINDS]:
            capability = scope.tools.capabilities.get(entry.body["envelope"]["capability_id"])
            if capability is not None and _can_be_written(capability):
                values = list(dict.fromkeys(_envelope_texts(entry.body["envelope"])))
                answers.append((entry.key, capability.adapter.adapter_id, values))
        return answers

    def trace(
        self, key: str, args: Mapping[str, Any], scope: RunScope, *, always: bool
    ) -> dict[str, TracedArgument] | None:
        """Return where each argument of the call `key` (`<plan revision>/<step id>`) was found, by name.

        Unless `always` is set, returns None if the run has seen nothing untrusted: no argument can be untrusted then.
        """
        if not self.take_in(scope) and not always:
            return None
        traced = self._trace_all(args, scope)
        untrusted = [args[name] for name, argument in traced.items() if argument.integrity != "trusted"]
        self._untrusted_args[key] = _folded_forms(untrusted)
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
        self._prepare_contents()
        growing: dict[str, Any] = {name: copy(getattr(self, name)) for name in _GROWING_FIELDS}
        return replace(self, **growing)._trace_all(args, scope)

    def _trace_all(self, args: Mapping[str, Any], scope: RunScope) -> dict[str, TracedArgument]:
        self.take_in(scope)
        self._prepare_contents()
        unstated = scope.pinned.pack.pack_meta.data_classification
        work = WorkLimit(max(MAX_SEARCHED_CHARS, MIN_SEARCHES * self._folded_chars))
        texts = {name: list(dict.fromkeys(leaves(args[name]))) for name in sorted(args)}
        # Short arguments come first, so that a long one uses up the work only for itself.
        by_length = sorted(texts, key=lambda name: sum(map(len, texts[name])))
        traced = {name: self._trace_argument(texts[name], unstated, work) for name in by_length}
        return {name: traced[name] for name in texts}

    def _prepare_contents(self) -> None:
        new = [_prepare_content(raw) for raw in self._raw_contents[len(self._contents) :]]
        self._contents += new
        self._trusted += [content for content in new if content.integrity == "trusted"]
        self._folded_chars += sum(len(content.folded) for content in new)

    def take_in(self, scope: RunScope) -> bool:
        """Read the new entries of the journal, and return whether the run has seen untrusted content."""
        if not self._raw_contents:
            pack, received = scope.pinned.pack, scope.received.fields
            plan_params = [step.params for raw in pack.decision_layer.task_templates for step in raw.steps]
            label = pack.pack_meta.data_classification
            self._raw_contents += [
                _RawContent("request", "trusted", label, leaves(received)),
                _RawContent("pack", "trusted", label, leaves(plan_params)),
            ]
        end = len(self.log)
        new_entries = [entry for entry in self.log[self._entries_read : end] if entry.kind in _CONTENT_KINDS]
        compared = {entry.key: entry.body["repeats"] for entry in new_entries if entry.kind == "answer.compared"}
        for entry in new_entries:
            for raw in self._contents_of(entry, scope, compared):
                self._raw_contents.append(raw)
                self._has_untrusted = self._has_untrusted or raw.integrity != "trusted"
        self._entries_read = end
        return self._has_untrusted

    def _contents_of(
        self, entry: Logged, scope: RunScope, compared: Mapping[str, Sequence[int] | None]
    ) -> Iterator[_RawContent]:
        """Yield the content that an entry brought into the run. `compared` has, by the key of an answer's entry, the
        numbers of the values that earlier runs wrote; None means that they can have written all.
        """
        label = scope.pinned.pack.pack_meta.data_classification
        if entry.kind in _ITEM_KINDS:
            for item in entry.body:
                name = f"evidence:{item.get('name') or item['predicate']}"
                origin = "memory" if entry.kind == "memory.recalled" else name
                values = leaves([item["subject"], item["value"]])
                yield _RawContent(origin, item["integrity"], item["classification"], values)
        elif entry.kind == "attachment.fetched":
            yield _RawContent("attachment", "untrusted", label, leaves(entry.body.get("text")))
        elif entry.kind == "slot.pinned":
            # A person chose the artifacts of the slot, and did not read each line of them.
            yield _RawContent("slot", "untrusted", label, leaves(entry.body))
        elif entry.kind == "effect.settled":
            self._writes[entry.key] = None
            yield _RawContent("settlement", "untrusted", label, leaves(entry.body))
        elif entry.kind in _ANSWER_KINDS:
            yield from self._answer_contents(entry, label, scope, compared.get(entry.key))

    def _answer_contents(
        self, entry: Logged, label: Classification, scope: RunScope, earlier: Sequence[int] | None
    ) -> Iterator[_RawContent]:
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
        origin, values = f"tool:{capability.capability_id}", _envelope_texts(envelope)
        label = capability.definition.output_classification or label
        if capability.definition.output_integrity != "trusted":
            yield _RawContent(origin, "untrusted", label, values)
            return
        arguments = self._repeatable_args(call)
        if not _can_be_written(capability):
            earlier = ()
        if arguments is None or earlier is None:
            yield _RawContent(origin, "untrusted", label, values)
            return
        if not arguments and not earlier:
            yield _RawContent(origin, "trusted", label, values)
            return
        work, distinct = WorkLimit(MAX_SEARCHED_CHARS), dict.fromkeys(values)
        try:
            repeats = {text: _repeats(text, arguments, work) for text in distinct}
        except WorkExceeded:
            repeats = dict.fromkeys(distinct, True)
        repeats |= {text: True for index, text in enumerate(repeats) if index in earlier}
        yield _RawContent(origin, "trusted", label, [text for text in repeats if not repeats[text]])
        if any(repeats.values()):
            yield _RawContent(origin, "untrusted", label, [text for text in repeats if repeats[text]])

    def _repeatable_args(self, call: str) -> tuple[str, ...] | None:
        """Return the folded untrusted arguments that the answer of a call can repeat; None as in `_not_trusted`."""
        repeatable: dict[str, None] = {}
        for write in (call, *self._writes):
            arguments = self._untrusted_args.get(write, ())
            if arguments is None:
                return None
            repeatable |= dict.fromkeys(arguments)
        return tuple(repeatable)

    def _trace_argument(self, texts: Sequence[str], unstated: Classification, work: WorkLimit) -> TracedArgument:
        """Return where the values of one argument were found. The least trusted value decides for the argument."""
        try:
            findings = [self._find_text(text, work) for text in texts[:MAX_LOOKED_FOR]]
        except WorkExceeded:
            findings = [self._over_limit()]
        if len(texts) > MAX_LOOKED_FOR:
            findings.append(self._over_limit())
        nowhere = _Finding("trusted", ("planner",), ())
        worst = min(findings, key=lambda finding: _ORDER.index(finding.integrity), default=nowhere)
        labels = [label for finding in findings for label in finding.labels] or [unstated]
        highest = max(labels, key=CLASSIFICATION_LEVELS.index)
        return TracedArgument(origins=worst.origins, integrity=worst.integrity, classification=highest)

    def _find_text(self, text: str, work: WorkLimit) -> _Finding:
        stating = [content for content in self._trusted if _states(content, text, work)]
        containing = _contents_with(text, self._contents, work)
        if stating:
            return _Finding.in_contents("trusted", stating, (*stating, *containing))
        untrusted = [content for content in containing if content.integrity == "untrusted"]
        if not untrusted:
            # A part of the value can be an address that only untrusted content has.
            untrusted_contents = [content for content in self._contents if content.integrity == "untrusted"]
            unstated = [part for part in parts(text) if not any(_states(item, part, work) for item in self._trusted)]
            untrusted = [content for part in unstated for content in _contents_with(part, untrusted_contents, work)]
        if untrusted:
            return _Finding.in_contents("untrusted", untrusted, (*containing, *untrusted))
        return _Finding.in_contents("unknown", (), containing)

    def _over_limit(self) -> _Finding:
        untrusted = [content for content in self._contents if content.integrity == "untrusted"]
        return _Finding.in_contents("untrusted" if untrusted else "unknown", untrusted, self._contents)


def _contents_with(text: str, contents: Sequence[_Content], work: WorkLimit) -> list[_Content]:
    search = Wanted.of(text, work)
    return [content for content in contents if _occurs(content, search, work)]


class _Finding(NamedTuple):
    integrity: Literal["trusted", "untrusted", "unknown"]
    origins: tuple[str, ...]
    labels: tuple[Classification, ...]

    @classmethod
    def in_contents(
        cls,
        integrity: Literal["trusted", "untrusted", "unknown"],
        contents: Sequence[_Content],
        labelled: Sequence[_Content],
    ) -> _Finding:
        origins = tuple(dict.fromkeys(content.origin for content in contents)) or ("planner",)
        return cls(integrity, origins, tuple(content.classification for content in labelled))


_ORDER: Final = ("untrusted", "unknown", "trusted")


def _occurs(content: _Content, search: Wanted, work: WorkLimit) -> bool:
    if content.has_everything:
        return True
    # Called for every content with every value, so it is a loop, which takes half the time of `any`.
    for form in search.forms:
        if _contains(content, form, work):
            return True
    return search.word in content.short


def _contains(content: _Content, form: ValueForm, work: WorkLimit) -> bool:
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
    return not stripped or any(_is_whole_word(stripped, value, work) for value in content.values)


def _is_whole_word(stripped: str, value: str, work: WorkLimit) -> bool:
    work.spend(len(value) + PASS_WORK)
    if stripped == value:
        return True
    start = value.find(stripped)
    while start >= 0:
        work.spend(2 * len(stripped) + PASS_WORK)
        if _WORD_START.match(value, start) and _WORD_END.match(value, start + len(stripped)):
            return True
        start = value.find(stripped, start + 1)
    return False


def _can_be_written(capability: Capability) -> bool:
    """Return whether the answers of a tool are trusted although a run can write through the same adapter."""
    trusted = capability.definition.output_integrity == "trusted"
    return trusted and any(tool.kind == "write" for tool in capability.adapter.capabilities)


def _envelope_texts(envelope: Mapping[str, Any]) -> Iterator[str]:
    artifacts = [[artifact["name"], artifact.get("content")] for artifact in envelope.get("artifacts", ())]
    return leaves([envelope.get("output"), envelope.get("error"), artifacts])


def _folded_forms(value: Any) -> tuple[str, ...] | None:
    """Return the folded texts of a value and of their decodings; None if decoding them exceeds the limit on work."""
    work = WorkLimit(MAX_SEARCHED_CHARS)
    try:
        forms = [form for text in leaves(value) for form in (text, *decodings(text, work))]
    except WorkExceeded:
        return None
    return tuple(dict.fromkeys(text for text in map(fold, forms) if text))


def _repeats(value: str, arguments: Sequence[str], work: WorkLimit) -> bool:
    """Return whether an answer's value contains one of these folded arguments, or an argument contains the value or a
    part of it.
    """
    folded = fold(value)
    if len(folded) < MIN_PART_CHARS:
        return folded in arguments
    within = [folded, *(part for part in map(fold, parts(value)) if len(part) >= MIN_PART_CHARS)]
    for argument in arguments:
        work.spend(len(folded) + len(within) * (len(argument) + PASS_WORK))
        if (len(argument) >= MIN_PART_CHARS and argument in folded) or any(part in argument for part in within):
            return True
    return False


def _prepare_content(raw: _RawContent) -> _Content:
    origin, integrity, classification, texts = raw
    values = tuple(dict.fromkeys(texts))
    if integrity == "trusted":
        folded = "\n".join(map(fold, values))
        content = _Content(origin, integrity, classification, values, folded, numbers(folded), frozenset())
        work_of_all = sum(map(len, values)) + PASS_WORK * len(values)
        return content._replace(joined="\n".join(values), work=work_of_all)
    work = WorkLimit(DECODING_WORK * (MAX_DECODED_CHARS + sum(map(len, values))))
    try:
        forms = [normal(form) for value in values for form in (value, *decodings(value, work))]
    except WorkExceeded:
        return _Content(origin, integrity, classification, (), "", b"", frozenset(), has_everything=True)
    folded = "\n".join(map(letters, forms))
    return _Content(origin, integrity, classification, (), folded, numbers(folded), short_words(forms))

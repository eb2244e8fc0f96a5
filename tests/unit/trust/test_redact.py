"""What must not leave: redaction by rule, the scan for what nobody sees, and text that is safe to show."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.encoding.display_escape import escape_for_display
from contextos.contracts.encoding.redacted import REDACTION_TARGETS
from contextos.errors import InvalidArtifact
from contextos.trust.redact import (
    MAX_UNSAFE_FINDINGS,
    find_secrets,
    find_unsafe_texts,
    redact,
    refuse_unknown_rules,
    scan_unsafe,
)

CARD = "4111 1111 1111 1111"
SECRETS = {
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "jwt": "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "bearer": "Authorization: Bearer abcdefghij0123456789==",
    "github": "ghp_" + "a1B2" * 9,
    "slack": "xoxb-123456789012-abcdefghijkl",
    "openai": "sk-proj-abcdefghijklmnopqrstuvwx",
    "stripe": "sk_live_abcdefghijklmnop",
    "url": "postgres://app:hunter2@db.internal/main",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,0\n\nMIIE\n-----END RSA PRIVATE KEY-----",
}
ORDINARY = [
    "order ord_881 for INR 4200",
    "skill-based routing of a task-list-item",
    "run_a1b2c3d4e5f60718",
    "the bearer of news",
    "2026-05-04T09:31:30Z",
    "sha256:" + "b2a1" * 16,
    "https://example.com/a:b@c",
    "version 1.2.3",
]

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=30)
)
TREES = st.recursive(
    LEAVES,
    lambda kids: st.lists(kids, max_size=4) | st.dictionaries(st.text(max_size=8), kids, max_size=4),
    max_leaves=10,
)


def luhn(digits: str) -> bool:
    """The check as its specification says it, without running sums."""
    total = 0
    for at, digit in enumerate(reversed([int(one) for one in digits])):
        total += digit if at % 2 == 0 else sum(divmod(digit * 2, 10))
    return total % 10 == 0


def with_check_digit(stem: str) -> str:
    return next(stem + digit for digit in "0123456789" if luhn(stem + digit))


def codes(value: Any, *, declared_text: bool = True) -> list[tuple[str, str]]:
    return [(problem.pointer, problem.code) for problem in scan_unsafe(value, declared_text=declared_text)]


@given(st.text("0123456789", min_size=12, max_size=18))
def test_every_number_that_passes_luhn_is_redacted_in_every_spelling(stem: str) -> None:
    digits = with_check_digit(stem)
    pairs = [digits[at : at + 4] for at in range(0, len(digits), 4)]
    for mark in ("", " ", "-", "\u00a0", "\u200b", ". "):
        assert redact(f"pay with {mark.join(pairs)}, please", ["pan"]) == ("pay with [redacted:pan], please", ("pan",))


@given(st.text("0123456789", min_size=12, max_size=18))
def test_a_number_with_a_wrong_check_digit_is_left_alone(stem: str) -> None:
    right = with_check_digit(stem)
    wrong = right[:-1] + str((int(right[-1]) + 1) % 10)
    assert redact(f"#{wrong}", ["pan"]) == (f"#{wrong}", ())


@given(st.lists(st.text("0123456789", min_size=1, max_size=6), min_size=1, max_size=12))
def test_no_stretch_of_groups_that_is_a_card_is_left(groups: list[str]) -> None:
    redacted, _ = redact(" ".join(groups), ["pan"])
    left = [part.split() for part in redacted.split("[redacted:pan]")]
    for kept in left:
        for first in range(len(kept)):
            for last in range(first + 1, len(kept) + 1):
                digits = "".join(kept[first:last])
                assert not (13 <= len(digits) <= 19 and luhn(digits))


def test_a_card_beside_other_numbers_is_found() -> None:
    assert redact(f"12 {CARD} 12/27 and again {CARD}.", ["pan"])[0].count("[redacted:pan]") == 2
    assert "4111" not in redact(f"12 {CARD} 12/27", ["pan"])[0]


def test_digits_of_another_script_are_digits() -> None:
    fullwidth = CARD.translate({ord("0") + n: 0xFF10 + n for n in range(10)})
    assert redact(fullwidth, ["pan"]) == ("[redacted:pan]", ("pan",))


def test_a_card_as_a_number_is_redacted_and_a_time_is_not() -> None:
    assert redact({"a": 4111111111111111, "b": 4111111111111111.0, "c": 5105105105105100}, ["pan"])[0] == dict.fromkeys(
        "abc", "[redacted:pan]"
    )
    for number in (
        1_777_887_000_000_000,
        True,
        4200,
        4111111111111112,
        -4111111111111111,
        4.5,
        1e300,
        int(with_check_digit("200000000000000")),
    ):
        assert redact(number, ["pan"]) == (number, ())


def test_keys_are_redacted_and_nothing_is_lost_when_two_become_one() -> None:
    value = {CARD: 1, CARD.replace(" ", "-"): 2, "[redacted:pan]~2": 3}
    redacted, applied = redact(value, ["pan"])
    assert applied == ("pan",)
    assert sorted(redacted.values()) == [1, 2, 3]
    assert "4111" not in json.dumps(redacted)


def test_names_that_become_one_take_time_in_proportion_to_their_number() -> None:
    class Counted(dict[str, Any]):
        asked = 0

        def __contains__(self, name: object) -> bool:
            Counted.asked += 1
            return super().__contains__(name)

    names = [f"a{number}@mail.example" for number in range(300)]
    redacted, _ = redact(Counted(dict.fromkeys(names, 1)), ["email"])
    assert list(redacted) == ["[redacted:email]", *(f"[redacted:email]~{number}" for number in range(2, 301))]
    assert Counted.asked < 2 * len(names)


def test_both_names_of_a_rule_do_the_same_and_both_are_reported() -> None:
    assert redact(CARD, ["credit_card"]) == ("[redacted:pan]", ("credit_card",))
    assert redact(CARD, ["pan", "credit_card", "email"]) == ("[redacted:pan]", ("credit_card", "pan"))


@pytest.mark.parametrize("text", ["a.b+c@mail.example.com", "jürgen@bücher.example", "x@y.co"])
def test_an_email_address_is_redacted(text: str) -> None:
    assert redact(f"to <{text}>, now", ["email"]) == ("to <[redacted:email]>, now", ("email",))


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_redacted_and_found_by_the_scan(kind: str) -> None:
    redacted, applied = redact({"log": [f"see {SECRETS[kind]} there"]}, ["secret"])
    assert applied == ("secret",)
    assert redacted["log"][0].startswith("see ")
    assert "[redacted:secret]" in redacted["log"][0]
    for part in ("hunter2", "MIIE", SECRETS[kind]):
        assert part not in redacted["log"][0]
    assert ("/log/0", "secret") in codes({"log": [SECRETS[kind]]})


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_left_alone_and_is_safe(text: str) -> None:
    assert redact({text: text}, ["secret", "pan"]) == ({text: text}, ())
    assert codes({text: text}, declared_text=False) == []


def test_an_unknown_rule_is_refused_and_never_passed_over() -> None:
    for rules in (["pan", "ssn"], ["PAN"], [""]):
        with pytest.raises(InvalidArtifact, match="there is no redaction rule"):
            redact(CARD, rules)
    with pytest.raises(InvalidArtifact) as caught:
        refuse_unknown_rules(["b", "a", "pan"])
    assert len(caught.value.problems) == 2
    refuse_unknown_rules(REDACTION_TARGETS)


def test_no_rules_redact_nothing() -> None:
    assert redact({"a": CARD}, []) == ({"a": CARD}, ())


@given(TREES, st.sets(st.sampled_from(sorted(REDACTION_TARGETS))))
def test_redacting_twice_changes_nothing_more(value: Any, rules: set[str]) -> None:
    once, _ = redact(value, rules)
    assert redact(once, rules) == (once, ())


@given(TREES)
def test_redaction_keeps_the_shape(value: Any) -> None:
    def shape(tree: Any) -> Any:
        if isinstance(tree, dict):
            return [shape(child) for child in tree.values()]
        return [shape(child) for child in tree] if isinstance(tree, list) else None

    assert shape(redact(value, sorted(REDACTION_TARGETS))[0]) == shape(value)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a\u200bb", "hidden_character"),
        ("a\ufeffb", "hidden_character"),
        ("a \u00adb", "hidden_character"),
        ("pay\u00ad\u00adment", "hidden_character"),
        ("1\u00ad0", "hidden_character"),
        ("a\u2800b", "hidden_character"),
        ("\u2800", "hidden_character"),
        ("a\u3164b", "hidden_character"),
        ("a\U00013430b", "hidden_character"),
        ("ไทย\u200b\u200bไทย", "hidden_character"),
        ("ไทย\u200bthai", "hidden_character"),
        ("می\u200c\u200c خواهم", "hidden_character"),
        ("葛\U000e0100\U000e0101", "hidden_character"),
        ("\u180b", "hidden_character"),
        ("\U0001f3f4\U000e0069\U000e0067\U000e006e\U000e007f", "tag_character"),
        ("x\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "tag_character"),
        ("\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067", "tag_character"),
        ("a\u200db", "hidden_character"),
        ("a\U000e0100", "hidden_character"),
        ("é\u200d\u200dé", "hidden_character"),
        ("é\u200d", "hidden_character"),
        ("a\u202eb", "bidi_control"),
        ("a\u2066b", "bidi_control"),
        ("a\U000e0041\U000e0042", "tag_character"),
        ("\x1b[31mred", "ansi_escape"),
        ("\x9b31m", "ansi_escape"),
        ("葛" + "\U000e0159葛" * 5, "hidden_character"),
        ("葛\U000e0159\U000e0159", "hidden_character"),
        ("co\u00adop" * 5, "hidden_character"),
        ("a\x00b", "control_character"),
        ("a\x08b", "control_character"),
        ("a\x85b", "control_character"),
    ],
)
def test_invisible_characters_are_found_in_values_and_in_keys(text: str, code: str) -> None:
    for declared_text in (True, False):
        assert codes({"a": text}, declared_text=declared_text) == [("/a", code)]
        assert codes([{text: 1}], declared_text=declared_text) == [("/0", code)]


@pytest.mark.parametrize(
    "text",
    [
        *("two\nlines\tand a tab\r\n", "👨‍👩‍👧 ❤️‍🔥 1️⃣ ©️", "می‌خواهم", "क्‍ष", "naïve café", "日本語"),
        *("co\u00adoperate", "Größen\u00adänderung", "สวัสดี\u200bครับ", "ភាសា\u200bខ្មែរ", "خانه\u200c ها", "می\u200c."),
        *("葛\U000e0100飾", "\u1820\u180b", "\u2801\u2800\u2803"),
        "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f wins",
    ],
)
def test_ordinary_writing_is_safe_where_text_was_declared(text: str) -> None:
    assert codes(text) == []


@pytest.mark.parametrize("text", ["two\nlines", "a\tb", "a\r", "می‌خواهم", "❤️‍🔥"])
def test_in_ids_and_codes_even_that_is_refused(text: str) -> None:
    assert codes(text, declared_text=False) != []


def test_a_refusal_names_the_code_point() -> None:
    [found] = scan_unsafe({"a": "x\u200by"}, declared_text=True)
    assert found.detail == "the text contains an invisible character, U+200B"


def test_the_scan_never_echoes_its_finding() -> None:
    secret = SECRETS["github"]
    problems = scan_unsafe({secret: {"x\u202e": [secret + "\u200b"]}}, declared_text=True)
    assert {problem.code for problem in problems} == {"secret", "hidden_character", "bidi_control"}
    said = "".join(str(problem) for problem in problems)
    assert secret not in said
    assert "\u202e" not in said


def test_secrets_alone_are_found_with_the_remedy_of_the_place() -> None:
    found = find_secrets({"a": [SECRETS["github"]], "b": "x\u200b"}, "name a reference")
    assert [(one.pointer, one.code, one.remedy) for one in found] == [("/a/0", "secret", "name a reference")]
    assert find_secrets({"a": "plain"}, "name a reference") == ()


def test_the_scan_reports_a_bounded_number() -> None:
    assert len(scan_unsafe(["\u200b"] * 1000, declared_text=True)) == MAX_UNSAFE_FINDINGS


@given(st.text(st.characters(), max_size=40))
def test_displayed_text_has_nothing_hidden(text: str) -> None:
    shown = escape_for_display(text)
    assert [problem for problem in scan_unsafe(shown, declared_text=False) if problem.code != "secret"] == []


def test_what_conditions_look_for_hides_nothing_of_what_people_read() -> None:
    looked_for = [f"v\u200b{at}" for at in range(200)]
    rule = {"if": {"in": [{"var": "args.name"}, looked_for]}}
    pack = {
        "policy_layer": {"policy_bundles": [{"policy_dsl": {"rules": [rule]}}]},
        "tone_and_comms": {"voice": "kind \u202e\u200b"},
        "environment_defaults": {"if": {"note": "\u202e hidden"}},
    }
    assert {one.pointer for one in find_unsafe_texts(pack)} == {
        "/tone_and_comms/voice",
        "/environment_defaults/if/note",
    }

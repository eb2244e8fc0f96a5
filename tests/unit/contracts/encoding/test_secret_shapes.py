"""What looks like a secret is found wherever it stands, and what only looks a little like one is left alone."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextos.contracts.encoding.secret_shapes import (
    SECRET_MARK,
    SECRET_SIGN,
    is_secret_member,
    linear_pattern,
    without_secrets,
)
from contextos.trust.redact import find_secrets, redact
from tests.planted import planted

chance = random.Random(4)
WITH_NAME = [
    ("SecretAccessKey", "aB39/" + "x" * 30),
    ("password", "hunter2"),
    ("clientSecret", "aB3" * 8),
    ("secret", "0f" * 32),
]
ORDINARY = [
    "sha256:" + hashlib.sha256(b"x").hexdigest(),
    "sha512-" + base64.b64encode(hashlib.sha512(b"x").digest()).decode(),
    hashlib.sha1(b"x").hexdigest(),
    str(uuid.UUID(int=chance.getrandbits(128), version=4)),
    "run_a1b2c3d4e5f60718, ord_881, txn_paid_ord_881, cus_77, tool_0123456789abcdef",
    "DE89 3704 0044 0532 0130 00, GB29NWBK60161331926819, FR1420041010050500013M02606",
    "data:image/png;base64," + base64.b64encode(chance.randbytes(30_000)).decode(),
    base64.urlsafe_b64encode(chance.randbytes(3_000)).decode(),
    chance.randbytes(4_000).hex(),
    "2026-05-04T09:31:30Z 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "https://example.com:8443/a:b@c?page_token=CAUQAA&next=abc#x@y",
    "git@github.com:acme/shop.git ssh://git@host/x postgres://db.internal:5432/main",
    "Basic internationalization and a basic understanding of BASIC PROGRAMMING1",
    "the password: required, passwords=unchanged, password = None, password=getpass(), secret: see the handbook",
    "api_key=settings.API_KEY_V2, secret=os.environ, token_ref=tok_usr_771, next_page_token=CAUQAB12abcDEF34567890",
    "secret: vault/kv/production/payments2, secret=arn/of/the/secret/in/eu1, client_secret=${CLIENT_SECRET_2026A}",
    "skill-based routing of a task-list-item, sk-learn, SK 12, SG.1, hf_token, npm_config, pypi-server, ya29",
    "sk-learn-a-model-that-ranks-things, sk-2024-annual-report-final, by-pass: level2, Signature=none, bypass=lane42",
    "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAsn7RZv8ep828",
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE17bjjfvM4bZIxb3xFPpv",
    "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----",
    "eyJhbGciOiJub25lIn0",
]


@pytest.mark.parametrize("shape", planted())
@pytest.mark.parametrize("around", ["{}", "see {} there", 'x="{}";', "a\n{}\nb", "({})", "ключ {} здесь"])
def test_a_secret_is_found_in_every_place_of_a_text(shape: str, around: str) -> None:
    one = planted()[shape]
    kept = without_secrets(around.format(one.text))
    assert one.secret not in kept
    assert SECRET_MARK in kept
    assert without_secrets(kept) == kept


@pytest.mark.parametrize("shape", planted())
def test_a_secret_is_redacted_and_reported_in_every_place_of_a_value(shape: str) -> None:
    one = planted()[shape]
    for value in ({"a": {"b": [one.text]}}, {one.text: 1}, [f"{'words ' * 5_000}{one.text}"], json.dumps([one.text])):
        redacted, applied = redact(value, ["secret"])
        assert applied == ("secret",)
        assert one.secret not in json.dumps(redacted)
        assert [problem.code for problem in find_secrets(value, "x")] == ["secret"]
        assert redact(redacted, ["secret"]) == (redacted, ())


@pytest.mark.parametrize(("name", "value"), WITH_NAME)
def test_the_name_of_a_member_makes_its_value_a_secret(name: str, value: str) -> None:
    assert is_secret_member(name, value)
    assert redact({"of": [{name: value, "user": "app"}]}, ["secret"])[0] == {"of": [{name: SECRET_MARK, "user": "app"}]}
    assert [one.pointer for one in find_secrets({"of": [{name: value}]}, "x")] == [f"/of/0/{name}"]
    assert redact({name: value}, ["pan"]) == ({name: value}, ())


@pytest.mark.parametrize("text", ORDINARY, ids=range(len(ORDINARY)))
def test_what_is_no_secret_is_left_as_it_is(text: str) -> None:
    for value in (text, {"digest": text}, [f"ünï {text}\n"], {text[:200]: {"secret": {"id": text}}}):
        assert redact(value, ["secret"]) == (value, ())
        assert find_secrets(value, "x") == ()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("secret", "vault/kv/shop2"),
        ("password", "required"),
        ("password", "at least 8 characters"),
        ("secret", ""),
        ("api_key_id", "aB39" * 8),
        ("secret_name", "aB39" * 8),
        ("token", "aB39" * 7),
        ("next_page_token", "aB39" * 8),
    ],
)
def test_a_name_alone_makes_no_secret(name: str, value: str) -> None:
    assert redact({name: value}, ["secret"]) == ({name: value}, ())


@given(st.lists(st.sampled_from([*"abcXYZ019 :=@/.-_\"'[]\\\n", "secret", "password=", "basic ", "://", "sk-", "eyJ"])))
def test_redacting_twice_changes_nothing_more_and_nothing_is_overlooked(parts: list[str]) -> None:
    """The quick look at the JSON of a value and the look at each text agree."""
    text = "".join(parts)
    kept = without_secrets(text)
    assert without_secrets(kept) == kept
    assert redact([text, "ü"], ["secret"])[0] == [kept, "ü"]
    assert redact([text], ["secret"])[0] == [kept]


UUID = "3fa85f64-5717-4562-b3fc-2c963f66afa6"


@pytest.mark.parametrize(
    "text",
    [
        "PWD=/home/user1/project2",
        "password: process.env.DB_PASSWORD_V2,",
        "connect(host, password=settings.DB1_PASSWORD)",
        "password=DB_PASSWORD_2",
        "forgot_password: /users/password/new2",
        f'"access_key": "{UUID}"',
        "encryption_key: AES256-GCM-NoPadding",
        "Authorization: Bearer YOUR_ACCESS_TOKEN_HERE",
        "the standard-bearer responsibilities are listed",
        '{"url":"redis://localhost:6379","contact":"ops@example.com"}',
        "http://host.example:8080?notify=ana@example.com",
    ],
)
def test_names_paths_and_placeholders_are_no_secrets(text: str) -> None:
    assert redact({"said": text}, ["secret"]) == ({"said": text}, ())
    assert redact({"access_key": UUID}, ["secret"]) == ({"access_key": UUID}, ())


@pytest.mark.parametrize("text", [f"secret_access_key={UUID}", f"api_key={UUID}", "password=HUNTER2X9"])
def test_what_only_looks_like_a_name_or_an_id_is_a_secret(text: str) -> None:
    assert without_secrets(text) == "[redacted:secret]"


@pytest.mark.parametrize("before", ["", "db_", "user", "DB-", "x."])
@pytest.mark.parametrize(
    "name", ["pwd", "PWD", "password", "passwd", "passphrase", "api_key", "apiKey", "client_secret", "access-token"]
)
def test_whether_a_member_is_a_secret_does_not_depend_on_what_is_beside_it(before: str, name: str) -> None:
    member = before + name
    value = "Hunter2x9" + "aB39" * 4
    assert is_secret_member(member, value)
    assert linear_pattern(SECRET_SIGN).search(json.dumps({member: value}))
    for beside in ("", "\u00e9"):
        kept, rules = redact({member: value, "beside": beside}, ["secret"])
        assert (kept, rules) == ({member: "[redacted:secret]", "beside": beside}, ("secret",))

"""E30: key files that are not what they should be, and a key service that is somebody else."""

from __future__ import annotations

import json
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

import contextos
from contextos.adapters.encrypted_keys import Pkcs8Files, make_pkcs8_keys
from contextos.adapters.key_files import KeyFiles
from contextos.cli.demo.workspace import Workspace, example_operator, make_workspace, seed_graph
from contextos.contracts.encoding.codec import loads
from contextos.contracts.encoding.jcs import canonical
from contextos.control.artifacts import PACK_TYPE
from contextos.errors import ContextOSError, InvalidSettings, SignatureInvalid, Unavailable
from contextos.store.shared.clock import SystemClock
from contextos.trust.seal import seal
from contextos.workspace.settings import Settings
from contextos.workspace.settings.keys import Pkcs8KeysSetting, RemoteKeysSetting
from tests.kms import TOKEN, KeyService, key_service, pem, pinned
from tests.world import TENANT, ManualClock, request

PASSPHRASE = b"correct horse battery staple"

OTHER_KEYS: dict[str, Callable[[], Any]] = {
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
    "P-256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "Ed448": ed448.Ed448PrivateKey.generate,
    "X25519": x25519.X25519PrivateKey.generate,
}


def write(path: Path, key: Any, encryption: Any = None, form: PrivateFormat = PrivateFormat.PKCS8) -> None:
    path.write_bytes(key.private_bytes(Encoding.PEM, form, encryption or BestAvailableEncryption(PASSPHRASE)))
    path.chmod(0o600)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of the key that signs heads, in a directory of encrypted keys."""
    keys = make_pkcs8_keys(tmp_path / "keys", PASSPHRASE, ManualClock())
    return tmp_path / "keys" / f"{keys.kids('head')[0]}.pem"


def code_of(folder: Path, passphrase: bytes = PASSPHRASE) -> str:
    with pytest.raises(InvalidSettings) as refused:
        KeyFiles(folder, ManualClock(), Pkcs8Files(passphrase))
    assert "correct horse" not in str(refused.value), "no secret in a message"
    return refused.value.problems[0].code


@pytest.mark.parametrize("passphrase", [b"wrong", b"correct horse battery staple ", b"\0"])
def test_a_wrong_passphrase_opens_nothing(file: Path, passphrase: bytes) -> None:
    assert code_of(file.parent, passphrase) == "wrong_passphrase"


@pytest.mark.parametrize("make", OTHER_KEYS.values(), ids=OTHER_KEYS)
def test_a_key_of_another_algorithm_is_refused(file: Path, make: Callable[[], Any]) -> None:
    write(file, make())
    assert code_of(file.parent) == "other_algorithm"


def test_another_key_than_the_list_names_is_refused(file: Path) -> None:
    write(file, ed25519.Ed25519PrivateKey.generate())
    assert code_of(file.parent) == "unreadable"


def test_a_key_that_anybody_could_read_is_refused(file: Path) -> None:
    raw = Pkcs8Files(PASSPHRASE).read(file)
    write(file, ed25519.Ed25519PrivateKey.from_private_bytes(raw), NoEncryption())
    assert code_of(file.parent) == "not_encrypted"
    file.write_text(raw.hex())
    assert code_of(file.parent) == "not_encrypted"


def test_an_encrypted_file_that_others_can_read_is_refused(file: Path) -> None:
    file.chmod(0o644)
    assert code_of(file.parent) == "open_key"


@pytest.mark.parametrize(
    "content", [b"", b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n", b"-----BEGIN X-----", b"\0" * 5000]
)
def test_a_file_that_is_no_key_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert code_of(file.parent) in ("not_encrypted", "wrong_passphrase", "unreadable")


@pytest.fixture
def service() -> Iterator[KeyService]:
    with key_service() as made:
        yield made


def test_a_service_that_presents_another_key_stops_the_start(service: KeyService) -> None:
    service.presents = lambda _name: "attacker"
    with pytest.raises(InvalidSettings) as refused:
        service.opened()
    assert refused.value.problems[0].code == "other_key"


def public(key: Any) -> str:
    return str(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode())


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"pem": "no key", "algorithm": "EC_SIGN_ED25519"},
        {"pem": 7, "algorithm": "EC_SIGN_ED25519"},
        {"pem": pem("head/versions/1"), "algorithm": "RSA_SIGN_PKCS1_2048_SHA256"},
        {"pem": pem("head/versions/1")},
        {"pem": public(OTHER_KEYS["P-256"]()), "algorithm": "EC_SIGN_ED25519"},
    ],
    ids=["nothing", "no key", "a number", "another algorithm", "no algorithm", "a key of another algorithm"],
)
def test_a_public_key_that_is_none_stops_the_start(service: KeyService, said: dict[str, Any]) -> None:
    service.fault = lambda method, _path: (200, json.dumps(said).encode())
    with pytest.raises(InvalidSettings):
        service.opened()


def test_the_pinned_key_under_another_algorithm_stops_the_start(service: KeyService) -> None:
    def renamed(_method: str, path: str) -> tuple[int, bytes]:
        name = path.removeprefix("/v1/keys/").removesuffix("/publicKey")
        return 200, json.dumps({"pem": pem(name), "algorithm": "EC_SIGN_ED25519_PH"}).encode()

    service.fault = renamed
    with pytest.raises(InvalidSettings, match="another public key"):
        service.opened()


def test_no_more_is_read_than_an_answer_has(service: KeyService) -> None:
    keys = service.opened()
    service.fault = lambda _method, _path: (200, b" " * 20_000 + b"{}")
    with pytest.raises(Unavailable, match="more than 16384 bytes"):
        keys.sign("head", b"x")


def test_the_signature_of_another_key_is_never_used(service: KeyService) -> None:
    keys = service.opened()
    for name in ("attacker", "act/versions/1"):
        service.signs_with = lambda _name, name=name: name  # type: ignore[misc]
        with pytest.raises(SignatureInvalid, match="did not sign with the pinned key"):
            keys.sign("head", b"x")


WRONG_ANSWERS: dict[str, tuple[tuple[int, bytes], type[ContextOSError]]] = {
    "no JSON": ((200, b"<html>"), Unavailable),
    "a list": ((200, b"[]"), Unavailable),
    "no signature": ((200, b"{}"), SignatureInvalid),
    "no Base64": ((200, b'{"signature": "?"}'), SignatureInvalid),
    "a number": ((200, b'{"signature": 7}'), SignatureInvalid),
    "a short signature": ((200, b'{"signature": "AAAA"}'), SignatureInvalid),
    "zeros": ((200, json.dumps({"signature": "A" * 86}).encode()), SignatureInvalid),
    "too large": ((200, b" " * 20_000), Unavailable),
    "forbidden": ((403, b"{}"), Unavailable),
    "too many requests": ((429, b"{}"), Unavailable),
    "an error": ((500, b"{}"), Unavailable),
    "a redirect": ((307, b""), Unavailable),
}


@pytest.mark.parametrize(("answer", "error"), WRONG_ANSWERS.values(), ids=WRONG_ANSWERS)
def test_another_answer_is_no_signature(
    service: KeyService, answer: tuple[int, bytes], error: type[ContextOSError]
) -> None:
    keys = service.opened()
    service.fault = lambda _method, _path: answer
    with pytest.raises(error):
        keys.sign("head", b"x")
    assert not any("elsewhere" in path for _, path in service.requests), "a redirect is not followed"


@pytest.mark.parametrize("token", ["secret\nfoo", "secret\0", "schlüssel-secret", "secret and more"])
def test_a_token_that_is_none_is_in_no_message(service: KeyService, token: str) -> None:
    tokens = [TOKEN] * len(pinned())
    keys = service.opened(token=lambda: tokens.pop() if tokens else token)
    with pytest.raises(Unavailable) as refused:
        keys.sign("head", b"x")
    assert "secret" not in "".join(traceback.format_exception(refused.value))
    with pytest.raises(InvalidSettings) as stopped:
        service.opened(token=lambda: token)
    assert "secret" not in "".join(traceback.format_exception(stopped.value))


def test_a_service_that_sends_its_headers_one_by_one_is_given_up(service: KeyService) -> None:
    """Each byte comes in time, and the whole answer never does."""
    keys, gone = service.opened(timeout_s=1), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not gone.wait(0.2):
                    connection.sendall(b"X-More: 1\r\n")

        thread = threading.Thread(target=drip)
        thread.start()
        keys._url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Unavailable, match="took more than 1 s"):
            keys.sign("head", b"x")
        gone.set()
        thread.join()


def test_a_key_that_is_retired_and_signs_is_refused(service: KeyService) -> None:
    """What it signs would count for nothing, and nobody would see that before it is read."""
    head, *others = pinned()
    for twice in ((head, replace(head, retired_at_us=1)), (head, head)):
        with pytest.raises(InvalidSettings, match="twice"):
            service.opened(keys=(*twice, *others))


def workspace(path: Path, signer: Any, **change: Any) -> Settings:
    """The example's workspace on other keys, which sign its pack."""
    make_workspace(path)
    for one in (path / "keys").glob("kid_*"):
        one.unlink()
    pack = canonical(loads((path / "pack.json").read_bytes()))
    (path / "packs" / "support.json").write_bytes(canonical(seal(PACK_TYPE, pack, signer, "pack")))
    (path / "packs" / "decisions.json").unlink()
    return replace(Settings.read(path), unsafe=("unsafe_local_directory",), witness="off", **change)


def initialised(settings: Settings) -> None:
    with contextos.open(settings) as app:
        app.initialise(TENANT, by=example_operator(settings.workspace))
        app.call(seed_graph, app, Workspace(settings.workspace, TENANT, {}))


def test_a_refund_on_encrypted_keys_names_no_local_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS_SECRET", PASSPHRASE.decode())
    keys = make_pkcs8_keys(tmp_path / "sealed", PASSPHRASE, SystemClock())
    setting = Pkcs8KeysSetting(str(tmp_path / "sealed"), passphrase_env="KEYS_SECRET")
    settings = workspace(tmp_path / "a", keys, keys=setting)
    initialised(settings)
    with contextos.open(settings) as app:
        view = app.deployment.invoke(request(900, "req_1"))
    assert (view.state, view.record["lineage"]["unsafe"]) == ("completed", ["unsafe_local_directory"])
    monkeypatch.setenv("KEYS_SECRET", "wrong")
    with pytest.raises(InvalidSettings, match="passphrase"), contextos.open(settings):
        pass


def test_a_refund_on_a_key_service_survives_its_outage_and_is_paid_once(tmp_path: Path, service: KeyService) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    setting = RemoteKeysSetting(service.url, pinned(), token_file=str(token))
    settings = workspace(tmp_path / "a", service.opened(), keys=setting)
    initialised(settings)
    with contextos.open(settings) as app:
        before = len(service.requests)
        view = app.deployment.invoke(request(900, "req_1"))
        assert (view.state, view.record["lineage"]["unsafe"]) == ("completed", ["unsafe_local_directory"])
        signatures = len(service.requests) - before
        for outage in range(1, signatures + 1):
            left = [outage]

            def fail(_method: str, _path: str, left: list[int] = left) -> tuple[int, bytes] | None:
                left[0] -= 1
                return (503, b"") if left[0] <= 0 else None

            service.fault = fail
            with pytest.raises(Unavailable):
                app.deployment.invoke(request(900 + outage, f"req_out_{outage}"))
            service.fault = lambda _method, _path: None
            assert app.deployment.invoke(request(900 + outage, f"req_out_{outage}")).state == "completed"
    shop = json.loads(json.dumps(_refunds(settings.workspace)))
    assert sorted(shop) == [900 + number for number in range(signatures + 1)], "each was paid once"


def _refunds(path: Path) -> list[int]:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path / "shop.db")) as connection:
        return [int(amount) for (amount,) in connection.execute("SELECT amount_inr FROM refunds")]

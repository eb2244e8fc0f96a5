"""A sink over HTTP passes what every witness passes; one that answers wrongly ends typed and proves nothing."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from contextos.cli import run_command_line as command
from contextos.contracts.encoding.jcs import canonical
from contextos.contracts.journal import INDEX
from contextos.deployment.witness import witnessed_lengths
from contextos.errors import Integrity, InvalidSettings, Unavailable
from contextos.store.witness import http
from contextos.store.witness.http import MAX_OBJECT_BYTES, HttpWitness
from contextos.workspace.settings import WitnessPlace
from contextos.workspace.settings.reading import check_value
from tests.sink import Answer, Sink, sink
from tests.suites.witness_suite import Make, WitnessSuite, head
from tests.world import TENANT

PLACE = f"/heads/t.{TENANT}/index"


@pytest.fixture
def served() -> Iterator[Sink]:
    with sink() as made:
        yield made


class TestHttpWitness(WitnessSuite):
    @pytest.fixture
    def make(self, served: Sink) -> Make:
        return lambda: HttpWitness(served.url)


def put(served: Sink, *seqs: int) -> None:
    asyncio.run(HttpWitness(served.url).put([head(seq) for seq in seqs]))


def heads(served: Sink, **limits: float) -> object:
    return asyncio.run(HttpWitness(served.url, **limits).heads(TENANT))


def gives(status: int, body: bytes = b"", **headers: str) -> Answer:
    return status, body, {name.replace("_", "-"): value for name, value in headers.items()}


def test_heads_of_many_tenants_take_no_memory_and_evicted_ones_are_found_again(
    served: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_ENDS", 4)

    async def go() -> None:
        witness = HttpWitness(served.url)
        for number in range(9):
            await witness.put([head(seq, tenant=f"t{number}") for seq in (1, 2, 3)])
        assert len(witness._last_numbers) <= 4
        assert [list(await witness.heads(f"t{number}"))[-1].seq for number in range(9)] == [3] * 9
        await witness.put([head(4, tenant="t0")])
        assert list(await witness.heads("t0"))[-1].seq == 4

    asyncio.run(go())


PROMISES = gzip.compress(canonical(head(1)._asdict()))

WRONG: dict[str, tuple[Answer, type[Exception]]] = {
    "500": (gives(500), Unavailable),
    "403": (gives(403), Unavailable),
    "401": (gives(401, WWW_Authenticate='Basic realm="x"'), Unavailable),
    "redirects": (gives(302, Location="http://127.0.0.1:9/x"), Unavailable),
    "partial": (gives(206, canonical(head(1)._asdict())), Unavailable),
    "nothing": (gives(200), Integrity),
    "nonsense": (gives(200, b"<html>welcome</html>"), Integrity),
    "a list": (gives(200, b"[]"), Integrity),
    "huge": (gives(200, b" " * (MAX_OBJECT_BYTES + 1)), Integrity),
    "packed": (gives(200, PROMISES, Content_Encoding="gzip"), Integrity),
    "another tenant's": (gives(200, canonical(head(1, tenant="other")._asdict())), Integrity),
    "another stream's": (gives(200, canonical(head(1, "control")._asdict())), Integrity),
    "cut off": (gives(200, b'{"at_us"', Content_Length="500"), Unavailable),
    "no HTTP": (gives(200, b"", Content_Length="x"), Unavailable),
}


@pytest.mark.requirement("J-SINK")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_sink_that_answers_wrongly_ends_typed(served: Sink, wrong: str) -> None:
    answer, error = WRONG[wrong]
    # What is cut off is waited for; nothing else is.
    time_limit_s = 0.3 if wrong == "cut off" else 60
    put(served, 1, 2, 3)
    served.fault = lambda method, path: answer if path.startswith(PLACE) else None
    with pytest.raises(error) as refused:
        heads(served, timeout_s=time_limit_s)
    assert "\n" not in str(refused.value)
    with pytest.raises((Unavailable, Integrity)):
        asyncio.run(HttpWitness(served.url, timeout_s=time_limit_s).put([head(4)]))


def test_a_sink_that_hangs_or_drips_ends_typed(served: Sink) -> None:
    def slowly(_method: str, _path: str) -> None:
        time.sleep(0.6)

    served.fault = slowly
    with pytest.raises(Unavailable):
        heads(served, timeout_s=0.1)
    with pytest.raises(Unavailable, match=r"more than 0\.2 s"):
        heads(served, timeout_s=5, whole_timeout_s=0.2)


def test_a_server_that_is_not_there_ends_typed() -> None:
    with pytest.raises(Unavailable):
        asyncio.run(HttpWitness("http://127.0.0.1:9/x").heads(TENANT))


def test_a_sink_that_lets_itself_be_overwritten_is_no_witness(served: Sink) -> None:
    served.overwrites = True
    with pytest.raises(Integrity, match="overwritten"):
        put(served, 1)


def test_a_sink_that_says_made_and_keeps_nothing_or_something_else_is_no_witness(served: Sink) -> None:
    served.fault = lambda method, _path: gives(201) if method == "PUT" else None
    with pytest.raises(Integrity, match="does not return what was put"):
        put(served, 1)
    served.fault = lambda method, _path: gives(412) if method == "PUT" else None
    with pytest.raises(Unavailable, match="does not return it"):
        put(served, 1)


def test_a_sink_that_answers_the_same_for_everything_is_no_witness(served: Sink) -> None:
    put(served, 1)
    same = served.objects[f"{PLACE}/1"]
    served.fault = lambda method, path: gives(200, same) if method == "GET" and path.startswith(PLACE) else None
    with pytest.raises(Integrity):
        heads(served)


def test_a_sink_that_grows_without_end_is_no_witness(served: Sink) -> None:
    def endless(method: str, path: str) -> Answer | None:
        number = int(path.rpartition("/")[2])
        return gives(200, canonical(head(number)._asdict())) if path.startswith(PLACE) else None

    served.fault = endless
    with pytest.raises(Integrity, match="more objects than can exist"):
        heads(served)
    assert len(served.requests) < 100


def test_objects_that_do_not_grow_or_that_vanish_are_named(served: Sink) -> None:
    put(served, 1, 2, 3, 4, 5)
    known = HttpWitness(served.url)

    async def twice() -> None:
        assert witnessed_lengths(await known.heads(TENANT)) == {INDEX: 5}
        del served.objects[f"{PLACE}/5"]
        with pytest.raises(Integrity, match="existed and is gone"):
            await known.heads(TENANT)

    asyncio.run(twice())
    served.objects[f"{PLACE}/4"] = served.objects[f"{PLACE}/2"]
    with pytest.raises(Integrity):
        heads(served)


def test_few_requests_find_the_last_of_many(served: Sink) -> None:
    for number in range(1, 1001):
        served.objects[f"{PLACE}/{number}"] = canonical(head(number)._asdict())
    assert witnessed_lengths(heads(served)) == {INDEX: 1000}  # type: ignore[arg-type]
    assert len(served.requests) < 40


@pytest.mark.parametrize(
    "url",
    [
        "http://sink.example/x",
        "http://10.0.0.1/x",
        "http://127.0.0.1.example/x",
        "ftp://sink.example/x",
        "https://",
        "https://sink.example/x?token=1",
        "https://sink.example/x#y",
        "https://[::1/x",
        "https://sink.example:x/",
        "://x",
    ],
)
def test_a_url_that_is_no_sink_or_is_asked_in_the_clear_is_refused(url: str) -> None:
    with pytest.raises(InvalidSettings, match="/witness"):
        check_value(WitnessPlace, url, "/witness")
    assert command(["verify", "--witness", url]) == 2


@pytest.mark.parametrize(
    "url",
    [
        "https://sink.example/a\nb",
        "https://\u00df\u2603.example/",
        "https://xn--a/x",
        "https://n:secret@sink.example/" + "a" * 70_000,
    ],
)
def test_a_url_that_cannot_be_asked_ends_typed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidSettings, match="is not valid"):
        HttpWitness(url)
    assert command(["verify", "--witness", url]) == 2
    assert "secret" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "url",
    [
        "https://sink.example/x",
        "http://127.0.0.1:1/x",
        "http://[::1]:1/x",
        "http://localhost/x",
        "https://n:p@sink.example/x",
        "witness.jsonl",
    ],
)
def test_a_sink_and_a_file_are_taken(url: str) -> None:
    check_value(WitnessPlace, url, "/witness")


def test_a_password_in_the_url_is_used_and_never_shown(served: Sink) -> None:
    place = served.url.replace("http://", "http://name:secret@")
    served.fault = lambda _method, _path: gives(500)
    with pytest.raises(Unavailable) as refused:
        asyncio.run(HttpWitness(place).heads(TENANT))
    assert "secret" not in str(refused.value)


@pytest.mark.requirement("J-SINK")
def test_verify_never_says_yes_on_the_word_of_a_sink_that_answers_wrongly(
    served: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "shop"
    assert command(["demo", "--yes", "--json", "--keep", str(path)]) == 0
    monkeypatch.setenv("CONTEXTOS_WORKSPACE", str(path))
    settings = (path / "contextos.toml").read_text()
    (path / "contextos.toml").write_text(f'witness = "{served.url}"\n' + settings)
    assert command(["runs", "list"]) == 0
    assert served.objects == {}, "a command that only reads publishes nothing"
    assert command(["invoke", str(path / "requests" / "large.json")]) == 0
    assert len(served.objects) == 2
    assert command(["verify"]) == 0
    assert "witnessed: control up to entry 8, index up to entry 8" in capsys.readouterr().out
    kept = dict(served.objects)
    for wrong in ("500", "redirects", "nonsense", "another tenant's"):
        answer, error = WRONG[wrong]
        served.fault = lambda method, _path, answer=answer: answer if method == "GET" else None  # type: ignore[misc]
        assert command(["verify"]) == (4 if error is Unavailable else 3)
    assert "all verify" not in capsys.readouterr().out
    served.fault = lambda _method, _path: None
    assert served.objects == kept
    assert command(["verify"]) == 0

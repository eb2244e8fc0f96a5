"""DBOS still has the private parts that the durable engine uses, and they still do what it needs of them."""

from __future__ import annotations

import base64
import inspect
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbos import DBOS, DBOSPortableJSONSerializer, _serialization

from contextos.engine.durable.dbos_internals import recover_workflows, refuse_pickles

SRC = Path(__file__).resolve().parents[4] / "src" / "contextos"
CHANGED = "DBOS has changed; read `dbos_internals` and its uses before this test is adjusted"


ORIGINAL = _serialization.DefaultSerializer.__dict__["deserialize"]
"""As DBOS has it: this module is imported before any test starts an engine, which refuses pickles for good."""


@pytest.fixture
def deserialize() -> Iterator[None]:
    before = _serialization.DefaultSerializer.__dict__["deserialize"]
    _serialization.DefaultSerializer.deserialize = ORIGINAL  # type: ignore[method-assign]
    yield
    _serialization.DefaultSerializer.deserialize = before  # type: ignore[method-assign]


def test_recovery_has_the_signature_that_is_called() -> None:
    signature = inspect.signature(DBOS._recover_pending_workflows)
    assert list(signature.parameters) == ["executor_ids"], CHANGED


def test_recovery_is_given_one_executor_and_its_workflows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    recovered: list[list[str]] = []
    monkeypatch.setattr(DBOS, "_recover_pending_workflows", lambda ids: recovered.append(ids) or [object(), object()])
    assert recover_workflows("dead") == 2
    assert recovered == [["dead"]]


def test_there_is_still_no_public_way_to_recover_the_workflows_of_another_executor() -> None:
    public = [name for name in dir(DBOS) if "recover" in name and not name.startswith("_")]
    assert not public, "use the public way, and delete `recover_workflows`"


@pytest.mark.usefixtures("deserialize")
@pytest.mark.parametrize("read", ["value", "arguments", "exception"])
def test_every_reader_of_rows_uses_the_serializer_that_is_refused(read: str) -> None:
    readers = {
        "value": _serialization.deserialize_value,
        "arguments": _serialization.deserialize_args,
        "exception": _serialization.deserialize_exception,
    }
    row = base64.b64encode(pickle.dumps({"args": (), "kwargs": {}})).decode()
    assert readers[read](row, "py_pickle", DBOSPortableJSONSerializer()) is not None, CHANGED
    refuse_pickles()
    with pytest.raises(TypeError, match="JSON and nothing else"):
        readers[read](row, "py_pickle", DBOSPortableJSONSerializer())


@pytest.mark.usefixtures("deserialize")
def test_json_is_still_read_after_pickles_are_refused() -> None:
    refuse_pickles()
    assert _serialization.deserialize_value("[1]", "portable_json", DBOSPortableJSONSerializer()) == [1]


def test_pickles_are_read_in_one_place_of_dbos() -> None:
    """Another place would not be refused. `pickle.loads` is in the method that `refuse_pickles` replaces."""
    library = Path(inspect.getfile(DBOS)).parent
    places = [path.name for path in library.rglob("*.py") for _ in re.findall(r"pickle\.loads?\(", path.read_text())]
    assert places == ["_serialization.py"], CHANGED


def test_no_other_module_uses_a_private_part_of_dbos() -> None:
    private = re.compile(r"\bfrom dbos\._|\bimport dbos\._|\bdbos\._|\bDBOS\._|_client\._|DBOSClient\._")
    used = [path.name for path in SRC.rglob("*.py") if private.search(path.read_text("utf-8"))]
    assert used == ["dbos_internals.py"]

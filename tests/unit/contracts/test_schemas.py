"""Published schemas are closed, have an address, describe every field, and are stable text."""

from __future__ import annotations

import importlib.util
import json
import py_compile
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from jsonschema_rs import Draft202012Validator

from contextos.contracts.ids import RunId
from contextos.contracts.model import Model
from contextos.contracts.schemas import (
    DIALECT,
    PUBLISHED,
    DescribedSchema,
    field_descriptions,
    file_name,
    published,
    schema_text,
)
from contextos.errors import InvalidInput
from contextos.packs.declaration import PackDeclaration

SENTENCE = re.compile(r"[A-Z`][^\n]*\.")


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_schema_is_valid_has_its_address_and_names_every_definition(name: str) -> None:
    schema = published()[name]
    assert not Draft202012Validator(schema).is_valid(None)
    assert (schema["$schema"], schema["$id"]) == (DIALECT, f"/schemas/{file_name(name)}")
    text = schema_text(schema)
    assert json.loads(text) == schema
    used = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert used <= schema["$defs"].keys()


def models_in(annotation: Any) -> Iterator[type[Model]]:
    """The model and those of its fields, at every depth."""
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
        for field in annotation.model_fields.values():
            yield from models_in(field.annotation)
    for part in get_args(annotation):
        yield from models_in(part)


DOCUMENTS = [model for _, models in PUBLISHED.values() for model in models]


@pytest.mark.parametrize("document", [*DOCUMENTS, PackDeclaration])
def test_every_field_of_a_document_is_described_in_a_sentence(document: type[Model]) -> None:
    bare = [
        f"{model.__name__}.{name}"
        for model in dict.fromkeys(models_in(document))
        for name in model.model_fields
        if not SENTENCE.fullmatch(field_descriptions(model).get(name, ""))
    ]
    assert bare == [], "write a docstring of one sentence below each of these fields"


class Errand(Model):
    run_id: RunId
    """The run that
    the errand is for.
    """
    silent: int


class LaterErrand(Errand):
    title: Annotated[str, "a name"] = ""
    """What it is called."""


def test_the_docstring_below_a_field_is_its_description_in_the_schema() -> None:
    assert field_descriptions(LaterErrand) == {
        "run_id": "The run that the errand is for.",
        "title": "What it is called.",
    }
    fields = LaterErrand.model_json_schema(schema_generator=DescribedSchema)["properties"]
    assert fields["title"]["description"] == "What it is called."
    assert fields["run_id"]["description"] == "The run that the errand is for. A run id, like run_a1b2c3d4e5f60718."
    assert "description" not in fields["silent"]


def test_a_model_of_which_only_the_compiled_form_is_installed_is_answered_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, compiled = tmp_path / "only_compiled.py", tmp_path / "only_compiled.pyc"
    source.write_text("from contextos.contracts.model import Model\n\nclass Told(Model):\n    word: str\n", "utf-8")
    py_compile.compile(str(source), str(compiled))
    source.unlink()
    spec = importlib.util.spec_from_file_location("only_compiled", compiled)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "only_compiled", module)
    spec.loader.exec_module(module)
    with pytest.raises(InvalidInput, match=r"only its compiled form is installed; install the package with"):
        field_descriptions(module.Told)


@pytest.mark.parametrize("name", published())
def test_the_description_of_an_id_has_the_right_article(name: str) -> None:
    assert re.findall(r"\bA [aeio][a-z]+", json.dumps(published()[name])) == []

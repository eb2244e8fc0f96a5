"""A child gets no environment of the server, and input beyond the bound starts none."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextos.http_api.control import children
from contextos.http_api.control.children import Children
from contextos.http_api.problems import HttpProblem
from tests.http_face import HttpFace

PRINTS = """
import json, os, sys
sys.stdin.buffer.read()
print(json.dumps({"environment": sorted(os.environ), "at": os.getcwd(), "path": sys.path}))
"""


def test_a_child_has_nothing_of_the_server(face: HttpFace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    monkeypatch.setattr(children, "CHILD", ("-I", str(script)))
    monkeypatch.setenv("SECRET", "x")
    seen = face.call(Children().do("lint", "tenant_a"))
    # The C library adds `LC_CTYPE` where there is no locale at all.
    assert set(seen["environment"]) <= {"LC_CTYPE"}
    assert seen["at"] == "/"
    assert str(Path.cwd()) not in seen["path"]


def test_input_beyond_the_bound_is_refused_before_anything_starts(
    face: HttpFace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "CHILD", ("-I", "/nowhere.py"))
    with pytest.raises(HttpProblem) as refused:
        face.call(Children().do("lint", "tenant_a", document="a" * (children.MAX_TASK_BYTES + 1)))
    assert (refused.value.status_code, refused.value.code) == (422, "too_large")

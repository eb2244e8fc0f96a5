"""Where an operation is: at the server that is called, and at a plain path."""

from __future__ import annotations

from typing import Any

import pytest

from contextos.adapters.foreign.keywords import Inconvertible
from contextos.adapters.openapi.places import check_path, refuse_other_server

ROOT = [{"url": "https://api.example/v1"}]


@pytest.mark.parametrize("stated", [None, [], ROOT, [{"url": "https://api.example/v1/"}], [{}, {"url": "/v1"}]])
def test_an_operation_at_the_server_that_is_called_is_used(stated: Any) -> None:
    refuse_other_server(stated, ROOT, "https://api.example/v1")


@pytest.mark.parametrize("stated", [7, [7], [{"url": 7}], [{"url": "https://other.example"}], [{"url": "//other"}]])
def test_an_operation_at_another_server_is_refused(stated: Any) -> None:
    with pytest.raises(Inconvertible, match="another server"):
        refuse_other_server(stated, ROOT, "https://api.example/v1")


@pytest.mark.parametrize("path", ["x", "/../a", "/%2e%2E/a", "/a b", "/{id}", "/{n}/{n}"])
def test_a_path_that_leads_elsewhere_is_refused(path: str) -> None:
    with pytest.raises(Inconvertible):
        check_path(path, {"n"})

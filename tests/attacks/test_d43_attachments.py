"""Attachments: fetched from places of the tenant alone, and used only if the bytes are those that the request names."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from contextos.action.attachments import MAX_ATTACHMENT_BYTES, MAX_TEXT_BYTES
from contextos.audit.replay import replay
from contextos.deployment.preview import preview
from tests.attached_files import NOTE, Files, attaching, bodies, decided
from tests.world import TENANT, request, run

Changed = Callable[[Files, dict[str, str]], dict[str, str]]


def at(path: str) -> Changed:
    return lambda files, one: one | {"uri": f"{files.url}{path}"}


ELSEWHERE: dict[str, Changed] = {
    "another tenant's place": at("/other/note"),
    "a sibling with the same beginning": at("/acme-evil/note"),
    "dots": at("/acme/../other/note"),
    "encoded dots": at("/acme/%2e%2e/other/note"),
    "an encoded separator": at("/acme/..%2fother/note"),
    "another port": lambda _, one: one | {"uri": "http://127.0.0.1:9/acme/note"},
    "user information": lambda files, one: one | {"uri": files.url.replace("//", "//a@") + "/acme/note"},
    "a file": lambda _, one: one | {"uri": "file:///etc/passwd"},
    "a metadata service": lambda _, one: one | {"uri": "http://169.254.169.254/acme/note"},
}


@pytest.mark.requirement("C-ATTACHMENT-FETCHED")
@pytest.mark.parametrize("how", ELSEWHERE)
def test_nothing_is_fetched_from_an_address_that_is_not_the_tenants(how: str, tmp_path: Path) -> None:
    with attaching(tmp_path) as (world, files):
        note = files.attach("note", NOTE)
        files.held |= {"/other/note": ("text/plain", NOTE), "/acme-evil/note": ("text/plain", NOTE)}
        record, _run_id = run(decided(world, ELSEWHERE[how](files, note)))
        assert record["rationale"]["failures"][0]["code"] == "missing_evidence"
        assert files.asked == []
        assert world.refunds() == []


UNFIT: dict[str, tuple[str, Changed]] = {
    "another digest": ("missing_evidence", lambda _, one: one | {"sha256": "0" * 64}),
    "half a digest": ("unpinned_ref", lambda _, one: one | {"sha256": "2f9cc0..."}),
    "another media type": ("missing_evidence", lambda _, one: one | {"media_type": "application/pdf"}),
    "a file that is not there": ("missing_evidence", at("/acme/none")),
    "bytes that are no text": ("unsafe_output", lambda files, _: files.attach("bad", b"\xff\xfe")),
    "a text that is too long": ("missing_evidence", lambda files, _: files.attach("long", b"x" * (MAX_TEXT_BYTES + 1))),
    "a secret": ("unsafe_output", lambda files, _: files.attach("key", b"use AKIA" + b"ABCDEFGHIJKLMNOP")),
    "hidden characters": ("unsafe_output", lambda files, _: files.attach("hid", "pay\u202e it".encode())),
    "more bytes than are read": (
        "missing_evidence",
        lambda files, _: files.attach("big", bytes(MAX_ATTACHMENT_BYTES + 1), "application/pdf"),
    ),
}


@pytest.mark.requirement("C-ATTACHMENT-FETCHED")
@pytest.mark.parametrize("how", UNFIT)
def test_a_file_that_does_not_fit_ends_the_run_and_nothing_of_it_is_kept(how: str, tmp_path: Path) -> None:
    code, change = UNFIT[how]
    with attaching(tmp_path) as (world, files):
        record, run_id = run(decided(world, change(files, files.attach("note", NOTE))))
        failure = record["rationale"]["failures"][0]
        assert (failure["code"], "attachment" in failure["detail"]) == (code, True)
        assert world.refunds() == []
        [fetched] = run(bodies(world, run_id, "attachment.fetched"))
        assert "text" not in fetched["answer"]
        entries = run(world.stores.tenant(TENANT).read(run_id))
        assert b"AKIA" not in b"".join(one.body for one in entries)
        run(replay(world.deployment, TENANT, run_id))


def test_a_redirect_is_not_followed(tmp_path: Path) -> None:
    with attaching(tmp_path) as (world, files):
        note = files.attach("note", NOTE)
        files.status, files.headers = 302, {"Location": f"{files.url}/other/note"}
        record, _run_id = run(decided(world, note))
        assert record["rationale"]["failures"][0]["code"] == "missing_evidence"
        assert files.asked == ["/acme/note"]


def test_a_deployment_without_places_refuses_the_request_and_says_what_to_do(tmp_path: Path) -> None:
    with attaching(tmp_path) as (world, files):
        world.deployment.ports = replace(world.deployment.ports, attachments=None)
        record, _run_id = run(decided(world, files.attach("note", NOTE)))
        assert (
            "add the places of its tenant to the setting `attachments`" in record["rationale"]["failures"][0]["detail"]
        )
        assert files.asked == []


SIGNED = "?X-Amz-Credential=AKIA" + "ABCDEFGHIJKLMNOP" + "%2F20261125&X-Amz-Signature=" + "0a" * 32


def test_a_signed_address_is_no_secret_of_the_request_and_is_shown_to_nobody(tmp_path: Path) -> None:
    with attaching(tmp_path) as (world, files):
        note = files.attach("note", NOTE)
        record, run_id = run(decided(world, note | {"uri": note["uri"] + SIGNED}))
        assert record["outcome"] == "approved"
        assert files.asked == ["/acme/note" + SIGNED]
        assert "X-Amz" not in json.dumps([record, *run(bodies(world, run_id, "context.compiled"))])


def test_a_preview_fetches_nothing(tmp_path: Path) -> None:
    with attaching(tmp_path) as (world, files):
        body = request(900, "req_1") | {"attachments": [files.attach("note", NOTE)]}
        shown = run(preview(world.deployment, json.dumps(body)))
        assert shown.compiled is not None, shown.failures
        assert files.asked == []

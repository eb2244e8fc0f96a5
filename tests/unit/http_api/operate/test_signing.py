"""A person reads what they sign with each of their keys; who has none gets nothing to sign."""

from __future__ import annotations

import base64
import json

import pytest

from contextos.application.statements import Statement
from contextos.http_api.operate.signing import demand_role, to_sign
from contextos.http_api.problems import HttpProblem
from contextos.trust.identity.callers import Caller
from tests.http_face import OPERATOR, TENANT, HttpFace

SAID = Statement("contextos-act+jws", {"kind": "run.retried", "actor": OPERATOR})


def caller(subject: str) -> Caller:
    return Caller("user", TENANT, subject, "dev", None, (), (), 2**40, "sha256:" + "0" * 64)


def test_the_document_has_the_bytes_to_sign_for_each_key(face: HttpFace) -> None:
    document = face.call(to_sign(face.app, caller(OPERATOR), SAID))
    [(kid, signing_input)] = document.signing_inputs.items()
    header, payload = (json.loads(base64.urlsafe_b64decode(one + "==")) for one in signing_input.split("."))
    assert (header["kid"], header["typ"], payload) == (kid, "contextos-act+jws", document.statement)


def test_who_has_no_key_has_nothing_to_sign(face: HttpFace) -> None:
    assert face.call(to_sign(face.app, caller("usr_772"), SAID)).signing_inputs == {}


def test_a_role_that_is_not_held_is_named(face: HttpFace) -> None:
    demand_role(frozenset({"auditor"}), "operator", "auditor")
    for held in (frozenset[str](), frozenset({"finance_lead"})):
        with pytest.raises(HttpProblem, match="403") as refused:
            demand_role(held, "operator", "auditor")
        assert "`auditor` or `operator`" in refused.value.detail

"""Development logins are for everybody in a directory file, and for no other directory."""

from __future__ import annotations

import pytest

from contextos.errors import InvalidInput, InvalidSettings
from contextos.http_api.callers import Caller
from tests.http_face import LEAD, OTHER_TENANT, REQUESTER, TENANT, HttpFace


def test_everybody_in_the_directory_has_a_login_that_is_theirs(face: HttpFace) -> None:
    logins = face.issuer.logins()
    assert {(one.tenant_id, one.person_id) for one in logins} >= {
        (tenant, person) for tenant in (TENANT, OTHER_TENANT) for person in (REQUESTER, LEAD)
    }
    for login in logins:
        caller = face.call(face.issuer.caller(login.token))
        assert (caller.tenant_id, caller.subject) == (login.tenant_id, login.person_id)


def test_a_directory_that_is_no_file_has_no_development_logins(face: HttpFace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(face.app.deployment.ports.directory, "unsafe", ())
    with pytest.raises(InvalidSettings, match="no development logins"):
        face.issuer.logins()


def test_a_session_names_its_agent(face: HttpFace) -> None:
    caller = Caller(TENANT, REQUESTER)
    acting = face.call(face.issuer.acting(caller, agent="agt_support", delegation="tok_usr_771"))
    assert (acting.user, acting.agent, acting.token) == (REQUESTER, "agt_support", "tok_usr_771")
    with pytest.raises(InvalidInput, match="no agent is named"):
        face.call(face.issuer.acting(caller, agent=None, delegation=None))

"""Each kind of caller sends a request and runs a session over HTTP: a person with a development token, a person with an
access token of the directory's issuer, and a workload with its JWT-SVID.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.http_face import REQUESTER, TENANT, HttpFace, begin_deploys, begin_refunds, http_face
from tests.issuer import AUDIENCE, ISSUER, jwks, token
from tests.spire import AUDIENCE as SVID_AUDIENCE
from tests.spire import WORKLOAD, bundle, svid
from tests.unit.adapters.test_signed_directory import KEEPER, write
from tests.world import public_key

SUBJECT = "user_9041"
DEPLOYER = "spiffe://acme/agents/deploy"


def workloads(path: Path, domain: str, tenant: str) -> str:
    (path / "bundle.json").write_text(json.dumps(bundle("svid-1")), "utf-8")
    return (
        f'[workloads]\naudience = "{SVID_AUDIENCE}"\n'
        f'[[workloads.trust_domains]]\nname = "{domain}"\ntenants = ["{tenant}"]\nbundle_file = "bundle.json"\n'
    )


def issuer_of_users(path: Path, role: str, scopes: list[str]) -> str:
    (path / "jwks.json").write_text(json.dumps(jwks()), "utf-8")
    write(path / "directory.dsse.json", 1, json.loads((path / "directory.json").read_bytes()))
    return (
        f'[directory]\nkind = "oidc"\npath = "directory.dsse.json"\nsigners = ["{public_key(KEEPER).hex()}"]\n'
        f'issuer = "{ISSUER}"\naudience = "{AUDIENCE}"\njwks_file = "jwks.json"\ntenant_claim = "tenants"\n'
        f'scopes = {json.dumps(scopes)}\n[directory.roles]\nidp = "{role}"\n'
    )


@contextmanager
def served(folder: Path, begin: Callable[[Path], Awaitable[None]], more: Callable[[Path], str]) -> Iterator[HttpFace]:
    async def configured(path: Path) -> None:
        await begin(path)
        toml = path / "contextos.toml"
        toml.write_text(f"{toml.read_text('utf-8')}\n{more(path)}", "utf-8")

    with http_face(folder, configured) as face:
        yield face


def access_token(tenant: str, life_s: int = 300) -> str:
    now_s = int(time.time())
    said = {"groups": ["idp"], "tenants": [tenant], "scope": "orders.read payments.refund"}
    return token(iat=now_s - 5, exp=now_s + life_s, **said)


def workload_token(workload: str) -> str:
    return svid(sub=workload, exp=int(time.time()) + 300)


def send_request(face: HttpFace, token: str, user: str) -> str:
    """Send a request that is decided; return its run, which its caller reads and lists."""
    body = face.request()
    if user == SUBJECT:
        delegation = {**body["user"]["delegation"], "subject": SUBJECT}
        del delegation["token_ref"]
        body["user"] = {"delegation": delegation}
    sent = face.send("POST", "/v1/runs", json=body, token=token)
    assert (sent.status_code, sent.json().get("record", {}).get("status")) == (201, "DECIDED"), sent.text
    run = str(sent.json()["run_id"])
    read = face.send("GET", f"/v1/runs/{run}", token=token).json()
    assert (read["user_id"], read["agent_id"]) == (user, "agt_support")
    return run


def runs_of(face: HttpFace, token: str) -> list[str]:
    listed = face.send("GET", "/v1/runs", token=token)
    assert listed.status_code == 200, listed.text
    return [one["run_id"] for one in listed.json()["items"]]


def run_session(face: HttpFace, token: str, name: str, call_id: str = "ci", **acting: Any) -> str:
    """Open a session, and call a tool in it; return its run."""
    body = {"session": name, "agent": "agt_deploy", **acting}
    opened = face.send("POST", "/v1/sessions", json=body, token=token)
    assert opened.status_code == 201, opened.text
    asked = {"call_id": call_id, "tool": "deploy.ci_status", "args": {"service": "checkout"}}
    called = face.send("POST", f"/v1/sessions/{name}/calls", json=asked, token=token)
    assert (called.status_code, called.json()["status"]) == (200, "done"), called.text
    return str(opened.json()["run_id"])


def test_a_person_and_a_workload_send_requests_of_their_own(tmp_path: Path) -> None:
    with served(tmp_path, begin_refunds, lambda path: workloads(path, "contextos", TENANT)) as face:
        person, workload = face.token(REQUESTER), workload_token(WORKLOAD)
        own = send_request(face, person, REQUESTER)
        by_agent = send_request(face, workload, REQUESTER)
        assert runs_of(face, workload) == runs_of(face, person) == [by_agent, own]
        # A workload acts for a user alone, and under their delegation.
        body = face.request()
        body["user"]["delegation"]["token_ref"] = "tok_nobody"
        refused = face.send("POST", "/v1/runs", json=body, token=workload)
        assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "identity_refused")
        # Of an agent that is suspended nothing is left.
        path = face.path / "directory.json"
        listed = json.loads(path.read_text("utf-8"))
        [agent] = (one for one in listed[TENANT]["agents"] if one["workload_identity"] == WORKLOAD)
        agent["lifecycle"] = "suspended"
        path.write_text(json.dumps(listed), "utf-8")
        assert face.send("GET", "/v1/runs", token=workload).status_code == 401


def test_a_user_of_the_issuer_sends_a_request_and_development_tokens_count_no_more(tmp_path: Path) -> None:
    def more(path: Path) -> str:
        return issuer_of_users(path, "support_agent", ["orders.read", "payments.refund"])

    with served(tmp_path, begin_refunds, more) as face:
        user = access_token(TENANT)
        run = send_request(face, user, SUBJECT)
        assert runs_of(face, user) == [run]
        for wrong in (access_token(TENANT, life_s=-100), access_token("tenant_nowhere")):
            assert face.send("GET", "/v1/runs", token=wrong).status_code == 401
        assert face.send("POST", "/v1/runs", json=face.request(), token=user).status_code == 403


def test_a_person_and_a_workload_run_sessions(tmp_path: Path) -> None:
    with served(tmp_path, begin_deploys, lambda path: workloads(path, "acme", "acme")) as face:
        person, workload = face.token("ana", "acme"), workload_token(DEPLOYER)
        own = run_session(face, person, "s1", delegation="tok_ana")
        by_agent = run_session(face, workload, "s1", user="ana", delegation="tok_ana")
        assert own != by_agent
        assert runs_of(face, workload) == [by_agent, own]
        for acting in ({}, {"user": "ana"}, {"user": "ivan", "delegation": "tok_ana"}):
            body = {"session": "s2", "agent": "agt_deploy", **acting}
            assert face.send("POST", "/v1/sessions", json=body, token=workload).status_code == 403, acting
        body = {"session": "s2", "agent": "agt_deploy", "user": "ivan"}
        assert face.send("POST", "/v1/sessions", json=body, token=person).status_code == 403


def test_a_user_of_the_issuer_runs_a_session_that_a_later_token_renews(tmp_path: Path) -> None:
    with served(tmp_path, begin_deploys, lambda path: issuer_of_users(path, "deployer", [])) as face:
        user, later = access_token("acme"), access_token("acme", life_s=600)
        run = run_session(face, user, "s1")
        assert run_session(face, later, "s1", call_id="later") == run
        assert runs_of(face, later) == [run]


@pytest.mark.parametrize(
    ("audience", "path"),
    [
        ("https://api.acme.example", "/.well-known/oauth-protected-resource"),
        ("https://api.acme.example/v1", "/.well-known/oauth-protected-resource/v1"),
        ("https://api.acme.example/a%20b%C3%A9", "/.well-known/oauth-protected-resource/a%20b%C3%A9"),
        ("contextos", ""),
        ("https://例え.example/v1", ""),
        ("https://api.acme.example/größe", ""),
        ("https://[api.acme.example/v1", ""),
        ("https://api.acme.example:x/v1", ""),
        ('https://api.acme.example/a\\"', ""),
    ],
)
def test_a_client_learns_who_issues_tokens_where_the_audience_is_a_url(
    tmp_path: Path, audience: str, path: str
) -> None:
    def more(workspace: Path) -> str:
        users = issuer_of_users(workspace, "support_agent", ["orders.read"])
        return users.replace(f'audience = "{AUDIENCE}"', f"audience = {json.dumps(audience)}")

    with served(tmp_path, begin_refunds, more) as face:
        challenge = face.anonymous("GET", "/v1/runs").headers["www-authenticate"]
        for other in ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server"):
            assert face.anonymous("GET", other).status_code == 404
        if not path:
            assert challenge == 'Bearer realm="contextos"'
            assert face.anonymous("GET", "/.well-known/oauth-protected-resource").status_code == 404
            return
        assert challenge == f'Bearer realm="contextos", resource_metadata="https://api.acme.example{path}"'
        # Whatever host and scheme a request or a proxy says, the document is that of the settings.
        answer = face.anonymous("GET", path, headers={"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "http"})
        assert answer.json() == {
            "resource": audience,
            "authorization_servers": [ISSUER],
            "bearer_methods_supported": ["header"],
        }

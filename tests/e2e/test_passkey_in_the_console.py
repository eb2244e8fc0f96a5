"""A person registers a passkey in their browser, the keeper of the directory publishes it, and it signs an answer.

Chromium has a virtual authenticator (WebDriver, "Virtual Authenticators"), so nobody touches a device.
"""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.test_console import LogIn, browser, face, log_in, url  # noqa: F401
from tests.http_face import LEAD, OPERATOR, TENANT, HttpFace

pytestmark = pytest.mark.slow

REGISTER = """async () => {
  const csrf = document.querySelector("main").dataset.csrf;
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
  const post = async (path, body) => {
    const answer = await fetch(path, { method: "POST", headers, body: JSON.stringify(body) });
    return answer.json();
  };
  const options = await post("/v1/passkeys/options", {});
  const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
  const credential = await navigator.credentials.create({ publicKey });
  return post("/v1/passkeys", { credential: credential.toJSON() });
}"""
"""As `docs/identity.md` describes it, from a page of the service."""


def authenticator(page: Page) -> None:
    """Give the page a platform authenticator whose person is present and verified."""
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    of = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    session.send("WebAuthn.addVirtualAuthenticator", {"options": of})


def publish(face: HttpFace, digest: str) -> None:  # noqa: F811
    """Write the passkey that has this digest into the directory, as its keeper does."""
    listed = face.send("GET", "/v1/passkeys", by=OPERATOR).json()["items"]
    [made] = [one for one in listed if one["digest"] == digest]
    path = face.path / "directory.json"
    directory = json.loads(path.read_text("utf-8"))
    [approver] = [one for one in directory[TENANT]["approvers"] if one["approver_id"] == made["approver_id"]]
    approver["passkeys"] = [*approver.get("passkeys", []), made["passkey"]]
    path.write_text(json.dumps(directory), "utf-8")


def test_a_passkey_is_registered_and_approves_a_refund(face: HttpFace, log_in: LogIn) -> None:  # noqa: F811
    run = face.waiting_run()
    page = log_in(LEAD, f"/inbox/{run}")
    authenticator(page)
    page.click("[data-verdict=approved]")
    expect(page.locator(".result")).to_contain_text("Choose the file with your key first")
    made = page.evaluate(REGISTER)
    assert (made["approver_id"], made["published"]) == (LEAD, False), made
    draft = {"verdict": "approved", "reason": ""}
    unpublished = face.send("POST", f"/v1/approvals/{run}/statement", by=LEAD, json=draft).json()
    assert unpublished["passkeys"] == {}, "what was registered grants nothing"
    publish(face, made["digest"])

    watching = log_in(OPERATOR, f"/runs/{run}")
    expect(watching.locator("h1")).to_contain_text("waiting")
    page.fill("#reason", "checked the order")
    page.click("[data-verdict=approved]")
    expect(page.locator(".statement pre")).to_contain_text("checked the order")
    expect(page.locator("[data-sign=key]")).to_be_hidden()
    page.click("[data-sign=passkey]")
    expect(page.locator(".result")).to_contain_text("Your answer is recorded")

    expect(watching.locator("h1")).to_contain_text("completed", timeout=30_000)
    expect(watching.locator("#run")).to_contain_text("checked the order")
    watching.get_by_role("link", name="Replay it now").click()
    expect(watching.locator("main")).to_contain_text("Every entry is as recorded")
    record = face.send("GET", f"/v1/runs/{run}/record", by=OPERATOR).json()
    assert [one["approver"] for one in record["approvals"]] == [LEAD]

"""`app.passkeys`: approvers register passkeys, which count after the keeper of the directory has written them there.

The runtime never writes the directory, so a registration grants nothing. A registration is sealed with the runtime's
key. So the keeper of the directory reads in it which person made it and how they had logged in, and somebody who can
write the database cannot forge one.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contextos.contracts.documents.identities import PASSKEY_REGISTRATIONS
from contextos.contracts.encoding.codec import JsonValue
from contextos.contracts.envelopes.identity import Approver, ApproverPasskey
from contextos.deployment.deployment import Deployment
from contextos.errors import ApprovalRefused, InvalidInput, Problem
from contextos.service.pages import Page, check_limit
from contextos.service.person_documents import PersonDocuments, person_document_key
from contextos.trust.approvals.passkey_registration import (
    REGISTRATION_TIMEOUT_MS,
    creation_options,
    registered_passkey,
    registration_digest,
)

REGISTRATIONS_TYPE: Final = "application/vnd.contextos.passkey-registrations+json"
MAX_REGISTRATIONS: Final = 8
"""The most registrations of one person that are kept; one more replaces the oldest."""
CHALLENGE_BYTES: Final = 32
_CURSOR: Final = re.compile(r"[0-9a-f]{64}\.([0-9a-f]{64})?")
"""The key of a person, and the digest of their last registration on the page before; no digest: all were listed."""


@dataclass(frozen=True, slots=True)
class PasskeyRegistration:
    """A passkey that an approver registered: `passkey` is the entry for the directory, and `digest` covers the person
    and the passkey.

    `login_digest` is the digest of the token with which they had logged in. `registered_at_us` is Unix time in
    microseconds. `is_published`: the directory has this entry of this person now.
    """

    approver_id: str
    passkey: ApproverPasskey
    digest: str
    login_digest: str
    registered_at_us: int
    is_published: bool


class Passkeys:
    """Registrations of passkeys. The caller has authenticated the person."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        empty: dict[str, Any] = {"approver_id": "", "challenge": None, "registered": []}
        self._documents = PersonDocuments(
            deployment.ports, PASSKEY_REGISTRATIONS, REGISTRATIONS_TYPE, empty, "begin the registration again"
        )

    async def begin(self, tenant_id: str, approver_id: str, *, origin: str) -> dict[str, JsonValue]:
        """Return the options with which a page of `origin` asks a browser for a new passkey
        (`navigator.credentials.create`, as JSON). Their challenge counts once, for five minutes, and for this person.

        Raises:
            ApprovalRefused: the directory does not know the person as an approver, or browsers make no passkeys for
                this origin.
            Unavailable, Conflict: the store does not answer, or is changed at the same moment.
        """
        ports, approver = self._deployment.ports, await self._approver(tenant_id, approver_id)
        raw = ports.entropy.take(CHALLENGE_BYTES)
        challenge = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
        options = creation_options(tenant_id, approver, origin, challenge)
        expires_at_us = ports.clock.now_us() + REGISTRATION_TIMEOUT_MS * 1_000
        stored_challenge = {"value": challenge, "expires_at_us": expires_at_us}
        await self._update_record(tenant_id, approver_id, lambda record: {**record, "challenge": stored_challenge})
        return options

    async def finish(
        self, tenant_id: str, approver_id: str, response: Mapping[str, Any], *, origin: str, login_digest: str
    ) -> PasskeyRegistration:
        """Keep the passkey that the browser made for `begin`: `response` is `credential.toJSON()`. It counts for
        nothing until the keeper of the directory writes it there. The challenge is used up, whatever the response is.

        Raises:
            ApprovalRefused: as `begin`; or there is no valid challenge, the response does not answer it, or the
                directory has this passkey already (`assertion_invalid`).
            Unavailable, Conflict: as `begin`.
        """
        approver, now_us = await self._approver(tenant_id, approver_id), self._deployment.ports.clock.now_us()
        before = await self._update_record(tenant_id, approver_id, lambda record: {**record, "challenge": None})
        challenge = before["challenge"]
        if challenge is None or now_us >= challenge["expires_at_us"]:
            raise _refusal("the registration did not begin, or more than five minutes ago; begin it again")
        passkey = registered_passkey(tenant_id, approver_id, origin, challenge["value"], response)
        if any(published.credential_id == passkey.credential_id for published in approver.passkeys):
            raise _refusal("the directory has this passkey already")
        registration = {"passkey": passkey.to_json(), "login_digest": login_digest, "registered_at_us": now_us}

        def add_registration(record: dict[str, Any]) -> dict[str, Any]:
            others = [entry for entry in record["registered"] if entry["passkey"]["credential_id"] != credential_id]
            return {**record, "registered": [*others, registration][-MAX_REGISTRATIONS:]}

        credential_id = passkey.credential_id
        await self._update_record(tenant_id, approver_id, add_registration)
        return _registration(approver, approver_id, registration)

    async def list(
        self, tenant_id: str, approver_id: str | None = None, *, limit: int = 50, cursor: str = ""
    ) -> Page[PasskeyRegistration]:
        """Return a page of the registrations of a person, or of everybody in the tenant: person by person, the oldest
        first. An entry that the runtime did not seal is left out.

        A page ends after `limit` registrations, or after `limit` people: it can be empty and not the last.

        Raises:
            InvalidInput: the limit is out of bounds, or the cursor is not from this list.
            Unavailable: the store or the directory does not answer.
        """
        check_limit(limit)
        person, _, last_digest = cursor.partition(".")
        is_of_person = approver_id is None or person == person_document_key(approver_id)
        if cursor and not (_CURSOR.fullmatch(cursor) and is_of_person):
            detail = "the cursor is of no list of this tenant"
            raise InvalidInput(Problem("/cursor", "unknown_cursor", detail, "begin without one"))
        if approver_id is not None:
            keys, has_more = [person_document_key(approver_id)], False
        else:
            store = self._deployment.ports.stores.tenant(tenant_id)
            following = await PASSKEY_REGISTRATIONS.page(store, after=person, limit=limit)
            keys = [*([person] if last_digest else []), *(row.key for row in following)]
            has_more = len(following) == limit
        items: list[PasskeyRegistration] = []
        for key in keys:
            registrations = await self._registrations(tenant_id, key)
            for registration in _registrations_after(last_digest if key == person else "", registrations):
                if len(items) == limit:
                    return Page(tuple(items), _cursor_after(items[-1]))
                items.append(registration)
        return Page(tuple(items), f"{keys[-1]}." if has_more else None)

    async def _registrations(self, tenant_id: str, key: str) -> Sequence[PasskeyRegistration]:
        record, _ = await self._documents.content(tenant_id, key)
        person = record["approver_id"]
        approver = await self._deployment.ports.directory.approver(tenant_id, person) if person else None
        return [_registration(approver, person, registration) for registration in record["registered"]]

    async def _approver(self, tenant_id: str, approver_id: str) -> Approver:
        approver = await self._deployment.ports.directory.approver(tenant_id, approver_id)
        if approver is None:
            raise ApprovalRefused("not_approver", f"`{approver_id}` is not known as an approver in this tenant")
        return approver

    async def _update_record(
        self, tenant_id: str, approver_id: str, change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> dict[str, Any]:
        """Replace the stored registrations of a person by the result of `change`, and return the previous ones."""
        return await self._documents.change(
            tenant_id, approver_id, lambda kept: {**change(kept), "approver_id": approver_id}
        )


def _cursor_after(registration: PasskeyRegistration) -> str:
    return f"{person_document_key(registration.approver_id)}.{registration.digest.removeprefix('sha256:')}"


def _registrations_after(last_digest: str, registered: Sequence[PasskeyRegistration]) -> Sequence[PasskeyRegistration]:
    """Return the registrations after that with the digest `last_digest`; all if it is gone: the oldest is replaced."""
    digests = [registration.digest.removeprefix("sha256:") for registration in registered]
    return registered[digests.index(last_digest) + 1 :] if last_digest in digests else registered


def _registration(approver: Approver | None, approver_id: str, stored: Mapping[str, Any]) -> PasskeyRegistration:
    passkey = ApproverPasskey.model_validate(stored["passkey"])
    return PasskeyRegistration(
        approver_id=approver_id,
        passkey=passkey,
        digest=registration_digest(approver_id, passkey),
        login_digest=stored["login_digest"],
        registered_at_us=stored["registered_at_us"],
        is_published=approver is not None and passkey in approver.passkeys,
    )


def _refusal(detail: str) -> ApprovalRefused:
    return ApprovalRefused("assertion_invalid", detail)

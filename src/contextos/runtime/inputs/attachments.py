"""Fetch the attachments of a request, and check and record them before anything in the run uses them."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from contextos.action.attachments import failed, fetch_attachment
from contextos.contracts.envelopes.evidence import Classification, EvidenceItem, fact_digest
from contextos.contracts.envelopes.run import Attachment, InvokeRequest
from contextos.contracts.envelopes.verdicts import Failure
from contextos.contracts.ids import SHA256, derive
from contextos.contracts.ports.seams import RecordRequest
from contextos.contracts.trace import child_headers
from contextos.runtime.admission import AdmittedRun, refuse
from contextos.runtime.environment import RunEnvironment
from contextos.runtime.inputs.intent_parameters import unmet
from contextos.runtime.redaction import cleanse_output
from contextos.trust.journal.record import RunOutcome

FETCHED_AT_ONCE: Final = 4
"""The most files that a run fetches at the same time. Each one is in memory as a whole."""


async def fetch_attachments(
    request: InvokeRequest, admitted: AdmittedRun, environment: RunEnvironment
) -> tuple[EvidenceItem, ...] | RunOutcome:
    """Fetch and check every attachment of the request, and record each answer. Returns the texts as untrusted evidence.
    If one cannot be used, returns a refusal with the reason for each such attachment and what else the request lacks.

    Raises:
        Unavailable: an attachment cannot be fetched now; the attachments that were fetched are recorded.
    """
    if not request.attachments or not environment.deployment.attachments:
        return ()
    # A call that leaves the machine is made only after the run is durable.
    await environment.journal.commit()
    requests = [
        RecordRequest(
            "attachment.fetched",
            str(number),
            attachment.to_json(),
            partial(_fetch_checked, attachment, _trace_headers(request, admitted, number), admitted, environment),
        )
        for number, attachment in enumerate(request.attachments, 1)
    ]
    bodies: list[dict[str, Any]] = []
    for first in range(0, len(requests), FETCHED_AT_ONCE):
        bodies += await environment.journal.record_all(requests[first : first + FETCHED_AT_ONCE])
    places = {f"/attachments/{number}": body["failure"] for number, body in enumerate(bodies) if body.get("failure")}
    if places:
        failures = [Failure.model_validate({**failure, "pointer": place}) for place, failure in places.items()]
        return refuse(*failures, *unmet(admitted))
    at_us, label = environment.journal.now_us, admitted.loaded.pack.pack_meta.data_classification
    return tuple(_evidence_item(body, at_us, label) for body in bodies if body.get("text") is not None)


def _trace_headers(request: InvokeRequest, admitted: AdmittedRun, number: int) -> dict[str, str]:
    """Return the trace headers of one fetch, with their own parent id. The server is outside the trust domain."""
    span_id = derive("", admitted.scope.run.run_id, "attachment", number)
    return child_headers(request.trace, span_id, external=True)


async def _fetch_checked(
    attachment: Attachment, trace: dict[str, str], admitted: AdmittedRun, environment: RunEnvironment
) -> dict[str, Any]:
    port = environment.sources.attachments
    if not SHA256.fits(attachment.sha256, sealed=True):
        return failed(attachment, "unpinned_ref", "it is not pinned by a full SHA-256 digest; send 64 hex digits")
    if port is None:
        remedy = "add the places of its tenant to the setting `attachments`, or send none"
        return failed(attachment, "missing_evidence", f"this deployment fetches no attachments; {remedy}")
    body = await fetch_attachment(port, admitted.scope.run.tenant_id, attachment, trace)
    if body.get("text") is None:
        return body
    text, _, problems = cleanse_output(admitted.loaded.pack, environment.ports.keys, body["text"])
    if problems:
        return failed(attachment, "unsafe_output", f"{problems[0].detail}; remove it from the file")
    return {**body, "text": text}


def _evidence_item(body: dict[str, Any], at_us: int, label: Classification) -> EvidenceItem:
    subject = f"attachment:{body['evidence_ref'].rpartition(':')[2]}"
    return EvidenceItem(
        evidence_ref=body["evidence_ref"],
        subject=subject,
        predicate="content",
        value=body["text"],
        origin="attachment",
        integrity="untrusted",
        classification=label,
        observed_at_us=at_us,
        digest=fact_digest(subject, "content", body["text"]),
    )

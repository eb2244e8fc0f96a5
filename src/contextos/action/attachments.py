"""Check the files that a request names: a file is used only if it has the digest and type that the request states.

Source: API Contracts, "Payload limits and attachments".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from contextos.contracts.envelopes.run import Attachment
from contextos.contracts.envelopes.verdicts import Failure, FailureCode
from contextos.contracts.ports.outside import Attachments
from contextos.contracts.refs import attachment_ref
from contextos.errors import InvalidInput, Unavailable

MAX_ATTACHMENT_BYTES: Final = 16 << 20
MAX_TEXT_BYTES: Final = 65_536
"""The most bytes of one text. A longer text is refused and not cut, because a part of it could say something else."""

_TEXT: Final = re.compile(r"text/[^;]*|application/(?:[^;]*\+)?(?:json|xml|yaml)")


async def fetch_attachment(
    port: Attachments, tenant_id: str, wanted: Attachment, trace: Mapping[str, str]
) -> dict[str, Any]:
    """Fetch one attachment and check it. Returns the body of `attachment.fetched`, with the unchanged text if the file
    is a text, or with the failure. `trace` has the trace headers of the request for the file.

    Raises:
        Unavailable: the attachment cannot be fetched now.
    """
    is_text = _TEXT.fullmatch(_essence(wanted.media_type)) is not None
    try:
        max_bytes = MAX_TEXT_BYTES if is_text else MAX_ATTACHMENT_BYTES
        file = await port.fetch(tenant_id, wanted.uri, max_bytes, trace)
    except InvalidInput as error:
        problem = error.problems[0]
        return failed(wanted, "missing_evidence", f"{problem.detail}; {problem.remedy}")
    except Unavailable as error:
        detail = f"attachment `{wanted.artifact_id}` cannot be fetched now: {error}"
        raise Unavailable(error.dependency, detail, retry_after_ms=error.retry_after_ms) from None
    if hashlib.sha256(file.content).hexdigest() != wanted.sha256:
        return failed(wanted, "missing_evidence", "its bytes have another digest; send that of the file")
    if _essence(file.media_type) != _essence(wanted.media_type):
        return failed(wanted, "missing_evidence", "its server states another media type; send that of the file")
    body = {**_reference_fields(wanted), "size_bytes": len(file.content)}
    if not is_text:
        # Only the digest of the file is kept.
        return body
    try:
        return {**body, "text": file.content.decode()}
    except UnicodeDecodeError:
        detail = "it is no UTF-8, although its media type is a text; send the media type of the file"
        return failed(wanted, "unsafe_output", detail)


def failed(wanted: Attachment, code: FailureCode, detail: str) -> dict[str, Any]:
    """Return the body of `attachment.fetched` for an attachment that cannot be used."""
    failure = Failure(code=code, detail=f"attachment `{wanted.artifact_id}`: {detail}")
    return {**_reference_fields(wanted), "failure": failure.to_json()}


def _reference_fields(attachment: Attachment) -> dict[str, Any]:
    ref = attachment_ref(attachment.artifact_id, f"sha256:{attachment.sha256}")
    return {"evidence_ref": ref, "media_type": attachment.media_type}


def _essence(media_type: str) -> str:
    """Return a media type in lower case, without its parameters."""
    return media_type.partition(";")[0].strip().lower()

"""`HttpAttachments`: the port `Attachments` over HTTPS, for the places of each tenant.

A URI counts as the tenant's if it begins with one of its places, host and port included; segments of dots and encoded
separators, which could lead elsewhere, are refused. Everything is sent by `OutboundClient`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from contextos.adapters.outbound import (
    AnswerTooLarge,
    OutboundClient,
    OutboundRequest,
    destination,
    internal_address_fault,
)
from contextos.contracts.ports.outside import AttachedFile
from contextos.errors import InvalidInput, LostReply, Problem, Unavailable

FETCH_TIMEOUT_S: Final = 20.0
NAME: Final = "attachments"


class HttpAttachments:
    """Fetches files below `places`: by tenant, the beginnings of the tenant's URLs, each with a `/` at its end.

    `internal` allows the hosts of the places to be at loopback or private addresses.

    Raises:
        InvalidInput: a place is not a URL, or is at an address from which nothing is ever fetched.
    """

    def __init__(self, places: Mapping[str, Sequence[str]], *, internal: bool = False) -> None:
        self._places = {tenant_id: [destination(place) for place in urls] for tenant_id, urls in places.items()}
        for place in (place for places in self._places.values() for place in places):
            if fault := internal_address_fault(place.host, internal=internal):
                raise _refusal(*fault)
        hosts = {place.endpoint for places in self._places.values() for place in places}
        self._internal = frozenset(hosts if internal else ())

    async def fetch(self, tenant_id: str, uri: str, max_bytes: int, trace: Mapping[str, str]) -> AttachedFile:
        """Return the whole file at `uri`, of at most `max_bytes`. `trace` has the trace headers of the request.

        Raises:
            InvalidInput: the address is not below a place of the tenant, or the file is not there.
            Unavailable: it cannot be fetched now.
        """
        target = destination(uri)
        path = target.target.partition("?")[0]
        if not any(
            (place.scheme, place.endpoint) == (target.scheme, target.endpoint) and path.startswith(place.target)
            for place in self._places.get(tenant_id, ())
        ):
            raise _refusal("its address is not below a place of this tenant", "add the place to `attachments.places`")
        client = OutboundClient(internal=self._internal, max_response_bytes=max_bytes)
        try:
            request = OutboundRequest("GET", uri, trace)
            answer = await client.send(request, egress=[target.endpoint], timeout_s=FETCH_TIMEOUT_S)
        except AnswerTooLarge:
            raise _refusal(f"it has more than {max_bytes} bytes", "send a smaller file, or an excerpt") from None
        except LostReply as error:
            # A read has no effect.
            raise Unavailable(NAME, str(error)) from None
        if answer.status in (408, 429) or answer.status >= 500:
            raise Unavailable(NAME, f"its server answered {answer.status}")
        if answer.status != 200:
            raise _refusal(f"its server answered {answer.status}", "send an address at which the file is")
        return AttachedFile(answer.headers.get("content-type", ""), answer.body)


def _refusal(detail: str, remedy: str) -> InvalidInput:
    return InvalidInput(Problem("/attachments", "no_attachment", detail, remedy))

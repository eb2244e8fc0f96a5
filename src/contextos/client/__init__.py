"""A client of the HTTP API, for programs in other processes: requests, runs and their events, approvals and sessions.

`connect` opens a client. It needs `httpx` (extra `client`) and imports nothing of the server, the engine or the store.

- `connection`: `connect`, and `ApiClient` with a method for each thing that the API does.
- `sessions`: the gate of a session. Frameworks take it in the place of the gate of `App.gate`.
- `sending`: one request, with its time limits, its bounds and its repeats. `refusals`: an answer that is an error.
- `event_stream`: server-sent events. `signatures`: signs only the statement that the program asked for.

Invariants, with the tests that prove them:

- A request is repeated only where the repeat is the same request: `tests/unit/client/test_sending.py`.
- A stream that is cut anywhere goes on without a gap and without a duplicate: `tests/unit/client/test_connection.py`.
- The token goes to the server that the program named, and to no other; an answer is read within bounds:
  `tests/attacks/test_f52_client.py`.
- Nothing is signed but the answer that the program gave: `tests/unit/client/test_signatures.py`.
"""

from contextos.client.connection import ApiClient, ApiConnection, connect
from contextos.client.event_stream import StreamedEvent
from contextos.client.sessions import ClientGate

__all__ = ["ApiClient", "ApiConnection", "ClientGate", "StreamedEvent", "connect"]

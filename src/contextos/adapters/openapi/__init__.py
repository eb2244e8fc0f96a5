"""OpenAPI 3.0 and 3.1 documents as governed adapters.

Owns: reading a document within limits (`document`), what one operation means (`operations`, `request_bodies`,
`places`), the draft of an adapter file (`draft`), and the adapter that sends the calls (`adapter`, `requests`,
`styles`, `bodies`, `secrets`).

Does not own: its schemas in the profile that the runtime checks (`contextos.adapters.foreign.schemas`); how a request
leaves the machine (`contextos.adapters.outbound`); which adapter files are active (settings).

Invariants, with the tests that prove them:

- The schema of the arguments accepts nothing that the document refuses; what cannot be said so is refused with a
  reason. `tests/unit/adapters/foreign/test_schemas.py`
- An operation is drafted as an irreversible write that a person approves, unless a person states that it only reads.
  `tests/unit/adapters/openapi/test_draft.py`
- A credential is in no argument, result, error, log or record. `tests/attacks/test_d36_openapi_adapters.py`
- What is read back from a request, as the tables of OpenAPI say, is what went in.
  `tests/e2e/test_openapi_round_trips.py`
- No value of an argument leaves its place in the request. `tests/attacks/test_d36_openapi_adapters.py`
"""

"""The stored documents: for each collection its name, its key, the model of its bodies, one encode and one decode.

Owns the JSON form of every document. Does not own when a document is written, nor what follows from it.
No other module outside `contextos.store` builds a `Write`, scans a store or parses a document's body.
Tests: tests/unit/contracts/documents/test_collection.py and tests/test_documents.py.
Source: docs/design/journal.md.
"""

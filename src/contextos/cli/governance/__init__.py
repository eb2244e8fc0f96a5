"""Commands of authors and auditors: lint, schemas, memory, simulate, verify, replay, export."""

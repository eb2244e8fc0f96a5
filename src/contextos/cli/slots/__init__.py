"""Commands on context slots: resolve, select, lint, serve, and the artifacts that slots pick from."""

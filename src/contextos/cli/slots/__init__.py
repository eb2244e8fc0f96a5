"""Commands on context slots: resolve, select, answer, lint, serve, and manage the artifacts that slots hold."""

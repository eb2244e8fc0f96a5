"""Finds out who calls over HTTP: bearer tokens, tokens of development, and the sessions of browsers."""

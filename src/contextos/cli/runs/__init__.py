"""Commands on runs: invoke, compile, resume, runs, sessions, show, approve, deny, settle, cancel."""

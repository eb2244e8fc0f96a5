"""Commands on runs: invoke, compile, resume, list, show, approve, deny, settle, cancel."""

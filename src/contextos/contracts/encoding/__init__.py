"""How values become bytes and back: strict JSON in, canonical JSON (RFC 8785) out, JSON Pointer, display escapes."""

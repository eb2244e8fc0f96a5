"""The storage ports on a PostgreSQL database whose schema `contextos store migrate` has made."""

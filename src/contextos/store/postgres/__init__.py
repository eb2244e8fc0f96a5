"""The storage ports on a PostgreSQL database whose schema `contextos migrate` has made."""

"""Alembic's entry point: runs the migrations in the open transaction of `contextos store migrate`."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], version_table="schema_version", version_table_schema="contextos"
)
context.run_migrations()

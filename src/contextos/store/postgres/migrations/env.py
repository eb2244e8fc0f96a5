"""What Alembic runs: the migrations on the connection that `contextos migrate` has opened, in its transaction."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], version_table="schema_version", version_table_schema="contextos"
)
context.run_migrations()

"""The durable engine: runs as DBOS workflows on PostgreSQL, in any number of worker processes."""

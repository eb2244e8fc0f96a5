"""What in a database keeps tenants apart and the journal whole, read from its catalogue.

Rights that a run needs are checked with the rest of the schema; here is what an owner or superuser may have changed
since it was made, and what then would show one tenant's rows to another, hide from the sweep what is due, or let the
application's role change what it only appends: row-level security, policies, owners, triggers, and rights too many.
"""

from __future__ import annotations

from typing import Final

# A role is above the policies if it may become one that ignores them, or an owner, who can take them away.
ABOVE: Final = (
    "SELECT EXISTS ("
    "  SELECT FROM pg_roles AS role"
    "  WHERE (role.rolsuper OR role.rolbypassrls) AND pg_has_role(session_user, role.oid, 'MEMBER')) OR EXISTS ("
    "  SELECT FROM pg_class AS relation JOIN pg_namespace AS space ON space.oid = relation.relnamespace"
    "  WHERE space.nspname = 'contextos' AND (pg_has_role(session_user, relation.relowner, 'MEMBER')"
    "   OR pg_has_role(session_user, space.nspowner, 'MEMBER')))"
)
# Compared without spaces, parentheses and casts, which a version of PostgreSQL may write otherwise.
MINE: Final = "tenant=NULLIFcurrent_setting'contextos.tenant',true,''"
TABLES: Final = (
    "artifacts",
    "context_selection_acts",
    "documents",
    "edges",
    "extensions",
    "graph_commits",
    "heads",
    "journal",
    "nodes",
    "representations",
    "run_context_selections",
    "runs",
    "semantic_assertions",
)
"""What holds tenants' rows and must be there. What is there beside it is looked at too."""
TRIGGERS: Final = {
    "keeps": (
        "artifacts",
        "context_selection_acts",
        "edges",
        "heads",
        "journal",
        "nodes",
        "representations",
        "run_context_selections",
        "semantic_assertions",
    ),
    "stands": ("context_selection_acts", "heads", "nodes", "representations", "run_context_selections"),
    "ends_only": ("artifacts", "edges", "semantic_assertions"),
    "erases_only": ("journal",),
    "coherent_only": ("run_context_selections",),
}
"""What lets nobody change what is only appended, by its name, and on which tables it must be."""
_WANTED: Final = ", ".join(f"('{trigger}', '{table}')" for trigger, tables in TRIGGERS.items() for table in tables)
UNGUARDED: Final = f"""
WITH held AS (
  SELECT oid AS id, relname::text AS name, relrowsecurity AND relforcerowsecurity AS forced, relowner AS owner
  FROM pg_class WHERE relnamespace = 'contextos'::regnamespace AND relkind IN ('r', 'p') AND relname <> 'schema_version'
), swept AS (
  SELECT owner FROM held WHERE name = 'runs'
), policy AS (
  SELECT tablename::text AS name, policyname::text AS policy, permissive = 'PERMISSIVE' AS opens, cmd, roles,
    replace(translate(qual, ' ()', ''), '::text', '') AS qual,
    replace(translate(with_check, ' ()', ''), '::text', '') AS checked
  FROM pg_policies WHERE schemaname = 'contextos'
), sound AS (
  SELECT name, policy FROM policy WHERE opens AND (
    (policy = 'tenant' AND cmd = 'ALL' AND roles = ARRAY['public'::name] AND qual = $1 AND checked = $1)
    OR (policy = 'sweep' AND name = 'runs' AND cmd = 'SELECT' AND qual = 'wake_at_us<>0'
        AND roles = ARRAY[pg_get_userbyid((SELECT owner FROM swept))]))
)
SELECT string_agg(what, ', ' ORDER BY what) FROM (
  SELECT format('table `%s`', name) FROM (
    SELECT unnest(ARRAY{list(TABLES)}) EXCEPT SELECT name FROM held) AS gone (name)
  UNION ALL SELECT format('row-level security of `%s`', name) FROM held WHERE NOT forced
  UNION ALL SELECT format('policy `%s` of `%s`', policy, name) FROM (
    (SELECT name, 'tenant' AS policy FROM held UNION SELECT 'runs', 'sweep' UNION SELECT name, policy FROM policy)
    EXCEPT SELECT name, policy FROM sound) AS unsound
  UNION ALL SELECT format('owner of `%s`', name) FROM held WHERE owner <> (SELECT owner FROM swept)
  UNION ALL SELECT format('function `%s`', made.proname) FROM pg_proc AS made
    JOIN pg_namespace AS space ON space.oid = made.pronamespace AND space.nspname = 'contextos'
    WHERE made.proowner <> (SELECT owner FROM swept) OR made.prosecdef <> (made.proname = 'due')
      OR (made.prosecdef AND NOT coalesce(made.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false))
  UNION ALL SELECT format('trigger `%s` of `%s`', wanted, name) FROM (VALUES {_WANTED}) AS kept (wanted, name)
    JOIN held USING (name)
    WHERE NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = held.id AND tgname = wanted AND tgenabled IN ('O', 'A'))
  UNION ALL SELECT format('right to %s `%s`', surplus, name) FROM held
    CROSS JOIN unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS surplus
    WHERE has_table_privilege(id, surplus)
) AS changed (what)
"""  # noqa: S608

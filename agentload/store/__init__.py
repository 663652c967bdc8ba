"""Keep what was measured: journals that survive a crash, and the DuckDB file made from them.

A row goes to a journal first (`journal`, in the bytes of `codec`), a file a part of a run and
worker. `loader` copies finished rows into the database in batches (`columns`), and records in
the same transaction how far it has read, so a killed load can be repeated. Journals are the
truth: a database can always be rebuilt from them (`places` says where they are).

`database` opens the DuckDB file for one transaction or one set of queries,
brings older files up to `schema.sql` and `views.sql`, and closes it again. Other
rooms read small tables as rows (`tables`) and everything else through the views.
"""

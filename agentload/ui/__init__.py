"""Show what is stored and what is running, on read-only pages for a browser on this machine.

`app` routes a request to a page: a function in `pages` that takes a connection and the query
and returns plain data, and a template of the same name that places it (`render`; every value
is escaped). `source` opens the database for the queries of one page and caches the answer
until the file changes, so a page never keeps a run from storing its results. Active runs are
not in the database yet: `live` finds them by the locks on their journals, and `progress`
folds their rows as they are written. `reports` makes a report when one is opened.

Pages change nothing and have no password: `guard`
answers only requests for this machine's own names.
"""

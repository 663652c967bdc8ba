"""One page a file: `read(connection, asked)` returns what it shows as plain data; the template of the same name places it."""

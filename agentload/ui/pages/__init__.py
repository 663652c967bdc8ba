"""Read pages: functions `(connection, query)` that return plain data.

The template of the same name places the data.
"""

from typing import TypeVar

import duckdb

T = TypeVar("T")


def records(
    connection: duckdb.DuckDBPyConnection, kind: type[T], query: str, **values: object
) -> tuple[T, ...]:
    """Return a query's rows as values of a class whose fields are its columns.

    A list that holds None becomes None.
    """
    found = connection.execute(query, values)
    names = [column[0] for column in found.description or ()]
    return tuple(
        kind(**{name: _plain(each) for name, each in zip(names, row, strict=True)})
        for row in found.fetchall()
    )


def _plain(value: object) -> object:
    if isinstance(value, list):
        return None if None in value else tuple(value)
    return value

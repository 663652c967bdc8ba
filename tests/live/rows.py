"""A journal in memory."""

from agentload.model.rows import Row


class Rows(list[Row]):
    def flush_if_due(self, now_ns: int) -> None: ...

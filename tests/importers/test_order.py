"""Interleaved sessions come out whole and in order, in memory and through files alike."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from agentload.importers.parts.order import by_session, spread


class Row(msgspec.Struct):
    session: str
    at_s: float
    number: int = 0


rows = st.lists(
    st.builds(
        Row, session=st.sampled_from(["a", "b", "c", "ü"]), at_s=st.integers(0, 9).map(float)
    ),
    max_size=30,
)


@given(rows, st.sampled_from([1 << 20, 1, 100]))
def test_sessions_come_in_order_of_their_first_row_and_rows_in_order_of_time(
    found: list[Row], memory: int
) -> None:
    for number, row in enumerate(found):
        row.number = number
    groups = list(by_session(found, Row, memory=memory))
    starts = [(group[0].at_s, group[0].number) for group in groups]
    assert starts == sorted(starts)
    assert sorted({row.session for row in found}) == sorted(group[0].session for group in groups)
    for group in groups:
        own = [row for row in found if row.session == group[0].session]
        assert group == sorted(own, key=lambda row: (row.at_s, row.number))


def test_starts_that_share_a_stamp_are_spread_over_the_grid_but_not_into_a_pause() -> None:
    stamps = [0.0, 0.0, 0.0, 3.0, 6.0, 6.0, 60.0, 60.0]
    starts = [
        start
        for _, start in spread(
            [[Row(session=str(number), at_s=at)] for number, at in enumerate(stamps)]
        )
    ]
    assert starts == [0.0, 1.0, 2.0, 3.0, 6.0, 7.5, 60.0, 61.5]

import pytest

from agentload.errors import UsageError
from agentload.ui.guard import host_of, is_embedded, is_loopback
from agentload.ui.server import SiteOptions, check_options


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8750", "localhost"),
        ("localhost.:8750", "localhost"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:8750", "::1"),
        ("[::1]", "::1"),
        ("127.0.0.1.evil.example", "127.0.0.1.evil.example"),
        ("localhost:80@evil.example", None),
        ("localhost,evil.example", None),
        ("localhost:evil", None),
        ("[::1", None),
        ("[::1]evil", None),
        (":8750", None),
        ("", None),
        (None, None),
    ],
)
def test_a_host_header_gives_its_name_and_no_more(header: str | None, host: str | None) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("site", "kind", "is_so"),
    [
        (None, None, False),  # no browser
        ("none", "document", False),  # typed
        ("same-origin", "empty", False),  # our own script
        ("cross-site", "document", False),  # a link in somebody's wiki
        ("cross-site", "image", True),
        ("cross-site", "iframe", True),
        ("same-site", "empty", True),  # another port of this machine
    ],
)
def test_a_page_of_others_may_lead_here_and_no_more(
    site: str | None,
    kind: str | None,
    is_so: bool,  # noqa: FBT001  # as below
) -> None:
    assert is_embedded(site, kind) == is_so


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("h", False),
    ],
)
# a table of cases
def test_loopback_is_told_from_the_world(host: str, is_so: bool) -> None:  # noqa: FBT001
    assert is_loopback(host) == is_so


def test_pages_are_not_shown_to_others_unless_that_is_asked_for() -> None:
    with pytest.raises(UsageError, match="no password"):
        check_options(SiteOptions(databases=(), host="0.0.0.0"))
    check_options(SiteOptions(databases=(), host="0.0.0.0", names=("bench.example.org",)))
    with pytest.raises(UsageError, match="not a host name"):
        check_options(SiteOptions(databases=(), names=("http://bench",)))

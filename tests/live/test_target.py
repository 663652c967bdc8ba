import pytest

from agentload import __version__
from agentload.errors import EndpointError
from agentload.live.target import Address, Target, address, head


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:8000/v1", Address(scheme="http", host="h", port=8000, path="/v1")),
        ("http://h/v1/", Address(scheme="http", host="h", port=80, path="/v1")),
        ("https://H.example", Address(scheme="https", host="h.example", port=443)),
        ("http://[::1]:1/v1", Address(scheme="http", host="::1", port=1, path="/v1")),
        ("http://me:p%40ss@h:1", Address(scheme="http", host="h", port=1, user="me:p@ss")),
        (
            "http+unix://%2Frun%2Fs.sock/v1",
            Address(scheme="http", host="localhost", port=80, path="/v1", socket="/run/s.sock"),
        ),
    ],
)
def test_a_url_says_where_a_server_is(url: str, expected: Address) -> None:
    assert address(url) == expected


@pytest.mark.parametrize(
    "url", ["h:8000/v1", "ftp://h/v1", "http://", "http://h:x/v1", "http+unix:///run/s.sock"]
)
def test_what_is_no_url_of_a_server_is_refused_with_a_hint(url: str) -> None:
    with pytest.raises(EndpointError) as caught:
        address(url)
    assert caught.value.hint == "write it as http://HOST:PORT/v1"


def lines(
    target: Target, *, session: str = "s1", cookies: str = "", expects: bool = False
) -> list[str]:
    raw = head(
        target,
        "/v1/chat/completions",
        request_id="r1",
        session=session,
        length=12,
        cookies=cookies,
        expects=expects,
    )
    assert raw.endswith(b"\r\n\r\n")
    return raw.decode().removesuffix("\r\n\r\n").split("\r\n")


def test_a_head_names_the_request_and_asks_for_no_compression() -> None:
    assert lines(Target(arm="a", url="http://h:8000/v1")) == [
        "POST /v1/chat/completions HTTP/1.1",
        "Host: h:8000",
        f"User-Agent: agentload/{__version__}",
        "Content-Type: application/json",
        "Accept: text/event-stream, application/json",
        "Accept-Encoding: identity",
        "Content-Length: 12",
        "X-Request-Id: r1",
    ]


@pytest.mark.parametrize(
    ("target", "session", "extra"),
    [
        (Target(arm="a", url="http://h/v1", api_key="k"), "s", ["Authorization: Bearer k"]),
        (Target(arm="a", url="http://u:p@h/v1"), "s", ["Authorization: Basic dTpw"]),
        (
            Target(arm="a", url="http://h/v1", api_key="k", headers={"authorization": "Token t"}),
            "s",
            ["authorization: Token t"],
        ),
        (
            Target(arm="a", url="http://h/v1", headers={"X-Session": "id-{session}"}),
            "s 7\r\né",
            ["X-Session: id-s 7___"],
        ),
    ],
)
def test_keys_and_headers_are_sent_with_each_request(
    target: Target, session: str, extra: list[str]
) -> None:
    assert lines(target, session=session)[8:] == extra


def test_cookies_and_expectations_close_the_head() -> None:
    assert lines(
        Target(arm="a", url="http://h/v1", connections="call"), cookies="a=1", expects=True
    )[8:] == ["Cookie: a=1", "Connection: close", "Expect: 100-continue"]


def test_a_proxy_is_told_the_whole_url_and_its_own_credentials() -> None:
    found = lines(Target(arm="a", url="http://h:1/v1", proxy="http://u:p@proxy:3128"))
    assert (found[0], found[1], found[8:]) == (
        "POST http://h:1/v1/chat/completions HTTP/1.1",
        "Host: h:1",
        ["Proxy-Authorization: Basic dTpw"],
    )


@pytest.mark.parametrize(
    ("headers", "api_key", "message"),
    [
        ({"Host": "x"}, None, "arm 'a': the header 'Host' is ours to set"),
        (
            {"X-A": "1\r\nX-B: 2"},
            None,
            "arm 'a': the header 'X-A' has bytes that no header may have",
        ),
        ({"X A": "1"}, None, "arm 'a': the header 'X A' has bytes that no header may have"),
        ({}, "key\n", "arm 'a': the API key has bytes that no header may have"),
    ],
)
def test_headers_that_would_break_a_request_are_refused(
    headers: dict[str, str], api_key: str | None, message: str
) -> None:
    with pytest.raises(EndpointError) as caught:
        Target(arm="a", url="http://h/v1", headers=headers, api_key=api_key)
    assert caught.value.message == message


def test_a_target_keeps_its_secrets_out_of_sight() -> None:
    target = Target(
        arm="a",
        url="http://h/v1",
        api_key="secret",
        headers={"X-Key": "secret"},
        proxy="http://u:secret@p",
    )
    assert "secret" not in repr(target)

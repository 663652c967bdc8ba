"""Describe one endpoint of a comparison, and on which machine each arm begins.

An endpoint says where a server is, how to reach it and what it is expected to be.
Texts are shown without the credentials that some of its URLs hold.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from agentload.dispatch.counting import Counting
from agentload.dispatch.fault import without_secrets
from agentload.errors import EndpointError
from agentload.model.controls import replica

SCHEMES: Final = frozenset({"http", "https", "http+unix"})
_USER: Final = re.compile(r"(?<=://)[^/\s?#'\"]+@")
_QUERY: Final = re.compile(r"(://[^\s?#'\"]*)\?[^\s'\"]+")
KEY_COMMAND_S: Final = 30.0
SECRET_CHARS: Final = 6  # a shorter header value is no secret, and would be found in any text
Connections: TypeAlias = Literal["session", "pool", "call"]


def checked_url(url: object, where: str) -> str:
    """Return a URL without slashes at its end.

    Raises EndpointError unless its scheme is http, https or http+unix.
    """
    try:
        parts = urlsplit(str(url))
        is_one = (
            parts.scheme in SCHEMES
            and bool(parts.netloc or parts.path)
            and (parts.scheme == "http+unix" or parts.port != 0)
        )
    except ValueError:  # brackets without an address in them, or an invalid port
        is_one = False
    if not is_one:
        shown = without_credentials(str(url))
        raise EndpointError(
            f"{where}: '{shown}' is not an http(s) URL", hint=f"{where}={likely_url(shown)}"
        )
    return str(url).rstrip("/")


def likely_url(text: str) -> str:
    """Return the URL that an address without a scheme, or without a path, probably means."""
    address = text.partition("://")[2] or text
    host, _, path = address.partition("/")
    is_host = re.fullmatch(r"[\w.-]+(:\d+)?", host) is not None
    return f"http://{host if is_host else '127.0.0.1:8000'}/{path or 'v1'}"


def without_user(text: str) -> str:
    """Return a text, such as a command line, whose URLs show no name and password."""
    return _USER.sub("***@", text)


def without_credentials(text: str) -> str:
    """Return a text whose URLs show no name, password or query.

    Some servers take their token in the query.
    """
    return _QUERY.sub(r"\1?***", without_user(text))


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets and URL credentials: servers echo what they get."""
    return without_credentials(without_secrets(text, secrets))


def socket_of(url: str) -> str | None:
    """Return the socket's path of a URL such as `http+unix://%2Frun%2Fs.sock/v1`, or None."""
    parts = urlsplit(url)
    if parts.scheme != "http+unix":
        return None
    return unquote(parts.netloc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How the server behind an endpoint is started."""

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Added to the caller's own environment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Name a server configuration and say how to reach it."""

    name: str
    url: str = field(repr=False)  # as every URL here: it may hold a password
    """Base URL of the OpenAI-compatible API, such as http://127.0.0.1:8000/v1."""
    model: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Model name for each alias that a trace's turns use."""
    key_env: str | None = None
    """Environment variable that holds the key; the key itself is never kept."""
    key_command: str | None = None
    """Command that prints the key, for tokens that expire."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    header_env: Mapping[str, str] = field(default_factory=dict)
    """Environment variable that holds the value, for each header with a secret in it."""
    extra_body: Mapping[str, object] = field(default_factory=dict)
    force_lengths: bool = True
    """Whether to force answers of the trace's length; some servers refuse `ignore_eos`."""
    counting: Counting = "token_ids"
    """How the server is asked to count tokens; `usage` needs no field beyond OpenAI's API."""
    ca_file: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None
    """File of the certificate's key; None: the certificate's file holds the key."""
    proxy: str | None = field(default=None, repr=False)
    proxy_env: str | None = None
    """Environment variable that holds the proxy's URL, for a URL with a password in it."""
    connections: Connections = "session"
    """A connection for each session, a pool shared by all calls, or a new one for each call."""
    idle_s: float | None = None
    """Reuse no connection that was idle for longer."""
    expect_bytes: int | None = None
    """Ask with `Expect: 100-continue` before sending a body of at least this many bytes."""
    replica_headers: tuple[str, ...] = ()
    """Response headers that name the replica that answered; kept with each call."""
    tokenizer: str | None = None
    """The served model's tokenizer.json or its folder, for servers that do not count tokens."""
    config: str | None = None
    """The served model's config.json or its folder: the geometry for the physics gates."""
    machine: str | None = None
    answer_s: float | None = None
    """Most seconds for an answer that is not timed; None: the caller's own limit."""
    places: "tuple[Endpoint, ...]" = ()
    """The arm on each of its machines, if it has servers on several; the arm itself is first."""
    replicas: "tuple[Endpoint, ...]" = ()
    """Servers of the arm that run at the same time, the arm itself first; () if it has one.

    Each is a start that was drawn already.
    """
    profile: str | None = None
    """Profile and arm that an emulated server plays; None for a real server."""
    expect: Mapping[str, object] = field(default_factory=dict)
    """Facts that the server must confirm, by the names in `facts.EXPECTABLE`."""
    metrics: tuple[str, ...] = field(default=(), repr=False)
    """URL of each replica's metrics; () is /metrics next to the API."""
    log: str | None = None
    """File of the server's log: its decisions at start, and its load if /metrics is closed."""
    gpu: str | None = None
    gpus: int | None = None
    """Number of GPUs of one replica."""
    gpu_ids: tuple[str, ...] = ()
    """GPUs of the arm among those watched: `0`, or MIG instance `0/7`; () is all of them."""
    gpu_metrics: str | None = field(default=None, repr=False)
    """URL of an exporter of GPU figures, such as DCGM's."""
    price_per_hour: float | None = None
    """Price of one GPU in US dollars."""
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    launch: Launch | None = None

    @property
    def servers(self) -> "tuple[Endpoint, ...]":
        """Each server of the arm: its replicas, or the arm itself."""
        return self.replicas or (self,)

    @property
    def root(self) -> str:
        """URL without its /v1, where /metrics and /version are."""
        return self.url.rstrip("/").removesuffix("/v1")

    @property
    def metrics_urls(self) -> tuple[str, ...]:
        """URL of each replica's metrics."""
        return self.metrics or (f"{self.root}/metrics",)

    @property
    def shown_url(self) -> str:
        """URL without name, password and query."""
        return without_credentials(self.url)

    @property
    def own_gpus(self) -> frozenset[str]:
        """GPUs of the arm by `gpu_ids`, else by its launch; empty: all that are watched."""
        if self.gpu_ids or self.launch is None:
            return frozenset(self.gpu_ids)
        return frozenset(
            filter(
                None, self.launch.env.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",")
            )
        )

    def key(self) -> str | None:
        """Read the key from the environment or its command.

        Raises EndpointError when there is none.
        """
        if self.key_command is not None:
            return self._printed_key(self.key_command)
        if self.key_env is None:
            return None
        return self._from_environment(self.key_env)

    def own_headers(self) -> dict[str, str]:
        """Return the arms file's headers, with values from the environment where it says so."""
        return {
            **self.headers,
            **{header: self._from_environment(name) for header, name in self.header_env.items()},
        }

    def request_headers(self) -> dict[str, str]:
        """Return the headers of every request, the key's included."""
        key = self.key()
        return {**self.own_headers(), **({"Authorization": f"Bearer {key}"} if key else {})}

    def secrets(self) -> tuple[str, ...]:
        """Return the texts that must never be shown; this runs the key's command, if any."""
        return tuple(
            each
            for each in (self.key(), *self.own_headers().values())
            if each and len(each) >= SECRET_CHARS
        )

    def masked(self, text: str) -> str:
        """Return a text of this endpoint's server without keys and passwords.

        If a key cannot be read, it was never sent, and the text cannot hold it.
        """
        try:
            return mask(text, self.secrets())
        except EndpointError:
            return without_credentials(text)

    def _from_environment(self, name: str) -> str:
        value = os.environ.get(name)
        if not value:
            raise EndpointError(
                f"{self.name}: environment variable {name} is not set", hint=f"export {name}=…"
            )
        return value

    def _printed_key(self, command: str) -> str:
        try:
            done = subprocess.run(
                shlex.split(command),
                capture_output=True,
                text=True,
                timeout=KEY_COMMAND_S,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            # Neither output nor arguments: both may hold what is secret.
            raise EndpointError(
                f"{self.name}: key_command failed: {type(error).__name__}",
                hint="run it by hand; it must print the key alone",
            ) from None
        if not (key := done.stdout.strip()):
            raise EndpointError(
                f"{self.name}: key_command printed nothing", hint="it must print the key alone"
            )
        return key


def check_environment(endpoints: Iterable[Endpoint]) -> None:
    """Raise EndpointError naming every unset environment variable that requests need."""
    needed: dict[str, list[str]] = {}
    for each in endpoints:
        for name in (each.key_env, *each.header_env.values()):
            if name is not None and not os.environ.get(name):
                needed.setdefault(name, []).append(each.name)
    if needed:
        said = (
            f"{', '.join(arms)}: environment variable {name} is not set"
            for name, arms in needed.items()
        )
        raise EndpointError(
            "; ".join(said), hint=f"export {' '.join(f'{name}=…' for name in needed)}"
        )


def replica_pairs(endpoints: Sequence[Endpoint]) -> tuple[str, ...]:
    """Name the replicas that every arm has, as many as the arm with the fewest; () for one.

    A start counts only where each arm has its own.
    """
    fewest = min((len(each.servers) for each in endpoints), default=1)
    if fewest > 1:
        return tuple(map(replica, range(1, fewest + 1)))
    return ()


def without_fellows(endpoint: Endpoint) -> Endpoint:
    """Return an arm of several replicas as its first replica alone; another arm unchanged.

    The arm is then on the machine that its address names.
    """
    if endpoint.replicas:
        return replace(endpoint, replicas=(), machine=None)
    return endpoint


OF_THE_ADDRESS: Final = (
    *(
        "url",
        "key_env",
        "key_command",
        "headers",
        "header_env",
        "ca_file",
        "client_certificate",
        "client_key",
        "proxy",
        "proxy_env",
    ),
    *(
        "idle_s",
        "expect_bytes",
        "replica_headers",
        "metrics",
        "log",
        "gpu",
        "gpu_ids",
        "gpu_metrics",
        "price_per_hour",
    ),
)
"""Fields that stay with the machine when arms exchange machines; all others go with the arm.

They say what is reached there, as whom, and through what.
"""


def beginnings(endpoints: Sequence[Endpoint]) -> tuple[str, ...]:
    """Name the machine that each arm begins on: as the arms file calls it, else by address.

    Machines of emulated arms are numbered. Arms that have servers on several machines
    begin on different ones. Raises EndpointError if not all have the same machines.
    """
    listed = [tuple(place.machine or "" for place in endpoint.places) for endpoint in endpoints]
    if any(listed):
        machines = listed[0]
        if any(set(each) != set(machines) for each in listed):
            raise EndpointError(
                "not every arm has a server on the same machines",
                hint="give each arm the same names under 'machines'",
            )
        return tuple(machines[place % len(machines)] for place in range(len(endpoints)))
    hosts = {_host(endpoint) for endpoint in endpoints}
    is_one_each = len(hosts) == len(endpoints)
    names: dict[str, str] = {}
    for endpoint in endpoints:
        # A control is on the machine of its twin, whose URL it shares.
        if endpoint.url not in names:
            names[endpoint.url] = endpoint.machine or _address(
                endpoint, len(names) + 1, by_host=is_one_each
            )
    return tuple(names[endpoint.url] for endpoint in endpoints)


def _host(endpoint: Endpoint) -> str:
    return urlsplit(endpoint.url).hostname or endpoint.shown_url


def _address(endpoint: Endpoint, number: int, *, by_host: bool) -> str:
    """Name the machine of an arm that no arms file names."""
    if endpoint.profile is not None:
        return f"m{number}"
    if by_host:
        return _host(endpoint)
    return urlsplit(endpoint.shown_url).netloc or endpoint.shown_url


def on(endpoint: Endpoint, machine: str | None, arms: Sequence[Endpoint]) -> Endpoint:
    """Return an arm on a machine: at its own server there, else at another arm's address.

    That is the arm that began on the machine, once both were exchanged.
    """
    if machine is None:
        return endpoint
    if own := endpoint.places or endpoint.replicas:
        return replace(next(each for each in own if each.machine == machine), name=endpoint.name)
    began = [other for other, name in zip(arms, beginnings(arms), strict=True) if name == machine]
    # A machine may have a server for each arm.
    there = next((other for other in began if other.name == endpoint.name), began[0])
    return replace(
        endpoint, machine=machine, **{name: getattr(there, name) for name in OF_THE_ADDRESS}
    )

"""Ask a server what it is: version, served models, KV cache configuration.

Facts only; a missing one stays missing.

Settings come from /server_info, which is open with VLLM_SERVER_DEV_MODE=1
alone. The exporter that an arm names for its GPUs is asked before anything is
measured; otherwise its silence would be noticed after hours.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import field

from agentload.endpoints.arguments import arguments
from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.reach import reach
from agentload.errors import EndpointError
from agentload.exposition.scrape import DIGITS, Scrape, of_replicas
from agentload.model.controls import CONTROL
from agentload.model.record import Record
from agentload.telemetry.log_lines import StartUp, start_up

# for each of our names: the section and field of `vllm_config`
_WANTED: Final[Mapping[str, tuple[str, str]]] = {
    "attention_backend": ("attention_config", "backend"),
    "flash_attention": ("attention_config", "flash_attn_version"),
    "weights": ("model_config", "model"),
    "quantization": ("model_config", "quantization"),
    "eager": ("model_config", "enforce_eager"),
    "max_num_batched_tokens": ("scheduler_config", "max_num_batched_tokens"),
    "max_num_seqs": ("scheduler_config", "max_num_seqs"),
    "chunked_prefill": ("scheduler_config", "enable_chunked_prefill"),
    "kv_cache_memory_bytes": ("cache_config", "kv_cache_memory_bytes"),
    "kv_offloading_gib": ("cache_config", "kv_offloading_size"),
    "tensor_parallel": ("parallel_config", "tensor_parallel_size"),
    "data_parallel": ("parallel_config", "data_parallel_size"),
    "speculative": ("speculative_config", "method"),
    "drafts": ("speculative_config", "num_speculative_tokens"),
    "draft_model": ("speculative_config", "model"),
}
_LOGGED: Final = frozenset({"kv_cache_dtype", "prefix_caching"})
"""Settings of a log that `Identity.facts` has as facts of their own."""


MACHINE: Final = {"driver": "nvidia_driver_version", "cuda": "cuda_runtime_version"}
"""What a server's machine runs under it, by our names, and the field of vLLM's own report."""
_CARD: Final = re.compile(r"^GPU \d+: (.+?) *$", re.MULTILINE)


def settings(document: Mapping[str, object]) -> dict[str, object]:
    """Return the settings in an answer of /server_info; those without a value are left out."""
    config = document.get("vllm_config")
    if not isinstance(config, Mapping):
        return {}
    found = {
        name: part.get(field)
        for name, (of, field) in _WANTED.items()
        if isinstance(part := config.get(of), Mapping)
    }
    under = document.get("system_env")
    if isinstance(under, Mapping):
        found |= {name: under.get(field) for name, field in MACHINE.items()}
        found["gpu"] = _cards(under.get("nvidia_gpu_models"))
    return {name: value for name, value in found.items() if value is not None}


def _cards(told: object) -> str | None:
    """Name the kinds of GPU in lines such as `GPU 0: NVIDIA H200`; None where there are none."""
    return ", ".join(sorted(set(_CARD.findall(told)))) or None if isinstance(told, str) else None


class Identity(Record):
    """What a server reported at one moment."""

    models: tuple[str, ...]
    version: str | None = None
    max_model_len: int | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)
    engines: int = 1
    """Engines of all replicas, each with a pool of its own; facts give the sum of the pools."""
    counters: Mapping[str, float] = field(default_factory=dict)
    """Values of /metrics by our names; they lag on a server that has just become idle."""
    replicas: int = 1
    """Number of replicas that answered with their metrics, at least 1."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Further settings of /server_info, where it is open."""
    log: StartUp = field(default_factory=StartUp)
    launch: Launch | None = None
    """How the arms file starts the server."""
    missing: tuple[str, ...] = ()
    """Sources that did not answer, with the reason."""
    emulated: str | None = None
    """Profile and arm of an emulated server; None: a real one, or one that does not say."""
    gpus_unseen: str | None = None
    """Why the arm's exporter reports none of its GPUs; None: it does, or none is named."""
    check_ms: float | None = None
    """Milliseconds of the last short request that primes a started server, alone on it."""
    gateway: str | None = None
    """Gateway between us and the server, if the answers show one."""

    @property
    def cache_block(self) -> int | None:
        """Tokens of a block of the prefix cache; None if the server does not say."""
        said = str(self.facts()["block_size"])
        if said.isdecimal() and len(said) < DIGITS and int(said) > 0:
            return int(said)
        return None

    def facts(self) -> dict[str, object]:
        """Return what identifies the configuration, in the names that evidence reads."""
        config, log = self.cache_config, self.log
        return {
            "version": self.version or log.version,
            "models": list(self.models),
            "max_model_len": self.max_model_len,
            "kv_cache_dtype": config.get("cache_dtype")
            or log.kv_cache_dtype
            or log.settings.get("kv_cache_dtype"),
            "skip_layers": config.get("kv_cache_dtype_skip_layers"),
            "prefix_caching": config.get("enable_prefix_caching")
            or log.settings.get("prefix_caching"),
            # With skipped layers FP8 blocks grow until their pages match
            # the others: cache hits come in these larger blocks.
            "block_size": _said(config, "effective_attention_block_size")
            or _said(config, "block_size")
            or log.block_tokens,
            "pool_tokens": _said(config, "kv_cache_size_tokens")
            or log.pool_tokens
            or self.counters.get("pool_tokens"),
            "pool_blocks": _said(config, "num_gpu_blocks"),
            "engines": self.engines,
            "max_concurrency": _said(config, "kv_cache_max_concurrency") or log.max_concurrency,
            "gpu_memory_utilization": config.get("gpu_memory_utilization"),
            "attention_backend": config.get("attention_backend")
            or self.settings.get("attention_backend")
            or log.attention_backend,
            "flash_version": self.settings.get("flash_attention") or log.flash_version,
            "process_start_s": self.counters.get("process_start_s"),
            "compile_cache": log.compile_cache,
            "check_ms": self.check_ms,
            "replicas": self.replicas,
            "settings": {name: log.settings[name] for name in log.settings if name not in _LOGGED}
            | dict(self.settings),
            "gateway": self.gateway,
            "arguments": arguments(self.launch, log.arguments),
            "warnings": list(log.warnings),
        }


async def identify(endpoint: Endpoint, *, known: Identity | None = None) -> Identity:
    """Ask *endpoint* what it is.

    *known* is an earlier answer: while the process is the same, what the server
    decided at its start is taken from it. Raises EndpointError if the endpoint
    cannot be used: unreachable, no OpenAI-compatible API, wrong key.
    """
    from agentload.endpoints import pages  # late: in virtual time nobody is asked

    reached = await asyncio.to_thread(reach, endpoint)
    missing: list[str] = []
    async with reached.session(pages.TIMEOUT) as session:
        listing, between = await pages.models(session, endpoint, missing)
        version = await pages.document(session, f"{endpoint.root}/version", missing) or {}
        found = await asyncio.gather(
            *(pages.scrape(session, url, missing) for url in endpoint.metrics_urls)
        )
        scrapes = tuple(page for page in found if page is not None)
        scrape = of_replicas(scrapes)
        _one_configuration(endpoint, scrapes)
        if known is not None and _is_same_process(known, scrape):
            decided, log = known.settings, known.log
        else:
            # Open in development mode alone: its absence is not listed as missing.
            url = f"{endpoint.root}/server_info?config_format=json"
            told = await pages.document(session, url, [], patience=pages.HOPE)
            decided = settings(told or {})
            log = await asyncio.to_thread(_log, endpoint, missing)
    return Identity(
        models=tuple(str(entry["id"]) for entry in listing),
        version=_text(version, "version"),
        emulated=_text(version, "emulated"),
        max_model_len=_max_model_len(listing, endpoint.model),
        cache_config=scrape.cache_config,
        engines=scrape.engines,
        counters=dict(scrape.samples()),
        replicas=len(scrapes) or 1,
        settings=decided,
        log=log,
        launch=endpoint.launch,
        missing=tuple(missing),
        gpus_unseen=await pages.silence(endpoint) if known is None else known.gpus_unseen,
        gateway=between,
    )


def _is_same_process(known: Identity, scrape: Scrape) -> bool:
    start_s = scrape.values.get("process_start_s")
    return start_s is not None and known.counters.get("process_start_s") == start_s


def _text(document: Mapping[str, object], name: str) -> str | None:
    if name not in document:
        return None
    return str(document[name])


def _max_model_len(listing: Sequence[Mapping[str, object]], model: str | None) -> int | None:
    """Return the context limit of a model, or of the first one where none is wanted.

    A limit that no model can have, such as 0 or `true`, is unknown.
    """
    for entry in listing:
        if model is None or entry["id"] == model:
            length = entry.get("max_model_len")
            if isinstance(length, bool) or not isinstance(length, int):
                return None
            return length if length > 0 else None
    return None


async def identify_all(endpoints: tuple[Endpoint, ...]) -> tuple[Identity, ...]:
    """Ask all endpoints at once. Raises EndpointError naming each that cannot be used."""
    found = await asyncio.gather(
        *(identify(endpoint) for endpoint in endpoints), return_exceptions=True
    )
    unusable = [each for each in found if isinstance(each, EndpointError)]
    if len(unusable) > 1:
        from agentload.endpoints import pages  # late: as above

        hints = tuple(dict.fromkeys(each.hint for each in unusable if each.hint))
        first, *others = hints or ("",)
        rest = [each.removeprefix(pages.IS_UP) for each in others]
        # A control is its arm's server again, of which everything is said once.
        said = dict.fromkeys(each.message.replace(f"{CONTROL}: ", ": ", 1) for each in unusable)
        raise EndpointError("; ".join(said), hint="; ".join((first, *rest)) or None)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return tuple(each for each in found if isinstance(each, Identity))


def kind_of(identities: Mapping[str, Identity]) -> Literal["measured", "emulated"]:
    """Return whether a run on these servers is measured or emulated.

    Raises EndpointError for emulated servers among real ones: they cannot be compared.
    """
    stand_ins = [name for name, identity in identities.items() if identity.emulated is not None]
    if stand_ins and len(stand_ins) < len(identities):
        real = next(name for name in identities if name not in stand_ins)
        raise EndpointError(
            f"{stand_ins[0]} is emulated and {real} is not",
            hint="compare emulated servers with emulated ones, real servers with real ones",
        )
    return "emulated" if stand_ins else "measured"


def served_model(endpoint: Endpoint, identity: Identity) -> str:
    """Return the model to ask for.

    Raises EndpointError when the endpoint does not serve the one that is wanted.
    """
    if endpoint.model is None:
        if len(identity.models) == 1:
            return identity.models[0]
        raise EndpointError(
            f"{endpoint.name}: serves {len(identity.models)} models",
            hint=f"--model one of: {', '.join(identity.models)}",
        )
    if identity.models and endpoint.model not in identity.models:
        served = ", ".join(identity.models)
        raise EndpointError(
            f"{endpoint.name}: {endpoint.shown_url} does not serve '{endpoint.model}'",
            hint=f"--model one of: {served}",
        )
    return endpoint.model


def _said(labels: Mapping[str, str], name: str) -> str | None:
    if labels.get(name) in {None, "", "None"}:
        return None
    return labels[name]


def _one_configuration(endpoint: Endpoint, scrapes: tuple[Scrape, ...]) -> None:
    for name in ("cache_dtype", "kv_cache_dtype_skip_layers", "enable_prefix_caching"):
        seen = sorted(
            {scrape.cache_config[name] for scrape in scrapes if name in scrape.cache_config}
        )
        if len(seen) > 1:
            raise EndpointError(
                f"{endpoint.name}: replicas behind one URL differ in {name}: {', '.join(seen)}",
                hint="give each configuration an arm",
            )


def _log(endpoint: Endpoint, missing: list[str]) -> StartUp:
    if endpoint.log is None:
        return StartUp()
    try:
        with Path(endpoint.log).open(encoding="utf-8", errors="replace") as lines:
            return start_up(lines)
    except OSError as error:
        missing.append(f"{endpoint.log}: {error.strerror}")
        return StartUp()

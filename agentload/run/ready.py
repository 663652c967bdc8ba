"""Check before anything is sent whether this machine can measure; say what to do if not."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile

from agentload.errors import AgentloadError
from agentload.layout.cost import Cost
from agentload.layout.timeline import ASSUMED_TOKEN_S
from agentload.live.look import SWITCH, look
from agentload.model.client import AskedLoad, ClientLook, Readiness, readiness
from agentload.remote.seats import HERE, count_here
from agentload.run.audience import MAY_BE_LATE
from agentload.run.lay import Prepared
from agentload.run.play import Playing
from agentload.study.parts import Load


def ready(made: Prepared, notice: Callable[[str], None]) -> None:
    """Check this machine before live servers are loaded; nodes of a cluster are not checked."""
    playing = made.playing
    assert isinstance(playing, Playing), playing
    means = playing.means
    if means.on == HERE and means.share is not None:
        check_writable(Path(means.share), "--share")
    if means.on in {None, HERE}:
        check_client(_asked_by(playing, made.cost()), notice)


def check_writable(folder: Path, option: str) -> None:
    """Raise AgentloadError where what is measured could not be written to an option's folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise AgentloadError(
            f"{option} {folder}: cannot write there: {error.strerror}",
            hint=f"name a folder that you may write, such as {option} /tmp/agentload",
        ) from error


def _asked_by(playing: Playing, cost: Cost) -> AskedLoad:
    """Return what a laid-out run asks of this machine, at the speeds that its cost assumes."""
    means, chunks_per_s = playing.means, cost.output_tokens / max(1.0, 60 * cost.minutes)
    return AskedLoad(
        streams=chunks_per_s * ASSUMED_TOKEN_S,
        chunks_per_s=chunks_per_s,
        workers=means.workers * (count_here(means.nodes) if means.on == HERE else 1),
        has_emulated=any(each.profile is not None for each in playing.endpoints),
    )


def asked_of(load: Load, *, has_emulated: bool) -> AskedLoad:
    """Return what the sessions of a load ask of this machine while each is answered."""
    streams = load.sessions or 1
    return AskedLoad(
        streams=streams, chunks_per_s=streams / ASSUMED_TOKEN_S, has_emulated=has_emulated
    )


def check_client(
    asked: AskedLoad, notice: Callable[[str], None], *, seen: Callable[[], ClientLook | None] = look
) -> Readiness | None:
    """Warn where requests may leave late. Raises AgentloadError where they would."""
    looked = seen()
    if looked is None:
        return None
    found = readiness(looked, asked)
    match found.verdict:
        case "ok":
            pass
        case "doubtful":
            notice(f"{MAY_BE_LATE}: {found.seen}; {found.cure}")
        case "cannot":
            raise AgentloadError(
                f"this machine cannot measure: {found.seen}",
                hint=f"{found.cure}; {SWITCH}=0 measures all the same",
            )
    return found

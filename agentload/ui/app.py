"""Route requests to pages, and errors to a page with the next step."""

import asyncio
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import duckdb
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from agentload.errors import AgentloadError, StoreError
from agentload.model.record import Record
from agentload.report.formats import html
from agentload.ui import guard
from agentload.ui.pages.calls import call, pair, session
from agentload.ui.pages.jobs import JobLine, job, jobs
from agentload.ui.pages.listed import (
    DecisionLine,
    ListedRun,
    comparisons,
    decisions,
    overview,
    runs,
)
from agentload.ui.pages.run import run
from agentload.ui.render import assets, context_of, render
from agentload.ui.reports import Reports
from agentload.ui.source import CachedAnswer, DatabaseFile, NotFoundError, Query
from agentload.watch.jobs_file import DEFAULT, read_jobs

Read = Callable[[duckdb.DuckDBPyConnection, Query], object]
PAGES: Final[Mapping[str, Read]] = {
    page.__name__: page
    for page in (overview, runs, run, pair, session, call, decisions, comparisons, jobs, job)
}
ALIVE: Final = frozenset({"overview", "run"})
"""Pages that also show what is running."""
WATCHED: Final = frozenset({"overview", "jobs", "job"})
PLACES: Final = frozenset({"db", "name", "other"})
"""Parts of a path that have a place of their own; the others are read like parameters."""
YEAR_S: Final = 31_536_000
AGAIN_S: Final = 5
DAY_NS: Final = 86_400_000_000_000


class Site(Record):
    """What is shown, and to whom."""

    sources: Mapping[str, DatabaseFile]
    reports: Reports
    hosts: frozenset[str]
    """Host names that a browser may use."""


def application(site: Site) -> web.Application:
    """Return the web application."""
    routes = _Routes(site)
    app = web.Application(middlewares=[_headers, _door(site.hosts), _errors(site)])
    app.add_routes([web.get("/", routes.root), web.get("/assets/{name}", routes.asset)])
    below = _paths(routes).items()
    app.add_routes([web.get(f"/db/{{db}}/{path}", handler) for path, handler in below])
    app.on_cleanup.append(site.reports.close)
    return app


def _paths(routes: "_Routes") -> dict[str, Handler]:
    """Return what answers below a database."""
    pair = "runs/{name}/pairs/{pair}"
    return {
        "": routes.page("overview"),
        "live": routes.live,
        "runs": routes.page("runs"),
        "runs/{name}": routes.page("run"),
        "runs/{name}/live": routes.live,
        "runs/{name}/report": routes.report,
        pair: routes.page("pair"),
        f"{pair}/sessions/{{session}}": routes.page("session"),
        "runs/{name}/calls/{call}": routes.page("call"),
        "decisions": routes.page("decisions"),
        "comparisons": routes.page("comparisons"),
        "compare": routes.chosen,
        "compare/{name}/{other}": routes.comparison,
        "compare/{name}/{other}/report": routes.report,
        "jobs": routes.page("jobs"),
        "jobs/{name}": routes.page("job"),
    }


class _Routes:
    def __init__(self, site: Site) -> None:
        self._site = site

    # aiohttp's signature
    async def root(self, request: web.Request) -> web.StreamResponse:  # noqa: ARG002
        sources = tuple(self._site.sources.values())
        if len(sources) == 1:
            raise web.HTTPFound(f"{_base(sources[0])}/")
        text = await asyncio.to_thread(self._databases, sources)
        return web.Response(text=text, content_type="text/html")

    def _databases(self, sources: tuple[DatabaseFile, ...]) -> str:
        frame = _frame(self._site, sources[0], "databases", "") | {"name": None, "path": ""}
        running = frozenset[str]().union(*(each.live.running() for each in sources))
        found = tuple(map(_glance, sources))
        jobs = tuple(job for each in found for job in each.jobs)
        total = sum(each.total for each in found)
        return render(
            "databases", context_of(**frame, data=found, jobs=jobs, total=total, running=running)
        )

    async def asset(self, request: web.Request) -> web.StreamResponse:
        found = assets().get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound
        text, kind = found
        return web.Response(
            text=text, content_type=kind, headers={"Cache-Control": f"max-age={YEAR_S}, immutable"}
        )

    def page(self, name: str) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            source = self._source(request)
            text = await asyncio.to_thread(self._page, source, _query(request, name))
            return web.Response(text=text, content_type="text/html")

        return handle

    async def live(self, request: web.Request) -> web.StreamResponse:
        source = self._source(request)
        name = request.match_info.get("name", "")
        seen, stamp = await asyncio.to_thread(lambda: (_seen(source, name), _token(source)))
        context = {
            "seen": seen,
            "base": _base(source),
            "now_ns": time.time_ns(),
            "is_whole": bool(name),
        }
        return web.Response(
            text=render("live", context),
            content_type="text/html",
            headers={"X-Agentload-Stamp": stamp},
        )

    async def report(self, request: web.Request) -> web.StreamResponse:
        text = await self._site.reports.page(self._source(request), _query(request, "report"))
        policy = f"{html.security_policy()}; frame-ancestors 'none'"
        return web.Response(
            text=text, content_type="text/html", headers={"Content-Security-Policy": policy}
        )

    async def comparison(self, request: web.Request) -> web.StreamResponse:
        source = self._source(request)
        query = _query(request, "comparison")
        found = await self._site.reports.comparison(source, query)
        frame = await asyncio.to_thread(
            lambda: _frame(self._site, source, query.page, _token(source))
        )
        text = render("comparison", context_of(**frame, query=query, data=found))
        return web.Response(text=text, content_type="text/html")

    async def chosen(self, request: web.Request) -> web.StreamResponse:
        query = _query(request, "compare")
        before, after, arm = (query.word(each) for each in ("before", "after", "arm"))
        if checked := request.query.getall("run", []):  # the latest run stands first in a list
            after, before = checked if len(checked) == 2 else ("", "")
        if not before or not after or before == after:
            raise NotFoundError(
                "choose two runs to compare", hint="one before and one after the change"
            )
        runs = "/".join(quote(run, safe="") for run in (before, after))
        suffix = f"?arm={quote(arm, safe='')}" if arm else ""
        raise web.HTTPFound(f"{_base(self._source(request))}/compare/{runs}{suffix}")

    def _source(self, request: web.Request) -> DatabaseFile:
        name = request.match_info["db"]
        found = self._site.sources.get(name)
        if found is None:
            raise NotFoundError(
                f"no database '{name}' is shown here", hint="agentload ui FILE shows another"
            )
        return found

    def _page(self, source: DatabaseFile, query: Query) -> str:
        # Taken before anything is read, so the page notices later changes.
        frame = _frame(self._site, source, query.page, _token(source))
        is_alive = query.page in ALIVE
        seen = _seen(source, query.name) if is_alive else ()
        query = _noted(source, query)
        is_new = query.page == "overview" and not source.path.is_file()
        answer: CachedAnswer[Any] = CachedAnswer(value=None)
        # Until its first block pair is finished, a run is
        # only in its journal, and there may be no database.
        with suppress(*((NotFoundError, StoreError) if seen or is_new else ())):
            answer = source.ask(query, lambda connection: PAGES[query.page](connection, query))
        run = f"/runs/{quote(query.name, safe='')}" if query.name else ""
        # A finished run does not change.
        changes = is_alive and (seen or not query.name)
        context = context_of(
            **frame,
            query=query,
            data=answer.value,
            stale_ns=answer.stale_ns,
            seen=seen,
            is_whole=bool(query.name),
            running=source.live.running(),
            live_url=f"{_base(source)}{run}/live" if changes else None,
        )
        return render(query.page, context)


class Glance(Record):
    """One database among several."""

    name: str
    base: str
    path: Path
    running: tuple[str, ...]
    jobs: tuple[JobLine, ...] = ()
    decision: DecisionLine | None = None
    latest: ListedRun | None = None
    total: int = 0
    problem: str | None = None
    """Why it cannot be read now."""


def _glance(source: DatabaseFile) -> Glance:
    query = _noted(source, Query(page="overview"))
    running = source.live.running()
    bare = Glance(name=source.name, base=_base(source), path=source.path, running=running)
    try:
        seen = source.ask(query, lambda connection: overview(connection, query)).value
    except StoreError as error:
        return replace(bare, problem=error.message)
    return replace(
        bare,
        jobs=seen.jobs,
        decision=next(iter(seen.decisions.lines), None),
        latest=next(iter(seen.runs.lines), None),
        total=seen.runs.total,
    )


def _query(request: web.Request, page: str) -> Query:
    path = request.match_info
    words = (*path.items(), *request.query.items())
    return Query(
        page=page,
        name=path.get("name", ""),
        other=path.get("other", ""),
        words=tuple((name, value) for name, value in words if name not in PLACES),
    )


def _noted(source: DatabaseFile, query: Query) -> Query:
    """Return a query with the jobs and runs that its page needs and the database lacks."""
    if query.page in WATCHED:
        today_ns = time.time_ns() // DAY_NS * DAY_NS
        query = replace(query, planned=_planned(source), today_ns=today_ns)
    if query.page == "overview":
        query = replace(query, journalled=source.live.idle())
    return query


def _seen(source: DatabaseFile, name: str) -> tuple[Any, ...]:
    return tuple(each for each in source.live.progress() if name in ("", each.run_id))


def _planned(source: DatabaseFile) -> tuple[str, ...]:
    """List the jobs of the jobs file next to a database, where the file is for that database."""
    try:
        found = read_jobs(source.path.with_name(DEFAULT))
    except AgentloadError:  # no file, or one that `agentload watch` complains about
        return ()
    if found.database != source.path:
        return ()
    return tuple(each.name for each in found.jobs)


def _base(source: DatabaseFile) -> str:
    return f"/db/{quote(source.name, safe='')}"


def _token(source: DatabaseFile) -> str:
    """Return a token that changes with the database and with the set of active runs."""
    return f"{zlib.crc32(repr((source.stamp(), source.live.running())).encode()):08x}"


def _frame(site: Site, source: DatabaseFile, page: str, token: str) -> dict[str, Any]:
    return {
        "names": tuple(site.sources),
        "name": source.name,
        "path": source.path,
        "base": _base(source),
        "page": page,
        "token": token,
        "now_ns": time.time_ns(),
    }


@web.middleware
async def _headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    for name, value in guard.HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _door(hosts: frozenset[str]) -> Middleware:
    @web.middleware
    async def door(request: web.Request, handler: Handler) -> web.StreamResponse:
        if guard.host_of(request.headers.get("Host")) not in hosts:
            text = (
                "This server only answers to names of its own machine.\nagentload ui "
                "--allow-host NAME adds one.\n"
            )
            return web.Response(status=421, text=text)
        if guard.is_embedded(
            request.headers.get("Sec-Fetch-Site"), request.headers.get("Sec-Fetch-Dest")
        ):
            return web.Response(
                status=403, text="These pages cannot be embedded in another site.\n"
            )
        if request.method not in guard.METHODS:
            return web.Response(
                status=405, text="These pages are read-only.\n", headers={"Allow": "GET, HEAD"}
            )
        return await handler(request)

    return door


def _errors(site: Site) -> Middleware:
    def page(
        request: web.Request, status: int, message: str, hint: str | None, *, again: bool = False
    ) -> web.Response:
        first = next(iter(site.sources.values()))
        source = site.sources.get(request.match_info.get("db", ""), first)
        # No token, which would read files: this runs in the event loop, and the page is static.
        context = context_of(
            **_frame(site, source, "problem", ""),
            message=message,
            hint=hint,
            status=status,
            again_s=AGAIN_S if again else None,
        )
        text = render("problem", context)
        return web.Response(status=status, text=text, content_type="text/html")

    @web.middleware
    async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except NotFoundError as error:
            return page(request, 404, error.message, error.hint)
        except StoreError as error:
            return page(request, 503, error.message, error.hint, again=True)
        except AgentloadError as error:
            return page(request, 422, error.message, error.hint)
        except web.HTTPNotFound:
            return page(request, 404, f"there is no page {request.path}", "start from the overview")
        except web.HTTPException as error:
            if error.status < 400:
                return web.Response(
                    status=error.status, headers={"Location": error.headers["Location"]}
                )
            return page(request, error.status, error.reason, None)
        except Exception:  # noqa: BLE001  # one broken page must not take the others down
            traceback.print_exc(file=sys.stderr)
            return page(
                request,
                500,
                "this page failed: a bug in agentload",
                "see the terminal where `agentload ui` runs",
            )

    return errors

"""Drive a headless Chromium over its DevTools protocol:
open a file, watch what it says and asks for, look at it.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-port=0",
)
START_S = 30.0


@dataclass(kw_only=True)
class Page:
    """One open page: what it logged and what it requested, and commands to it."""

    socket: aiohttp.ClientWebSocketResponse
    session: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    _next: int = 100

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events that arrive meanwhile are kept."""
        self._next += 1
        await self.socket.send_json(
            {"id": self._next, "sessionId": self.session, "method": method, "params": params}
        )
        while True:
            message = await self.socket.receive_json(timeout=START_S)
            if message.get("id") == self._next:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._keep(message)

    def _keep(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        self.seen.add(message.get("method", ""))
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                self.complaints.append(str(params["args"]))
            case "Log.entryAdded":
                self.complaints.append(str(params["entry"]["text"]))
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case _:
                pass

    async def open(self, page: Path | str) -> None:
        """Load a file, or an address, and wait until it is drawn."""
        self.seen.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable")
        await self.send("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while "Page.loadEventFired" not in self.seen:
            self._keep(await self.socket.receive_json(timeout=START_S))
        await self.run(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        )

    async def run(self, script: str) -> Any:  # noqa: ANN401  # what the page says is JSON
        """Evaluate an expression in the page and return its value."""
        result = await self.send(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def shape(
        self,
        *,
        width: int,
        height: int,
        mobile: bool = False,
        scheme: str = "light",
        media: str = "screen",
    ) -> None:
        """Set the window's size and the reader's preference."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )
        await self.send(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )

    async def press(self, key: str) -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    async def screenshot(self, *, top: int = 0, height: int | None = None) -> bytes:
        """Take a picture of the page as PNG, from *top* on."""
        box = (await self.send("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {
            "x": 0,
            "y": top,
            "width": box["width"],
            "height": height or box["height"] - top,
            "scale": 1,
        }
        taken = await self.send(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(taken["data"])


@asynccontextmanager
async def browser(folder: Path) -> AsyncIterator[Page]:
    """Start a Chromium with a profile of its own, give one page of it, and end it."""
    assert PROGRAM is not None
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *FLAGS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with aiohttp.ClientSession() as client:
            socket = await client.ws_connect(await _address(folder), max_msg_size=0)
            await socket.send_json(
                {"id": 1, "method": "Target.createTarget", "params": {"url": "about:blank"}}
            )
            target = (await _answer(socket, 1))["targetId"]
            await socket.send_json(
                {
                    "id": 2,
                    "method": "Target.attachToTarget",
                    "params": {"targetId": target, "flatten": True},
                }
            )
            yield Page(socket=socket, session=(await _answer(socket, 2))["sessionId"])
            await socket.close()
    finally:
        process.terminate()
        await process.wait()


async def _address(folder: Path) -> str:
    # The browser says where it listens in a file, once it does.
    port = folder / "DevToolsActivePort"
    async with asyncio.timeout(START_S):
        # another program writes it
        while "\n" not in (text := await asyncio.to_thread(_read, port)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    number, path = text.split("\n")[:2]
    return f"ws://127.0.0.1:{number}{path}"


def _read(file: Path) -> str:
    return file.read_text() if file.is_file() else ""


async def _answer(socket: aiohttp.ClientWebSocketResponse, wanted: int) -> dict[str, Any]:
    while True:
        message = await socket.receive_json(timeout=START_S)
        if message.get("id") == wanted:
            result: dict[str, Any] = message["result"]
            return result

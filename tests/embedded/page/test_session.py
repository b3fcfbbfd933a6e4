"""Who may see the page, and who may press its buttons: the token once, then the cookie; other sites never."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from tests.embedded.page.feed import Feed, nodes

from windlass.web.page import make_page

TOKEN = "the-token"


class Breaker:
    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []

    def fail(self, target: str, xid: int | None = None) -> str:
        if target != "gpu/h100-0:3":
            raise ValueError(f"there is no {target}")
        self.done.append(("fail", target, str(xid)))
        return "done"

    def heal(self, target: str) -> str:
        self.done.append(("heal", target))
        return "mended"


@asynccontextmanager
async def served(feed: Feed, breaker: Breaker) -> AsyncIterator[str]:
    hosts: set[str] = set()
    runner = web.AppRunner(make_page(feed, breaker, TOKEN, lambda: hosts), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    hosts.add(f"127.0.0.1:{port}")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def visit(act: Callable[[aiohttp.ClientSession, str, Breaker], Awaitable[None]]) -> None:
    async def there() -> None:
        feed, breaker = Feed(), Breaker()
        feed.put("nodes", *nodes())
        jar = aiohttp.CookieJar(unsafe=True)
        async with served(feed, breaker) as url, aiohttp.ClientSession(cookie_jar=jar) as browser:
            await act(browser, url, breaker)

    asyncio.run(there())


async def log_in(browser: aiohttp.ClientSession, url: str) -> None:
    async with browser.get(f"{url}/?token={TOKEN}") as answer:
        assert answer.status == 200


def test_nothing_without_the_token() -> None:
    async def act(browser: aiohttp.ClientSession, url: str, breaker: Breaker) -> None:
        for method, path in (("GET", "/"), ("GET", "/live"), ("POST", "/faults"), ("GET", "/?token=wrong")):
            async with browser.request(method, url + path) as answer:
                assert answer.status == 401, path
                assert not answer.cookies

    visit(act)


def test_the_token_becomes_a_cookie_that_scripts_and_other_sites_do_not_have() -> None:
    async def act(browser: aiohttp.ClientSession, url: str, breaker: Breaker) -> None:
        async with browser.get(f"{url}/?token={TOKEN}", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            (cookie,) = answer.cookies.values()
            assert cookie["httponly"]
            assert cookie["samesite"] == "Strict"
            assert TOKEN not in cookie.value
        async with browser.get(url) as answer:
            assert answer.status == 200
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["Cache-Control"] == "no-store"
            page = await answer.text()
            assert "<script>" not in page
            assert "style=" not in page

    visit(act)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:80"}, 421),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    ],
)
def test_other_sites_get_nothing(headers: dict[str, str], status: int) -> None:
    async def act(browser: aiohttp.ClientSession, url: str, breaker: Breaker) -> None:
        await log_in(browser, url)
        for path in ("/", "/live", "/favicon.svg"):
            async with browser.get(url + path, headers=headers) as answer:
                assert answer.status == status

    visit(act)


def test_the_stream_begins_with_everything() -> None:
    async def act(browser: aiohttp.ClientSession, url: str, breaker: Breaker) -> None:
        await log_in(browser, url)
        async with browser.get(f"{url}/live") as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            assert await answer.content.readline() == b"event: snapshot\n"
            line = b""
            while not line.endswith(b"\n"):
                line += await answer.content.readany()
            assert len(json.loads(line.removeprefix(b"data: ").strip())["nodes"]) == 12

    visit(act)


def test_buttons_work_from_the_page_and_from_nowhere_else() -> None:
    async def act(browser: aiohttp.ClientSession, url: str, breaker: Breaker) -> None:
        await log_in(browser, url)
        order = {"action": "fail", "target": "gpu/h100-0:3", "xid": 79}
        mine = {"Origin": url, "X-Windlass-Page": "1"}
        for headers in ({}, {"Origin": url}, {"X-Windlass-Page": "1"}, {**mine, "Origin": "null"}):
            async with browser.post(f"{url}/faults", json=order, headers=headers) as answer:
                assert answer.status == 403
        assert not breaker.done
        async with browser.post(f"{url}/faults", json=order, headers=mine) as answer:
            assert (answer.status, await answer.json()) == (200, {"message": "done"})
        assert breaker.done == [("fail", "gpu/h100-0:3", "79")]
        for bad, status in (
            ({"action": "burn", "target": "x"}, 400),
            ({"action": "fail"}, 400),
            ({"action": "fail", "target": "gpu/none:0"}, 422),
        ):
            async with browser.post(f"{url}/faults", json=bad, headers=mine) as answer:
                assert answer.status == status

    visit(act)

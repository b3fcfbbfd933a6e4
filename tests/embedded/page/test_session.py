"""Who may see the page, and who may press its buttons: a link once, then the cookie; other sites never."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from tests.embedded.page.feed import Feed, nodes

from windlass.web.one_time_links import OneTimeLinks
from windlass.web.page import make_page


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
async def served(feed: Feed, breaker: Breaker) -> AsyncIterator[OneTimeLinks]:
    hosts, links = set[str](), OneTimeLinks()
    runner = web.AppRunner(make_page(feed, breaker, links, lambda: hosts), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    hosts.add(f"127.0.0.1:{port}")
    links.address = f"http://127.0.0.1:{port}"
    try:
        yield links
    finally:
        await runner.cleanup()


Act = Callable[[aiohttp.ClientSession, OneTimeLinks, Breaker], Awaitable[None]]


def visit(act: Act) -> None:
    async def there() -> None:
        feed, breaker = Feed(), Breaker()
        feed.put("nodes", *nodes())
        async with served(feed, breaker) as links, browsing() as browser:
            await act(browser, links, breaker)

    asyncio.run(there())


def browsing() -> aiohttp.ClientSession:
    """A browser without cookies."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))


async def log_in(browser: aiohttp.ClientSession, links: OneTimeLinks) -> str:
    """The page's address without a code."""
    async with browser.get(links.create()) as answer:
        assert answer.status == 200
    return links.address


def test_nothing_without_a_link() -> None:
    async def act(browser: aiohttp.ClientSession, links: OneTimeLinks, breaker: Breaker) -> None:
        links.create()
        asked = (
            ("GET", "/"),
            ("GET", "/live"),
            ("POST", "/faults"),
            ("GET", "/?token=wrong"),
            ("GET", "/?token="),
        )
        for method, path in (*asked, ("GET", "/?token=%ff%00é")):
            async with browser.request(method, links.address + path) as answer:
                assert answer.status == 401, path
                assert not answer.cookies

    visit(act)


def test_a_link_becomes_a_cookie_that_scripts_and_other_sites_do_not_have() -> None:
    async def act(browser: aiohttp.ClientSession, links: OneTimeLinks, breaker: Breaker) -> None:
        link = links.create()
        async with browser.get(link, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            (cookie,) = answer.cookies.values()
            assert cookie["httponly"]
            assert cookie["samesite"] == "Strict"
            assert cookie.value not in link
        async with browser.get(links.address) as answer:
            assert answer.status == 200
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["Cache-Control"] == "no-store"
            page = await answer.text()
            assert "<script>" not in page
            assert "style=" not in page

    visit(act)


def test_a_link_opens_the_page_once_and_for_one_browser() -> None:
    async def act(first: aiohttp.ClientSession, links: OneTimeLinks, breaker: Breaker) -> None:
        link, other = links.create(), links.create()
        async with browsing() as second:
            async with first.get(link) as answer:
                assert answer.status == 200
            async with second.get(link, headers={"Accept": "text/html"}) as answer:
                assert (answer.status, answer.content_type) == (401, "text/html")
                assert "<code>windlass page</code>" in await answer.text()
                assert not answer.cookies
            async with first.get(link, allow_redirects=False) as answer:
                assert (answer.status, answer.cookies) == (303, {}), "who has the cookie just gets the page"
            async with second.get(other) as answer:
                assert answer.status == 200, "another link is another browser's"

    visit(act)


def test_of_many_links_the_oldest_end() -> None:
    links = OneTimeLinks()
    codes = [links.create().partition("token=")[2] for _ in range(1000)]
    assert not links.redeem(codes[0])
    assert links.redeem(codes[-1])
    assert not links.redeem(codes[-1])
    assert sum(links.redeem(code) for code in codes) < 100


def test_a_link_on_another_site_leads_to_the_page_too() -> None:
    """There the browser keeps a SameSite cookie to itself until the next step, which must be our own page's."""

    async def act(browser: aiohttp.ClientSession, links: OneTimeLinks, breaker: Breaker) -> None:
        link = links.create()
        clicked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
        async with browser.get(link, headers=clicked, allow_redirects=False) as answer:
            assert answer.status == 200
            assert 'content="0; url=/"' in await answer.text()
            assert len(answer.cookies) == 1
        async with browsing() as stranger, stranger.get(link, headers=clicked) as answer:
            text = await answer.text()
            assert not answer.cookies
            assert 'content="0; url=/"' in text, "the next step tells whether there is a cookie"
            assert "h100" not in text

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
    async def act(browser: aiohttp.ClientSession, links: OneTimeLinks, breaker: Breaker) -> None:
        url = await log_in(browser, links)
        for path in ("/", "/live", "/favicon.svg"):
            async with browser.get(url + path, headers=headers) as answer:
                assert answer.status == status

    visit(act)


def test_the_stream_begins_with_everything() -> None:
    async def act(browser: aiohttp.ClientSession, links: OneTimeLinks, breaker: Breaker) -> None:
        url = await log_in(browser, links)
        async with browser.get(f"{url}/live") as answer:
            assert answer.headers["Content-Type"].startswith("text/event-stream")
            assert await answer.content.readline() == b"event: snapshot\n"
            line = b""
            while not line.endswith(b"\n"):
                line += await answer.content.readany()
            assert len(json.loads(line.removeprefix(b"data: ").strip())["nodes"]) == 12

    visit(act)


def test_buttons_work_from_the_page_and_from_nowhere_else() -> None:
    async def act(browser: aiohttp.ClientSession, links: OneTimeLinks, breaker: Breaker) -> None:
        url = await log_in(browser, links)
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

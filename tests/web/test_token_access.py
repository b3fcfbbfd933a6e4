"""The page of a real cluster: a token of the cluster opens it, and decides what is seen; nothing can be changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from tests.telemetry.test_usage import START
from tests.web.test_visible_objects import feed

from windlass.kube.errors import ServerUnavailable
from windlass.kube.request import Request
from windlass.telemetry.holders import Holder
from windlass.telemetry.ledger import GpuShare, Ledger
from windlass.telemetry.starts import Start
from windlass.telemetry.usage_history import LedgerHistory
from windlass.web.page import make_application
from windlass.web.past_sources import past_source
from windlass.web.token_access import COOKIE, TokenAccess
from windlass.web.viewers import MAX_AT_ONCE, VALID_SECONDS, Viewers

USERS = {"admin-token": "admin", "ada-token": "ada", "nobody-token": "nobody"}
RIGHTS = {("admin", "pods", ""), ("admin", "nodes", ""), ("ada", "pods", "own")}
HTML = {"Accept": "text/html"}


class Reviews:
    """Answers TokenReview and SubjectAccessReview as an API server does."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.users, self.rights, self.is_down = dict(USERS), set(RIGHTS), False

    async def read(self, request: Request, kind: type[Any]) -> Any:
        if self.is_down:
            raise ServerUnavailable("nobody answers")
        spec = request.body["spec"]
        self.asked.append(request.body["kind"])
        if request.body["kind"] == "TokenReview":
            user = self.users.get(spec["token"])
            found: dict[str, Any] = {"authenticated": user is not None, "user": {"username": user or ""}}
        else:
            wanted = spec["resourceAttributes"]
            found = {"allowed": (spec["user"], wanted["resource"], wanted.get("namespace", "")) in self.rights}
        return msgspec.convert({"status": found}, kind)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


Act = Callable[[aiohttp.ClientSession, str, Reviews, Clock], Awaitable[None]]

PRICES = {"NVIDIA-H100-80GB-HBM3": 2_500_000}


def visit(act: Act, history: Path | None = None) -> None:
    async def there() -> None:
        reviews, clock = Reviews(), Clock()
        async with served(reviews, clock, history) as address:
            jar = aiohttp.CookieJar(unsafe=True)
            async with aiohttp.ClientSession(cookie_jar=jar) as browser:
                await act(browser, address, reviews, clock)

    asyncio.run(there())


@asynccontextmanager
async def served(reviews: Reviews, clock: Clock, history: Path | None) -> AsyncIterator[str]:
    viewers = Viewers(reviews, lambda: {"own", "secret"}, clock)  # type: ignore[arg-type]  # the part that it uses
    app = make_application(feed(), None, TokenAccess(viewers, clock), past_source(history, None), PRICES)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def first_event(browser: aiohttp.ClientSession, address: str, token: str) -> str:
    async with browser.get(f"{address}/live", headers=bearer(token)) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            if line.startswith(b"data: {") and b"nodes" in line:
                return line.decode()
    raise AssertionError("no snapshot")


def test_a_proxys_token_decides_what_is_seen() -> None:
    async def act(browser: aiohttp.ClientSession, address: str, reviews: Reviews, clock: Clock) -> None:
        everything = await first_event(browser, address, "admin-token")
        assert "secret-pod" in everything
        own = await first_event(browser, address, "ada-token")
        assert "own-pod" in own
        assert "secret" not in own

    visit(act)


def test_without_a_good_token_there_is_nothing() -> None:
    async def act(browser: aiohttp.ClientSession, address: str, reviews: Reviews, clock: Clock) -> None:
        for path in ("/live", "/time", "/teams"):
            for headers, status in (({}, 401), (bearer("forged"), 401), (bearer("nobody-token"), 403)):
                async with browser.get(address + path, headers=headers) as answer:
                    assert (path, answer.status) == (path, status)
        reviews.is_down = True
        async with browser.get(f"{address}/live", headers=bearer("admin-token")) as answer:
            assert answer.status == 503

    visit(act)


def test_a_person_signs_in_once_and_the_session_ends_with_the_token() -> None:
    async def act(browser: aiohttp.ClientSession, address: str, reviews: Reviews, clock: Clock) -> None:
        async with browser.get(address, headers=HTML) as answer:
            assert "Sign in" in await answer.text()
            assert "form-action 'self'" in answer.headers["Content-Security-Policy"]
        form, own = {"token": "ada-token"}, {"Origin": address}
        async with browser.post(f"{address}/sign-in", data=form, headers={"Origin": "https://evil.example"}) as answer:
            assert answer.status == 403
        async with browser.post(f"{address}/sign-in", data={"token": "wrong"}, headers=own) as answer:
            assert answer.status == 401
        async with browser.post(f"{address}/sign-in", data=form, headers=own, allow_redirects=False) as answer:
            assert answer.status == 303
            cookie = answer.cookies[COOKIE]
            assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
            assert "ada-token" not in cookie.value
        async with browser.get(f"{address}/time") as answer:
            assert answer.status == 404  # known, and there is no history
        reviews.users.clear()
        clock.now += VALID_SECONDS + 1
        async with browser.get(f"{address}/time") as answer:
            assert answer.status == 401

    visit(act)


def test_the_cluster_is_asked_once_a_minute_and_taken_rights_are_gone_then() -> None:
    async def act(browser: aiohttp.ClientSession, address: str, reviews: Reviews, clock: Clock) -> None:
        for _ in range(3):
            async with browser.get(f"{address}/time", headers=bearer("ada-token")) as answer:
                assert answer.status == 404
        assert reviews.asked.count("TokenReview") == 1
        reviews.rights.discard(("ada", "pods", "own"))
        clock.now += VALID_SECONDS + 1
        async with browser.get(f"{address}/time", headers=bearer("ada-token")) as answer:
            assert answer.status == 403

    visit(act)


def test_the_page_has_no_way_to_write() -> None:
    async def act(browser: aiohttp.ClientSession, address: str, reviews: Reviews, clock: Clock) -> None:
        headers = {**bearer("admin-token"), "Origin": address, "X-Windlass-Page": "1"}
        body = {"action": "fail", "target": "node/h100-0"}
        async with browser.post(f"{address}/faults", json=body, headers=headers) as answer:
            assert answer.status == 403
        async with browser.get(f"{address}/healthz") as answer:
            assert answer.status == 200
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]

    visit(act)


def test_an_empty_folder_is_a_past_that_begins(tmp_path: Path) -> None:
    async def act(browser: aiohttp.ClientSession, address: str, reviews: Reviews, clock: Clock) -> None:
        for path in ("time", "teams"):
            async with browser.get(f"{address}/{path}", headers=bearer("admin-token")) as answer:
                assert (answer.status, (await answer.text())[:23]) == (404, "Nothing is recorded yet")

    visit(act, tmp_path / "not-there-yet")


def test_time_and_teams_are_filtered_too(tmp_path: Path) -> None:
    history = LedgerHistory(tmp_path)
    holders = [Holder(name, f"{name}-queue", "ada", f"Job {name}/{name}-job") for name in ("own", "secret")]
    shares = tuple(GpuShare("n", i, "H100", "held_idle", 1000, holder) for i, holder in enumerate(holders))
    for at in (START, START + 60, START + 120):
        history.observe(Ledger(at, shares))
    for holder in holders:
        history.started(START + 60, Start(holder, 1000, 30))
    history.close()

    async def act(browser: aiohttp.ClientSession, address: str, reviews: Reviews, clock: Clock) -> None:
        for path in ("time", "teams"):
            url = f"{address}/{path}?from={START}&to={START + 300}"
            async with browser.get(url, headers=bearer("ada-token")) as answer:
                own = await answer.text()
            async with browser.get(url, headers=bearer("admin-token")) as answer:
                everything = await answer.text()
            assert "own-" in own
            assert "secret" not in own
            assert "secret" in everything
        document = msgspec.json.decode(own)
        assert {row["name"]: round(row["idle_hours"] * 3600) for row in document["teams"]} == {
            "own": 120,
            "(other teams)": 120,
        }
        url = f"{address}/allocation/compute?window={START},{START + 300}"
        async with browser.get(f"{url}&aggregate=namespace", headers=bearer("ada-token")) as answer:
            (window,) = msgspec.json.decode(await answer.read())["data"]
        assert {name: round(found["gpuHours"] * 3600) for name, found in window.items()} == {
            "own": 120,
            "(other teams)": 120,
        }
        assert window["own"]["gpuCost"] == pytest.approx(120 / 3600 * 2.5)
        for query in ("&aggregate=pod", "&step=0d", "&step=x"):
            async with browser.get(f"{url}{query}", headers=bearer("ada-token")) as answer:
                assert answer.status == 400
        for job, status in (("own/Job/own-job", 200), ("secret/Job/secret-job", 404), ("own", 400)):
            url = f"{address}/job?key={job}&from={START}&to={START + 300}"
            async with browser.get(url, headers=bearer("ada-token")) as answer:
                assert answer.status == status
                assert "secret" not in await answer.text()
        for wrong in ("from=x", f"from={START}&to={START}", f"from=0&to={START}"):
            async with browser.get(f"{address}/time?{wrong}", headers=bearer("ada-token")) as answer:
                assert answer.status == 400

    visit(act, tmp_path)


def test_strangers_with_many_tokens_do_not_flood_the_api_server() -> None:
    class Slow(Reviews):
        under_way = most = 0

        async def read(self, request: Request, kind: type[Any]) -> Any:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            await asyncio.sleep(0)
            self.under_way -= 1
            return await super().read(request, kind)

    async def ask() -> int:
        reviews = Slow()
        viewers = Viewers(reviews, set)  # type: ignore[arg-type]
        found = await asyncio.gather(*(viewers.of_token(f"made-up-{number}") for number in range(200)))
        assert set(found) == {None}
        return reviews.most

    assert asyncio.run(ask()) <= MAX_AT_ONCE

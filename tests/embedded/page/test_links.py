"""Links to the page as a real browser follows them: from the terminal, twice, and from another site."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Iterator

from playwright.sync_api import Browser, expect
from tests.embedded.cluster_up import Up
from tests.embedded.page.conftest import PATIENCE


def test_the_printed_link_works_once_and_the_cookie_stays(browser: Browser, windlass_up: Up) -> None:
    first, second = browser.new_context(), browser.new_context()
    mine, others = first.new_page(), second.new_page()
    for page in (mine, others):
        page.set_default_timeout(PATIENCE)
    mine.goto(windlass_up.printed_link)
    mine.wait_for_selector("#racks .gpu")
    assert "token" not in mine.url
    others.goto(windlass_up.printed_link)
    expect(others.locator("p")).to_contain_text("windlass page prints a new one")
    mine.goto(windlass_up.printed_link)
    mine.wait_for_selector("#racks .gpu")
    others.goto(windlass_up.page)
    others.wait_for_selector("#racks .gpu")
    first.close()
    second.close()


def test_a_link_on_another_site_is_followed(browser: Browser, windlass_up: Up) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    with another_site(windlass_up.page) as address:
        for _ in range(2):  # the second time with the cookie, and with a code that is spent
            page.goto(address)
            page.get_by_role("link").click()
            page.wait_for_selector("#racks .gpu")
            assert "token" not in page.url
    context.close()


@contextlib.contextmanager
def another_site(link: str) -> Iterator[str]:
    """A page with a link, under a name that is no part of ours."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f'<!doctype html><title>chat</title><a href="{link}">look</a>'.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()

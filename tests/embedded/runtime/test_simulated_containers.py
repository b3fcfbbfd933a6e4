"""Commands in simulated containers: what they keep of a client that does not read."""

from __future__ import annotations

import asyncio

import pytest

from windlass.embedded.runtime.simulated_containers import MAX_ECHOES, SimulatedExec
from windlass.embedded.runtime.simulated_shell import CommandResult


def echoing() -> SimulatedExec:
    return SimulatedExec(CommandResult(echoes_stdin=True), has_input=True)


@pytest.mark.asyncio
async def test_input_waits_until_what_came_before_it_was_sent_back() -> None:
    session, written = echoing(), 0

    async def write() -> None:
        nonlocal written
        for _ in range(10 * MAX_ECHOES):
            await session.write(b"x" * 1000)
            written += 1

    writing = asyncio.create_task(write())
    for _ in range(100):
        await asyncio.sleep(0)
    assert written == MAX_ECHOES
    output = session.output()
    assert (await anext(output))[1] == b"x" * 1000
    for _ in range(100):
        await asyncio.sleep(0)
    assert written == MAX_ECHOES + 1
    await session.close()
    writing.cancel()


@pytest.mark.asyncio
async def test_all_of_it_comes_back_in_order() -> None:
    session = echoing()

    async def write() -> None:
        for number in range(5 * MAX_ECHOES):
            await session.write(b"%d " % number)
        await session.end_input()

    writing = asyncio.create_task(write())
    said = b"".join([data async for _, data in session.output()])
    await writing
    assert said.split() == [b"%d" % number for number in range(5 * MAX_ECHOES)]

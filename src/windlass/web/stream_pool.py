"""The live streams of the page: one for all viewers with the same rights.

`web.page` asks for a viewer's stream. Each has a page state of its own, made from what those viewers may see, so that
nothing else can get into it. Streams that nobody reads any more are ended, the oldest first.
"""

from __future__ import annotations

from windlass.web.page_state import ObjectSource
from windlass.web.update_stream import UpdateStream
from windlass.web.viewers import Viewer
from windlass.web.visible_objects import VisibleObjects

MAX_UNUSED = 4
Rights = tuple[frozenset[str] | None, bool]


class StreamPool:
    def __init__(self, source: ObjectSource) -> None:
        self._source = source
        self._streams: dict[Rights, UpdateStream] = {}

    async def of(self, viewer: Viewer) -> UpdateStream:
        rights = (viewer.namespaces, viewer.sees_nodes)
        stream = self._streams.pop(rights, None)
        if stream is None:
            await self._end_unused()
            source = self._source if viewer.sees_everything else VisibleObjects(self._source, viewer)
            stream = UpdateStream(source)
            await stream.start()
        self._streams[rights] = stream  # the newest last
        return stream

    async def stop(self) -> None:
        for stream in self._streams.values():
            await stream.stop()
        self._streams.clear()

    async def _end_unused(self) -> None:
        unused = [rights for rights, stream in self._streams.items() if not stream.has_readers]
        for rights in unused[: max(0, len(unused) + 1 - MAX_UNUSED)]:
            await self._streams.pop(rights).stop()

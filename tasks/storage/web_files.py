"""Whole files from web servers, unpacked up to a limit, however small they are sent."""

import asyncio
import zlib
from collections.abc import Sequence
from typing import Any

import fsspec.asyn

from overnight.tasks.config.memory_bound import allow
from overnight.tasks.storage.file_info import TooLarge

REQUESTS_AT_ONCE = 64
UNPACKED = {"": 0, "identity": 0, "gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}  # encoding -> zlib's wbits


def read_bounded(filesystem: Any, urls: Sequence[str], most: int | None) -> list[Any]:
    """Return the content at each URL. An error takes the place of a content, `TooLarge` above `most` bytes."""
    return list(fsspec.asyn.sync(filesystem.loop, _read_all, filesystem, urls, most))


async def _read_all(filesystem: Any, urls: Sequence[str], most: int | None) -> list[Any]:
    slots = asyncio.Semaphore(REQUESTS_AT_ONCE)

    async def read(url: str) -> bytes:
        async with slots:
            return await _read(filesystem, url, most)

    return await asyncio.gather(*map(read, urls), return_exceptions=True)


async def _read(filesystem: Any, url: str, most: int | None) -> bytes:
    session = await filesystem.set_session()
    options = dict(filesystem.kwargs)
    headers = {"Accept-Encoding": "gzip, deflate"} | options.pop("headers", {})
    async with session.get(filesystem.encode_url(url), headers=headers, **options) as response:
        if response.status == 404:
            raise FileNotFoundError(url)
        response.raise_for_status()
        encoding = ""
        if not session.auto_decompress:
            encoding = response.headers.get("Content-Encoding", "").strip().lower()
        if encoding not in UNPACKED:
            raise ValueError(f"expected a file as it is, or in gzip or deflate, found the encoding {encoding!r}")
        unpacker = zlib.decompressobj(UNPACKED[encoding]) if UNPACKED[encoding] else None
        content = bytearray()
        async for chunk in response.content.iter_any():
            allow(len(chunk))
            room = 0 if most is None else most + 1 - len(content)
            try:
                content += unpacker.decompress(chunk, room) if unpacker else chunk
            except zlib.error as error:
                raise ValueError(
                    f"expected a file in {encoding}, as its header has it, found another: {error}"
                ) from None
            if most is not None and len(content) > most:
                raise TooLarge(None if unpacker else response.content_length)
        if unpacker and (not unpacker.eof or unpacker.unused_data):
            raise ValueError("expected one whole compressed file, found one that is cut off, or several")
        return bytes(content)

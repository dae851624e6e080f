"""A power cut for one redis-server: what was written but not flushed to the disk is gone.

kill -9 does not do that. It ends the process, and what the process has written stays in the kernel's page cache and
reaches the disk later. Only a machine that goes down loses it. Here every ``fsync`` and ``fdatasync`` of the server
is noted by a small preloaded library, together with the size that the file had before the call. A power cut is then
kill -9, and each append-only file cut back to the last size that was flushed.

This is the worst case that the operating system allows: it may have written more on its own. It takes for granted
that the disk keeps what it says it has flushed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.redis_server import RedisServer

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static int flush_and_note(const char *name, int fd) {
    int (*flush)(int) = (int (*)(int)) dlsym(RTLD_NEXT, name);
    struct stat before;
    int known = fstat(fd, &before) == 0;   /* before: what comes during the call may miss the flush */
    int result = flush(fd);
    char link[64], path[4096], line[4200];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (result == 0 && known && length > 0) {
        path[length] = 0;
        int size = snprintf(line, sizeof line, "%lld %s\n", (long long) before.st_size, path);
        int log = open(getenv("FLUSH_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (log >= 0) { if (write(log, line, size) < 0) abort(); close(log); }
    }
    return result;
}

int fsync(int fd) { return flush_and_note("fsync", fd); }
int fdatasync(int fd) { return flush_and_note("fdatasync", fd); }
"""


class PowerSwitch:
    """Makes servers whose power can be cut. ``directory`` takes the library and the logs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._library = directory / "flushes.so"
        source = directory / "flushes.c"
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self._library, source, "-ldl"], check=True)

    def server(self, config: list[tuple[str, str]]) -> RedisServer:
        log = self._directory / "flushes.log"
        return RedisServer(config, environment={"LD_PRELOAD": str(self._library), "FLUSH_LOG": str(log)})

    def cut(self, server: RedisServer) -> int:
        """Cut the power; the server can be started again. Returns how many bytes were lost."""
        server.kill()
        flushed: dict[Path, int] = {}
        for line in (self._directory / "flushes.log").read_text().splitlines():
            size, _, path = line.partition(" ")
            flushed[Path(path)] = int(size)
        lost = 0
        for file in (server.directory / "appendonlydir").glob("*.incr.aof"):
            keep = flushed.get(file, 0)
            lost += file.stat().st_size - keep
            with open(file, "r+b") as opened:
                opened.truncate(keep)
        return lost

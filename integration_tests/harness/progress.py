# SPDX-License-Identifier: MIT
"""Numbered steps for commands that take minutes."""

import contextlib
import time
from collections.abc import Iterator


class Progress:
    """Numbered steps: each says what it does when it begins and how long it took when it ends."""

    def __init__(self, steps: int):
        self._steps, self._done, self._start = steps, 0, time.perf_counter()

    @contextlib.contextmanager
    def step(self, text: str) -> Iterator[None]:
        self._done += 1
        print(f"[{self._done}/{self._steps}] {text} ...", flush=True)
        start = time.perf_counter()
        yield
        now = time.perf_counter()
        print(f"      done in {now - start:.1f} s ({now - self._start:.1f} s in all)", flush=True)

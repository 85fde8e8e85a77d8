# SPDX-License-Identifier: MIT
"""Clock and power of a GPU while it works, as far as Linux tells them in /sys: every reading may be absent."""

import re
import statistics
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import torch

CARDS = Path("/sys/class/drm")
INTERVAL_SECONDS = 0.1


def pci_address(index: int) -> str | None:
    """The GPU's address on the bus, such as 0000:03:00; None from a torch that does not tell it."""
    properties = torch.cuda.get_device_properties(index)
    parts = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    return None if None in parts else "{:04x}:{:02x}:{:02x}".format(*parts)


def find_card(address: str | None, cards: Path = CARDS) -> Path | None:
    """The folder of the GPU's device; None when it cannot be told apart from others."""
    found = [path / "device" for path in sorted(cards.glob("card[0-9]*")) if (path / "device" / "hwmon").is_dir()]
    if address is not None:
        found = [path for path in found if path.resolve().name.startswith(address)]
    return found[0] if len(found) == 1 else None


class Sensors:
    """`with Sensors(card) as sensors:` samples until the block ends; then the medians can be read."""

    def __init__(self, card: Path | None):
        self._card = card
        self._samples: dict[str, list[float]] = {"clock": [], "power": []}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Sensors":
        if self._card:
            self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        if self._card:
            self._thread.join()

    @property
    def clock_hertz(self) -> float | None:
        """The shader clock."""
        return self._median("clock")

    @property
    def power_watts(self) -> float | None:
        """The board's, or the chip's where only that is given."""
        return self._median("power")

    def _median(self, name: str) -> float | None:
        return statistics.median(self._samples[name]) if self._samples[name] else None

    def _run(self) -> None:
        readers: dict[str, Callable[[Path], float | None]] = {"clock": _clock_hertz, "power": _power_watts}
        while not self._stop.is_set():
            for name, read in readers.items():
                if value := read(self._card):
                    self._samples[name].append(value)
            self._stop.wait(INTERVAL_SECONDS)


def _clock_hertz(card: Path) -> float | None:
    if (hertz := _number(card, "hwmon/hwmon*/freq1_input")) is not None:
        return hertz
    current = re.search(r"(\d+) *mhz *\*", _text(card, "pp_dpm_sclk") or "", re.IGNORECASE)
    return float(current[1]) * 1e6 if current else None


def _power_watts(card: Path) -> float | None:
    for name in ("power1_average", "power1_input"):
        if (microwatts := _number(card, f"hwmon/hwmon*/{name}")) is not None:
            return microwatts / 1e6
    return None


def _number(card: Path, pattern: str) -> float | None:
    text = _text(card, pattern)
    return float(text) if text and text.strip().isdigit() else None


def _text(card: Path, pattern: str) -> str | None:
    for path in sorted(card.glob(pattern)):
        try:
            return path.read_text()
        except OSError:  # a sensor that the driver lists and cannot read
            continue
    return None

# SPDX-License-Identifier: MIT
"""Clock and power are read where a driver gives them, of the right card, and are absent otherwise."""

import pytest

from integration_tests.reports.hardware import sensors
from integration_tests.reports.hardware.sensors import Sensors, find_card


def add_card(root, number: int, address: str, files: dict[str, str]):
    device = root / "pci" / f"{address}.0"
    (device / "hwmon" / "hwmon3").mkdir(parents=True)
    for name, text in files.items():
        (device / name).write_text(text)
    card = root / "drm" / f"card{number}"
    card.mkdir(parents=True)
    (card / "device").symlink_to(device)
    (root / "drm" / f"card{number}-DP-1").mkdir()
    return card / "device"


def sample(card) -> Sensors:
    with Sensors(card) as sensed:
        sensors.threading.Event().wait(0.05)
    return sensed


def test_a_card_is_found_by_its_address(tmp_path):
    first, second = (add_card(tmp_path, n, f"0000:0{n}:00", {}) for n in (1, 2))
    assert find_card("0000:02:00", tmp_path / "drm") == second
    assert find_card("0000:01:00", tmp_path / "drm") == first
    assert find_card("0000:03:00", tmp_path / "drm") is None
    assert find_card(None, tmp_path / "drm") is None


def test_the_only_card_needs_no_address(tmp_path):
    card = add_card(tmp_path, 1, "0000:01:00", {})
    assert find_card(None, tmp_path / "drm") == card and find_card(None, tmp_path) is None


@pytest.mark.parametrize(
    "files, hertz, watts",
    [
        ({}, None, None),
        ({"hwmon/hwmon3/freq1_input": "2500000000\n", "hwmon/hwmon3/power1_average": "210000000\n"}, 2.5e9, 210.0),
        ({"pp_dpm_sclk": "0: 500Mhz\n1: 2400Mhz *\n", "hwmon/hwmon3/power1_input": "99000000\n"}, 2.4e9, 99.0),
        ({"pp_dpm_sclk": "0: 500Mhz\n", "hwmon/hwmon3/power1_average": "\n"}, None, None),
    ],
)
def test_what_is_given_is_read_and_the_rest_is_absent(tmp_path, files, hertz, watts):
    sensed = sample(add_card(tmp_path, 0, "0000:01:00", files))
    assert (sensed.clock_hertz, sensed.power_watts) == (hertz, watts)


def test_without_a_card_nothing_is_sampled():
    sensed = sample(None)
    assert sensed.clock_hertz is None and sensed.power_watts is None

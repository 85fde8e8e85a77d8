# SPDX-License-Identifier: MIT
"""What our pages tell users about Ulysses degrees is what diffusers does with MiniMax-H3's 56 heads."""

import re
from unittest import mock

import torch

from integration_tests.paths import DOCS, REPOSITORY
from integration_tests.tests.ulysses.cases import ATTEMPTS

PAGE = (DOCS / "using_with_diffusers.md").read_text()
UPSTREAM_PAGE = (REPOSITORY / "diffusers_patch" / "additions" / "minimax_h3_section.md").read_text()

HEADS = 56
DEGREES = range(2, HEADS + 1)
EVEN = [degree for degree in DEGREES if HEADS % degree == 0]


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def share_with_anything(degree: int) -> int | None:
    """Heads of each rank but the last under `ulysses_anything`, by diffusers' own function; None if it refuses."""
    from diffusers.models.attention_dispatch import _maybe_pad_qkv_head

    with mock.patch("torch.distributed.get_world_size", lambda group: degree):
        try:
            padded, _ = _maybe_pad_qkv_head(torch.zeros(1, 1, HEADS, 1), HEADS, group=None)
        except AssertionError:
            return None
    return padded.shape[2] // degree


def uneven_degrees() -> list[int]:
    return [degree for degree in DEGREES if degree not in EVEN and share_with_anything(degree)]


def test_table_of_degrees_is_what_diffusers_splits():
    even, uneven = re.findall(r"^\| ([\d, ]+) \| ([\d, ]+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert numbers(even[0]) == EVEN
    assert numbers(even[1]) == [HEADS // degree for degree in EVEN]
    assert numbers(uneven[0]) == uneven_degrees()
    shares = [share_with_anything(degree) for degree in uneven_degrees()]
    assert numbers(uneven[1]) == shares
    lasts = [HEADS - share * (degree - 1) for degree, share in zip(uneven_degrees(), shares, strict=True)]
    assert numbers(uneven[2]) == lasts and min(lasts) > 0


def test_section_for_upstream_names_the_same_degrees():
    (even,) = re.findall(r"divide evenly for a `ulysses_degree` of ([\d, or]+)\.", UPSTREAM_PAGE)
    (uneven,) = re.findall(r"degrees of ([\d, and]+) also work", UPSTREAM_PAGE)
    assert numbers(even) == EVEN
    assert numbers(uneven) == uneven_degrees()


def test_page_quotes_what_is_said_to_rings_training_and_odd_lengths():
    for name in ("ring", "training", "odd length"):
        assert ATTEMPTS[name].message in PAGE

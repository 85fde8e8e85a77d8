# SPDX-License-Identifier: MIT
"""What the table of models is made of. Imports no diffusers, so that the table can be looked at anywhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

# The two ways to the kernel with diffusers as released.
SAGE_HUB, REPLACE_SDPA = "sage_hub", "replace_sdpa"
ROUTES = (SAGE_HUB, REPLACE_SDPA)

# Arguments of one forward, from the model's configuration and the sizes of a workload.
Inputs = Callable[..., dict[str, Any]]


@dataclass(frozen=True)
class Workload:
    """One model of diffusers at one size, and a tiny one of the same kind.

    `full` is the published configuration, where it differs from the class's defaults or decides about attention;
    `tiny` is the same with few layers, few heads and narrow inputs, but the real head dimensions.
    """

    name: str
    class_name: str
    route: str
    inputs: Inputs
    tiny: Mapping[str, Any]
    tiny_sizes: Mapping[str, Any]
    full: Mapping[str, Any]
    full_sizes: Mapping[str, Any]
    component: str = "transformer"
    # How often the full size runs, for a workload of several kinds of steps.
    steps: tuple[tuple[int, Mapping[str, Any]], ...] = field(default=((1, {}),))


def normal(*shape: int) -> torch.Tensor:
    """N(0, 1) in bfloat16, from torch's generator."""
    return torch.randn(shape, dtype=torch.bfloat16)


def grid_ids(*grid: int, columns: int | None = None) -> torch.Tensor:
    """[product of `grid`, columns] of positions: the coordinates come last but for `columns - len(grid)` zeros."""
    axes = torch.meshgrid(*(torch.arange(n) for n in grid), indexing="ij")
    ids = torch.stack(axes, dim=-1).reshape(-1, len(grid)).to(torch.bfloat16)
    before = (columns or len(grid)) - len(grid)
    return torch.cat([torch.zeros(len(ids), before, dtype=ids.dtype), ids], dim=1)


def valid(batch: int, length: int, count: int) -> torch.Tensor:
    """bool [batch, length]: the first `count` are valid in the last sample, all in the others."""
    mask = torch.ones(batch, length, dtype=torch.bool)
    mask[-1, count:] = False
    return mask

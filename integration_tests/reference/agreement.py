# SPDX-License-Identifier: MIT
"""The figures by which an attention output is compared with a reference."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Agreement:
    """cosine and relative L2 over all elements, and the largest absolute difference."""

    cosine: float
    relative_l2: float
    max_error: float


def compare(output, reference):
    """Agreement of two tensors of equal shape. NaN or Inf in either makes every figure NaN, so no bound holds."""
    a, b = output.double().flatten(), reference.double().flatten()
    difference = a - b
    return Agreement(
        cosine=float(a @ b / (a.norm() * b.norm())),
        relative_l2=float(difference.norm() / b.norm()),
        max_error=float(difference.abs().max()) if torch.isfinite(difference).all() else float("nan"),
    )

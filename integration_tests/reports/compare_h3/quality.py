# SPDX-License-Identifier: MIT
"""How far a generation is from the one on SDPA: latents after each step, and frames."""

import math

import numpy as np
import torch
from skimage.metrics import structural_similarity

from integration_tests.reference.agreement import compare


def psnr(output: np.ndarray, reference: np.ndarray, value_range: float) -> float:
    """Peak signal-to-noise ratio in dB; infinite for equal arrays, NaN if either is not finite."""
    mean_square = float(np.mean((output.astype(np.float64) - reference.astype(np.float64)) ** 2))
    return math.inf if mean_square == 0 else 10 * math.log10(value_range**2 / mean_square)


def latent_error(output: torch.Tensor, reference: torch.Tensor) -> dict[str, float]:
    """Relative L2, and PSNR with the reference's own range as the peak: latents have no nominal one."""
    value_range = float(reference.max() - reference.min())
    return {
        "relative_l2": compare(output, reference).relative_l2,
        "psnr": psnr(output.float().numpy(), reference.float().numpy(), value_range),
    }


def frame_error(output: np.ndarray, reference: np.ndarray) -> dict[str, float]:
    """PSNR of a whole 8-bit video [frames, height, width, 3]; SSIM of its frames, their mean and the worst."""
    similarity = [
        float(structural_similarity(ours, theirs, channel_axis=2, data_range=255))
        for ours, theirs in zip(output, reference, strict=True)
    ]
    return {
        "psnr": psnr(np.asarray(output), np.asarray(reference), 255),
        "ssim": float(np.mean(similarity)),
        "worst_ssim": min(similarity),
    }

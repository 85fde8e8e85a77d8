# SPDX-License-Identifier: MIT
"""The project's contract: how far from attention in float64 an output may be. Stated here and nowhere else."""

SHORTEST = 1024
# Relative L2 by input of harness/inputs.py, from that many rows on.
RELATIVE_L2 = {
    "normal": 0.040,
    "common_key_mean_10": 0.042,
    "key_channels_20x": 0.042,
    "student_t_3": 0.042,
    "key_channels_100x": 0.065,
    "sink_8_nats": 0.016,
}
COSINE_OF_NORMAL = 0.999

# Of N(0, 1) inputs of any length: error grows a little with short sequences' few, large weights; 0.041 is the largest.
RELATIVE_L2_OF_ANY_LENGTH = 0.05

# What SDPA's own rounding to bfloat16 adds to its distance from an output, at most.
SDPA_ROUNDING = 2**-8


def bound(inputs: str, sequence: int) -> float:
    """The relative L2 that an output on these inputs may have."""
    return RELATIVE_L2[inputs] if sequence >= SHORTEST else RELATIVE_L2_OF_ANY_LENGTH

# SPDX-License-Identifier: MIT
"""Settings of a comparison that is small enough to test."""

from integration_tests.reports.compare_h3.case import VIRTUAL, Settings

# One row a latent frame, beside 414 audio rows and 14 of text.
SMALL = Settings(
    device=VIRTUAL,
    checkpoint=None,
    gpus=1,
    weights="whole",
    steps=3,
    seed=0,
    prompt="a prompt",
    height=16,
    width=16,
    frames=124,
    kernel="0" * 64,
    versions={},
)

# SPDX-License-Identifier: MIT
"""The two pictures of the report: how one kernel source becomes three deliveries, and error by sequence length."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

from integration_tests.reports.upstream.evidence import Parity

INK, SHARED, ONE, TWO, THREE = "#24292f", "#eef1f4", "#dbe9f9", "#e0f2e3", "#fbeed8"

# (x, y, width, text, colour) in units of the drawing; each arrow joins two boxes by their places in the list.
BOXES = [
    (3.6, 4.3, 3.2, "aiter_op/csrc\none kernel source", SHARED),
    (0.2, 3.1, 3.0, "aiter's JIT\ncompiles at the user's", ONE),
    (3.6, 3.1, 3.2, "build_code_object.py\ncompiles once, from PyPI", SHARED),
    (0.2, 1.9, 3.0, "aiter.gfx1201_sage_attention", ONE),
    (3.6, 1.9, 3.2, "Hub kernel\nloader + code object", TWO),
    (7.2, 1.9, 3.0, "ROCm variant of\nsage-attention", THREE),
    (0.2, 0.7, 3.0, "diffusers + aiter_sage\n(patch)", ONE),
    (3.6, 0.7, 3.2, "diffusers + aiter_sage_hub\n(patch)", TWO),
    (7.2, 0.7, 3.0, "diffusers as released\nsage_hub", THREE),
]
ARROWS = [(0, 1), (0, 2), (1, 3), (2, 4), (2, 5), (3, 6), (4, 7), (5, 8)]
HEADINGS = [(1.7, "option 1"), (5.2, "option 2"), (8.7, "option 3")]
HEIGHT = 0.74


def draw_flow(path: Path) -> None:
    """Writes the picture of the flow as PNG."""
    figure, axes = plt.subplots(figsize=(10.4, 5.2))
    axes.set(xlim=(0, 10.4), ylim=(0.1, 5.2))
    axes.axis("off")
    for x, y, width, text, colour in BOXES:
        shape = FancyBboxPatch((x, y), width, HEIGHT, boxstyle="round,pad=0.02,rounding_size=0.08", fc=colour, ec=INK)
        axes.add_patch(shape)
        axes.text(x + width / 2, y + HEIGHT / 2, text, ha="center", va="center", fontsize=9.5, color=INK)
    for start, end in ARROWS:
        (x0, y0, w0, *_), (x1, y1, w1, *_) = BOXES[start], BOXES[end]
        tail, head = (x0 + w0 / 2, y0 - 0.03), (x1 + w1 / 2, y1 + HEIGHT + 0.03)
        axes.annotate("", head, tail, arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1.1})
    for x, text in HEADINGS:
        axes.text(x, 0.3, text, ha="center", fontsize=11, fontweight="bold", color=INK)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)


def plot_error(parity: Sequence[Parity], path: Path) -> None:
    """Writes error by sequence length, of each delivery and of SDPA in bfloat16, as PNG."""
    figure, axes = plt.subplots(figsize=(7.6, 4.2))
    # The deliveries run one machine code: different marks, so that coinciding lines stay visible.
    for delivery, mark, size in (("aiter", "o", 11), ("hub", "s", 7), ("sage_hub", "x", 6)):
        rows = [row for row in parity if row.delivery == delivery]
        points = [row.sequence for row in rows], [row.relative_l2 for row in rows]
        axes.plot(*points, marker=mark, markersize=size, fillstyle="none", label=f"{delivery} (virtual gfx1201)")
    rows = [row for row in parity if row.delivery == "hub"]
    axes.plot(
        [r.sequence for r in rows], [r.sdpa_relative_l2 for r in rows], "k--", marker=".", label="SDPA, bfloat16 (CPU)"
    )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="sequence length (rows)",
        ylabel="relative L2 against float64",
        title=f"Error by sequence length: N(0, 1) inputs, {rows[0].heads} heads of 128",
    )
    axes.set_xticks(points[0], points[0])
    axes.minorticks_off()
    axes.set_yticks([0.002, 0.005, 0.01, 0.02, 0.05, 0.1], ["0.002", "0.005", "0.01", "0.02", "0.05", "0.1"])
    axes.set_ylim(0.001, 0.1)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="center right")
    figure.savefig(path, dpi=110, bbox_inches="tight")
    plt.close(figure)

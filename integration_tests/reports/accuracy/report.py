# SPDX-License-Identifier: MIT
"""Tables and plots of measured rows: `write(rows, folder)` makes accuracy.md and two plots."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

from integration_tests.reports.accuracy.measure import OURS, Row

BY_LENGTH, BY_SCHEME, TABLES = "accuracy_by_length.png", "accuracy_by_scheme.png", "accuracy.md"


def write(rows: Sequence[Row], folder: Path) -> str:
    """Writes tables and plots of `rows` to `folder`. The tables."""
    plot_by_length(rows, folder / BY_LENGTH)
    plot_by_scheme(rows, folder / BY_SCHEME)
    text = tables(rows)
    (folder / TABLES).write_text(text, "utf-8")
    return text


def tables(rows: Sequence[Row]) -> str:
    """Markdown: our error by case and length, all schemes by case at each length of interest, figures of ours."""
    cases, lengths = (_in_order(getattr(row, key) for row in rows) for key in ("case", "sequence"))
    found = {(row.case, row.sequence, row.scheme): row for row in rows}
    text = ["## Relative L2 of the op by sequence length\n"]
    sources = {row.sequence: row.source for row in rows if row.scheme == OURS}
    text += _table(
        ["case", *(f"{length:,}" for length in lengths)],
        [["*computed by*", *(sources[length] for length in lengths)]]
        + [[case, *(_number(found[case, length, OURS].relative_l2) for length in lengths)] for case in cases],
    )
    for length in (1024, 4096, *[length for length in lengths if length > 4096]):
        # What only the device computes has no long rows.
        schemes = _in_order(row.scheme for row in rows if row.sequence == length)
        text.append(f"\n## Relative L2 of each scheme at {length:,} rows\n")
        text += _table(
            ["case", *schemes],
            [[case, *(_number(found[case, length, scheme].relative_l2) for scheme in schemes)] for case in cases],
        )
    text.append("\n## Figures of the op\n")
    ours = [row for row in rows if row.scheme == OURS]
    text += _table(
        ["case", "rows", "cosine", "relative L2", "largest error", "gain", "device against model"],
        [
            [
                row.case,
                f"{row.sequence:,}",
                f"{row.cosine:.6f}",
                _number(row.relative_l2),
                f"{row.max_error:.3g}",
                f"{100 * row.gain:+.2f} %",
                "" if row.model_relative_l2 is None else f"{row.model_relative_l2:.1e}",
            ]
            for row in ours
        ],
    )
    return "\n".join(text) + "\n"


def _in_order(values) -> list:
    return list(dict.fromkeys(values))


def _number(value: float) -> str:
    return f"{value:.4f}" if value == value else "NaN"


def _table(head: list[str], body: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] + ["---:"] * (len(head) - 1), *body)]


def plot_by_length(rows: Sequence[Row], path: Path) -> None:
    """Our error against sequence length, a line for each case; the model's part is shaded."""
    figure, axes = plt.subplots(figsize=(9.5, 5.2))
    for number, case in enumerate(_in_order(row.case for row in rows)):
        ours = [row for row in rows if row.case == case and row.scheme == OURS and row.sequence > 1]
        points = [row.sequence for row in ours], [row.relative_l2 for row in ours]
        # Matplotlib has ten colours.
        axes.plot(*points, marker=".", linestyle="-" if number < 10 else "--", label=case)
    device = max(row.sequence for row in rows if row.model_relative_l2 is not None)
    axes.axvspan(device * 1.3, 250_000, color="#f2f2f2", zorder=0)
    axes.text(device * 1.4, 0.0012, "reference model, chosen queries", fontsize=8.5)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(12, 250_000),
        ylim=(0.001, 0.5),
        xlabel="sequence length (rows)",
        ylabel="relative L2 against float64",
        title="Error of gfx1201_sage_attention by sequence length",
    )
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=100, bbox_inches="tight")
    plt.close(figure)


def plot_by_scheme(rows: Sequence[Row], path: Path) -> None:
    """All schemes by case, at the longest length that the device ran and at the longest of all."""
    lengths = [max(row.sequence for row in rows if row.model_relative_l2 is not None), max(r.sequence for r in rows)]
    cases, schemes = (_in_order(getattr(row, key) for row in rows) for key in ("case", "scheme"))
    figure, panels = plt.subplots(1, 2, figsize=(13, 5.4), sharey=True)
    for axes, length in zip(panels, lengths, strict=True):
        for number, scheme in enumerate(schemes):
            # Empty where only the device computes a scheme: its name is in the legend all the same.
            chosen = {row.case: row.relative_l2 for row in rows if row.scheme == scheme and row.sequence == length}
            shift = 0.13 * (number - (len(schemes) - 1) / 2)
            places = [cases.index(case) + shift for case in chosen]
            axes.scatter(list(chosen.values()), places, s=26, marker="oPXs^D"[number], label=scheme)
        axes.set(xscale="log", xlim=(0.0008, 1.2), xlabel="relative L2 against float64", title=f"{length:,} rows")
        axes.set_yticks(range(len(cases)), cases)
        axes.grid(alpha=0.3)
    panels[0].invert_yaxis()
    panels[1].legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=90, bbox_inches="tight")
    plt.close(figure)

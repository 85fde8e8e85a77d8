# SPDX-License-Identifier: MIT
"""The picture of `nox -s bench`: modelled speed by shape and card, and executed error against the sequence length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.patches import Patch

# Distinguishable without colour vision; our kernel comes first.
STYLES = [
    ("#1b6ca8", "o", "-"),
    ("#3d8f5f", "v", "--"),
    ("#d1495b", "s", "--"),
    ("#7a7a7a", "^", "-."),
    ("#e09f3e", "D", ":"),
]

CAPTION = (
    "Filled bars are modelled, nothing was run on hardware: solid to the lower of two readings, pale to the higher. "
    "Errors: one head, N(0, 1)."
)


def lengths_axis(axis: pyplot.Axes, lengths: Sequence[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(lengths, [f"{length}" for length in lengths])
    axis.minorticks_off()
    axis.set_xlabel("sequence length S")
    axis.grid(True, which="major", color="#dddddd", linewidth=0.7)
    axis.set_axisbelow(True)


@dataclass(frozen=True)
class Bar:
    """One bar. Modelled ones have the lower of the two readings and the higher; measured ones are other people's."""

    label: str
    tflops: float
    up_to: float
    measured: bool


def bars(
    results: Sequence, published: Sequence[Mapping], shapes: Sequence[tuple]
) -> dict[tuple[str, tuple], list[Bar]]:
    """What each card does at each shape: modelled kernels (bench.Modelled), then published figures at that shape."""
    found: dict[tuple[str, tuple], list[Bar]] = {}
    for r in results:
        shape = r.shape[:3]
        if shape in shapes:
            group = found.setdefault((r.card, shape), [])
            known = next((bar for bar in group if bar.label == r.kernel), None)
            if known:
                low, high = sorted((known.tflops, r.tflops))
                group[group.index(known)] = replace(known, tflops=low, up_to=high)
            else:
                group.append(Bar(r.kernel, r.tflops, r.tflops, measured=False))
    for row in published:
        if row["shape"] and tuple(row["shape"]) in shapes and row["tflops"] and not row["causal"]:
            label = f"{row['who']}, measured"
            found[row["card"], tuple(row["shape"])].append(Bar(label, row["tflops"], row["tflops"], measured=True))
    return found


def draw(
    path: Path, groups: Mapping[tuple[str, tuple], list[Bar]], errors: Mapping[str, Mapping[int, float]]
) -> Figure:
    """TFLOP/s as bars by card and shape, so that a factor looks like one; `errors`: relative L2 by kernel, length."""
    cards = list(dict.fromkeys(card for card, _ in groups))
    colours = {kernel: colour for kernel, (colour, _, _) in zip(errors, STYLES, strict=False)}
    figure, axes = pyplot.subplots(1, len(cards) + 1, figsize=(7 * len(cards) + 5, 6.4), layout="constrained")
    top = 1.15 * max(bar.up_to for group in groups.values() for bar in group)
    for axis, card in zip(axes, cards, strict=False):
        position, ticks = 0.0, []
        for (of, shape), group in groups.items():
            if of != card:
                continue
            ticks.append((position + (len(group) - 1) / 2, f"S = {shape[1]:,}\n{shape[2]} heads"))
            for bar in group:
                colour = "white" if bar.measured else colours[bar.label]
                axis.bar(
                    position, bar.tflops, 0.8, color=colour, edgecolor="#444444", hatch="//" if bar.measured else ""
                )
                axis.bar(position, bar.up_to - bar.tflops, 0.8, bottom=bar.tflops, color=colour, alpha=0.45)
                text = f"{bar.tflops:.0f}  {bar.label}" if bar.measured else f"{bar.tflops:.0f}"
                axis.text(position, bar.up_to + 0.01 * top, text, ha="center", fontsize=8, rotation=90, va="bottom")
                position += 1
            position += 1
        axis.set_xticks([x for x, _ in ticks], [name for _, name in ticks])
        axis.set_ylim(0, top)
        axis.set_title(f"{card}: TFLOP/s of a whole call, modelled")
        axis.grid(True, axis="y", color="#dddddd", linewidth=0.7)
        axis.set_axisbelow(True)
    axes[0].legend(
        handles=[Patch(color=colour, label=kernel) for kernel, colour in colours.items()]
        + [Patch(facecolor="white", edgecolor="#444444", hatch="//", label="measured and published by others")],
        fontsize=8,
        loc="upper left",
    )
    right = axes[-1]
    for (kernel, by_length), (colour, marker, line) in zip(errors.items(), STYLES, strict=False):
        right.plot(by_length.keys(), by_length.values(), color=colour, marker=marker, linestyle=line, label=kernel)
    lengths_axis(right, list(next(iter(errors.values()))))
    right.set_ylim(bottom=0)
    right.set_ylabel("relative L2 error against float64")
    right.set_title("Error, executed on the virtual gfx1201")
    figure.supxlabel(CAPTION, fontsize=8, color="#555555")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return figure

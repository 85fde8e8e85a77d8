# SPDX-License-Identifier: MIT
"""The picture of `nox -s bench`: modelled time and executed error against the sequence length."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.figure import Figure

# Distinguishable without colour vision; our kernel comes first.
STYLES = [
    ("#1b6ca8", "o", "-"),
    ("#3d8f5f", "v", "--"),
    ("#d1495b", "s", "--"),
    ("#7a7a7a", "^", "-."),
    ("#e09f3e", "D", ":"),
]


def lengths_axis(axis: pyplot.Axes, lengths: Sequence[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(lengths, [f"{length}" for length in lengths])
    axis.minorticks_off()
    axis.set_xlabel("sequence length S")
    axis.grid(True, which="major", color="#dddddd", linewidth=0.7)
    axis.set_axisbelow(True)


def draw(
    path: Path, speeds: Mapping[str, Mapping[int, float]], errors: Mapping[str, Mapping[int, float]], caption: str
) -> Figure:
    """`speeds`: modelled seconds of a whole call by kernel and length; `errors`: relative L2 by kernel and length."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for (kernel, by_length), (colour, marker, line) in zip(speeds.items(), STYLES, strict=False):
        milliseconds = [1e3 * seconds for seconds in by_length.values()]
        left.plot(by_length.keys(), milliseconds, color=colour, marker=marker, linestyle=line, label=kernel)
        right.plot(
            errors[kernel].keys(), errors[kernel].values(), color=colour, marker=marker, linestyle=line, label=kernel
        )
    lengths_axis(left, list(next(iter(speeds.values()))))
    left.set_yscale("log")
    left.set_ylabel("modelled milliseconds per call")
    left.set_title("Modelled time, quantisation included")
    left.legend(fontsize=8)
    lengths_axis(right, list(next(iter(errors.values()))))
    right.set_yscale("log")
    right.set_ylabel("relative L2 error against float64")
    right.set_title("Error, executed on the virtual gfx1201")
    figure.supxlabel(caption, fontsize=8, color="#555555")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return figure

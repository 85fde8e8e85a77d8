# SPDX-License-Identifier: MIT
"""A comparison's results, complete or not, as JSON, as a Markdown table for a pull request and as pictures.

Every figure says what it was measured on. Times of the virtual device are the emulator's and get no ratio.
"""

import math
import statistics
from dataclasses import asdict
from pathlib import Path

import matplotlib.figure
import matplotlib.ticker
import numpy as np

from integration_tests.reports.compare_h3.backends import NATIVE
from integration_tests.reports.compare_h3.case import VIRTUAL, Backend, Case, write_atomically, write_json
from integration_tests.reports.compare_h3.quality import frame_error, latent_error

MIB = 2**20
SHOWN_FRAMES = 4
AMPLIFICATION = 8  # of the difference pictures


def summarise(case: Case, names: list[str]) -> dict:
    """All figures; None where one is not measured yet."""
    native = case.backend(NATIVE)
    return {
        "settings": asdict(case.settings),
        "backends": {name: _summary(case.backend(name), native, case.settings.steps) for name in names},
    }


def _summary(backend: Backend, native: Backend, steps: int) -> dict:
    measured = backend.steps()
    summary = backend.facts() | {
        "steps_measured": len(measured),
        "steps": [asdict(step) for step in measured],
        "step_seconds": _median(step.seconds for step in measured),
        "attention_seconds": _median(step.attention_seconds for step in measured),
        "peak_bytes": max((step.peak_bytes for step in measured), default=None),
        "total_peak_bytes": max((step.total_peak_bytes or 0 for step in measured), default=0) or None,
        "attention_calls": sum(step.attention_calls for step in measured),
        "kernel_launches": _sum_of_known(step.kernel_launches for step in measured),
    }
    if backend.name == NATIVE:
        return summary
    both = range(min(len(measured), len(native.steps())))
    errors = [_latent_errors(backend, native, step) for step in both]
    complete = len(both) == steps
    summary["latents_after_step"] = [error["latents"] for error in errors]
    summary["audio_latents_after_step"] = [error["audio_latents"] for error in errors]
    summary["latents"] = errors[-1]["latents"] if complete else None
    summary["audio_latents"] = errors[-1]["audio_latents"] if complete else None
    frames, reference = backend.frames(), native.frames()
    summary["frames"] = None if frames is None or reference is None else frame_error(frames, reference)
    return summary


def _latent_errors(backend: Backend, native: Backend, step: int) -> dict[str, dict[str, float]]:
    reference = native.latents(step)
    return {name: latent_error(tensor, reference[name]) for name, tensor in backend.latents(step).items()}


def _median(values) -> float | None:
    values = list(values)
    return statistics.median(values) if values else None


def _sum_of_known(values) -> int | None:
    values = list(values)
    return sum(values) if values and None not in values else None


def markdown(summary: dict) -> str:
    """The table, and what its figures are and are not."""
    settings, found = summary["settings"], summary["backends"]
    virtual = settings["device"] == VIRTUAL
    clock = "emulator time" if virtual else "time"
    header = [
        "backend",
        "steps",
        f"step, {clock}",
        f"attention of it, {clock}",
        *([] if virtual else ["step against native"]),
        "peak memory of a step",
        "video latents: rel. L2, PSNR",
        "audio latents: rel. L2, PSNR",
        "frames: PSNR",
        "frames: SSIM, worst frame",
    ]
    rows, notes = [], []
    for name, result in found.items():
        if reason := result.get("skipped"):
            notes.append(f"`{name}` did not run: {reason.rstrip('.')}.")
        if not result["steps_measured"]:
            continue
        native = found.get(NATIVE, {}).get("step_seconds")
        ratio = f"{native / result['step_seconds']:.2f}x" if native else "-"
        latents, audio, frames = (result.get(kind) for kind in ("latents", "audio_latents", "frames"))
        rows.append(
            [
                f"`{name}`",
                f"{result['steps_measured']} of {settings['steps']}",
                f"{result['step_seconds']:.3g} s",
                f"{result['attention_seconds']:.3g} s",
                *([] if virtual else [ratio]),
                f"{result['peak_bytes'] / MIB:.1f} MiB",
                f"{latents['relative_l2']:.4f}, {_decibel(latents['psnr'])}" if latents else "-",
                f"{audio['relative_l2']:.4f}, {_decibel(audio['psnr'])}" if audio else "-",
                _decibel(frames["psnr"]) if frames else "-",
                f"{frames['ssim']:.4f}, {frames['worst_ssim']:.4f}" if frames else "-",
            ]
        )
    lines = [f"**MiniMax-H3: attention backends against `{NATIVE}`**", "", _what_ran(settings), ""]
    lines += ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += ["", _provenance(found)]
    lines += [
        "Times are medians over the steps"
        + (": of a CPU that emulates the GPU, so they compare nothing." if virtual else ", all-to-alls included.")
        + " Peak memory is what a step holds beyond what was held when it began. Latents and frames are compared with"
        f" those of `{NATIVE}` from the same noise; the PSNR of latents takes the range of the reference as its peak."
    ]
    launched = [f"`{name}` {r['kernel_launches']} / {r['attention_calls']}" for name, r in found.items() if _counts(r)]
    if launched:
        lines.append(f"Kernel launches / attention calls of the transformer: {', '.join(launched)}.")
    return "\n".join([*lines, *notes]) + "\n"


def _counts(result: dict) -> bool:
    return bool(result["steps_measured"]) and result["kernel_launches"] is not None


def _decibel(value: float) -> str:
    return "identical" if math.isinf(value) else f"{value:.1f} dB"


def _what_ran(settings: dict) -> str:
    model = "the given checkpoint" if settings["checkpoint"] else "a small random MiniMax-H3"
    gpus = f", Ulysses over {settings['gpus']} GPUs" if settings["gpus"] > 1 else ""
    return (
        f"Text to video and audio with {model}, {settings['width']}x{settings['height']}, {settings['frames']} frames, "
        f"{settings['steps']} steps, seed {settings['seed']}{gpus}."
    )


def _provenance(found: dict) -> str:
    machines = {}
    for name, result in found.items():
        if "measured_on" in result:
            keys = ("measured_on", "gpu", "architecture", "emulated_by", "driver", "rocm", "cuda", "torch", "diffusers")
            where = ", ".join(f"{key.replace('_', ' ')}: {result[key]}" for key in keys if result.get(key))
            machines.setdefault(where, []).append(f"`{name}`")
    parts = [f"{', '.join(names)}: {where}" for where, names in machines.items()]
    return "Every figure, by backend - " + "; ".join(parts) + "." if parts else "Nothing was measured."


def write(case: Case, names: list[str], folder: Path) -> dict[str, Path]:
    """Writes compare_h3.json, .md and the pictures for which there are data; returns the files by kind."""
    summary = summarise(case, names)
    paths = {"json": folder / "compare_h3.json", "table": folder / "compare_h3.md"}
    write_json(paths["json"], _json_value(summary))
    write_atomically(paths["table"], lambda path: path.write_text(markdown(summary)))
    for kind, figure in (("error", error_figure(summary)), ("frames", frames_figure(case, summary))):
        picture = folder / f"compare_h3_{kind}.png"
        picture.unlink(missing_ok=True)
        if figure:
            write_atomically(picture, lambda path, figure=figure: figure.savefig(path, format="png", dpi=100))
            paths[kind] = picture
    return paths


def _json_value(value):
    """JSON has no infinity and no NaN: they become the words."""
    if isinstance(value, dict):
        return {key: _json_value(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _caption(summary: dict) -> str:
    """What the figures of a picture were measured on, in a few words."""
    if summary["settings"]["device"] == VIRTUAL:
        return "small random MiniMax-H3, virtual gfx1201 (emulated)"
    gpus = {result["gpu"] for result in summary["backends"].values() if "gpu" in result}
    return f"hardware: {summary['settings']['gpus']} x {', '.join(sorted(gpus))}"


def error_figure(summary: dict) -> matplotlib.figure.Figure | None:
    """Relative L2 of the latents against native after each step."""
    results = {name: r for name, r in summary["backends"].items() if r.get("latents_after_step")}
    if not results:
        return None
    figure = matplotlib.figure.Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    kinds = {"video latents": "latents_after_step", "audio latents": "audio_latents_after_step"}
    for plot, (title, kind) in zip(axes, kinds.items(), strict=True):
        # Backends that run the same kernel give the same curve: markers of different sizes keep both visible.
        for index, (name, result) in enumerate(results.items()):
            errors = [error["relative_l2"] for error in result[kind]]
            size = 4 + 4 * (len(results) - 1 - index)
            plot.plot(range(1, len(errors) + 1), errors, "o-", markersize=size, markerfacecolor="none", label=name)
        plot.set(title=title, xlabel="denoising step", ylim=(0, None), xlim=(0.5, summary["settings"]["steps"] + 0.5))
        plot.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
        plot.grid(alpha=0.3)
    axes[0].set_ylabel(f"relative L2 against {NATIVE}")
    axes[0].legend()
    figure.suptitle(_caption(summary), fontsize=10)
    return figure


def frames_figure(case: Case, summary: dict) -> matplotlib.figure.Figure | None:
    """The same frames of each backend, one row each, and below each backend its difference from native, amplified."""
    videos = {name: frames for name in summary["backends"] if (frames := case.backend(name).frames()) is not None}
    if NATIVE not in videos:
        return None
    reference = videos[NATIVE]
    shown = np.linspace(0, len(reference) - 1, SHOWN_FRAMES).round().astype(int)
    rows: list[tuple[str, np.ndarray]] = [(NATIVE, reference[shown])]
    for name, video in videos.items():
        if name != NATIVE:
            rows.append((name, video[shown]))
            difference = video[shown].astype(int) - reference[shown]
            amplified = np.clip(128 + AMPLIFICATION * difference, 0, 255).astype(np.uint8)
            rows.append((f"difference x{AMPLIFICATION}", amplified))
    height, width = reference.shape[1:3]
    size = (2.6 * SHOWN_FRAMES, (2.5 * height / width + 0.1) * len(rows) + 0.6)
    figure = matplotlib.figure.Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), SHOWN_FRAMES, squeeze=False)
    for plots, (label, pictures) in zip(grid, rows, strict=True):
        plots[0].set_ylabel(label, fontsize=8)
        for plot, picture in zip(plots, pictures, strict=True):
            plot.imshow(picture)
            plot.set(xticks=[], yticks=[])
    for plot, frame in zip(grid[0], shown, strict=True):
        plot.set_title(f"frame {frame}", fontsize=9)
    figure.suptitle(_caption(summary), fontsize=10)
    return figure

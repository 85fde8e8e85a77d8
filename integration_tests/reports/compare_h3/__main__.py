# SPDX-License-Identifier: MIT
"""MiniMax-H3 with each attention backend against `native`: on the GPUs that are there, or on a virtual gfx1201.

    python -m integration_tests.reports.compare_h3                                      # a small random model
    python -m integration_tests.reports.compare_h3 --checkpoint MiniMaxAI/MiniMax-H3 --gpus 4 --weights sharded

Writes compare_h3.json, compare_h3.md (a table for a pull request) and pictures to --output. Ctrl-C leaves what is
measured; the same command goes on from there. docs/comparison.md explains the figures.
"""

import argparse
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import torch

from integration_tests.harness import generated_page
from integration_tests.harness.gpu_finder import NoGpuError, find_gfx1201
from integration_tests.harness.hub_delivery import built_variant
from integration_tests.paths import DIST, DOCS, REPOSITORY
from integration_tests.reports.compare_h3 import backends, report
from integration_tests.reports.compare_h3.case import GPU, VIRTUAL, Case, Settings

PACKAGE = "integration_tests.reports.compare_h3"
COMMAND = f"python -m {PACKAGE} --docs"
PROMPT = "A red fox runs through fresh snow at dawn, its breath steaming, birds calling in the distance."

SMALL_SIZE = (48, 64)
RELEASED_SIZE = (768, 1344)
# The shortest video that the pipeline generates, 5.2 s: it refuses less than 5 s.
SHORTEST = 124


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    missing = _missing_gpu()
    device = options.device or (VIRTUAL if missing else GPU)
    # Any GPU of torch will do for diffusers' own backends, if it is asked for.
    if (device == GPU and not torch.cuda.is_available()) or (device == VIRTUAL and options.checkpoint):
        print(missing or "--device virtual emulates a small model only: leave out --checkpoint.", file=sys.stderr)
        return 2
    if options.weights == "sharded" and options.gpus == 1:
        print("--weights sharded needs --gpus of at least 2.", file=sys.stderr)
        return 2

    case = Case.open(options.output / "compare_h3", settings_of(options, device), options.fresh)
    names = list(dict.fromkeys([backends.NATIVE, *options.backends]))
    interrupted = False
    failed: list[str] = []
    try:
        if not options.report_only:
            prepare(case, options.seed, options.text_device)
            failed = [name for name in names if not run_backend(case, name)]
    except KeyboardInterrupt:
        interrupted = True
    paths = report.write(case, names, options.output)
    print("\n" + paths["table"].read_text())
    print("\n".join(f"{kind}: {path}" for kind, path in paths.items()))
    if options.docs and not interrupted and not failed:
        pictures = [paths["error"], paths["frames"]]
        generated_page.renew(DOCS / "comparison.md", COMMAND, paths["table"].read_text(), pictures)
    if interrupted:
        print("Interrupted. The same command goes on after the last complete step.", file=sys.stderr)
        return 130
    if failed:
        print(f"Failed: {', '.join(failed)}. The message is above.", file=sys.stderr)
    return 1 if failed else 0


def _missing_gpu() -> str | None:
    """Why there is no gfx1201 to run on, in one sentence."""
    try:
        find_gfx1201()
    except NoGpuError as error:
        return str(error)
    return None


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {PACKAGE}", description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="*", default=list(backends.OPTIONS), metavar="NAME")
    parser.add_argument("--checkpoint", help="folder or Hub id of MiniMax-H3; without it a small random model")
    parser.add_argument("--device", choices=[VIRTUAL, GPU], help="default: a gfx1201 if there is one, else virtual")
    parser.add_argument("--gpus", type=int, default=1, help="Ulysses over so many GPUs")
    parser.add_argument(
        "--weights",
        choices=["whole", "sharded", "offloaded"],
        default="whole",
        help="the transformer (61.7 GB): whole on each GPU, sharded over all of them, or in host memory",
    )
    parser.add_argument("--text-device", default="cpu", help="where the text encoder runs, once")
    parser.add_argument("--prompt", default=PROMPT)
    parser.add_argument("--steps", type=int, default=8, help="evaluations of the transformer")
    parser.add_argument("--height", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--frames", type=int, default=SHORTEST, help="17 n + 5, from 124 (5.2 s) to 345 (14.4 s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=DIST)
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run measured")
    parser.add_argument("--report-only", action="store_true", help="measure nothing")
    parser.add_argument("--docs", action="store_true", help="put table and pictures into docs/comparison.md")
    return parser.parse_args(arguments)


def settings_of(options: argparse.Namespace, device: str) -> Settings:
    height, width = RELEASED_SIZE if options.checkpoint else SMALL_SIZE
    manifest = json.loads((built_variant() / "manifest.json").read_text())
    return Settings(
        device=device,
        checkpoint=_absolute(options.checkpoint),
        gpus=options.gpus,
        weights=options.weights,
        steps=options.steps,
        seed=options.seed,
        prompt=options.prompt,
        height=options.height or height,
        width=options.width or width,
        frames=options.frames,
        kernel=manifest["sha256"],
        versions={name: version(name) for name in ("torch", "diffusers")},
    )


def _absolute(checkpoint: str | None) -> str | None:
    """A folder's whole path, since other processes have another working directory; a Hub id as it is."""
    return str(Path(checkpoint).resolve()) if checkpoint and Path(checkpoint).is_dir() else checkpoint


def prepare(case: Case, seed: int, text_device: str) -> None:
    """Makes the small checkpoint, or encodes the prompt with the given one."""
    if case.prompt_file.exists():
        return
    if case.settings.checkpoint:
        _python(case, "encode_prompt", str(case.folder), text_device)
    else:
        _python(case, "small_checkpoint", str(case.checkpoint), str(seed))
        case.prompt_file.hardlink_to(case.checkpoint / case.prompt_file.name)


def environment(case: Case) -> dict[str, str]:
    """Lets diffusers take the kernels that LOCAL_KERNELS names, built here, without asking the Hub for their publisher.

    diffusers and huggingface_hub read either variable once, at import. A checkpoint may have to be downloaded.
    """
    if case.settings.checkpoint:
        return os.environ | {"DIFFUSERS_TRUST_REMOTE_KERNELS": "true"}
    return os.environ | {"HF_HUB_OFFLINE": "1"}


def run_backend(case: Case, name: str) -> bool:
    """Runs what is missing of one backend. False when it failed, which keeps the others from nothing."""
    if case.is_complete(name):
        print(f"{name}: complete", flush=True)
        return True
    print(f"{name} ...", flush=True)
    try:
        if case.settings.gpus > 1:
            launcher = ["torch.distributed.run", "--standalone", f"--nproc-per-node={case.settings.gpus}", "-m"]
            _python(case, "generate", str(case.folder), name, launcher=launcher)
        else:
            _python(case, "generate", str(case.folder), name)
    except subprocess.CalledProcessError:
        return False
    if reason := case.backend(name).facts().get("skipped"):
        print(f"{name}: skipped, {reason}", flush=True)
    return True


def _python(case: Case, module: str, *arguments: str, launcher: list[str] | None = None) -> None:
    command = [
        sys.executable,
        "-W",
        "ignore::FutureWarning",
        "-m",
        *(launcher or []),
        f"{PACKAGE}.{module}",
        *arguments,
    ]
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment(case))
    try:
        status = process.wait()
    finally:
        # Only a process that is still there: its results are whole files, so that it may end anywhere.
        process.terminate()
        process.wait()
    if status:
        raise subprocess.CalledProcessError(status, command)


if __name__ == "__main__":
    sys.exit(main())

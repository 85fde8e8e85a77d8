# SPDX-License-Identifier: MIT
"""Ulysses over CUDA GPUs and NCCL, with the exact model of the kernel where the kernel would be: all but device code.

    python -m integration_tests.tests.ulysses.on_cuda                                    one rank for each CUDA GPU
    python -m integration_tests.tests.ulysses.on_cuda --device cpu --ranks 2 --small     gloo, to try the script itself

A MiniMax-H3 of the released width runs through diffusers' `aiter_sage_hub`: in one process against SDPA, compiled
against eager, and over all ranks against one, evenly split and with `ulysses_anything`. Needs torch, diffusers and an
installed `kernels`, whose version diffusers asks for. Ends with a table, writes dist/ulysses_on_cuda.json, and exits
with 1 when a check fails. Without a CUDA GPU it says so and does nothing.
It measures no speed: the model of the kernel is many times slower than a kernel.
"""

import argparse
import inspect
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from aiter_op.ops.sage_attention_contract import check_inputs, empty_output, resolve_softmax_scale
from integration_tests.harness import patched_diffusers as patched
from integration_tests.paths import DIST
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import sage_attention_model
from integration_tests.tests.ulysses.context_parallel_on_cpu import PATIENCE, context_parallel_on_cpu, gloo_group

RESULT = DIST / "ulysses_on_cuda.json"
BACKEND = "aiter_sage_hub"
SEED = 0
_calls = 0


@torch.library.custom_op("gfx1201_sage_attention_model::forward", mutates_args=())
def _forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float) -> torch.Tensor:
    global _calls
    _calls += 1
    check_inputs(q, k, v)
    return sage_attention_model(q, k, v, softmax_scale).contiguous()


@_forward.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float) -> torch.Tensor:
    check_inputs(q, k, v)
    return empty_output(q)


def sage_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float | None = None
) -> torch.Tensor:
    """The public function of the deliveries, on any device."""
    check_inputs(q, k, v)
    return _forward(q, k, v, resolve_softmax_scale(softmax_scale))


@contextmanager
def model_in_the_kernels_place() -> Iterator[None]:
    """Lets diffusers find the model where the Hub kernel would be, and ask for no `kernels` package."""
    from diffusers.models import attention_dispatch

    config = attention_dispatch._HUB_KERNELS_REGISTRY[attention_dispatch.AttentionBackendName(BACKEND)]
    with (
        mock.patch.object(config, "kernel_fn", sage_attention),
        mock.patch.object(attention_dispatch, "is_kernels_available", lambda: True),
    ):
        yield


class Checks:
    """Runs the model in one way after the other on this rank and keeps what each came to."""

    def __init__(self, options: argparse.Namespace, rank: int):
        from integration_tests.harness import minimax_h3

        self._options, self._rank, self._h3 = options, rank, minimax_h3
        self._device = torch.device(options.device, rank if options.device == "cuda" else None)
        self.results: list[dict[str, Any]] = []

    def run(self) -> None:
        options, ranks = self._options, self._options.ranks
        # SDPA's distance is the kernel's error of each call, and the calls' errors are independent.
        per_call = self._h3.RELATIVE_L2 / math.sqrt(3)
        layers = options.layers + options.refiner_layers
        for anything in (False, True) if ranks > 1 else (False,):
            if not anything and self._config()["num_attention_heads"] % ranks:
                continue
            inputs = self._inputs(divisible=not anything)
            rows = inputs["position_ids"].shape[0]
            transformer = self._transformer()
            sdpa = self._forward(transformer, inputs, "native", calls=0)
            alone = self._forward(transformer, inputs, BACKEND, calls=layers)
            error = self._check(f"one process against SDPA, {rows} rows", alone, sdpa, per_call * math.sqrt(layers))
            # Products of other shapes and fused operations round differently, and INT8 turns that into other steps. Two
            # outputs that are this far from the exact one, with errors that may be independent, are no farther apart.
            # A lost or swapped row, head or rank moves the output by about its norm.
            bound = math.sqrt(2) * error
            if not anything:
                self._compile(transformer)
                compiled = self._forward(transformer, inputs, BACKEND, calls=layers)
                self._check("one process, compiled against eager", compiled, alone, bound)
            if ranks > 1:
                self._run_ranks(inputs, alone, sdpa, anything, bound)

    def _run_ranks(self, inputs: dict, alone: torch.Tensor, sdpa: torch.Tensor, anything: bool, bound: float) -> None:
        from diffusers import ContextParallelConfig

        layers = self._options.layers + self._options.refiner_layers
        name = f"{self._options.ranks} ranks{', anything' if anything else ''}"
        transformer = self._transformer()
        config = ContextParallelConfig(ulysses_degree=self._options.ranks, ulysses_anything=anything)
        transformer.enable_parallelism(config=config)
        together = self._forward(transformer, inputs, BACKEND, calls=layers)
        self._check(f"{name} against one process", together, alone, bound)
        native = self._forward(transformer, inputs, "native", calls=0)
        # Twice, because here the matrix products round differently as well.
        self._check(f"{name}, back on SDPA, against one process", native, sdpa, 2 * self._h3.ROUNDING)
        if not anything:
            self._compile(transformer)
            compiled = self._forward(transformer, inputs, BACKEND, calls=layers)
            self._check(f"{name}, compiled against eager", compiled, together, bound)

    def _config(self) -> dict[str, Any]:
        sizes: dict[str, Any] = {} if self._options.small else released_sizes()
        changes = {"num_layers": self._options.layers, "num_refiner_layers": self._options.refiner_layers}
        return self._h3.SMALL | sizes | changes

    def _transformer(self) -> torch.nn.Module:
        with self._device:  # a CPU would need minutes for the released width
            return self._h3.small_minimax_h3(SEED, **self._config()).to(self._device)

    def _inputs(self, divisible: bool) -> dict[str, torch.Tensor]:
        """Packed rows that the ranks can split evenly, or one more."""
        rows = self._h3.TEXT_TOKENS + math.prod(self._options.video_grid)
        audio = -rows % self._options.ranks + self._options.ranks * 10 + (0 if divisible else 1)
        inputs = self._h3.example_inputs(
            SEED, audio_tokens=audio, video_grid=self._options.video_grid, config=self._config()
        )
        return {name: tensor.to(self._device) for name, tensor in inputs.items()}

    def _forward(self, transformer: torch.nn.Module, inputs: dict, backend: str, calls: int) -> torch.Tensor:
        before = _calls
        output = self._h3.run(transformer, inputs, backend)
        if _calls - before != calls:
            raise RuntimeError(f"{_calls - before} calls reached the model of the kernel, {calls} should have.")
        return output.cpu()

    def _compile(self, transformer: torch.nn.Module) -> None:
        torch.compiler.reset()
        transformer.compile_repeated_blocks(fullgraph=True, backend=self._options.compile_backend)

    def _check(self, name: str, output: torch.Tensor, expected: torch.Tensor, bound: float) -> float:
        error = compare(output, expected).relative_l2
        passed = error <= bound  # False for NaN
        self.results.append({"check": name, "relative_l2": error, "bound": bound, "passed": passed})
        if self._rank == 0:
            print(f"  {name:58} {error:.6f}  {bound:.4f}  {'ok' if passed else 'FAILED'}", flush=True)
        return error


def released_sizes() -> dict[str, Any]:
    """The sizes of the released MiniMax-H3, which are its class's defaults: 56 heads of 128, 5376 channels."""
    from diffusers import MiniMaxH3Transformer3DModel

    parameters = inspect.signature(MiniMaxH3Transformer3DModel.__init__).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.name != "self"}


def versions(device: str) -> dict[str, Any]:
    import diffusers

    found: dict[str, Any] = {"torch": torch.__version__, "diffusers": diffusers.__version__}
    if device == "cuda":
        found["cuda"] = torch.version.cuda
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        found["gpus"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return found


def run_rank(rank: int, options: argparse.Namespace, folder: str) -> None:
    """One rank's process: all checks, whose results rank 0 and then the parent collect."""
    patched.activate()
    from diffusers.utils import logging

    logging.set_verbosity_error()  # each set_attention_backend warns that it is experimental
    with ExitStack() as stack:
        if options.device == "cuda":
            torch.cuda.set_device(rank)
            group = {"rank": rank, "world_size": options.ranks, "timeout": PATIENCE}
            group["store"] = dist.FileStore(f"{folder}/store", options.ranks)
            # gloo beside NCCL, as diffusers recommends for "anything": the ranks exchange their lengths on the CPU.
            dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", rank), **group)
            stack.callback(dist.destroy_process_group)
        else:
            stack.enter_context(gloo_group(Path(folder) / "store", rank, options.ranks))
            stack.enter_context(context_parallel_on_cpu())
        stack.enter_context(model_in_the_kernels_place())
        checks = Checks(options, rank)
        checks.run()
        report = {"checks": checks.results, "versions": versions(options.device)}
        if options.device == "cuda":
            report["peak_memory_bytes"] = torch.cuda.max_memory_allocated()
        (Path(folder) / f"{rank}.json").write_text(json.dumps(report))


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.device == "cuda":
        found = torch.cuda.device_count() if torch.version.cuda else 0
        options.ranks = options.ranks or found
        if not found or options.ranks > found:
            print(f"Nothing was run: {max(options.ranks, 1)} CUDA GPUs are needed and {found} found.")
            return 0
    options.ranks = options.ranks or 1
    patched.patched_diffusers("hub_backend")  # here once, so that the ranks only read it
    sizes = "small" if options.small else "released"
    print(f"MiniMax-H3 of {sizes} width, {options.layers} + {options.refiner_layers} layers, {options.ranks} ranks\n")
    print(f"  {'check':58} rel. L2   bound")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_rank, (options, folder), nprocs=options.ranks)
        reports = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(options.ranks)]
    result = {"options": vars(options), "ranks": reports}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\n{json.dumps(reports[0]['versions'])}")
    if options.ranks == 1:
        print("One rank: nothing was split.")
    failed = [
        (rank, check["check"])
        for rank, report in enumerate(reports)
        for check in report["checks"]
        if not check["passed"]
    ]
    for rank, check in failed:
        print(f"rank {rank}: {check} failed", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--ranks", type=int, default=0, help="default: one for each CUDA GPU")
    parser.add_argument("--small", action="store_true", help="4 heads of 128 instead of the released width")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--refiner-layers", type=int, default=1)
    parser.add_argument("--video-grid", type=int, nargs=3, default=[5, 24, 42], metavar=("FRAMES", "ROWS", "COLUMNS"))
    parser.add_argument("--compile-backend", default="inductor")
    return parser


if __name__ == "__main__":
    sys.exit(main())

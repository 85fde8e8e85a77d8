# SPDX-License-Identifier: MIT
"""One rank: a process with its own virtual gfx1201, which runs every case of its backend and saves what came out.

    python -m integration_tests.tests.ulysses.rank BACKEND RANK FOLDER [VARIANT]

Importing torch and diffusers costs more than the cases, so the same four processes serve all of them: first as a group
of four, then two of them as a group of two, then the first alone, without any group.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

# diffusers and huggingface_hub read this once, at import: nothing here needs the network.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import torch.distributed as dist

from diffusers_patch.recipes import RECIPES
from integration_tests.harness import inputs as kernel_inputs
from integration_tests.harness import patched_diffusers as patched
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.tests.ulysses.cases import ATTEMPTS, CALLS, CASES, COMPILED, TEXT_ROWS, Attempt, Call, Case
from integration_tests.tests.ulysses.context_parallel_on_cpu import context_parallel_on_cpu, gloo_group
from integration_tests.virtual_gpu import VirtualGpu

SEED = 0
DEGREES = (4, 2)  # falling: a rank that is not in a group has nothing left to do


def main() -> None:
    backend, rank, folder, *variant = sys.argv[1:]
    report = run_all(backend, int(rank), Path(folder), Path(variant[0]) if variant else None)
    torch.save(report, Path(folder) / f"{rank}.pt")


def run_all(backend: str, rank: int, folder: Path, variant: Path | None) -> dict:
    """What this rank has to say about every case, by the case's name."""
    torch.set_num_threads(1)
    # oneDNN chooses how to add up a matrix product by its number of rows, too. Without it a row's bits do not depend on
    # the rows beside it, and a model that is split by rows has no excuse to differ.
    torch.backends.mkldnn.set_flags(False)
    gpu = VirtualGpu.load()
    report: dict = {"cases": {}, "calls": {}, "attempts": {}, "with repeated text": {}}
    with rocm_torch(gpu):
        _load(backend, rank, folder, variant)
        import diffusers

        report["diffusers"] = diffusers.__file__
        worker = _Worker(gpu, backend)
        with context_parallel_on_cpu():
            for degree in DEGREES:
                if rank < degree:
                    with gloo_group(folder / f"group of {degree}", rank, degree):
                        worker.run_group(report, degree, rank)
        if rank == 0:
            worker.run_single(report)
    return report


def _load(backend: str, rank: int, folder: Path, variant: Path | None) -> None:
    """Makes diffusers importable with `backend`, and its kernel there, on CPU tensors."""
    if backend == "aiter_sage":
        from integration_tests.harness import aiter_delivery

        # The first to load it builds what is missing; the others find it built.
        with gloo_group(folder / "loading", rank, DEGREES[0]):
            for turn in (True, False):
                if (rank == 0) == turn:
                    aiter_delivery.load_aiter()
                dist.barrier()
        patched.activate("aiter_backend")
    elif backend == "aiter_sage_hub":
        from hub_kernel.build_hub_package import repo_id
        from integration_tests.harness.hub_delivery import load_hub_kernel

        patched.activate(*RECIPES)
        load_hub_kernel(variant)
        os.environ["LOCAL_KERNELS"] = f"{repo_id()}={variant}"
    else:
        from integration_tests.harness.variant_delivery import load_variant, local_kernels

        load_variant(variant)
        os.environ["LOCAL_KERNELS"] = local_kernels(variant)


class _Worker:
    def __init__(self, gpu: VirtualGpu, backend: str):
        from integration_tests.harness import minimax_h3

        self._gpu, self._backend, self._h3 = gpu, backend, minimax_h3

    def run_group(self, report: dict, degree: int, rank: int) -> None:
        for case in CASES:
            if case.degree == degree:
                report["cases"][str(case)] = self._run_case(case)
        for call in CALLS:
            if call.degree == degree:
                report["calls"][str(call)] = self._run_call(call, rank)
        for name, attempt in ATTEMPTS.items():
            if attempt.degree == degree:
                report["attempts"][name] = self._run_attempt(attempt)
        if degree == COMPILED.degree:
            report["compiled"] = self._run_compiled(COMPILED)

    def run_single(self, report: dict) -> None:
        for case in {case.in_one_process for case in CASES}:
            report["cases"][str(case)] = self._run_case(case)
        for case in CASES:
            with self._text_repeated(case.degree):
                report["with repeated text"][str(case)] = self._run_case(case.in_one_process)["output"]
        for call in {call.in_one_process for call in CALLS}:
            report["calls"][str(call)] = self._run_call(call, rank=0)
        report["bounds"] = {"relative_l2": self._h3.RELATIVE_L2, "rounding": self._h3.ROUNDING}

    @torch.no_grad()
    def _run_case(self, case: Case) -> dict:
        return self._forward_and_back(*self._prepare(case))

    def _forward_and_back(self, transformer: torch.nn.Module, inputs: dict) -> dict:
        """The model's output on the backend and, after the one-line switch, on SDPA."""
        output = self._h3.forward(transformer, inputs)
        grids = self._grids()
        transformer.set_attention_backend("native")
        sdpa = self._h3.forward(transformer, inputs)
        return {"output": output, "grids": grids, "sdpa": sdpa, "grids_of_both": self._grids()}

    @torch.no_grad()
    def _run_compiled(self, case: Case) -> dict:
        transformer, inputs = self._prepare(case)
        # Without inductor: it would need a C++ compiler, and the graph is what is tested.
        transformer.compile_repeated_blocks(fullgraph=True, backend="aot_eager")
        return self._forward_and_back(transformer, inputs)

    @torch.no_grad()
    def _run_call(self, call: Call, rank: int) -> torch.Tensor:
        """This rank's rows of one attention call."""
        from diffusers.models._modeling_parallel import ContextParallelConfig, ParallelConfig
        from diffusers.models.attention_dispatch import AttentionBackendName, dispatch_attention_fn

        parallel_config = None
        if call.degree > 1:
            config = ContextParallelConfig(ulysses_degree=call.degree, ulysses_anything=call.anything)
            mesh = dist.device_mesh.init_device_mesh("cpu", config.mesh_shape, mesh_dim_names=config.mesh_dim_names)
            config.setup(rank, call.degree, torch.device("cpu"), mesh)
            parallel_config = ParallelConfig(context_parallel_config=config)
        q, k, v = (
            x.tensor_split(call.degree, dim=1)[rank] for x in kernel_inputs.normal(call.batch, call.rows, call.heads)
        )
        backend = AttentionBackendName(self._backend)
        return dispatch_attention_fn(q, k, v, backend=backend, parallel_config=parallel_config)

    def _run_attempt(self, attempt: Attempt) -> dict:
        """The message of the error that is raised, or the output if none is."""
        transformer, inputs = self._prepare(attempt.case, attempt.config)
        inputs["encoder_hidden_states"].requires_grad_(attempt.training)
        try:
            with torch.set_grad_enabled(attempt.training):
                output = self._h3.forward(transformer, inputs)
            if attempt.training:
                output.sum().backward()
            outcome = {"output": output.detach()}
        except (AssertionError, NotImplementedError, RuntimeError, ValueError) as error:
            outcome = {"message": str(error)}
        transformer.set_attention_backend("native")
        return outcome | {"grids": self._grids()}

    def _prepare(self, case: Case, parallelism: dict | None = None) -> tuple[torch.nn.Module, dict]:
        """The case's transformer, on the backend and with the parallelism asked for, its inputs, and no launches."""
        transformer = self._h3.small_minimax_h3(SEED, num_attention_heads=case.heads)
        if case.degree > 1:
            parallelism = {"ulysses_degree": case.degree, "ulysses_anything": case.anything}
        if case.backend_set == "before":
            transformer.set_attention_backend(self._backend)
        if parallelism:
            from diffusers import ContextParallelConfig

            transformer.enable_parallelism(config=ContextParallelConfig(**parallelism))
        if case.backend_set == "after":
            transformer.set_attention_backend(self._backend)
        self._gpu.reset()
        return transformer, self._h3.example_inputs(SEED, case.batch, audio_tokens=case.audio_rows)

    @contextmanager
    def _text_repeated(self, copies: int) -> Iterator[None]:
        """Makes the text refiner attend over as many copies of the text as Ulysses makes of it."""
        from diffusers.models.transformers import transformer_minimax_h3

        dispatch = transformer_minimax_h3.dispatch_attention_fn

        def dispatch_copies(query, key, value, *arguments, **keywords):
            rows = query.shape[1]
            if rows != TEXT_ROWS:
                return dispatch(query, key, value, *arguments, **keywords)
            repeated = (x.repeat(1, copies, 1, 1) for x in (query, key, value))
            return dispatch(*repeated, *arguments, **keywords)[:, :rows]

        with mock.patch.object(transformer_minimax_h3, "dispatch_attention_fn", dispatch_copies):
            yield

    def _grids(self) -> list[tuple[int, int, int]]:
        """Grids of the main kernel's launches; their y counts batch times heads."""
        records = self._gpu.records()
        assert not [record.kernel for record in records if record.uneven_barriers]
        return [record.grid for record in records if record.kernel == MAIN_KERNEL]


if __name__ == "__main__":
    main()

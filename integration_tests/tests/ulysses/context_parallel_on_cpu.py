# SPDX-License-Identifier: MIT
"""What diffusers' context parallelism wants of an accelerator and of NCCL, where there are CPU tensors and gloo.

The one place that patches this, in test processes only. Everything else is the real thing: diffusers' hooks and
all-to-alls, torch.distributed, gloo, one process per rank.
"""

import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
import torch.nn.functional as F

# How long a rank waits for another, on a machine that is busy otherwise.
PATIENCE = datetime.timedelta(minutes=30)


@contextmanager
def gloo_group(store: Path, rank: int, size: int) -> Iterator[None]:
    """The process's group of `size` ranks, which meet at the file `store`."""
    # With the device in its name, as diffusers recommends for GPUs too ("cpu:gloo,cuda:nccl"), the ranks exchange
    # their lengths in CPU tensors; else on the accelerator, which a CUDA build of torch names even without a GPU.
    file_store = dist.FileStore(str(store), size)
    dist.init_process_group("cpu:gloo", store=file_store, rank=rank, world_size=size, timeout=PATIENCE)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def context_parallel_on_cpu() -> Iterator[None]:
    """Patches diffusers, for the length of the block."""
    from diffusers.hooks import context_parallel
    from diffusers.models.modeling_utils import ModelMixin

    resolve = ModelMixin._resolve_parallel_config

    def resolve_with_one_device(model, config):
        # A rank takes device `rank % device_count`, a division by zero without an accelerator. Each process here has
        # one GPU of its own. Only meanwhile: torch.compile would go on to ask for that accelerator's streams.
        with mock.patch("torch.accelerator.device_count", lambda: 1):
            return resolve(model, config)

    with (
        mock.patch.object(ModelMixin, "_resolve_parallel_config", resolve_with_one_device),
        # gloo's all_gather takes tensors of one size only; NCCL's takes any.
        mock.patch.object(context_parallel, "_all_gather_anything", _all_gather_padded),
    ):
        yield


def _all_gather_padded(tensor: torch.Tensor, dim: int, group: dist.ProcessGroup) -> torch.Tensor:
    """Joins tensors whose sizes differ in `dim`: each rank pads to the longest, and the padding is cut off again."""
    from diffusers.models._modeling_parallel import gather_size_by_comm

    sizes = gather_size_by_comm(tensor.shape[dim], group)
    moved = tensor.movedim(dim, 0)
    padded = F.pad(moved, [0, 0] * (moved.dim() - 1) + [0, max(sizes) - moved.shape[0]]).contiguous()
    gathered = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(gathered, padded, group=group)
    parts = [part[:size] for part, size in zip(gathered, sizes, strict=True)]
    return torch.cat(parts).movedim(0, dim).contiguous()

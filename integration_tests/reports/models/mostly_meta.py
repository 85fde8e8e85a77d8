# SPDX-License-Identifier: MIT
"""A model of any size, run for the shapes of its calls: on the meta device, but for small integers and booleans.

Some models read values of masks and lengths, which the meta device does not have. Those stay on the CPU.
"""

import contextlib
import math
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_any_only, tree_map_only

META = torch.device("meta")

# Larger ones, such as a mask of all pairs of rows, have no values.
SMALL = 2**20

_KEPT = (torch.bool, torch.uint8, torch.int32, torch.int64)
_INDEXING = (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default)


class MostlyMeta(TorchDispatchMode):
    """Ops on meta tensors take CPU tensors as meta ones; small integers and booleans are made and kept on the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        on_meta = tree_any_only(torch.Tensor, lambda x: x.device == META or x.numel() > SMALL, (args, kwargs))
        if func is torch.ops.aten.repeat.default:
            on_meta = on_meta or args[0].numel() * math.prod(args[1]) > SMALL
        wants_meta = kwargs.get("device") is not None and torch.device(kwargs["device"]) == META
        if wants_meta and not on_meta:
            return self._made(func, args, kwargs)
        if not on_meta:
            return func(*args, **kwargs)
        if func in _INDEXING:
            args = (args[0], _positions(args[1]), *args[2:])
        if func is torch.ops.aten.copy_.default and args[0].device != META:
            return args[0]
        args, kwargs = tree_map_only(torch.Tensor, lambda x: x.to(META), (args, kwargs))
        if kwargs.get("device") is not None:
            kwargs["device"] = META
        return func(*args, **kwargs)

    @staticmethod
    def _made(func: Any, args: tuple, kwargs: dict) -> Any:
        """What would be made on the meta device, or moved there."""
        shape = func(*tree_map_only(torch.Tensor, lambda x: x.to(META), args), **kwargs)
        if shape.dtype in _KEPT and shape.numel() <= SMALL:
            return func(*args, **kwargs | {"device": torch.device("cpu")})
        return shape


def _positions(indices: list) -> list:
    """The indices with positions in the place of booleans, whose number of results needs their values."""
    found = []
    for index in indices:
        if index is not None and index.dtype in (torch.bool, torch.uint8):
            found += index.nonzero(as_tuple=True)
        else:
            found.append(index)
    return found


def to_meta(value: Any) -> Any:
    """Arguments of a forward, the large ones on the meta device."""
    return tree_map_only(torch.Tensor, lambda x: x if x.numel() <= SMALL else x.to(META), value)


def without_values(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same shape, strides and dtype on the meta device, whatever its size."""
    with _disable_current_modes():
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=META)


class _Autocast(torch.autocast):
    """Autocast on the meta device, which torch refuses, changes nothing."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any):
        super().__init__("cpu" if device_type == META.type else device_type, *args, **kwargs)


@contextlib.contextmanager
def mostly_meta() -> Iterator[None]:
    with MostlyMeta(), mock.patch.object(torch, "autocast", _Autocast):
        yield

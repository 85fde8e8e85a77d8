# SPDX-License-Identifier: MIT
"""One workload: traced at full size for what reaches the kernel, and executed tiny on the virtual device."""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest import mock

import diffusers
import torch
import torch.nn.functional as F
from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry

from integration_tests.harness.device_under_test import launched_kernels
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.reference.agreement import compare
from integration_tests.reference.contract import RELATIVE_L2_OF_ANY_LENGTH
from integration_tests.reports.models.mostly_meta import META, mostly_meta, to_meta, without_values
from integration_tests.reports.models.report import Result
from integration_tests.reports.models.workload import REPLACE_SDPA, SAGE_HUB, Workload

DIRECT = "the model calls PyTorch's SDPA itself, which sage_hub does not see"


@dataclass
class Trace:
    """Calls of attention and their FLOPs by the reason for SDPA; None is the kernel."""

    calls: Counter = field(default_factory=Counter)
    flops: Counter = field(default_factory=Counter)
    dispatched_flops: int = 0

    def add(self, reason: str | None, flops: int, count: int, dispatched: bool) -> None:
        self.calls[reason] += count
        self.flops[reason] += flops * count
        self.dispatched_flops += flops * count * dispatched

    @property
    def share(self) -> float:
        return self.flops[None] / self.flops.total()

    @property
    def is_dispatched(self) -> bool:
        return self.dispatched_flops > self.flops.total() / 2


def measure(workload: Workload, package: ModuleType) -> Result:
    """`package`: the variant, loaded on the virtual device and known to diffusers."""
    trace = traced(workload, package)
    relative_l2, launches = executed(workload, package)
    total = trace.flops.total()
    return Result(
        name=workload.name,
        class_name=workload.class_name,
        component=workload.component,
        route=workload.route,
        dispatched=trace.is_dispatched,
        share_on_kernel=trace.share,
        flops=total,
        calls=trace.calls.total(),
        calls_on_kernel=trace.calls[None],
        reasons={
            reason: (count, trace.flops[reason] / total)
            for reason, count in trace.calls.most_common()
            if reason is not None
        },
        relative_l2=relative_l2,
        bound=bound(launches),
        launches=launches,
    )


def bound(launches: int) -> float:
    """Each call adds at most its contract's error, independently of the others, in full to the output."""
    return RELATIVE_L2_OF_ANY_LENGTH * math.sqrt(launches)


def model_class(workload: Workload) -> type:
    return getattr(diffusers, workload.class_name)


def cast_as_loaded(model: torch.nn.Module) -> torch.nn.Module:
    """What from_pretrained does with bfloat16: some modules stay in float32."""
    kept = set(getattr(model, "_keep_in_fp32_modules", None) or ())
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point() and kept.isdisjoint(name.split(".")):
            tensor.data = tensor.data.bfloat16()
    return model.eval().requires_grad_(False)


@contextlib.contextmanager
def on_route(workload: Workload, model: torch.nn.Module, package: ModuleType) -> Iterator[None]:
    """The kernel switched on as a user does it, and off again."""
    if workload.route == REPLACE_SDPA:
        with package.replace_sdpa():
            yield
        return
    model.set_attention_backend(SAGE_HUB)
    try:
        yield
    finally:
        model.set_attention_backend("native")


# Full size


def traced(workload: Workload, package: ModuleType) -> Trace:
    """The calls of attention of the workload at full size, with the reasons that the package gives."""
    trace = Trace()
    with torch.device(META):
        model = cast_as_loaded(model_class(workload)(**workload.full))
    # What one step hands to the next.
    state = {"state": {}} if len(workload.steps) > 1 else {}
    for count, step in workload.steps:
        with torch.device("cpu"):
            inputs = to_meta(workload.inputs(model.config, **workload.full_sizes, **step, **state))
        with recorded(trace, package, count), on_route(workload, model, package), torch.no_grad(), mostly_meta():
            model(**inputs)
    return trace


@contextlib.contextmanager
def recorded(trace: Trace, package: ModuleType, count: int) -> Iterator[None]:
    """Writes what meanwhile asks the package, or SDPA without asking it, into `trace`, `count` times."""
    reason_for_sdpa, on_the_kernel = package.core.reason_for_sdpa, package.core.on_the_kernel
    native, sdpa = _AttentionBackendRegistry._backends[AttentionBackendName.NATIVE], F.scaled_dot_product_attention
    from_native = []

    def recording_reason(call: Any) -> str | None:
        reason = reason_for_sdpa(with_its_mask_on_meta(call))
        trace.add(reason, flops(call.q, call.k, call.tensor_layout), count, not is_replaced() or bool(from_native))
        return reason

    def on_the_kernel_of_meta(call: Any) -> torch.Tensor:
        return on_the_kernel(with_its_mask_on_meta(call))

    def is_replaced() -> bool:
        return F.scaled_dot_product_attention is not recording_sdpa

    def recording_native(*args: Any, **kwargs: Any) -> torch.Tensor:
        from_native.append(True)
        try:
            return native(*args, **kwargs)
        finally:
            from_native.pop()

    def recording_sdpa(query: torch.Tensor, key: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        # Under replace_sdpa the package was asked before.
        if not is_replaced():
            trace.add(DIRECT, flops(query, key, "HND"), count, False)
        return sdpa(query, key, *args, **kwargs)

    with (
        mock.patch.object(package.core, "reason_for_sdpa", recording_reason),
        mock.patch.object(package.core, "on_the_kernel", on_the_kernel_of_meta),
        mock.patch.object(F, "scaled_dot_product_attention", recording_sdpa),
        mock.patch.dict(_AttentionBackendRegistry._backends, {AttentionBackendName.NATIVE: recording_native}),
    ):
        yield


def with_its_mask_on_meta(call: Any) -> Any:
    """The call with a mask that is on the device of its tensors, as it would be on a GPU."""
    return call if call.attn_mask is None else call._replace(attn_mask=without_values(call.attn_mask))


def flops(q: torch.Tensor, k: torch.Tensor, layout: str) -> int:
    """Of the two products of one call, masks and causality left aside."""
    keys = k.shape[-2 if layout == "HND" else -3]
    return 4 * q.numel() * keys


# Tiny, on the virtual device


def executed(workload: Workload, package: ModuleType) -> tuple[float, int]:
    """Relative L2 of the tiny model's output against native, and launches of the kernel."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = tiny_model(workload)
        inputs = workload.inputs(model.config, **workload.tiny_sizes)
    with torch.no_grad():
        expected = output(model(**inputs, return_dict=False))
        with on_route(workload, model, package), launched_kernels() as launched:
            actual = output(model(**inputs, return_dict=False))
    return compare(actual, expected).relative_l2, launched().count(MAIN_KERNEL)


def tiny_model(workload: Workload) -> torch.nn.Module:
    """The tiny model, with weights that let attention into the output: many are zero at first."""
    model = model_class(workload)(**workload.tiny)
    for parameter in model.parameters():
        if parameter.dim() >= 2:
            torch.nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
    return cast_as_loaded(model)


def output(value: Any) -> torch.Tensor:
    """All tensors of a model's output as one vector."""
    tensors = [x for x in torch.utils._pytree.tree_leaves(value) if isinstance(x, torch.Tensor)]
    return torch.cat([x.double().flatten() for x in tensors])

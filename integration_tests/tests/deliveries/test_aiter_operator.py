# SPDX-License-Identifier: MIT
"""aiter's operator on the virtual device: what it launches and where, and that no mistake ends the process.

Numbers are tested by integration_tests/tests/op, which runs on every delivery.
"""

import importlib.util

import pytest
import torch

from integration_tests.harness import aiter_delivery
from integration_tests.harness.device_under_test import on_device, torch_device
from integration_tests.harness.launches import KERNELS
from integration_tests.paths import REPOSITORY

pytestmark = pytest.mark.aiter

HIP_ERRORS = {1: "invalid argument", 2: "out of memory", 719: "unspecified launch failure"}

# torch's own; `rocm_torch` replaces it.
GET_DEVICE_PROPERTIES = torch.cuda.get_device_properties


@pytest.fixture
def aiter(rocm_torch):
    """aiter with the operator's module loaded, on one gfx1201."""
    return aiter_delivery.load_aiter()


@pytest.fixture
def operator(aiter):
    """The operator's own module."""
    import aiter.ops.gfx1201_sage_attention as module

    return module


def random_inputs(batch: int = 1, sequence: int = 40, heads: int = 2) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (batch, sequence, heads, 128)
    return [on_device(torch.randn(shape, generator=generator).to(torch.bfloat16)) for _ in range(3)]


def test_one_call_launches_the_three_kernels_in_order(virtual_gpu, aiter):
    aiter.gfx1201_sage_attention(*random_inputs(batch=1, sequence=300, heads=2))
    records = virtual_gpu.records()
    assert [record.kernel for record in records] == KERNELS
    assert [record.grid for record in records] == 3 * [(2, 2, 1)]
    assert all(record.block == (256, 1, 1) and record.dynamic_lds_bytes == 0 for record in records)


def test_only_the_operator_is_exported(aiter, operator):
    assert operator.__all__ == ["gfx1201_sage_attention"]
    assert aiter.gfx1201_sage_attention is operator.gfx1201_sage_attention
    assert not hasattr(aiter, "device_facts")


def test_launches_go_to_the_current_stream(virtual_gpu, rocm_torch, aiter):
    stream = virtual_gpu.create_stream()
    rocm_torch.use_stream(stream)
    aiter.gfx1201_sage_attention(*random_inputs())
    assert [record.stream for record in virtual_gpu.records()] == 3 * [stream]


def test_tensors_decide_the_device_and_its_stream(virtual_gpu, rocm_torch, aiter, operator, monkeypatch):
    virtual_gpu.configure(devices=2)
    expected = aiter.gfx1201_sage_attention(*random_inputs())
    virtual_gpu.set_device(1)
    stream = virtual_gpu.create_stream()
    virtual_gpu.set_device(0)
    rocm_torch.use_stream(stream, device=1)
    monkeypatch.setattr(operator, "device_facts", lambda tensor: operator.DeviceFacts("cuda", 1, "gfx1201"))
    assert torch.equal(aiter.gfx1201_sage_attention(*random_inputs()), expected)
    records = virtual_gpu.records()
    assert [(record.device, record.stream) for record in records] == 3 * [(0, 0)] + 3 * [(1, stream)]
    assert virtual_gpu.current_device() == 0


# Refusals

REFUSED_CALLS = {
    "head_dim": lambda q, k, v: (q[..., :64], k[..., :64], v[..., :64]),
    "dtype": lambda q, k, v: (q.float(), k.float(), v),
    "shapes": lambda q, k, v: (q, k[:, :7], v[:, :7]),
    "dimensions": lambda q, k, v: (q[0], k[0], v[0]),
    "empty": lambda q, k, v: (q[:, :0], k[:, :0], v[:, :0]),
    "last_stride": lambda q, k, v: (q, k, v.transpose(1, 3).contiguous().transpose(1, 3)),
    "requires_grad": lambda q, k, v: (q.requires_grad_(), k, v),
    "infinite_scale": lambda q, k, v: (q, k, v, float("inf")),
    "scale_of_another_type": lambda q, k, v: (q, k, v, "0.1"),
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_refused_calls_raise_and_launch_nothing(launched, aiter, name):
    with pytest.raises((TypeError, ValueError), match="^gfx1201_sage_attention "):
        aiter.gfx1201_sage_attention(*REFUSED_CALLS[name](*random_inputs()))
    assert launched() == []


def test_torch_ops_callers_get_the_same_refusals(launched, aiter):
    q, k, v = random_inputs()
    with pytest.raises(ValueError, match="needs equal shapes"):
        torch.ops.aiter._gfx1201_sage_attention_forward(q, k, v[:, :7], 0.1)
    assert launched() == []


@pytest.mark.parametrize("architecture", ["gfx1200", "gfx942:sramecc+:xnack-"])
def test_another_architecture_is_refused_before_the_module_is_touched(
    virtual_gpu, aiter, operator, monkeypatch, architecture
):
    monkeypatch.setattr(operator, "gfx1201_sage_attention_workspace_bytes", None)
    virtual_gpu.configure(arch=architecture)
    with pytest.raises(RuntimeError) as refusal:
        aiter.gfx1201_sage_attention(*random_inputs())
    assert str(refusal.value) == (
        f"gfx1201_sage_attention needs a gfx1201 GPU (RDNA4), got {architecture.split(':')[0]}: "
        "use another attention on this device."
    )
    assert virtual_gpu.records() == []


def test_tensors_of_the_cpu_are_refused(aiter, operator, monkeypatch):
    monkeypatch.setattr(operator, "device_facts", lambda tensor: operator.DeviceFacts("cpu", -1, ""))
    with pytest.raises(ValueError, match="needs tensors on a ROCm device, got cpu tensors"):
        aiter.gfx1201_sage_attention(*random_inputs())


def test_a_forked_process_is_refused_by_torch_before_the_module_is_touched(launched, aiter, operator, monkeypatch):
    inputs = random_inputs()
    aiter.gfx1201_sage_attention(*inputs)
    # A GPU build of torch answers so in a process that was forked after CUDA or HIP was initialised.
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", GET_DEVICE_PROPERTIES)
    monkeypatch.setattr(operator, "gfx1201_sage_attention_workspace_bytes", None)
    with pytest.raises(RuntimeError, match="forked subprocess"):
        aiter.gfx1201_sage_attention(*inputs)
    assert launched() == KERNELS


# HIP errors


@pytest.mark.parametrize("error", HIP_ERRORS)
def test_a_launch_error_is_raised_once_with_hips_text(virtual_gpu, aiter, error):
    inputs = random_inputs()
    expected = aiter.gfx1201_sage_attention(*inputs)
    virtual_gpu.reset()
    virtual_gpu.fail_next("hipLaunchKernel", error)
    with pytest.raises(RuntimeError) as failure:
        aiter.gfx1201_sage_attention(*inputs)
    assert str(failure.value) == f"gfx1201_sage_statistics failed to launch: {HIP_ERRORS[error]}"
    assert virtual_gpu.records() == []
    # Torch would find a leftover here and blame its own next operation.
    virtual_gpu.hip("hipGetLastError")
    assert torch.equal(aiter.gfx1201_sage_attention(*inputs), expected)


# torch


def test_op_passes_opcheck(aiter):
    q, k, v = random_inputs()
    packed = torch.stack((q, k, v), dim=2).unbind(2)
    for inputs in ((q, k, v), packed):
        torch.library.opcheck(torch.ops.aiter._gfx1201_sage_attention_forward.default, (*inputs, 0.1))


def test_fullgraph_compilation_gives_the_bits_of_the_eager_call(launched, aiter, fresh_compiler):
    inputs = random_inputs()
    compiled = torch.compile(aiter.gfx1201_sage_attention, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*inputs), aiter.gfx1201_sage_attention(*inputs))
    assert launched() == 2 * KERNELS


def test_compiled_calls_refuse_tensors_that_require_grad(launched, aiter, fresh_compiler):
    q, k, v = random_inputs()
    compiled = torch.compile(aiter.gfx1201_sage_attention, backend="eager")
    with pytest.raises(ValueError, match="computes no gradients, but grad is enabled and required by q"):
        compiled(q.requires_grad_(), k, v)
    assert launched() == []


# The test that aiter receives


def op_test():
    """A fresh import of aiter_op/op_tests, whose tensors go where the device under test reads them."""
    path = REPOSITORY / "aiter_op" / "op_tests" / "test_gfx1201_sage_attention.py"
    spec = importlib.util.spec_from_file_location("op_test_of_gfx1201_sage_attention", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.DEVICE = torch_device()
    return module


@pytest.mark.parametrize("architecture, runs", [("gfx1201", True), ("gfx942:sramecc+:xnack-", False)])
def test_the_op_test_runs_on_gfx1201_only(virtual_gpu, aiter, monkeypatch, architecture, runs):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    virtual_gpu.configure(arch=architecture)
    assert op_test().is_gfx1201() is runs
    assert op_test().pytestmark.args == (not runs,)


def test_the_op_test_passes(aiter):
    module = op_test()
    tests = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    assert len(tests) >= 6
    for test in tests.values():
        cases = [mark.args[1] for mark in getattr(test, "pytestmark", [])] or [[()]]
        for case in cases[0]:
            test(*(case if isinstance(case, tuple) else (case,)))


def test_gpu_archs_without_this_gpu_is_refused_before_anything_is_built(launched, aiter, operator, monkeypatch):
    monkeypatch.setenv("GPU_ARCHS", "gfx942;gfx950")
    monkeypatch.setattr(operator, "gfx1201_sage_attention_workspace_bytes", None)  # what would build the module
    with pytest.raises(RuntimeError) as refusal:
        aiter.gfx1201_sage_attention(*random_inputs())
    assert str(refusal.value) == (
        "GPU_ARCHS is gfx942;gfx950, so aiter builds for other GPUs than this gfx1201: add gfx1201 to it, or unset it."
    )
    assert launched() == []


def test_a_module_that_was_built_for_other_gpus_is_named_with_the_way_out(virtual_gpu, aiter):
    no_binary_for_gpu = 209
    virtual_gpu.fail_next("hipLaunchKernel", no_binary_for_gpu)
    with pytest.raises(RuntimeError) as refusal:
        aiter.gfx1201_sage_attention(*random_inputs())
    text = str(refusal.value)
    assert text.startswith("module_gfx1201_sage_attention.so in ") and "AITER_REBUILD=1" in text
    aiter.gfx1201_sage_attention(*random_inputs())

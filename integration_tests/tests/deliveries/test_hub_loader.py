# SPDX-License-Identifier: MIT
"""The Hub package's loader on the virtual device: what it launches, where, and what it does when something is wrong."""

import contextlib
import ctypes
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from hub_kernel import build_hub_package
from integration_tests.harness import hub_delivery, rocm_tensors
from integration_tests.harness.device_under_test import on_device
from integration_tests.harness.hip_source import compile_hip
from integration_tests.harness.launches import KERNELS
from integration_tests.paths import REPOSITORY

HIP_ERROR_OUT_OF_MEMORY = 2
HIP_ERROR_LAUNCH_FAILURE = 719


@pytest.fixture
def kernel(rocm_torch):
    """The package as built, on one gfx1201."""
    yield hub_delivery.load_hub_kernel()
    rocm_tensors.forget_placements()


@pytest.fixture
def fresh_kernel(rocm_torch, tmp_path):
    """Another build of the package, which has loaded nothing yet."""
    yield hub_delivery.load_hub_kernel(rebuilt_with(tmp_path, "manifest.json", lambda content: content + b"\n"))
    rocm_tensors.forget_placements()


def rebuilt_with(tmp_path: Path, name: str, change) -> Path:
    """A copy of the variant with the content of one file changed, finished as a build of its own."""
    variant = tmp_path / "variant"
    shutil.copytree(hub_delivery.built_variant(), variant)
    for generated in ("_ops.py", "metadata.json"):
        (variant / generated).unlink()
    # The test's own name makes the id unique: one process cannot hold two builds of one id.
    (variant / "build_of_a_test.json").write_text(f'"{tmp_path.name}"\n')
    (variant / name).write_bytes(change((variant / name).read_bytes()))
    build_hub_package.finish_variant(variant, build_hub_package.read_build_config())
    return variant


def random_inputs(batch: int = 1, sequence: int = 40, heads: int = 2) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (batch, sequence, heads, 128)
    return [on_device(torch.randn(shape, generator=generator).to(torch.bfloat16)) for _ in range(3)]


def record_calls(monkeypatch, module, name: str, kept: Callable = lambda *arguments: arguments) -> list:
    """A list that gets what `kept` makes of the arguments of each call of `module`'s function `name` from now on."""
    calls = []
    function = getattr(module, name)

    def recording_function(*arguments):
        calls.append(kept(*arguments))
        return function(*arguments)

    monkeypatch.setattr(module, name, recording_function)
    return calls


def record_hip_calls(monkeypatch, kernel) -> list[str]:
    """A list that names each HIP function that `kernel` calls from now on."""
    return record_calls(monkeypatch, kernel.hip_module, "_check", lambda hip, name, status: name)


# Launches


def test_one_call_launches_the_three_kernels_in_order(virtual_gpu, kernel):
    kernel.gfx1201_sage_attention(*random_inputs(batch=1, sequence=300, heads=2))
    records = virtual_gpu.records()
    assert [record.kernel for record in records] == KERNELS
    assert [tuple(record.grid) for record in records] == [(2, 2, 1), (2, 2, 1), (2, 2, 1)]
    assert all(tuple(record.block) == (256, 1, 1) and record.dynamic_lds_bytes == 0 for record in records)


def test_launches_go_to_the_current_stream(virtual_gpu, rocm_torch, kernel):
    stream = virtual_gpu.create_stream()
    rocm_torch.use_stream(stream)
    kernel.gfx1201_sage_attention(*random_inputs())
    assert [record.stream for record in virtual_gpu.records()] == 3 * [stream]


def test_a_call_asks_hip_for_launches_only(kernel, monkeypatch):
    kernel.gfx1201_sage_attention(*random_inputs())
    calls = record_hip_calls(monkeypatch, kernel)
    kernel.gfx1201_sage_attention(*random_inputs())
    assert calls == ["hipGetDevice"] + 3 * ["hipModuleLaunchKernel"]


def test_an_eager_call_is_checked_once(kernel, monkeypatch):
    checks = record_calls(monkeypatch, kernel, "check_inputs")
    kernel.gfx1201_sage_attention(*random_inputs())
    assert len(checks) == 1


def test_a_shape_is_planned_once_and_its_device_is_asked_once(fresh_kernel, monkeypatch):
    plans = record_calls(monkeypatch, fresh_kernel.hip_module, "plan_call")
    questions = record_calls(monkeypatch, torch.cuda, "get_device_properties")
    for sequence in (33, 40, 33, 40):
        fresh_kernel.gfx1201_sage_attention(*random_inputs(sequence=sequence))
    assert [plan[1:] for plan in plans] == [(1, 33, 2), (1, 40, 2)]
    assert len(questions) == 1


def test_each_tensors_own_strides_reach_the_kernels(kernel):
    q, k, v = random_inputs(batch=2, sequence=33, heads=2)
    expected = kernel.gfx1201_sage_attention(q, k, v)
    packed_q = torch.stack((q, k, v), dim=2)[:, :, 0]
    transposed_k = k.transpose(1, 2).contiguous().transpose(1, 2)
    padded_v = torch.nn.functional.pad(v, (0, 64, 0, 0, 0, 3))[:, :33, :, :128]
    assert torch.equal(kernel.gfx1201_sage_attention(packed_q, transposed_k, padded_v), expected)


def test_tensors_decide_the_device_and_not_the_current_one(virtual_gpu, kernel):
    virtual_gpu.configure(devices=2)
    inputs = random_inputs()
    expected = kernel.gfx1201_sage_attention(*inputs)
    on_device_1 = [rocm_tensors.place_on_device(tensor.clone(), 1) for tensor in inputs]
    assert torch.equal(kernel.gfx1201_sage_attention(*on_device_1), expected)
    kernel.gfx1201_sage_attention(*inputs)
    assert [record.device for record in virtual_gpu.records()] == 3 * [0] + 3 * [1] + 3 * [0]


def test_the_current_device_is_put_back(virtual_gpu, kernel):
    virtual_gpu.configure(devices=2)
    on_device_1 = [rocm_tensors.place_on_device(tensor, 1) for tensor in random_inputs()]
    current = ctypes.c_int(-1)
    hip = kernel.hip_module._hip()
    kernel.gfx1201_sage_attention(*on_device_1)
    assert hip.hipGetDevice(ctypes.byref(current)) == 0 and current.value == 0
    virtual_gpu.fail_next("hipModuleLaunchKernel", HIP_ERROR_LAUNCH_FAILURE)
    with pytest.raises(RuntimeError):
        kernel.gfx1201_sage_attention(*on_device_1)
    assert hip.hipGetDevice(ctypes.byref(current)) == 0 and current.value == 0


def test_module_is_loaded_once_for_each_device(virtual_gpu, fresh_kernel, monkeypatch):
    virtual_gpu.configure(devices=2)
    calls = record_hip_calls(monkeypatch, fresh_kernel)
    inputs = random_inputs()
    on_device_1 = [rocm_tensors.place_on_device(tensor.clone(), 1) for tensor in inputs]
    for _ in range(2):
        fresh_kernel.gfx1201_sage_attention(*inputs)
        fresh_kernel.gfx1201_sage_attention(*on_device_1)
    assert calls.count("hipModuleLoadData") == 2


def test_threads_that_call_at_once_load_one_module(fresh_kernel, monkeypatch):
    calls = record_hip_calls(monkeypatch, fresh_kernel)
    verify = fresh_kernel.hip_module._verified_code_object
    both_are_loading = threading.Barrier(2)
    outputs = []

    def verify_slowly():
        # The first thread holds the lock here, so the second must not arrive while it waits.
        with contextlib.suppress(threading.BrokenBarrierError):
            both_are_loading.wait(timeout=2)
        return verify()

    def call():
        outputs.append(fresh_kernel.gfx1201_sage_attention(*random_inputs()))

    monkeypatch.setattr(fresh_kernel.hip_module, "_verified_code_object", verify_slowly)
    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outputs) == 2 and torch.equal(*outputs)
    assert calls.count("hipModuleLoadData") == 1


# Refusals

REFUSED_CALLS = {
    "head_dim": lambda q, k, v: (q[..., :64], k[..., :64], v[..., :64]),
    "dtype": lambda q, k, v: (q.float(), k.float(), v),
    "shapes": lambda q, k, v: (q, k[:, :7], v[:, :7]),
    "dimensions": lambda q, k, v: (q[0], k[0], v[0]),
    "last_stride": lambda q, k, v: (q, k, v.transpose(1, 3).contiguous().transpose(1, 3)),
    "requires_grad": lambda q, k, v: (q.requires_grad_(), k, v),
    "infinite_scale": lambda q, k, v: (q, k, v, float("inf")),
}


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_refused_calls_launch_nothing(launched, kernel, name):
    with pytest.raises((TypeError, ValueError), match="^gfx1201_sage_attention "):
        kernel.gfx1201_sage_attention(*REFUSED_CALLS[name](*random_inputs()))
    assert launched() == []


def test_torch_ops_callers_get_the_same_refusals(launched, kernel):
    q, k, v = random_inputs()
    with pytest.raises(ValueError, match="needs stride 1 in the last dimension"):
        kernel._sage_attention_forward(q, k, v.transpose(1, 3).contiguous().transpose(1, 3), 0.1)
    assert launched() == []


@pytest.mark.parametrize("architecture", ["gfx1200", "gfx942:sramecc+:xnack-"])
def test_another_architecture_is_refused_before_anything_is_loaded(
    virtual_gpu, fresh_kernel, monkeypatch, architecture
):
    virtual_gpu.configure(arch=architecture)
    calls = record_hip_calls(monkeypatch, fresh_kernel)
    with pytest.raises(RuntimeError) as refusal:
        fresh_kernel.gfx1201_sage_attention(*random_inputs())
    assert str(refusal.value) == (
        f"gfx1201_sage_attention needs a gfx1201 GPU (RDNA4), got {architecture.split(':')[0]}: "
        "use another attention on this device."
    )
    assert calls == []


def test_a_refused_device_is_asked_again_by_the_next_call(virtual_gpu, fresh_kernel):
    virtual_gpu.configure(arch="gfx1200")
    with pytest.raises(RuntimeError, match="got gfx1200"):
        fresh_kernel.gfx1201_sage_attention(*random_inputs())
    virtual_gpu.configure()
    fresh_kernel.gfx1201_sage_attention(*random_inputs())
    assert [record.kernel for record in virtual_gpu.records()] == KERNELS


def test_gfx1201_with_feature_suffixes_is_accepted(virtual_gpu, kernel):
    virtual_gpu.configure(arch="gfx1201:sramecc+:xnack-")
    kernel.gfx1201_sage_attention(*random_inputs())
    assert [record.kernel for record in virtual_gpu.records()] == KERNELS


def with_one_bit_flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES = {
    "one bit flipped": with_one_bit_flipped,
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "zeros at the end": lambda content: content + bytes(4096),
    "another valid code object": lambda content: compile_hip('extern "C" __global__ void other() {}'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_changed_code_object_is_never_loaded(launched, rocm_torch, monkeypatch, tmp_path, damage):
    kernel = hub_delivery.load_hub_kernel(rebuilt_with(tmp_path, "gfx1201_sage_attention.hsaco", DAMAGES[damage]))
    calls = record_hip_calls(monkeypatch, kernel)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="the package is damaged, download it again"):
            kernel.gfx1201_sage_attention(*random_inputs())
    assert "hipModuleLoadData" not in calls and launched() == []


def swapped(content: bytes) -> bytes:
    """The manifest with the first two arguments of the kernels exchanged: valid, and wrong."""
    manifest = json.loads(content)
    arguments = manifest["launch"]["arguments"]
    arguments[0], arguments[1] = arguments[1], arguments[0]
    return json.dumps(manifest).encode()


MANIFEST_DAMAGES = {
    "another order of arguments": swapped,
    "truncated": lambda content: content[: len(content) // 2],
    "no sha256 in it": lambda content: content.replace(b"sha256", b"sha512"),
    "one more line": lambda content: content + b"\n",
    "missing": None,
}


@pytest.mark.parametrize("damage", MANIFEST_DAMAGES)
def test_a_changed_manifest_is_never_used(launched, rocm_torch, monkeypatch, tmp_path, damage):
    variant = rebuilt_with(tmp_path, "manifest.json", lambda content: content + b" ")
    manifest = variant / "manifest.json"
    if change := MANIFEST_DAMAGES[damage]:
        manifest.write_bytes(change(manifest.read_bytes()))
    else:
        manifest.unlink()
    kernel = hub_delivery.load_hub_kernel(variant)
    calls = record_hip_calls(monkeypatch, kernel)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="^manifest.json .* the package is damaged, download it again.$"):
            kernel.gfx1201_sage_attention(*random_inputs())
    assert "hipModuleLoadData" not in calls and launched() == []


# HIP errors


def test_a_launch_error_is_raised_once_with_hips_text(virtual_gpu, kernel):
    inputs = random_inputs()
    expected = kernel.gfx1201_sage_attention(*inputs)
    virtual_gpu.fail_next("hipModuleLaunchKernel", HIP_ERROR_LAUNCH_FAILURE)
    with pytest.raises(RuntimeError) as failure:
        kernel.gfx1201_sage_attention(*inputs)
    assert str(failure.value) == "hipModuleLaunchKernel failed: unspecified launch failure (HIP error 719)."
    # Torch would find a leftover here and blame its own next operation.
    assert kernel.hip_module._hip().hipGetLastError() == 0
    assert torch.equal(kernel.gfx1201_sage_attention(*inputs), expected)


@pytest.mark.parametrize("function", ["hipModuleLoadData", "hipModuleGetFunction"])
def test_a_failed_load_is_tried_again_by_the_next_call(virtual_gpu, fresh_kernel, function):
    virtual_gpu.fail_next(function, HIP_ERROR_OUT_OF_MEMORY)
    with pytest.raises(RuntimeError) as failure:
        fresh_kernel.gfx1201_sage_attention(*random_inputs())
    assert str(failure.value) == f"{function} failed: out of memory (HIP error 2)."
    assert fresh_kernel.hip_module._hip().hipGetLastError() == 0
    fresh_kernel.gfx1201_sage_attention(*random_inputs())
    assert [record.kernel for record in virtual_gpu.records()] == KERNELS


CALL_BEFORE_AND_AFTER_FORK = """
import os, sys
import torch
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.harness import inputs
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.virtual_gpu import VirtualGpu

with rocm_torch(VirtualGpu.load()) as answers:
    attention = load_hub_kernel().gfx1201_sage_attention
    q, k, v = inputs.normal(1, 40, 2)
    expected = attention(q, k, v)
    if os.fork() == 0:
        try:
            attention(q, k, v)
        except RuntimeError as error:
            print(error)
            print(answers.gpu.launches("gfx1201_sage_statistics"), flush=True)
        os._exit(0)
    os.wait()
    print(torch.equal(attention(q, k, v), expected))
"""


def test_a_process_forked_after_the_first_call_is_refused_and_its_parent_goes_on(virtual_gpu, kernel):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", CALL_BEFORE_AND_AFTER_FORK]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "gfx1201_sage_attention was called before this process was forked, which leaves it no usable GPU: "
        "start workers with multiprocessing's spawn method.",
        "1",
        "True",
    ]


# torch


def test_op_passes_opcheck(kernel):
    q, k, v = random_inputs()
    packed = torch.stack((q, k, v), dim=2).unbind(2)
    for inputs in ((q, k, v), packed):
        torch.library.opcheck(kernel._sage_attention_forward, (*inputs, 0.1))


def test_fullgraph_compilation_gives_the_bits_of_the_eager_call(launched, kernel, fresh_compiler):
    inputs = random_inputs()
    compiled = torch.compile(kernel.gfx1201_sage_attention, fullgraph=True)
    assert torch.equal(compiled(*inputs), kernel.gfx1201_sage_attention(*inputs))
    assert len(launched()) == 2 * len(KERNELS)


def test_one_dynamic_graph_serves_several_lengths(kernel, count_graphs):
    compiled = torch.compile(kernel.gfx1201_sage_attention, fullgraph=True, dynamic=True, backend=count_graphs)
    for sequence in (33, 40, 65):
        inputs = random_inputs(sequence=sequence)
        assert torch.equal(compiled(*inputs), kernel.gfx1201_sage_attention(*inputs))
    assert len(count_graphs.graphs) == 1


COMPILED_REFUSALS = {
    "requires_grad": (ValueError, "computes no gradients, but grad is enabled and required by q"),
    "dtype": (TypeError, "needs bfloat16, got q float32, k float32, v bfloat16"),
}


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("name", COMPILED_REFUSALS)
def test_compiled_calls_are_refused_as_eager_ones(launched, kernel, fresh_compiler, name, fullgraph):
    exception, sentence = COMPILED_REFUSALS[name]
    compiled = torch.compile(kernel.gfx1201_sage_attention, backend="eager", fullgraph=fullgraph)
    # Without a graph break to fall back to, torch reports the refusal as its own exception.
    with pytest.raises(torch._dynamo.exc.Unsupported if fullgraph else exception, match=sentence):
        compiled(*REFUSED_CALLS[name](*random_inputs()))
    assert launched() == []

# SPDX-License-Identifier: MIT
"""How long one call of the op takes on the GPU, prologue included, beside PyTorch's SDPA on the same tensors.

Times are between two events on the GPU's stream, around one call, with caches cleared before it. Which backend of SDPA
ran is not taken from what was asked for: a profile of the very call must show that backend's operator, and no other.
"""

import contextlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

from aiter_op.ops.sage_attention_contract import DTYPE, HEAD_DIM
from integration_tests.harness.hardware_record import NotTimed, Shape, Timing
from integration_tests.harness.kernel_trace import timed_kernels_of
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.reference.contract import RELATIVE_L2, SDPA_ROUNDING

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
StopWatch = Callable[[Callable[[], object]], list[float]]  # microseconds of each of several calls

# [batch, sequence, heads]: two that others have published for this GPU, and MiniMax-H3's 1344 x 768 x 243 frames.
SHAPES = ((1, 4096, 24), (1, 1536, 24), (1, 73923, 56))

SDPA = "scaled_dot_product_attention"
FUSED = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)

# The operator by which each backend shows in a profile.
BACKEND_OF_OPERATOR = {
    "aten::_scaled_dot_product_flash_attention": "FLASH_ATTENTION",
    "aten::_scaled_dot_product_flash_attention_for_cpu": "FLASH_ATTENTION",
    "aten::_scaled_dot_product_efficient_attention": "EFFICIENT_ATTENTION",
    "aten::_scaled_dot_product_cudnn_attention": "CUDNN_ATTENTION",
    "aten::_scaled_dot_product_fused_attention_overrideable": "OVERRIDEABLE",
    "aten::_scaled_dot_product_attention_math": "MATH",
}

WARM_UP_MS, MEASURE_MS, FEWEST_CALLS = 100, 1000, 7

# From SDPA, on N(0, 1) inputs.
APART = RELATIVE_L2["normal"] + SDPA_ROUNDING

# More than any cache of the GPU: zeroed before each call, so that a call does not find its inputs there.
CACHE_BYTES = 256 * 2**20


class UntrustworthyError(RuntimeError):
    """A call ran, but it is not what its time would be taken for."""


@dataclass(frozen=True)
class Profile:
    """What one call did: the backend of SDPA in it, if any, and the kernels that ran on the GPU, with microseconds."""

    sdpa_backend: str | None
    kernels: tuple[tuple[str, float], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.kernels)


def profile_call(call: Callable[[], object]) -> Profile:
    """Runs `call` once under torch's profiler. UntrustworthyError when several backends of SDPA ran."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
        torch.cuda.synchronize()
    with profile(activities=activities) as finished:
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    backends = {BACKEND_OF_OPERATOR[event.name] for event in finished.events() if event.name in BACKEND_OF_OPERATOR}
    if len(backends) > 1:
        raise UntrustworthyError(f"one call of {SDPA} ran several backends: {', '.join(sorted(backends))}")
    return Profile(next(iter(backends), None), tuple(timed_kernels_of(finished)))


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """SDPA on the op's layout, called as diffusers' native backend does."""
    return F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)


def time_call(call: Callable[[], object], measure_ms: float = MEASURE_MS) -> list[float]:
    """Microseconds of each of several calls on the GPU, after warm-up."""
    cache = torch.empty(CACHE_BYTES, dtype=torch.uint8, device="cuda")

    def time_one() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cache.zero_()
        start.record()
        call()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    warm, times = 0.0, []
    while warm < WARM_UP_MS:
        warm += time_one()
    while len(times) < FEWEST_CALLS or sum(times) < measure_ms:
        times.append(time_one())
    return [1000 * ms for ms in times]


@dataclass(frozen=True)
class Bench:
    """The tensors of one shape, [batch, sequence, heads, 128], and the stop-watch for calls on them."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    stop_watch: StopWatch = time_call
    # What the calls did, by name: one profile each.
    profiles: dict[str, Profile] = field(default_factory=dict)

    def time_op(self, name: str, op: Attention, reference: torch.Tensor | None) -> Timing | NotTimed:
        """One delivery's op; `reference` is SDPA's output on the same tensors."""

        def check(seen: Profile, call: Callable[[], torch.Tensor]) -> float | None:
            if seen.sdpa_backend or (seen.kernels and MAIN_KERNEL not in seen.names):
                raise UntrustworthyError(f"{name} ran {seen.sdpa_backend or ', '.join(seen.names)} instead of the op")
            distance = None if reference is None else relative_l2(call(), reference)
            if distance is not None and not (distance <= APART):
                raise UntrustworthyError(f"{name} is {distance:.3f} away from SDPA, more than {APART:.3f}")
            return distance

        return self._time(name, op, check, chosen_by_torch=False)

    def time_sdpa(self, backend: SDPBackend | None = None) -> Timing | NotTimed:
        """SDPA on one backend, or on the one that torch chooses."""

        def check(seen: Profile, call: Callable[[], torch.Tensor]) -> None:
            if seen.sdpa_backend is None or (backend and seen.sdpa_backend != backend.name):
                wanted = backend.name if backend else "a known backend"
                raise UntrustworthyError(f"{SDPA} ran {seen.sdpa_backend}, not {wanted}")

        with sdpa_kernel(backend) if backend else contextlib.nullcontext():
            name = f"{SDPA} ({backend.name})" if backend else SDPA
            return self._time(name, sdpa, check, chosen_by_torch=backend is None)

    def _time(
        self,
        name: str,
        attention: Attention,
        check: Callable[[Profile, Callable[[], torch.Tensor]], float | None],
        chosen_by_torch: bool,
    ) -> Timing | NotTimed:
        def call() -> torch.Tensor:
            return attention(self.q, self.k, self.v)

        shape = tuple(self.q.shape)
        try:
            with torch.no_grad():
                call()
                seen = self.profiles[name] = profile_call(call)
                distance = check(seen, call)
                times = self.stop_watch(call)
        except UntrustworthyError:
            raise
        except RuntimeError as error:
            # A backend that refuses the call, or no memory for it.
            return NotTimed(shape=shape, call=name, reason=str(error).splitlines()[0])
        low, median, high = statistics.quantiles(times, n=4)
        return Timing(
            shape=shape,
            call=name,
            sdpa_backend=seen.sdpa_backend,
            chosen_by_torch=chosen_by_torch,
            kernels=seen.names,
            repeats=len(times),
            median_us=median,
            low_us=low,
            high_us=high,
            relative_l2=distance,
        )


def relative_l2(output: torch.Tensor, reference: torch.Tensor) -> float:
    """As `accuracy.compare`, one head at a time: long sequences in float64 would not fit beside q, k and v."""
    error = norm = 0.0
    for head in range(output.shape[2]):
        a, b = output[:, :, head].double(), reference[:, :, head].double()
        error += float((a - b).square().sum())
        norm += float(b.square().sum())
    return (error / norm) ** 0.5


def bench_of(shape: Shape, device: torch.device, stop_watch: StopWatch = time_call) -> Bench | NotTimed:
    """A bench with N(0, 1) inputs."""
    generator = torch.Generator(device).manual_seed(0)
    try:
        q, k, v = (torch.randn(shape, generator=generator, device=device, dtype=DTYPE) for _ in range(3))
    except torch.OutOfMemoryError as error:
        return NotTimed(shape=shape, call="every call", reason=str(error).splitlines()[0])
    return Bench(q, k, v, stop_watch)


def time_bench(
    bench: Bench, ops: Mapping[str, Attention], backends: Sequence[SDPBackend]
) -> Iterator[Timing | NotTimed]:
    """SDPA as torch chooses it, SDPA on each of `backends`, and every op. UntrustworthyError as for `time_all`."""
    yield bench.time_sdpa()
    for backend in backends:
        yield bench.time_sdpa(backend)
    reference = sdpa(bench.q, bench.k, bench.v) if SDPA in bench.profiles else None
    for name, op in ops.items():
        yield bench.time_op(name, op, reference)


def time_all(ops: Mapping[str, Attention], device: torch.device) -> Iterator[Timing | NotTimed]:
    """Every op and SDPA at every shape of SHAPES. UntrustworthyError when a call is not what it says."""
    for shape in SHAPES:
        bench = bench_of((*shape, HEAD_DIM), device)
        if isinstance(bench, NotTimed):
            yield bench
        else:
            yield from time_bench(bench, ops, FUSED)

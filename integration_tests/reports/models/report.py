# SPDX-License-Identifier: MIT
"""The results as shares and tables. Imports no diffusers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from integration_tests.reports.models.workload import REPLACE_SDPA, Workload


@dataclass(frozen=True)
class Result:
    """One row of the report."""

    name: str
    class_name: str
    component: str
    route: str
    # Whether most of its attention goes through diffusers' dispatcher.
    dispatched: bool
    # Of the full size: FLOPs of attention, and what part of them and of the calls is the kernel's.
    flops: int
    share_on_kernel: float
    calls: int
    calls_on_kernel: int
    # Reason for SDPA -> [calls, share of the FLOPs].
    reasons: dict[str, tuple[int, float]]
    # Of the tiny model on the virtual device: against native, what that may be, and how often the kernel was launched.
    relative_l2: float
    bound: float
    launches: int

    @property
    def agrees(self) -> bool:
        """Within the bound, and without the kernel the bits of native; a launch that changes nothing has not run."""
        return self.relative_l2 <= self.bound and (self.relative_l2 > 0) == (self.launches > 0)


def shares(results: Sequence[Result]) -> dict[str, float | None]:
    """Unweighted means of `share_on_kernel`: over all workloads, and over those behind diffusers' dispatcher."""

    def mean(chosen: list[Result]) -> float | None:
        return sum(result.share_on_kernel for result in chosen) / len(chosen) if chosen else None

    return {
        "share_all": mean(list(results)),
        "share_dispatched": mean([result for result in results if result.dispatched]),
    }


def text(workloads: Sequence[Workload], results: Sequence[Result]) -> str:
    """The summary, the table of results and the table of configurations, as Markdown."""
    means = shares(results)
    dispatched = sum(result.dispatched for result in results)
    lines = [
        f"**{_percent(means['share_all'])} of attention FLOPs on the kernel**, the unweighted mean over {len(results)} "
        "workloads; "
        + (
            f"{_percent(means['share_dispatched'])} over the {dispatched} behind diffusers' dispatcher."
            if dispatched
            else "none of them is behind diffusers' dispatcher."
        ),
        "",
        "| model | switched on by | TFLOP of attention per forward | calls on the kernel | FLOPs on the kernel "
        "| why the rest is not | tiny model: relative L2 against native (launches) |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(result) for result in results]
    lines += [
        "",
        "The configurations and sizes that were traced:",
        "",
        "| model | class | configuration | sizes |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {workload.name} | `{workload.class_name}` | {_settings(workload.full)} | {_settings(workload.full_sizes)} |"
        for workload in workloads
    ]
    return "\n".join(lines)


def _row(result: Result) -> str:
    way = "`sage_hub`"
    if result.route == REPLACE_SDPA:
        way = f"`replace_sdpa` ({'it has masks' if result.dispatched else 'it calls SDPA itself'})"
    reasons = "; ".join(f"{why}: {count} calls, {_percent(share)}" for why, (count, share) in result.reasons.items())
    agreement = f"{result.relative_l2:.4f} ({result.launches})" if result.launches else "equal bits (0)"
    return (
        f"| {result.name} | {way} | {result.flops / 1e12:.2f} | {result.calls_on_kernel} of {result.calls} "
        f"| {_percent(result.share_on_kernel)} | {reasons or 'all is'} | {agreement} |"
    )


def _percent(share: float) -> str:
    """Never 100 or 0 for what is not all or nothing."""
    rounded = f"{100 * share:.1f}"
    if rounded == "100.0" and share < 1:
        return "> 99.9 %"
    if rounded == "0.0" and share > 0:
        return "< 0.1 %"
    return f"{rounded} %"


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in values.items())


def _short(value: Any) -> str:
    if isinstance(value, (list, tuple)) and len(value) > 6:
        return f"[{value[0]}, ... {value[-1]}] ({len(value)})"
    return str(list(value)) if isinstance(value, tuple) else str(value)

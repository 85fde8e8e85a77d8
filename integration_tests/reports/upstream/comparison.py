# SPDX-License-Identifier: MIT
"""The three options side by side. Each row says where its cells come from: this run, the patches, or the design."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from integration_tests.harness.hardware_record import Results
from integration_tests.reports.upstream.evidence import Evidence
from integration_tests.reports.upstream.git_series import FileChange

OPTIONS = ("1: `aiter_sage`", "2: `aiter_sage_hub`", "3: `sage_hub`, ROCm variant")
DELIVERIES = ("aiter", "hub", "sage_hub")

MEASURED, PATCHES, DESIGN, HARDWARE = "this run, emulated", "patches", "design", "hardware"
BUILD_HOST, NOT_SHOWN = "this run, build host", "not shown in this run"


# What both backends refuse; each is a parameter of this test.
REFUSED_ARGUMENT = "test_backend.py::test_unsupported_argument_is_refused_without_checks_enabled"


@dataclass(frozen=True)
class Row:
    """One question, an answer for each option in the order of OPTIONS, and where the answers come from."""

    question: str
    cells: tuple[str, str, str]
    source: str
    proved_by: tuple[str, ...] = ()  # for MEASURED cells in words: the tests whose passing in this run they state


def changed(changes: Sequence[FileChange]) -> str:
    """ "4 files, +181 -0"."""
    added, removed = (sum(getattr(change, key) for change in changes) for key in ("added", "removed"))
    return f"{len(changes)} {'file' if len(changes) == 1 else 'files'}, +{added} -{removed}"


def comparison(
    evidence: Evidence,
    changes: Mapping[str, Sequence[FileChange] | None],
    hub_repository: str,
    sage_repository: str,
    hardware: Results | None,
) -> list[Row]:
    """The rows. `changes` has those of each pull request by its folder; None where it needs a checkout."""
    rows = [
        Row(
            "A user's `set_attention_backend`",
            ('`"aiter_sage"`', '`"aiter_sage_hub"`', '`"sage_hub"`, as on CUDA'),
            DESIGN,
        ),
        *_upstream_rows(changes, hub_repository, sage_repository),
        *_cost_rows(evidence),
        *_reach_rows(),
        *_behaviour_rows(),
        *_evidence_rows(evidence, hardware),
    ]
    proved = {test for result in evidence.suites for test in result.proved}
    return [row if proved.issuperset(row.proved_by) else replace(row, source=NOT_SHOWN) for row in rows]


def _upstream_rows(changes, hub_repository: str, sage_repository: str) -> list[Row]:
    aiter = changes["aiter"]
    in_aiter = changed(aiter) if aiter is not None else "needs `--aiter PATH`"
    return [
        Row(
            "Change in diffusers",
            (changed(changes["diffusers-option1"]), changed(changes["diffusers-option2"]), "none"),
            PATCHES,
        ),
        Row("Change in aiter", (in_aiter, "none", "none"), PATCHES),
        Row(
            "New on the Hub",
            ("nothing", f"`{hub_repository}` (the id is an open question)", f"one folder in `{sage_repository}`"),
            DESIGN,
        ),
        Row(
            "Who must approve",
            (
                "aiter's maintainers, then diffusers'",
                "diffusers' maintainers; Hugging Face for the organisation and, to spare users a setting, its trust",
                f"the owners of `{sage_repository}`",
            ),
            DESIGN,
        ),
        Row(
            "What speaks against it",
            (
                "diffusers dropped its aiter dependency in PR 14436; this adds it back",
                "one more backend and one more Hub publisher to trust",
                "an unsupported call runs SDPA without an error; the package's CUDA builds are compiled extensions, so "
                "this build has a `build.toml` of its own",
            ),
            DESIGN,
        ),
    ]


def _cost_rows(evidence: Evidence) -> list[Row]:
    first = {call.delivery: call for call in evidence.first_calls}
    sizes = evidence.sizes
    return [
        Row(
            "New dependency of the user", ("`amd-aiter` and a ROCm SDK that compiles", "`kernels`", "`kernels`"), DESIGN
        ),
        Row(
            "First call",
            tuple(f"{first[key].what}: {first[key].first_seconds:.2f} s" for key in DELIVERIES),
            BUILD_HOST,
        ),
        Row("Import", tuple(f"{first[key].import_seconds:.1f} s" for key in DELIVERIES), BUILD_HOST),
        Row(
            "Size of what is installed or built",
            (
                f"{_kib(sizes.aiter_module)} module (and aiter)",
                f"{_kib(sizes.hub_variant)} folder",
                f"{_kib(sizes.sage_variant)} folder",
            ),
            BUILD_HOST,
        ),
    ]


def _kib(size: int) -> str:
    return f"{size / 1024:.0f} KiB"


def _reach_rows() -> list[Row]:
    return [
        Row(
            "diffusers",
            ("the release that merges it; the patch fits 0.41.0 to 0.42.1",) * 2 + ("0.41.0 to 0.42.1, unchanged",),
            PATCHES,
        ),
        Row(
            "PyTorch and ROCm",
            (
                "where aiter's JIT can compile: `hipcc` and headers of the ROCm that torch uses",
                "any ROCm build of torch: nothing links against it, HIP loads the code object",
                "as option 2",
            ),
            DESIGN,
        ),
        Row(
            "TheRock and nightly wheels",
            ("untested; needs their compiler", "fits: the variant `torch-rocm` names no versions", "as option 2"),
            DESIGN,
        ),
        Row(
            "Windows",
            (
                "no: aiter's JIT is for Linux",
                "`kernels` picks `torch-rocm` there; loading is untested",
                "as option 2",
            ),
            DESIGN,
        ),
        Row(
            "Other AMD GPUs",
            ("refused, one sentence", "refused, one sentence", "SDPA; a warning when the package is loaded"),
            MEASURED,
            (
                "test_aiter_operator.py::test_another_architecture_is_refused_before_the_module_is_touched",
                "test_hub_loader.py::test_another_architecture_is_refused_before_anything_is_loaded",
                "test_sage_attention_variant.py::test_other_architectures_get_sdpa",
            ),
        ),
    ]


def _behaviour_rows() -> list[Row]:
    return [
        Row(
            "Mask, dropout",
            ("refused", "refused", "refused by diffusers, which sends none; `sageattn` itself: SDPA"),
            MEASURED,
            (
                REFUSED_ARGUMENT,
                "test_sage_hub.py::test_masks_are_refused_by_diffusers",
                "test_sage_attention_variant.py::test_arguments_of_sdpa_mean_what_they_mean_to_sdpa",
            ),
        ),
        Row(
            "Causal, other head dimensions or dtypes, cross-attention, GQA, LSE",
            ("refused, one sentence each", "refused, one sentence each", "SDPA; the log says why, once"),
            MEASURED,
            (
                REFUSED_ARGUMENT,
                "test_backend.py::test_unsupported_input_is_refused_without_checks_enabled",
                "test_sage_attention_variant.py::test_other_calls_have_the_bits_of_sdpa_and_launch_nothing",
                "test_sage_attention_variant.py::test_lse_is_the_natural_log_sum_exp",
            ),
        ),
        Row(
            "MiniMax-H3's autoencoders",
            ("pin both to `native` first", "pin both to `native` first", "nothing to do: SDPA"),
            MEASURED,
            (
                "test_minimax_h3.py::test_pinned_autoencoders_are_unaffected_by_the_transformer_backend",
                "test_minimax_h3.py::test_unpinned_video_autoencoder_is_refused_for_its_head_dim",
                "test_sage_hub.py::test_unpinned_autoencoder_has_the_bits_of_the_native_backend",
            ),
        ),
        Row(
            "Ulysses / ring",
            ("yes / refused", "yes / refused", "yes / on SDPA"),
            MEASURED,
            (
                "test_ulysses.py::test_every_rank_returns_the_output_of_the_single_process",
                "test_ulysses.py::test_ring_attention_is_refused_before_a_launch_or_runs_on_sdpa",
            ),
        ),
        Row(
            "`torch.compile(fullgraph=True)`",
            ("yes", "yes", "yes; the route is part of the graph"),
            MEASURED,
            (
                "test_aiter_operator.py::test_fullgraph_compilation_gives_the_bits_of_the_eager_call",
                "test_hub_loader.py::test_fullgraph_compilation_gives_the_bits_of_the_eager_call",
                "test_sage_attention_variant.py::"
                "test_fullgraph_compilation_gives_the_bits_and_the_route_of_the_eager_call",
            ),
        ),
        Row(
            "Trust setting that a user needs",
            (
                "none",
                "`DIFFUSERS_TRUST_REMOTE_KERNELS=true` until the publisher is trusted",
                "as for the CUDA builds today; until the folder is published `LOCAL_KERNELS`",
            ),
            DESIGN,
        ),
    ]


def _evidence_rows(evidence: Evidence, hardware: Results | None) -> list[Row]:
    suites = {result.suite.name: result for result in evidence.suites}
    longest = max(row.sequence for row in evidence.parity)
    parity = {row.delivery: row for row in evidence.parity if row.sequence == longest}
    return [
        Row(
            "Tests of the delivery",
            tuple(f"{suites[key].passed} passed, {suites[key].skipped} skipped" for key in DELIVERIES),
            MEASURED,
        ),
        Row(
            f"Relative L2 against float64, N(0,1), {longest} rows",
            tuple(f"{parity[key].relative_l2:.4f}" for key in DELIVERIES),
            MEASURED,
        ),
        Row("Tests on hardware", tuple(on_hardware(hardware, key) for key in DELIVERIES), HARDWARE),
    ]


def on_hardware(hardware: Results | None, delivery: str) -> str:
    """What a gfx1201 has shown of a delivery."""
    suites = [suite for suite in hardware.suites if suite.delivery == delivery] if hardware else []
    if not suites:
        return "not yet measured on hardware"
    return f"{'; '.join(suite.summary() for suite in suites)} on {hardware.gpu.name}"

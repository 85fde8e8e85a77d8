# SPDX-License-Identifier: MIT
"""Pull request texts and report: every figure has an origin, and nothing emulated passes for hardware."""

import re
from dataclasses import replace

import jinja2
import pytest

from integration_tests.harness import hardware_record
from integration_tests.harness.pytest_run import CaseReport, Run, read_report
from integration_tests.paths import REPOSITORY
from integration_tests.reports.upstream import comparison, evidence, figures, texts
from integration_tests.reports.upstream.checks import PASSED, Check
from integration_tests.reports.upstream.git_series import FileChange
from integration_tests.reports.upstream.pull_requests import PULL_REQUESTS

DELIVERIES = comparison.DELIVERIES
HUB_TEXTS = ("hub_kernel/pull_requests/hub.md.j2", "hub_kernel/pull_requests/option3.md.j2")
ALL_TEXTS = [*(request.template for request in PULL_REQUESTS), *HUB_TEXTS]
CHANGES = [FileChange("src/one.py", 100, 0), FileChange("docs/two.md", 11, 0)]
NOT_MEASURED = "Not yet measured on hardware."


def found(error=0.0384):
    """Figures that no real run gives, so that a text which states them has them from here."""
    rows = [
        evidence.Parity(key, sequence, 2, 0.98765, error, 0.0321, 0.0023, 0.0399)
        for key in DELIVERIES
        for sequence in (14, 4096)
    ]
    return evidence.Evidence(
        machine=evidence.Machine("Linux x86_64", 2, "3.11.7", "2.13.0", "0.42.1", "0.17.2", "0123456789ab"),
        suites=tuple(evidence.SuiteResult(suite, 4321, 7, 0, "4321 passed, 7 skipped") for suite in evidence.SUITES),
        parity=tuple(rows),
        first_calls=tuple(evidence.FirstCall(key, "how", 1.25, 2.5, 0.01) for key in DELIVERIES),
        minimax_h3={"relative_l2": 0.0271, "cosine": 0.9991, "launches": 3, "attention_calls": 3},
        sizes=evidence.Sizes(20480, 81920, 409600, 102400),
    )


def measured():
    """A record as a gfx1201 would write it; the times are of no machine."""
    timing = hardware_record.Timing(
        shape=(1, 4096, 24, 128),
        call="gfx1201_sage_attention (hub)",
        sdpa_backend=None,
        chosen_by_torch=False,
        kernels=("gfx1201_sage_attention_main",),
        repeats=10,
        median_us=1234.0,
        low_us=1200.0,
        high_us=1300.0,
        relative_l2=0.04,
    )
    passing = hardware_record.Test(name="t", outcome="passed")
    suites = [
        hardware_record.Suite(name=key, delivery=key, command="pytest", tests=(passing,), seconds=1.0)
        for key in DELIVERIES
    ]
    return hardware_record.Results(
        measured_on="gfx1201",
        date="2026-01-01T00:00:00Z",
        commit=None,
        gpu=hardware_record.Gpu(name="A Radeon", architecture="gfx1201", memory_bytes=1, compute_units=64),
        versions=hardware_record.Versions(
            python="3.12", torch="2.13.0+rocm7.2", rocm="7.2", hip_runtime=70200000, packages={}, settings={}
        ),
        suites=tuple(suites),
        timings=(timing,),
    )


def context(run, hardware=None):
    return {
        "run": run,
        "suites": {result.suite.name: result for result in run.suites},
        "parity": {key: [row for row in run.parity if row.delivery == key] for key in DELIVERIES},
        "h3": run.minimax_h3,
        "sizes": run.sizes,
        "hardware": hardware,
        "hub_repository": "organisation/kernel",
        "hub_version": 1,
        "sage_repository": "owner/sage",
        "sage_version": 3,
        "aiter_base": "a release",
        "title": "A title",
        "changes": CHANGES,
        "changed": comparison.changed(CHANGES),
        "checks": [Check("lint", PASSED, "fine")],
        "is_release": True,
    }


@pytest.mark.parametrize("template", ALL_TEXTS)
def test_every_text_has_what_upstream_asks_for(template):
    text = texts.render(template, **context(found()))
    assert NOT_MEASURED in text
    assert re.search(r"Why not (the other options|another way)|id is an open question", text)
    assert "with the help of an AI agent" in text and "SENDER:" in text
    assert "$ python -m pytest" in text and "4321 passed, 7 skipped" in text
    assert "| 4096 | 0.0384 | 0.98765 |" in text
    assert "virtual gfx1201" in text


@pytest.mark.parametrize("template", [template for template in ALL_TEXTS if not template.endswith("hub.md.j2")])
def test_every_proposal_has_a_place_for_the_coordination_link(template):
    assert "**Coordination:** <!-- LINK:" in texts.render(template, **context(found()))


@pytest.mark.parametrize("template", ALL_TEXTS)
def test_measured_results_replace_the_words_that_there_are_none(template):
    text = texts.render(template, **context(found(), measured()))
    assert NOT_MEASURED not in text
    assert "Measured on A Radeon (gfx1201), ROCm 7.2, torch 2.13.0+rocm7.2" in text and "1234 us" in text


@pytest.mark.parametrize("template", ALL_TEXTS)
def test_without_hardware_no_text_states_a_time_or_speed_of_a_gpu(template):
    text = texts.render(template, **context(found()))
    # Published figures name their source, in one place.
    text = re.sub(r"Published figures of others.*", "", text)
    assert not re.search(r"\d\s*(us|µs|ms|TFLOP/s|TOPS|x faster|it/s)\b", text)


def test_a_missing_figure_is_an_error_not_an_empty_place():
    incomplete = context(found())
    del incomplete["parity"]
    with pytest.raises(jinja2.UndefinedError):
        texts.render(ALL_TEXTS[0], **incomplete)


def report(run, hardware=None, aiter=CHANGES):
    changes = {"aiter": aiter, "diffusers-option1": CHANGES, "diffusers-option2": CHANGES}
    rows = comparison.comparison(run, changes, "organisation/kernel", "owner/sage", hardware)
    return texts.render(
        "integration_tests/reports/upstream/templates/report.md.j2",
        options=comparison.OPTIONS,
        rows=rows,
        checks_by_title={"One": [Check("lint", PASSED, "fine")], "Two": []},
        deliveries_agree=True,
        **context(run, hardware),
    )


def test_the_comparison_answers_each_question_for_each_option_and_says_from_where():
    rows = comparison.comparison(
        found(), {request.folder: CHANGES for request in PULL_REQUESTS}, "organisation/kernel", "owner/sage", None
    )
    sources = {comparison.MEASURED, comparison.PATCHES, comparison.DESIGN, comparison.HARDWARE, comparison.BUILD_HOST}
    sources |= {comparison.NOT_SHOWN}  # no test ran behind found()
    assert len({row.question for row in rows}) == len(rows) >= 20
    assert all(len(row.cells) == 3 and all(row.cells) and row.source in sources for row in rows)
    assert [row.cells for row in rows if row.question == "Tests on hardware"] == [("not yet measured on hardware",) * 3]


def test_the_report_counts_lines_from_the_patches_and_errors_from_the_run():
    text = report(found(0.0456))
    assert "2 files, +111 -0" in text and "0.0456" in text
    assert "needs `--aiter PATH`" in report(found(), aiter=None)


def test_the_page_is_self_contained(tmp_path):
    run = found()
    figures.draw_flow(tmp_path / "flow.png")
    figures.plot_error(run.parity, tmp_path / "error_by_length.png")
    page = texts.page(report(run), tmp_path)
    assert page.count("data:image/png;base64,") == 2
    assert "<table>" in page and not re.search(r'(src|href)="(?!data:)', page)


def test_a_suite_without_a_report_counts_nothing(tmp_path):
    result = evidence.result_of(evidence.SUITES[0], Run(read_report(tmp_path / "none.xml"), ""))
    assert (result.passed, result.skipped, result.failed, result.proved) == (0, 0, 0, ())


def test_a_suite_counts_what_pytest_reports_and_proves_what_passed_in_every_case():
    outcomes = [("a[1]", "passed"), ("a[2]", "skipped"), ("b[1]", "passed"), ("b[2]", "failed"), ("c", "error")]
    tests = tuple(CaseReport(f"folder.test_x::{name}", outcome) for name, outcome in outcomes)
    result = evidence.result_of(evidence.SUITES[0], Run(tests, "last"))
    assert (result.passed, result.skipped, result.failed) == (2, 1, 2)
    assert result.proved == ("test_x.py::a",)


def test_a_row_in_words_is_not_claimed_when_a_test_behind_it_did_not_pass():
    def sources(proved):
        suites = [replace(result, proved=proved) for result in found().suites]
        changes = {request.folder: CHANGES for request in PULL_REQUESTS}
        rows = comparison.comparison(
            replace(found(), suites=suites), changes, "organisation/kernel", "owner/sage", None
        )
        return {row.question: (row.source, row.proved_by) for row in rows}

    proved_by = {test for _, tests in sources(()).values() for test in tests}
    assert len(proved_by) >= 10
    assert all(source == comparison.NOT_SHOWN for source, tests in sources(()).values() if tests)
    assert all(source != comparison.NOT_SHOWN for source, _ in sources(tuple(proved_by)).values())
    one_less = tuple(proved_by - {"test_hub_loader.py::test_another_architecture_is_refused_before_anything_is_loaded"})
    assert sum(source == comparison.NOT_SHOWN for source, _ in sources(one_less).values()) == 1


def test_every_row_in_words_names_tests_that_exist():
    changes = {request.folder: CHANGES for request in PULL_REQUESTS}
    rows = comparison.comparison(found(), changes, "organisation/kernel", "owner/sage", None)
    named = {test for row in rows for test in row.proved_by}
    files = [*(REPOSITORY / "integration_tests").rglob("test_*.py")]
    defined = {
        f"{path.name}::{name}"
        for path in files
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    assert named and named <= defined
    # Cells that are no figures of the run, but its outcome in words.
    in_words = [row for row in rows if row.source in (comparison.MEASURED, comparison.NOT_SHOWN)]
    without = {row.question for row in in_words if not row.proved_by}
    assert (
        len(without) == 2
        and any("Relative L2" in question for question in without)
        and "Tests of the delivery" in without
    )


def test_a_suite_in_which_no_test_runs_is_no_evidence():
    with pytest.raises(RuntimeError, match="did not pass"):
        evidence.run_suite(evidence.SUITES[-1], ["-k", "no_such_test", "--collect-only"])

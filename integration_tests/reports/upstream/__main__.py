# SPDX-License-Identifier: MIT
"""Writes dist/upstream/: what maintainers decide by and what a contributor sends. Nothing is pushed or uploaded.

Runs the tests first; every figure in the texts is from them. With --aiter and --diffusers the series become branches
of those checkouts; without, they are made on the releases that PyPI has, as far as those can hold them.
"""

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from aiter_op import recipe as aiter_recipe
from diffusers_patch.edits import EditError
from diffusers_patch.recipes.hub_backend import hub_kernel
from diffusers_patch.tests import releases
from hub_kernel.build_code_object import CODE_OBJECT_NAME
from integration_tests.harness import aiter_delivery, hardware_record, hub_delivery
from integration_tests.harness import variant_delivery as loaded_variant
from integration_tests.harness.progress import Progress
from integration_tests.paths import DIST, DOCS
from integration_tests.reports import demo
from integration_tests.reports.upstream import checks, evidence, figures, texts
from integration_tests.reports.upstream.checks import Check
from integration_tests.reports.upstream.comparison import OPTIONS, changed, comparison
from integration_tests.reports.upstream.git_series import (
    UNKNOWN_AUTHOR,
    Series,
    SeriesError,
    author,
    check_checkout,
    make_series,
    repository_of,
)
from integration_tests.reports.upstream.pull_requests import PULL_REQUESTS, PullRequest

OUT = DIST / "upstream"
FLOW, ERROR_BY_LENGTH = "flow.png", "error_by_length.png"
BACKENDS = {"diffusers-option1": "aiter_sage", "diffusers-option2": "aiter_sage_hub"}
DIFFUSERS, AITER = "huggingface/diffusers", "ROCm/aiter"


@dataclass
class Made:
    """A pull request as far as it could be made: the series and its checks, or neither."""

    request: PullRequest
    series: Series | None = None
    checks: list[Check] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(prog="nox -s upstream_prs --", description=__doc__)
    parser.add_argument("--aiter", type=Path, help="a git checkout of ROCm/aiter's main")
    parser.add_argument("--diffusers", type=Path, help="a git checkout of huggingface/diffusers")
    parser.add_argument("--docs", action="store_true", help="also replace the report's two pictures in docs/")
    options = parser.parse_args()
    checkouts = {AITER: options.aiter, DIFFUSERS: options.diffusers}
    try:
        for request in PULL_REQUESTS:
            if checkout := checkouts[request.upstream]:
                check_checkout(checkout, request.branch)
        hardware = hardware_record.load_tested()
        progress = Progress(5)
        found = gather(progress, options.aiter)
        with tempfile.TemporaryDirectory() as scratch:
            out = Path(scratch) / "upstream"
            with progress.step("make the series and try them on upstream"):
                made = [make(request, checkouts[request.upstream], out, Path(scratch)) for request in PULL_REQUESTS]
            with progress.step("write the texts and the comparison"):
                write_all(out, found, made, hardware, options.aiter)
            shutil.rmtree(OUT, ignore_errors=True)
            shutil.copytree(out, OUT)
        if options.docs:
            for picture in (FLOW, ERROR_BY_LENGTH):
                shutil.copy(OUT / picture, DOCS)
    except (SeriesError, EditError, hardware_record.ResultsError, RuntimeError) as error:
        print(f"{error}\n{OUT} was not changed.", file=sys.stderr)
        return 1
    return summary(made, checkouts)


def gather(progress: Progress, aiter: Path | None) -> evidence.Evidence:
    """Runs everything that the texts cite."""
    environment = {"AITER_TREE": str(aiter.resolve())} if aiter else {}
    with progress.step(f"run the tests that the texts cite ({len(evidence.SUITES)} suites)"):
        suites = []
        for suite in evidence.SUITES:
            print(f"      {suite.command}", flush=True)
            suites.append(evidence.run_suite(suite, **environment))
    with progress.step("measure error and first call of each delivery"):
        measured = [evidence.measure(delivery, **environment) for delivery in ("aiter", "hub", "sage_hub")]
    with progress.step("run MiniMax-H3"):
        h3 = evidence.minimax_h3(demo.RESULT)
    hub, sage = hub_delivery.built_variant(), loaded_variant.built_variant()
    (module,) = aiter_delivery.patched_aiter().jit.glob(f"{aiter_recipe.MODULE}.so")
    sizes = evidence.Sizes(
        code_object=(hub / CODE_OBJECT_NAME).stat().st_size,
        hub_variant=evidence.folder_bytes(hub),
        aiter_module=module.stat().st_size,
        sage_variant=evidence.folder_bytes(sage),
    )
    return evidence.Evidence(
        machine=evidence.this_machine(),
        suites=tuple(suites),
        parity=tuple(row for rows, _ in measured for row in rows),
        first_calls=tuple(call for _, call in measured),
        minimax_h3=h3,
        sizes=sizes,
    )


def make(request: PullRequest, checkout: Path | None, out: Path, scratch: Path) -> Made:
    """The series of one pull request, with its checks; for aiter without a checkout, what goes in by hand."""
    if request.upstream == AITER:
        if checkout is None:
            write_aiter_by_hand(out / request.folder)
            return Made(request)
        series = _series(request, checkout, out / request.folder / "patches")
        return Made(request, series, checks.check_aiter(series))
    released = _released_repositories(scratch)
    newest = released[releases.SERVED[-1]]
    # The lines round an insertion differ between main and the releases, so that each has patches of its own.
    on_release = _series(request, newest, out / request.folder / ("release-patches" if checkout else "patches"))
    series = _series(request, checkout, out / request.folder / "patches") if checkout else on_release
    return Made(request, series, checks.check_diffusers(series, on_release, released, BACKENDS[request.folder]))


def _series(request: PullRequest, repository: Path, out: Path) -> Series:
    repository = repository.resolve()
    name, _ = author(repository)
    return make_series(repository, request.branch, request.commits, lambda tree: request.edit(tree, name), out)


def _released_repositories(scratch: Path) -> dict[str, Path]:
    """A git repository of each release's source distribution."""
    repositories = {}
    for version in releases.SERVED:
        repositories[version] = scratch / f"diffusers-{version}"
        if not repositories[version].exists():
            source = releases.FOLDER / f"diffusers-{version}"
            repository_of(source, repositories[version], f"diffusers {version}")
    return repositories


def write_aiter_by_hand(folder: Path) -> None:
    """What goes into aiter, without a series: new files, lines for existing files, and a diff for PyPI's release."""
    main = aiter_recipe.main_recipe()
    for new_file in main.new_files:
        path = folder / "files" / new_file.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(new_file.text, "utf-8")
    insertions = ["# Lines that go into files of ROCm/aiter's main\n"]
    for edit in main.edits:
        insertions.append(f"## `{edit.file}`\n\n{edit.reason[0].upper()}{edit.reason[1:]}. {edit.place.capitalize()}")
        insertions.append(f"```\n{edit.anchor}\n```\n\ninsert\n\n```\n{edit.text}```\n")
    (folder / "insertions.md").write_text("\n\n".join(insertions), "utf-8")
    release = aiter_delivery.base_tree()
    (folder / "release.diff").write_text(aiter_recipe.plan_for(release).diff(), "utf-8")


def write_all(
    out: Path,
    found: evidence.Evidence,
    made: list[Made],
    hardware: hardware_record.Results | None,
    aiter: Path | None,
) -> None:
    """Texts beside each series, the two Hub folders, evidence and report."""
    hub_repository, hub_version = hub_kernel()
    sage = loaded_variant.general_config()
    parity = {key: [row for row in found.parity if row.delivery == key] for key in ("aiter", "hub", "sage_hub")}
    context = {
        "run": found,
        "suites": {result.suite.name: result for result in found.suites},
        "parity": parity,
        "h3": found.minimax_h3,
        "sizes": found.sizes,
        "hardware": hardware,
        "hub_repository": hub_repository,
        "hub_version": hub_version,
        "sage_repository": sage["hub"]["repo-id"],
        "sage_version": sage["version"],
        "aiter_base": "the checkout that the series was made on" if aiter else "PyPI's release with the recipe applied",
    }
    for one in made:
        series = one.series
        text = texts.render(
            one.request.template,
            title=one.request.title,
            changes=series.changes if series else None,
            changed=changed(series.changes) if series else "",
            checks=one.checks,
            is_release=series is not None and series.repository.is_relative_to(out.parent),
            **context,
        )
        (out / one.request.folder / "PULL_REQUEST.md").write_text(text, "utf-8")
    _write_hub_folder(out / "hub", hub_delivery.built_variant(), "PUBLISHING.md", "hub", context)
    _write_hub_folder(out / "option3", loaded_variant.built_variant(), "PROPOSAL.md", "option3", context)
    found.save(out / "evidence.json")
    write_report(out, found, made, hardware, context)


def _write_hub_folder(folder: Path, variant: Path, name: str, template: str, context: dict) -> None:
    shutil.copytree(variant.parents[1], folder / "repository")
    (folder / name).write_text(texts.render(f"hub_kernel/pull_requests/{template}.md.j2", **context), "utf-8")


def write_report(out: Path, found: evidence.Evidence, made: list[Made], hardware, context: dict) -> None:
    """report.md, report.html and the two pictures."""
    figures.draw_flow(out / FLOW)
    figures.plot_error(found.parity, out / ERROR_BY_LENGTH)
    rounded = [
        [(row.sequence, round(row.relative_l2, 4), round(row.max_error, 4)) for row in rows]
        for rows in context["parity"].values()
    ]
    changes = {one.request.folder: one.series.changes if one.series else None for one in made}
    report = texts.render(
        "integration_tests/reports/upstream/templates/report.md.j2",
        options=OPTIONS,
        rows=comparison(found, changes, context["hub_repository"], context["sage_repository"], hardware),
        checks_by_title={one.request.title: one.checks for one in made},
        deliveries_agree=rounded[0] == rounded[1] == rounded[2],
        **context,
    )
    (out / "report.md").write_text(report, "utf-8")
    (out / "report.html").write_text(texts.page(report, out), "utf-8")


def summary(made: list[Made], checkouts: dict[str, Path | None]) -> int:
    """Says what was made and what failed; the exit status."""
    failed = 0
    for one in made:
        folder = OUT / one.request.folder
        if one.series is None:
            print(f"\n{folder}: no series, PyPI's aiter cannot hold it; give --aiter a checkout of main")
            continue
        checkout = checkouts[one.request.upstream]
        where = f"branch {one.series.branch} of {checkout}" if checkout else "made on a release"
        print(f"\n{folder}: {changed(one.series.changes)}, {len(one.series.patches)} patches, {where}")
        for check in one.checks:
            print(f"  {check.outcome:8} {check.what}: {check.detail}")
            failed += check.outcome == checks.FAILED
        if one.series.author == UNKNOWN_AUTHOR:
            print("  git knows no user.name and user.email: set them and run again before you send these patches")
    print(f"\n{OUT / 'report.html'}\n{failed} checks failed." if failed else f"\n{OUT / 'report.html'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

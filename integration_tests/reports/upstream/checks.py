# SPDX-License-Identifier: MIT
"""What upstream's own CI and reviewers would find first, tried on every series before anybody sends it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diffusers_patch.tests import releases
from hub_kernel.build_code_object import Compiler, compile_code_object
from integration_tests.reports.upstream.git_series import Series, SeriesError, apply_patches, git, worktree

PASSED, FAILED, NOT_RUN = "passed", "FAILED", "not run"


@dataclass(frozen=True)
class Check:
    """One check of one series: what, how it ended, and the last line of its output or the reason."""

    what: str
    outcome: str
    detail: str


def run(what: str, command: Sequence[str | Path], at: Path, **environment: str) -> Check:
    """Runs a command; its last line of output is the detail."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=at,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if done.returncode:
        return Check(what, FAILED, "\n".join(lines[-30:]) or f"exit status {done.returncode}")
    return Check(what, PASSED, lines[-1] if lines else "no output")


def applies(what: str, repository: Path, commit: str, patches: Sequence[Path]) -> Check:
    """`git am` on a fresh checkout of `commit`."""
    with worktree(repository, commit) as tree:
        try:
            apply_patches(tree, patches)
        except SeriesError as error:
            return Check(what, FAILED, str(error))
    return Check(what, PASSED, ", ".join(patch.name for patch in patches))


def check_diffusers(series: Series, on_release: Series, released: dict[str, Path], backend: str) -> list[Check]:
    """Checks of a diffusers series and of the one made on a release, which may be the same.

    `released` has a git repository for each release, made of its source distribution.
    """
    checks = [
        applies(f"git am on {version}", repository, "main", on_release.patches)
        for version, repository in released.items()
    ]
    if series is not on_release:
        checks.append(applies("git am on the checkout", series.repository, series.base, series.patches))
    with worktree(series.repository, series.branch) as tree:
        files = [change.file for change in series.changes if change.file.endswith(".py")]
        ruff = releases.RUFF_FOLDER / "bin" / "ruff"
        checks.append(run(f"{releases.RUFF} check", [ruff, "check", "--no-cache", *files], tree))
        checks.append(run(f"{releases.RUFF} format", [ruff, "format", "--no-cache", "--check", *files], tree))
        member = backend.upper()
        script = f"from diffusers.models.attention_dispatch import AttentionBackendName as A; print(A.{member}.value)"
        checks.append(run("import", [sys.executable, "-c", script], tree, PYTHONPATH=str(tree / "src")))
        test_file = Path("tests") / "models" / "test_attention_dispatch.py"
        what = "upstream's tests without hardware"
        if (tree / test_file).is_file():
            pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test_file, "-k", "AiterSage"]
            checks.append(run(what, pytest, tree, PYTHONPATH=str(tree / "src")))
        else:
            checks.append(Check(what, NOT_RUN, "a source distribution has no such test; give --diffusers a checkout"))
    return checks


def check_aiter(series: Series) -> list[Check]:
    """Checks of the aiter series, which is always made on a checkout.

    Its import, its builds and its test without hardware are tests of the suite, run on the same checkout.
    """
    checks = [applies("git am on the checkout", series.repository, series.base, series.patches)]
    with worktree(series.repository, series.branch) as tree:
        files = [change.file for change in series.changes]
        python = [file for file in files if file.endswith(".py")]
        headers = [file for file in files if file.endswith(".h")]
        checks.append(run("black", [sys.executable, "-m", "black", "--check", *python], tree))
        checks.append(run("ruff 0.16.0", [sys.executable, "-m", "ruff", "check", "--no-cache", *python], tree))
        command = ["clang-format", "--dry-run", "--Werror", "--style=file", "--verbose", *headers]
        checks.append(run("clang-format 18", command, tree))
        checks.append(_only_ascii_is_added(series, tree))
        checks.append(_same_machine_code(tree / "csrc" / "include"))
    return checks


def _only_ascii_is_added(series: Series, tree: Path) -> Check:
    """aiter's pre-commit hook turns anything else into question marks."""
    added = git("diff", series.base, series.branch, at=tree).splitlines()
    wrong = [line for line in added if line.startswith("+") and not line.isascii()]
    return Check("ASCII only", FAILED if wrong else PASSED, wrong[0] if wrong else "all added lines")


def _same_machine_code(headers: Path) -> Check:
    """The series has the headers in aiter's layout; they must still be the kernel that was tested."""
    what, compiler = "same code object as the one tested", Compiler.find("ziglang")
    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs = Path(scratch) / "ours", Path(scratch) / "theirs"
        compile_code_object(compiler, ours)
        compile_code_object(compiler, theirs, extra_flags=(f"-I{headers}",))
        same = ours.read_bytes() == theirs.read_bytes()
    return Check(what, PASSED if same else FAILED, "byte for byte" if same else "the code objects differ")

# SPDX-License-Identifier: MIT
"""A patch series as git commits: a branch in a repository, its `git format-patch` files, and trees to try them on.

A contributor's checkout gains one branch per series and is otherwise left alone: all work is done in a temporary
worktree. Nothing is ever pushed.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Who the commits are by where git does not know: every patch then says that its sender has to put a name there.
UNKNOWN_AUTHOR = ("Contributor", "contributor@example.invalid")


class SeriesError(Exception):
    """A series cannot be made; the text says why and what to do. The checkout is as it was."""


@dataclass(frozen=True)
class Commit:
    """One commit of a series: its subject, its body, and which of the changed files it takes."""

    subject: str
    body: str
    takes: Callable[[str], bool]


@dataclass(frozen=True)
class FileChange:
    """Lines that a series adds to and removes from one file of upstream."""

    file: str
    added: int
    removed: int


@dataclass(frozen=True)
class Series:
    """A finished series: where its branch is, who its commits are by, its patches in order, and what they change."""

    repository: Path
    author: tuple[str, str]
    base: str
    branch: str
    patches: tuple[Path, ...]
    changes: tuple[FileChange, ...]


def git(*arguments: str, at: Path, check: bool = True) -> str:
    """Runs git in `at` and returns its output without the last newline. SeriesError with git's words if it fails."""
    name, mail = author(at)
    identity = {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": mail,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": mail,
    }
    # Hooks belong to the contributor's own work; upstream's linters are run as checks instead.
    command = ["git", "-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", *arguments]
    done = subprocess.run(command, cwd=at, env=os.environ | identity, capture_output=True, text=True)
    if check and done.returncode:
        raise SeriesError(f"`git {' '.join(arguments)}` failed in {at}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.rstrip("\n")


def author(at: Path) -> tuple[str, str]:
    """Name and mail that git has for `at`, or UNKNOWN_AUTHOR."""
    found = [
        subprocess.run(["git", "config", key], cwd=at, capture_output=True, text=True).stdout.strip()
        for key in ("user.name", "user.email")
    ]
    return (found[0], found[1]) if all(found) else UNKNOWN_AUTHOR


def repository_of(tree: Path, target: Path, message: str) -> Path:
    """Makes `target` a git repository whose only commit is `tree` (a released source distribution)."""
    shutil.copytree(tree, target, ignore=shutil.ignore_patterns("*.egg-info", "PKG-INFO"))
    git("init", "--quiet", "--initial-branch=main", at=target)
    git("add", "--all", "--force", at=target)
    git("commit", "--quiet", "--message", message, at=target)
    return target


def check_checkout(repository: Path, branch: str) -> None:
    """SeriesError if `repository` is no git checkout or has `branch` already, which may hold somebody's work."""
    if not (repository / ".git").exists():
        raise SeriesError(f"{repository} is no git checkout; clone the upstream repository and name its folder")
    if git("branch", "--list", branch, at=repository):
        raise SeriesError(
            f"{repository} already has a branch {branch}; keep its work under another name "
            f"(git branch -m {branch} NEW) or delete it (git branch -D {branch})"
        )


@contextmanager
def worktree(repository: Path, commit: str) -> Iterator[Path]:
    """A temporary checkout of `commit`, detached; removed afterwards, whatever was done in it."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / repository.name
        git("worktree", "add", "--quiet", "--detach", str(folder), commit, at=repository)
        try:
            yield folder
        finally:
            git("worktree", "remove", "--force", str(folder), at=repository)


def make_series(
    repository: Path, branch: str, commits: Sequence[Commit], edit: Callable[[Path], None], out: Path
) -> Series:
    """Runs `edit` on a checkout of HEAD, commits what it changed on `branch`, writes patches to `out`.

    Commits that take no changed file are left out. Raises SeriesError, leaving no branch behind, when a changed file
    belongs to no commit or the branch exists.
    """
    check_checkout(repository, branch)
    base = git("rev-parse", "HEAD", at=repository)
    with worktree(repository, base) as tree:
        edit(tree)
        git("add", "--all", at=tree)
        changed = git("diff", "--cached", "--name-only", at=tree).splitlines()
        git("reset", "--quiet", at=tree)
        left = {file for file in changed if not any(commit.takes(file) for commit in commits)}
        if left:
            raise SeriesError(f"no commit of {branch} takes {', '.join(sorted(left))}")
        git("switch", "--quiet", "--create", branch, at=tree)
        try:
            for commit in commits:
                files = [file for file in changed if commit.takes(file)]
                if files:
                    git("add", "--", *files, at=tree)
                    git("commit", "--quiet", "--message", commit.subject, "--message", commit.body, at=tree)
        except SeriesError:
            git("switch", "--quiet", "--detach", at=tree)
            git("branch", "--quiet", "-D", branch, at=tree)
            raise
    out.mkdir(parents=True)
    git("format-patch", "--quiet", "--output-directory", str(out.resolve()), f"{base}..{branch}", at=repository)
    numbers = git("diff", "--numstat", base, branch, at=repository).splitlines()
    changes = (line.split("\t") for line in numbers)
    return Series(
        repository,
        author(repository),
        base,
        branch,
        tuple(sorted(out.glob("*.patch"))),
        tuple(FileChange(file, int(added), int(removed)) for added, removed, file in changes),
    )


def apply_patches(tree: Path, patches: Sequence[Path]) -> None:
    """`git am` of every patch on the checkout `tree`. SeriesError with git's words if one does not apply."""
    git("am", "--quiet", *(str(patch.resolve()) for patch in patches), at=tree)

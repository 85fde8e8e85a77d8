# SPDX-License-Identifier: MIT
"""Series in a contributor's checkout: what they add to it, and what they leave alone."""

import subprocess

import pytest

from integration_tests.reports.upstream.git_series import (
    UNKNOWN_AUTHOR,
    Commit,
    FileChange,
    SeriesError,
    apply_patches,
    git,
    make_series,
    repository_of,
    worktree,
)

BRANCH = "our-change"
COMMITS = (
    Commit("Change the source", "Why.", lambda file: file.startswith("src/")),
    Commit("Document it", "How.", lambda file: file.startswith("docs/")),
)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A git repository with one commit, a file that is not committed, and no identity."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    tree = tmp_path / "tree"
    for name, text in {"src/code.py": "a = 1\n", "docs/page.md": "# Page\n"}.items():
        (tree / name).parent.mkdir(parents=True)
        (tree / name).write_text(text)
    repository = repository_of(tree, tmp_path / "checkout", "as released")
    (repository / "notes.txt").write_text("somebody's own\n")
    return repository


def edit(tree):
    (tree / "src" / "code.py").write_text("a = 1\nb = 2\n")
    (tree / "docs" / "page.md").write_text("# Page\n\nText.\n")


def state(repository):
    return git("status", "--porcelain", at=repository), git("rev-parse", "HEAD", at=repository)


def test_a_series_adds_one_branch_and_nothing_else(checkout, tmp_path):
    before = state(checkout)
    series = make_series(checkout, BRANCH, COMMITS, edit, tmp_path / "out")
    assert state(checkout) == before
    assert git("branch", "--format=%(refname:short)", at=checkout).splitlines() == ["main", BRANCH]
    assert len(git("worktree", "list", at=checkout).splitlines()) == 1
    assert (checkout / "src" / "code.py").read_text() == "a = 1\n"
    assert set(series.changes) == {FileChange("src/code.py", 1, 0), FileChange("docs/page.md", 2, 0)}


def test_the_patches_are_the_commits_in_order_and_rebuild_the_branch(checkout, tmp_path):
    series = make_series(checkout, BRANCH, COMMITS, edit, tmp_path / "out")
    assert [patch.name for patch in series.patches] == ["0001-Change-the-source.patch", "0002-Document-it.patch"]
    with worktree(checkout, series.base) as tree:
        apply_patches(tree, series.patches)
        assert git("diff", BRANCH, at=tree) == ""


def test_commits_without_a_changed_file_are_left_out(checkout, tmp_path):
    series = make_series(
        checkout, BRANCH, COMMITS, lambda tree: (tree / "src" / "code.py").write_text(""), tmp_path / "out"
    )
    assert len(series.patches) == 1


def test_a_branch_that_exists_is_refused_and_kept(checkout, tmp_path):
    git("branch", BRANCH, at=checkout)
    before = git("rev-parse", BRANCH, at=checkout)
    with pytest.raises(SeriesError, match=f"already has a branch {BRANCH}; keep its work under another name"):
        make_series(checkout, BRANCH, COMMITS, edit, tmp_path / "out")
    assert git("rev-parse", BRANCH, at=checkout) == before and not (tmp_path / "out").exists()


def test_a_file_that_no_commit_takes_is_refused_and_leaves_no_branch(checkout, tmp_path):
    with pytest.raises(SeriesError, match="no commit of our-change takes tests/new.py"):
        make_series(checkout, BRANCH, COMMITS, add_a_test, tmp_path / "out")
    assert git("branch", "--list", BRANCH, at=checkout) == ""


def add_a_test(tree):
    (tree / "tests").mkdir()
    (tree / "tests" / "new.py").write_text("")


def test_a_folder_that_is_no_checkout_is_told_so(tmp_path):
    with pytest.raises(SeriesError, match="is no git checkout; clone the upstream repository"):
        make_series(tmp_path, BRANCH, COMMITS, edit, tmp_path / "out")


def test_patches_that_do_not_fit_are_reported_in_gits_words(checkout, tmp_path):
    series = make_series(checkout, BRANCH, COMMITS, edit, tmp_path / "out")
    with worktree(checkout, series.base) as tree:
        (tree / "src" / "code.py").write_text("z = 0\n")
        git("commit", "--quiet", "--all", "--message", "diverge", at=tree)
        with pytest.raises(SeriesError, match="patch does not apply"):
            apply_patches(tree, series.patches)


def test_commits_are_by_the_checkouts_author_and_else_by_nobody(checkout, tmp_path):
    assert make_series(checkout, BRANCH, COMMITS, edit, tmp_path / "unknown").author == UNKNOWN_AUTHOR
    subprocess.run(["git", "branch", "-D", BRANCH], cwd=checkout, check=True, capture_output=True)
    for key, value in (("user.name", "A Sender"), ("user.email", "sender@example.com")):
        git("config", key, value, at=checkout)
    series = make_series(checkout, BRANCH, COMMITS, edit, tmp_path / "known")
    assert series.author == ("A Sender", "sender@example.com")
    assert "From: A Sender <sender@example.com>" in series.patches[0].read_text()

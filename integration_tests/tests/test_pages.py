# SPDX-License-Identifier: MIT
"""Pages for people: links lead somewhere, files and commands that they name exist, Python in them runs."""

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from integration_tests.paths import DOCS, REPOSITORY, requirement

PAGES = sorted([*DOCS.glob("*.md"), *REPOSITORY.glob("*.md"), *REPOSITORY.glob("*/README.md")])
README = REPOSITORY / "README.md"

page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def blocks(text: str, *languages: str) -> list[str]:
    """The contents of fenced blocks."""
    return [body for language, body in re.findall(r"^```(\w*)\n(.*?)^```", text, re.M | re.S) if language in languages]


def anchors(path: Path) -> set[str]:
    """What GitHub makes of the headings."""
    found: dict[str, int] = {}
    result = set()
    for heading in re.findall(r"^#+ +(.*)", without_code(path.read_text("utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-")
        found[name] = found.get(name, -1) + 1
        result.add(f"{name}-{found[name]}" if found[name] else name)
    return result


def links(path: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text("utf-8")))


@page
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), link
        assert target.is_relative_to(REPOSITORY), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_of_docs_can_be_reached_from_the_readme():
    reached, unread = set(), [README]
    while unread:
        path = unread.pop()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        unread += [(path.parent / link.partition("#")[0]).resolve() for link in links(path) if ":" not in link]
    assert {path for path in DOCS.glob("*.md")} <= reached


@page
def test_every_file_that_a_page_names_exists(page):
    tracked = ("aiter_op/", "hub_kernel/", "diffusers_patch/", "integration_tests/", "docs/")
    for name in re.findall(r"`([\w./-]+)`", page.read_text("utf-8")):
        if name.startswith(tracked):
            assert (REPOSITORY / name).exists(), name


def commands(text: str) -> list[str]:
    """Lines of shell, without comments; a continued line is one."""
    shell = "\n".join(blocks(text, "sh", "bash")).replace("\\\n", " ")
    return [line for line in (re.sub(r"\s+#.*", "", line).strip() for line in shell.splitlines()) if line]


@page
def test_every_session_and_module_that_a_page_runs_exists(page):
    noxfile = (REPOSITORY / "noxfile.py").read_text("utf-8")
    sessions = set(re.findall(r"^@nox\.session.*\ndef (\w+)\(", noxfile, re.MULTILINE))
    text = page.read_text("utf-8")
    for name in re.findall(r"nox -s (\w+)", text):
        assert name in sessions, name
    modules = re.findall(r"python3? -m ((?:integration_tests|hub_kernel|aiter_op|diffusers_patch)[\w.]*)", text)
    for name in modules:
        assert importlib.util.find_spec(name), name


def test_every_session_is_described_and_no_other(tmp_path):
    noxfile = (REPOSITORY / "noxfile.py").read_text("utf-8")
    sessions = re.findall(r"^@nox\.session.*\ndef (\w+)\(", noxfile, re.MULTILINE)
    docstring = noxfile.split('"""')[1]
    described, beside = docstring.split("In an environment of a session")
    assert sorted(re.findall(r"^    (\w+)  ", described, re.MULTILINE)) == sorted(sessions)
    for name in re.findall(r"^    ([\w.]+)  ", beside, re.MULTILINE):
        assert importlib.util.find_spec(name), name


# Commands of the README that cannot run here, and why.
NOT_HERE = {
    "git clone": "needs the network",
    "-s gpu": "needs the card",
    "python -m pip": "installs; the sessions do it",
    "nox": "is what runs this test",
    "export": "is a setting of the reader's shell",
    "python -m hub_kernel.build_sage_attention_variant": "",
    "python -m integration_tests.reports.hardware.quick": "",
}


@pytest.mark.parametrize("command", commands(README.read_text("utf-8")))
def test_each_command_of_the_readme_runs_or_has_its_reason_here(command):
    (reason, *_) = [why for start, why in NOT_HERE.items() if start in command] or [None]
    assert reason is not None, f"the README has a new command: {command}"
    if not reason:
        subprocess.run(
            [sys.executable, *command.split()[1:], "--help"], cwd=REPOSITORY, check=True, capture_output=True
        )


def test_an_owner_installs_what_the_list_of_dependencies_says():
    (command,) = [line for line in commands(README.read_text("utf-8")) if "ziglang" in line]
    groups = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    listed = {requirement for group in groups.values() for requirement in group if isinstance(requirement, str)}
    assert set(shlex.split(command.partition(" install ")[2])) <= listed


@page
def test_a_version_on_a_page_is_the_one_of_the_list_of_dependencies(page):
    for package in ("ziglang", "tinygrad"):
        for named in re.findall(rf"\b{package}==[\w.]+", page.read_text("utf-8")):
            assert named == requirement(package)


def test_the_issue_template_names_a_command_and_a_page_that_exist():
    template = (REPOSITORY / ".github/ISSUE_TEMPLATE/hardware-result.yml").read_text("utf-8")
    for module in re.findall(r"python -m ([\w.]+)", template):
        assert importlib.util.find_spec(module)
    assert (REPOSITORY / re.search(r"docs/\w+\.md", template)[0]).exists()
    name = re.search(r"^name: (.*)", template)[1]
    assert f'template "{name}"' in " ".join((DOCS / "on_hardware.md").read_text("utf-8").split())


@pytest.mark.parametrize("snippet", blocks(README.read_text("utf-8"), "python"))
def test_python_of_the_readme_runs(snippet):
    calls = []

    class Model(torch.nn.Module):
        def set_attention_backend(self, name: str) -> None:
            calls.append(name)

    class Pipe:
        transformer = Model()

    exec(compile(snippet, "README.md", "exec"), {"pipe": Pipe()})
    from diffusers.models.attention_dispatch import AttentionBackendName

    assert calls and set(calls) <= {name.value for name in AttentionBackendName}


@pytest.mark.parametrize("path", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_generated_parts_name_commands_that_exist(path):
    for command in re.findall(r"<!-- written by: (.*?) -->", path.read_text("utf-8")):
        module = re.fullmatch(r"python -m ([\w.]+)( .*)?", command)
        assert importlib.util.find_spec(module[1]) if module else command.startswith("nox -s "), command

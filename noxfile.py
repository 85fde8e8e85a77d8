# /// script
# dependencies = ["nox>=2025.5.1"]
# ///
# SPDX-License-Identifier: MIT
"""Every command of the project. Plain `nox` is what a pull request must pass: lint and the three test sessions.

    quick               a choice of the tests in about a minute, for the loop of change and look
    demo                builds everything and runs MiniMax-H3 on the virtual gfx1201; writes dist/demo.json
    test_hub_path       kernel, virtual device, Hub kernel, diffusers backend; `-- -m slow` runs long sweeps
    test_aiter_path     the op in aiter's own JIT; `-- --aiter PATH` takes a checkout of main instead of the release
    test_sage_hub_path  unmodified diffusers with `sage_hub` on the ROCm variant of sage-attention
    lint                ruff, clang-format and the width of lines
    upstream_prs        pull requests and their comparison; writes dist/upstream/. `-- --aiter PATH --diffusers PATH`
    compare_h3          MiniMax-H3 with each backend against SDPA, on GPUs or on the virtual gfx1201; dist/compare_h3.*
    accuracy            error of the op and of other schemes by input and length, against float64; dist/accuracy.*
    models              how much of each model's attention in diffusers reaches the kernel; dist/models.json
    sanitize            the op's and the device's tests under the sanitizer, and results under 50 wave schedules
    bench               modelled speed of the op and its peers; writes dist/bench.json, bench.png; `-- --aiter PATH`
    bench_device        speed of the virtual device itself; writes dist/virtual_device.json
    gpu                 tests and times a real gfx1201, `-- --quick` in minutes; dist/hardware.json; `-- --dry-run`

What writes a page takes `-- --docs` to renew it; `-- --help` lists a session's options.

In an environment of a session (`.nox/shared/bin/python -m ...`), as parts of these or beside them:

    hub_kernel.build_code_object             the kernel; `--keep-assembly FILE`
    hub_kernel.build_hub_package             the Hub repository around it, dist/hub_kernel/
    hub_kernel.build_sage_attention_variant  the ROCm variant of sage-attention, dist/sage_attention_variant/
    diffusers_patch                          applies a recipe to a tree, or writes it as a diff
    integration_tests.virtual_gpu            looks inside: disassemble, trace, step
    integration_tests.speed.guard            what the machine code costs; `--record` renews the record
    integration_tests.speed.counts           instructions of the main loop by kind
    integration_tests.speed.hardware_traces  the timing model against public thread traces, in a checkout of tinygrad
    integration_tests.speed.scale            Ulysses over many GPUs by arithmetic; docs/scale.md
    integration_tests.tests.ulysses.on_cuda  Ulysses over CUDA GPUs, with the model in the kernel's place

TORCH overrides the torch requirement, for example TORCH="torch==2.13.0+rocm7.2" with that index configured in pip.
"""

import os
import sys
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.sessions = ["lint", "test_hub_path", "test_aiter_path", "test_sage_hub_path"]
TORCH = os.environ.get("TORCH", "torch==2.13.0")
PROJECT = nox.project.load_toml("pyproject.toml")

# Sessions whose requirements agree share this environment, so that torch is installed once. pip and not uv fills it:
# uv does not read pip's configuration, by which owners choose their build of torch, and would download the CUDA one.
SHARED = Path(".nox") / "shared"
PYTHON = SHARED / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")

# Files of tests are spread over the cores; the tests of one file stay together and share what it builds.
PARALLEL = ["-n", "auto", "--maxprocesses", "8", "--dist", "loadfile"]


def install(session: nox.Session, group: str) -> None:
    """Installs a group into the session's own environment, torch first: pip keeps what already satisfies a range."""
    session.install(TORCH)
    session.install(*nox.project.dependency_groups(PROJECT, group))


def share(session: nox.Session, group: str, torch: bool = True) -> None:
    """Makes the shared environment, if need be, and installs a group there."""
    if not PYTHON.exists():
        session.run(sys.executable, "-m", "venv", str(SHARED), external=True)
    for wanted in ([[TORCH]] if torch else []) + [nox.project.dependency_groups(PROJECT, group)]:
        python(session, "-m", "pip", "install", "--quiet", *wanted)


def python(session: nox.Session, *arguments: str, **options) -> None:
    """Runs the shared environment's Python, with the environment's programs on the PATH."""
    path = os.pathsep.join([str(PYTHON.parent.absolute()), os.environ.get("PATH", "")])
    session.run(str(PYTHON), *arguments, external=True, env={"PATH": path, **options.pop("env", {})}, **options)


@nox.session(default=False, venv_backend="none")
def quick(session: nox.Session) -> None:
    """A developer's answer: kernel, one delivery, instructions, recipes. Ends with what it left out."""
    share(session, "test")
    python(session, "-m", "integration_tests.quick")


@nox.session(default=False, venv_backend="none")
def demo(session: nox.Session) -> None:
    """The main job: kernel, Hub package, virtual device, patched diffusers, MiniMax-H3 against SDPA."""
    share(session, "diffusers")
    python(session, "-m", "integration_tests.reports.demo")


@nox.session(venv_backend="none")
def test_hub_path(session: nox.Session) -> None:
    """Every test of the Hub delivery, from the instruction set up to MiniMax-H3 in diffusers."""
    share(session, "test")
    python(session, "-m", "diffusers_patch.tests.releases")
    python(session, "-m", "integration_tests.harness.prepare")
    python(session, "-m", "pytest", *PARALLEL, *session.posargs)


@nox.session(venv_backend="none")
def test_aiter_path(session: nox.Session) -> None:
    """The same suite of the op through aiter, and what is aiter's own: recipe, builds, refusals, diffusers backend."""
    share(session, "aiter")
    arguments, environment = list(session.posargs), {}
    if "--aiter" in arguments:
        at = arguments.index("--aiter")
        environment["AITER_TREE"] = os.path.abspath(arguments[at + 1])
        del arguments[at : at + 2]
    python(session, "-m", "integration_tests.harness.prepare")
    python(session, "-m", "pytest", *PARALLEL, "-m", "aiter and not slow", *arguments, env=environment)


@nox.session(venv_backend="none")
def test_sage_hub_path(session: nox.Session) -> None:
    """The ROCm variant of sage-attention, and diffusers as released with it; in a process without the patched copy."""
    share(session, "test")
    python(session, "-m", "integration_tests.harness.prepare")
    python(session, "-m", "pytest", *PARALLEL, "integration_tests/tests/sage_hub", *session.posargs)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Style of everything that is committed."""
    share(session, "lint", torch=False)
    python(session, "-m", "ruff", "check", ".")
    python(session, "-m", "ruff", "format", "--check", ".")
    listed = session.run("git", "ls-files", "*.h", "*.hpp", "*.cpp", "*.cu", "*.hip", external=True, silent=True)
    session.run(str(PYTHON.with_name("clang-format")), "--dry-run", "--Werror", *listed.split(), external=True)
    python(session, "-m", "integration_tests.line_width", *listed.split())


@nox.session(default=False, venv_backend="none")
def upstream_prs(session: nox.Session) -> None:
    """Runs what the pull requests cite and writes them, their checks and the comparison to dist/upstream/."""
    share(session, "upstream")
    python(session, "-m", "diffusers_patch.tests.releases")
    python(session, "-m", "integration_tests.reports.upstream", *session.posargs)


@nox.session(default=False, venv_backend="none")
def sanitize(session: nox.Session) -> None:
    """What runs well on the virtual device and would fail on hardware, or only sometimes: see docs/sanitizer.md."""
    share(session, "aiter")
    tests = ["op", "device", "deliveries", "sanitizer", "sage_hub"]
    folders = session.posargs or [f"integration_tests/tests/{name}" for name in tests]
    pytest = ["-m", "pytest", "--sanitize"]
    python(session, *pytest, "-m", "not slow and not aiter", *folders)
    # In some folders nothing is aiter's: pytest's 5.
    python(session, *pytest, "-m", "not slow and aiter", *folders, success_codes=[0, 5])


@nox.session(default=False, venv_backend="none")
def accuracy(session: nox.Session) -> None:
    """Error against float64: the op on the virtual device, its reference model on long sequences, other schemes."""
    share(session, "test")
    python(session, "-m", "integration_tests.reports.accuracy", *session.posargs)


@nox.session(default=False, venv_backend="none")
def models(session: nox.Session) -> None:
    """Every model family of diffusers: full size on the meta device for its routes, tiny on the virtual device."""
    share(session, "test")
    python(session, "-m", "integration_tests.reports.models", *session.posargs)


@nox.session(default=False, venv_backend="none")
def bench(session: nox.Session) -> None:
    """Our op and its peers on the virtual device, with the time that the performance model gives them."""
    share(session, "bench")
    python(session, "-m", "integration_tests.speed.bench", *session.posargs)


@nox.session(default=False, venv_backend="none")
def bench_device(session: nox.Session) -> None:
    """Instructions per second of the virtual device on one forward at [1, 1024, 4, 128]."""
    share(session, "hub")
    python(session, "-m", "integration_tests.speed.emulator_speed")


@nox.session(default=False)
def gpu(session: nox.Session) -> None:
    """Tests and times the deliveries on this machine's gfx1201, with the ROCm build of torch that TORCH names."""
    is_quick, is_dry = "--quick" in session.posargs, "--dry-run" in session.posargs
    on_device, on_card = ("device", "compiler") if is_quick else ("aiter", "gpu")
    install(session, on_device if is_dry else on_card)
    module = "integration_tests.reports.hardware" + (".quick" if is_quick else "")
    session.run("python", "-m", module, *(argument for argument in session.posargs if argument != "--quick"))


@nox.session(default=False)
def compare_h3(session: nox.Session) -> None:
    """MiniMax-H3 with each backend against SDPA; `-- --help` lists the options."""
    install(session, "compare")
    # With a checkpoint torch is a ROCm build, which has a triton of its own.
    install(session, "gpu" if "--checkpoint" in session.posargs else "aiter")
    session.run("python", "-m", "integration_tests.reports.compare_h3", *session.posargs)

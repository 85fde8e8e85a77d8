# /// script
# dependencies = ["nox>=2025.5.1"]
# ///
# SPDX-License-Identifier: MIT
"""Every command of the project. Plain `nox` is what a pull request must pass: lint and the three test
sessions.

    quick               a choice of the tests in about a minute, for the loop of change and look
    demo                builds everything and runs MiniMax-H3 on the virtual gfx1201; writes dist/demo.json
    test_hub_path       kernel, virtual device, Hub kernel, diffusers backend (arguments reach pytest; `-- -m slow` runs
                        the long sweeps)
    test_aiter_path     the op in aiter's own JIT; `-- --aiter PATH` takes a checkout of main instead of the release
    test_sage_hub_path  unmodified diffusers with `sage_hub` on the ROCm variant of sage-attention
    lint                ruff, clang-format and the width of lines
    upstream_prs        pull requests and their comparison; writes dist/upstream/. `-- --aiter PATH --diffusers PATH`
    compare_h3          MiniMax-H3 with each backend against SDPA, on the GPUs there are or on the virtual gfx1201;
                        writes dist/compare_h3.json, .md and pictures (arguments reach the script)
    accuracy            error of the op and of other schemes by input and length, against float64; writes
                        dist/accuracy.json, .md and pictures; `-- --help` lists the options
    sanitize            the op's and the device's tests under the sanitizer, and results under 50 wave schedules
    bench               modelled speed of the op and its peers; writes dist/bench.json, bench.png; `-- --aiter PATH`
    bench_device        speed of the virtual device itself; writes dist/virtual_device.json
    gpu                 all deliveries on a real gfx1201, tested and timed; writes dist/hardware.json; `-- --dry-run`

In an environment of a session (`.nox/shared/bin/python -m ...`), as parts of these or beside them:

    hub_kernel.build_code_object             the kernel; `--keep-assembly FILE`
    hub_kernel.build_hub_package             the Hub repository around it, dist/hub_kernel/
    hub_kernel.build_sage_attention_variant  the ROCm variant of sage-attention, dist/sage_attention_variant/
    diffusers_patch                          applies a recipe to a tree, or writes it as a diff
    diffusers_patch.tests.releases           downloads the releases of diffusers that recipes are tested on
    integration_tests.virtual_gpu            looks inside: disassemble, trace, step
    integration_tests.harness.prepare        builds what all tests share
    integration_tests.speed.guard            what the machine code costs; `--record` renews the record
    integration_tests.speed.counts           instructions of the main loop by kind
    integration_tests.speed.scale            Ulysses over many GPUs by arithmetic; docs/scale.md
    integration_tests.tests.ulysses.on_cuda  Ulysses over CUDA GPUs, with the model in the kernel's place

TORCH overrides the torch requirement, for example TORCH="torch==2.13.0+rocm7.2" with that index configured in pip.
"""

import os

import nox

nox.needs_version = ">=2025.5.1"
nox.options.sessions = ["lint", "test_hub_path", "test_aiter_path", "test_sage_hub_path"]
# Not uv: it does not read pip's configuration, by which this machine's or its owner's choice of torch (CPU, ROCm) is
# made, and would download the CUDA build.
nox.options.default_venv_backend = "virtualenv"

TORCH = os.environ.get("TORCH", "torch==2.13.0")
PROJECT = nox.project.load_toml("pyproject.toml")

# Sessions whose requirements agree share one environment, so that torch is installed once.
SHARED = {"venv_location": ".nox/shared", "reuse_venv": True}

# Files of tests are spread over the cores; the tests of one file stay together and share what it builds.
PARALLEL = ["-n", "auto", "--maxprocesses", "8", "--dist", "loadfile"]


def install(session: nox.Session, group: str) -> None:
    """Installs one dependency group of pyproject.toml, torch first: pip keeps what already satisfies a range."""
    session.install(TORCH)
    session.install(*nox.project.dependency_groups(PROJECT, group))


@nox.session(default=False, **SHARED)
def quick(session: nox.Session) -> None:
    """A developer's answer: kernel, one delivery, instructions, recipes. Ends with what it left out."""
    install(session, "test")
    session.run("python", "-m", "integration_tests.quick")


@nox.session(default=False, **SHARED)
def demo(session: nox.Session) -> None:
    """The main job: kernel, Hub package, virtual device, patched diffusers, MiniMax-H3 against SDPA."""
    install(session, "diffusers")
    session.run("python", "-m", "integration_tests.reports.demo")


@nox.session(**SHARED)
def test_hub_path(session: nox.Session) -> None:
    """Every test of the Hub delivery, from the instruction set up to MiniMax-H3 in diffusers."""
    install(session, "test")
    session.run("python", "-m", "diffusers_patch.tests.releases")
    session.run("python", "-m", "integration_tests.harness.prepare")
    session.run("python", "-m", "pytest", *PARALLEL, *session.posargs)


@nox.session(**SHARED)
def test_aiter_path(session: nox.Session) -> None:
    """The same suite of the op through aiter, and what is aiter's own: recipe, builds, refusals, diffusers backend."""
    install(session, "aiter")
    arguments, environment = list(session.posargs), {}
    if "--aiter" in arguments:
        at = arguments.index("--aiter")
        environment["AITER_TREE"] = os.path.abspath(arguments[at + 1])
        del arguments[at : at + 2]
    session.run("python", "-m", "integration_tests.harness.prepare")
    session.run("python", "-m", "pytest", *PARALLEL, "-m", "aiter and not slow", *arguments, env=environment)


@nox.session(**SHARED)
def test_sage_hub_path(session: nox.Session) -> None:
    """The ROCm variant of sage-attention, and diffusers as released with it; in a process without the patched copy."""
    install(session, "test")
    session.run("python", "-m", "integration_tests.harness.prepare")
    session.run("python", "-m", "pytest", *PARALLEL, "integration_tests/tests/sage_hub", *session.posargs)


@nox.session(**SHARED)
def lint(session: nox.Session) -> None:
    """Style of everything that is committed."""
    session.install(*nox.project.dependency_groups(PROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    patterns = ("*.h", "*.hpp", "*.cpp", "*.cu", "*.hip")
    sources = session.run("git", "ls-files", *patterns, external=True, silent=True).split()
    session.run("clang-format", "--dry-run", "--Werror", *sources)
    session.run("python", "-m", "integration_tests.line_width", *sources)


@nox.session(default=False, **SHARED)
def upstream_prs(session: nox.Session) -> None:
    """Runs what the pull requests cite and writes them, their checks and the comparison to dist/upstream/."""
    install(session, "upstream")
    session.run("python", "-m", "diffusers_patch.tests.releases")
    session.run("python", "-m", "integration_tests.reports.upstream", *session.posargs)


@nox.session(default=False, **SHARED)
def sanitize(session: nox.Session) -> None:
    """What runs well on the virtual device and would fail on hardware, or only sometimes: see docs/sanitizer.md."""
    install(session, "aiter")
    tests = ["op", "device", "deliveries", "sanitizer", "sage_hub"]
    folders = session.posargs or [f"integration_tests/tests/{name}" for name in tests]
    pytest = ["python", "-m", "pytest", "--sanitize"]
    session.run(*pytest, "-m", "not slow and not aiter", *folders)
    # In some folders nothing is aiter's: pytest's 5.
    session.run(*pytest, "-m", "not slow and aiter", *folders, success_codes=[0, 5])


@nox.session(default=False, **SHARED)
def accuracy(session: nox.Session) -> None:
    """Error against float64: the op on the virtual device, its reference model on long sequences, other schemes."""
    install(session, "test")
    session.run("python", "-m", "integration_tests.reports.accuracy", *session.posargs)


@nox.session(default=False, **SHARED)
def bench(session: nox.Session) -> None:
    """Our op and its peers on the virtual device, with the time that the performance model gives them."""
    install(session, "bench")
    session.run("python", "-m", "integration_tests.speed.bench", *session.posargs)


@nox.session(default=False, **SHARED)
def bench_device(session: nox.Session) -> None:
    """Instructions per second of the virtual device on one forward at [1, 1024, 4, 128]."""
    install(session, "hub")
    session.run("python", "-m", "integration_tests.speed.emulator_speed")


@nox.session(default=False)
def gpu(session: nox.Session) -> None:
    """Tests and times the deliveries on this machine's gfx1201, with the ROCm build of torch that TORCH names."""
    install(session, "aiter" if "--dry-run" in session.posargs else "gpu")
    session.run("python", "-m", "integration_tests.reports.hardware", *session.posargs)


@nox.session(default=False)
def compare_h3(session: nox.Session) -> None:
    """MiniMax-H3 with each backend against SDPA; `-- --help` lists the options."""
    install(session, "compare")
    # With a checkpoint torch is a ROCm build, which has a triton of its own.
    install(session, "gpu" if "--checkpoint" in session.posargs else "aiter")
    session.run("python", "-m", "integration_tests.reports.compare_h3", *session.posargs)

# SPDX-License-Identifier: MIT
"""`aiter_sage`: aiter's operator as a diffusers attention backend.

Applies beside `hub_backend`, in either order: no edit of one stands between an anchor and an edit of the other.
The refusals and the tests are one text for both. Backend and forward op are not: each names the kernel that it calls,
as all of upstream's do, and one that looked it up would be longer than the two.
"""

from diffusers_patch.additions import definitions, prose
from diffusers_patch.edits import Edit, Recipe
from diffusers_patch.recipes.shared import CHECK, DISPATCHER, GUIDE, PACKAGE, UPSTREAM_TESTS, minimax_h3_guide

IMPORT_UTILS = f"{PACKAGE}/utils/import_utils.py"
UTILS = f"{PACKAGE}/utils/__init__.py"

# Open question: which release of aiter will hold the operator. Until one does, this is the oldest release that
# aiter_op.recipe can put it into, and the guarded import decides.
MINIMUM_AITER = "0.1.7"


def recipe() -> Recipe:
    """The recipe for any aiter from MINIMUM_AITER on."""
    edits = (*_detection(), *_registration(), *_functions(), *_guide(), *UPSTREAM_TESTS)
    return Recipe(name="aiter_backend", package=PACKAGE, marker="aiter_sage", edits=edits)


def _detection() -> tuple[Edit, ...]:
    return (
        Edit(
            file=IMPORT_UTILS,
            scope="",
            anchor='_nltk_available, _nltk_version = _is_package_available("nltk")',
            place="before",
            # The distribution is `amd-aiter`, so its name has to be looked up.
            text='_aiter_available, _aiter_version = _is_package_available("aiter", get_dist_name=True)\n',
            reason="is aiter installed",
        ),
        Edit(
            file=IMPORT_UTILS,
            scope="is_nltk_available",
            anchor="def is_nltk_available():",
            place="before",
            text="def is_aiter_available():\n    return _aiter_available\n\n\n",
            reason="is aiter installed",
        ),
        Edit(
            file=IMPORT_UTILS,
            scope="is_sageattention_version",
            anchor="@cache",
            place="before",
            text=(
                "@cache\n"
                "def is_aiter_version(operation: str, version: str):\n"
                '    """\n'
                "    Compare the version of the installed aiter; False if there is none.\n\n"
                "    Args:\n"
                "        operation (`str`):\n"
                '            A key of `STR_OPERATION_TO_FUNC`, for example `">="`.\n'
                "        version (`str`):\n"
                "            The version to compare with.\n"
                '    """\n'
                "    if not _aiter_available:\n"
                "        return False\n"
                "    return compare_versions(parse(_aiter_version), operation, version)\n\n\n"
            ),
            reason="version of aiter",
        ),
        Edit(
            file=UTILS,
            scope="",
            anchor="    is_accelerate_version,",
            place="after",
            text="    is_aiter_available,\n    is_aiter_version,\n",
            reason="export",
        ),
        Edit(
            file=DISPATCHER,
            scope="",
            anchor="    get_logger,",
            place="after",
            text="    is_aiter_available,\n    is_aiter_version,\n",
            reason="import",
        ),
    )


def _registration() -> tuple[Edit, ...]:
    return (
        Edit(
            file=DISPATCHER,
            scope="",
            anchor='_REQUIRED_SAGE_VERSION = "2.1.1"',
            place="after",
            text=f'_REQUIRED_AITER_VERSION = "{MINIMUM_AITER}"\n',
            reason="oldest aiter",
        ),
        Edit(
            file=DISPATCHER,
            scope="",
            anchor=(
                "_CAN_USE_SAGE_ATTN = is_sageattention_available() "
                'and is_sageattention_version(">=", _REQUIRED_SAGE_VERSION)'
            ),
            place="after",
            text=(
                "# Importing aiter looks for a GPU and may compile, so only ROCm builds of torch try.\n"
                "_CAN_USE_AITER_SAGE_ATTN = (\n"
                "    torch.version.hip is not None and is_aiter_available() and "
                'is_aiter_version(">=", _REQUIRED_AITER_VERSION)\n'
                ")\n"
            ),
            reason="may the backend be used",
        ),
        Edit(
            file=DISPATCHER,
            scope="",
            anchor="# Version guard for PyTorch compatibility - custom_op was added in PyTorch 2.4",
            place="before",
            text=(
                "if _CAN_USE_AITER_SAGE_ATTN:\n"
                "    try:\n"
                "        from aiter import gfx1201_sage_attention as aiter_sage_attention\n"
                "    except (Exception, SystemExit) as e:\n"
                "        # Most installations of aiter are for other GPUs and lack this operator, so there is no "
                "warning. aiter raises\n"
                "        # KeyError for GPUs that it does not know and SystemExit when it cannot compile.\n"
                '        logger.debug(f"aiter has no usable `gfx1201_sage_attention`: {e!r}.")\n'
                "        _CAN_USE_AITER_SAGE_ATTN = False\n"
                "        aiter_sage_attention = None\n"
                "else:\n"
                "    aiter_sage_attention = None\n\n\n"
            ),
            reason="the operator, if this aiter has it",
        ),
        Edit(
            file=DISPATCHER,
            scope="AttentionBackendName",
            anchor="    # PyTorch native",
            place="before",
            text='    # SageAttention for gfx1201 (via `amd-aiter`)\n    AITER_SAGE = "aiter_sage"\n\n',
            reason="name of the backend",
        ),
        Edit(
            file=DISPATCHER,
            scope="_check_attention_backend_requirements",
            anchor="    elif backend in [AttentionBackendName._FLASH_3, AttentionBackendName._FLASH_VARLEN_3]:",
            place="before",
            text=(
                "    elif backend == AttentionBackendName.AITER_SAGE:\n"
                "        if not _CAN_USE_AITER_SAGE_ATTN:\n"
                "            raise RuntimeError(\n"
                "                f\"Backend '{backend.value}' is not usable because it needs a ROCm build of PyTorch "
                "and an `amd-aiter` with `gfx1201_sage_attention`. "
                'Please install `amd-aiter>={_REQUIRED_AITER_VERSION}`."\n'
                "            )\n\n"
            ),
            reason="what to install",
        ),
    )


def _functions() -> tuple[Edit, ...]:
    return (
        CHECK,
        Edit(
            file=DISPATCHER,
            scope="_sage_attention_backward_op",
            anchor="def _sage_attention_backward_op(",
            place="before",
            text=definitions("aiter_sage_forward") + "\n\n",
            reason="forward op for context parallelism",
        ),
        Edit(
            file=DISPATCHER,
            scope="_aiter_flash_attention",
            anchor="@_AttentionBackendRegistry.register(",
            place="before",
            text=definitions("aiter_sage_backend") + "\n\n",
            reason="the backend",
        ),
    )


def _guide() -> tuple[Edit, ...]:
    return (
        Edit(
            file=GUIDE,
            scope="## Available backends",
            anchor="## Available backends",
            place="before",
            text=prose("aiter_sage_section"),
            reason="how to use the backend, and the order in which to set it",
            optional=True,
        ),
        Edit(
            file=GUIDE,
            scope="## Available backends",
            anchor=(
                "| `aiter_fa2_hub` | [AI Tensor Engine for ROCm](https://github.com/ROCm/aiter) "
                "| FlashAttention-2 for AMD ROCm from kernels |"
            ),
            place="before",
            text=(
                "| `aiter_sage` | [AI Tensor Engine for ROCm](https://github.com/ROCm/aiter) "
                "| SageAttention (INT8 QK, FP8 PV) for AMD gfx1201 |\n"
            ),
            reason="row in the table of backends",
            optional=True,
        ),
        # Another heading than the Hub kernel's, so that both recipes apply in either order.
        minimax_h3_guide("aiter_sage", "SageAttention on RDNA4 with aiter", before="## Omni-references"),
    )

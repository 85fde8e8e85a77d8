# SPDX-License-Identifier: MIT
"""`replace_sdpa`: the gfx1201 kernel for models that call PyTorch's `scaled_dot_product_attention` themselves."""

import functools
import inspect
import threading
from collections import Counter
from types import TracebackType
from typing import Any, Callable, Optional

import torch
import torch.nn.functional as F

from . import core

_NAME = "scaled_dot_product_attention"
_NO_CALL = "the arguments are not those of SDPA"

# For every change of F.scaled_dot_product_attention by this module: what is read must still be there when it is set.
_changing = threading.Lock()


def replace_sdpa() -> "SdpaReplacement":
    """Puts `sageattn` in the place of `torch.nn.functional.scaled_dot_product_attention`, for all threads.

    For models that call that function themselves, which `set_attention_backend` does not reach, and for models with
    masks, which diffusers refuses for `sage_hub`. Use it for a block, also when the block raises:

        with replace_sdpa() as calls:
            image = pipe(prompt).images[0]
        print(calls)

    or for as long as you like:

        calls = replace_sdpa()
        ...
        calls.restore()

    A call that the gfx1201 kernel supports, as `sageattn` has it, runs on the kernel. Every other call goes, with the
    arguments as they were given, to the function that was found in that place, so that results, derivatives and errors
    are those without this replacement.

    Replacements may be nested and may overlap, in several threads too; each is restored by itself, in any order.

    A patch that another package has put there *before* gets the calls that the kernel does not take. One that is put
    there *afterwards* stays: `restore` never removes what it has not put there. The replacement underneath then only
    passes calls on, and stays in the chain until that package takes its patch back.

    Not reached: code that holds the function under a name of its own (`from torch.nn.functional import
    scaled_dot_product_attention`), and graphs that were exported or captured before. `torch.compile` traces through
    it and compiles anew when it comes or goes.

    Returns:
        The replacement: `kernel`, the number of calls that ran on the kernel; `sdpa`, a dict of the reason for SDPA to
        the number of calls; `restore()`. A compiled graph counts once, while it is traced. With several replacements,
        each counts the calls that reach it.
    """
    return SdpaReplacement()


class SdpaReplacement:
    """A replacement of `torch.nn.functional.scaled_dot_product_attention`, as `replace_sdpa` returns it."""

    def __init__(self) -> None:
        self._counted: Counter = Counter()
        self._counting = threading.Lock()
        self._is_active = True
        with _changing:
            self._previous: Callable = getattr(F, _NAME)
            self._function = _stand_in(self)
            setattr(F, _NAME, self._function)

    @property
    def kernel(self) -> int:
        """How many calls ran on the gfx1201 kernel."""
        with self._counting:
            return self._counted[None]

    @property
    def sdpa(self) -> dict[str, int]:
        """How many calls went on to SDPA, by reason."""
        with self._counting:
            return {reason: count for reason, count in self._counted.items() if reason is not None}

    def restore(self) -> None:
        """Ends the replacement. Calling it again changes nothing."""
        with _changing:
            self._is_active = False
            # Another package's function on top of this one stays; this one passes everything on from now on.
            setattr(F, _NAME, _without_restored(getattr(F, _NAME)))

    def __enter__(self) -> "SdpaReplacement":
        if not self._is_active:
            raise RuntimeError("This replacement of SDPA is restored: call replace_sdpa() for another one.")
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.restore()

    def __repr__(self) -> str:
        sdpa = self.sdpa
        text = f"{self.kernel} on the {core.ARCHITECTURE} kernel, {sum(sdpa.values())} on SDPA"
        reasons = "; ".join(f"{count} because {reason}" for reason, count in sdpa.items())
        return f"{text} ({reasons})" if reasons else text


def _stand_in(replacement: SdpaReplacement) -> Callable:
    """The function that stands in the place of the replacement's previous one."""

    # A lock would break the graph of torch.compile; a function that is evaluated while tracing does not.
    @torch.compiler.assume_constant_result
    def count(reason: Optional[str]) -> None:
        with replacement._counting:
            replacement._counted[reason] += 1

    def scaled_dot_product_attention(*args: Any, **kwargs: Any) -> torch.Tensor:
        if not replacement._is_active:
            return replacement._previous(*args, **kwargs)
        call = _call(args, kwargs)
        reason = _NO_CALL if call is None else core.reason_for_sdpa(call)
        count(reason)
        previous = replacement._previous
        if _owner(_first_in_use(previous)) is not None:
            return previous(*args, **kwargs)  # which counts too, and decides
        core.log_route(reason)
        return core.on_the_kernel(call) if reason is None else previous(*args, **kwargs)

    functools.update_wrapper(scaled_dot_product_attention, replacement._previous, updated=())
    scaled_dot_product_attention.__signature__ = inspect.signature(_arguments)
    scaled_dot_product_attention.sdpa_replacement = replacement
    return scaled_dot_product_attention


def _owner(function: Callable) -> Optional[SdpaReplacement]:
    """The replacement that has made `function`; None for functions of others, also for those that wrap one."""
    owner = getattr(function, "sdpa_replacement", None)
    return owner if isinstance(owner, SdpaReplacement) and owner._function is function else None


def _first_in_use(function: Callable) -> Callable:
    """`function`, or what restored replacements pass on to."""
    while (owner := _owner(function)) is not None and not owner._is_active:
        function = owner._previous
    return function


def _without_restored(function: Callable) -> Callable:
    """`_first_in_use`, and no restored replacement left between those below it: they would pile up."""
    top = function = _first_in_use(function)
    while (owner := _owner(function)) is not None:
        owner._previous = function = _first_in_use(owner._previous)
    return top


def _arguments(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: Optional[torch.Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> core.Call:
    return core.Call(
        query,
        key,
        value,
        is_causal=is_causal,
        sm_scale=scale,
        attn_mask=attn_mask,
        dropout_p=dropout_p,
        enable_gqa=enable_gqa,
    )


def _call(args: tuple, kwargs: dict[str, Any]) -> Optional[core.Call]:
    """The call that the arguments ask SDPA for; None where SDPA has to say what is wrong with them."""
    try:
        return core.checked(_arguments(*args, **kwargs))
    except TypeError:
        return None

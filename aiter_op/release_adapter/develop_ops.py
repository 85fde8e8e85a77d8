# SPDX-License-Identifier: MIT
"""`compile_ops(..., develop=True)` for the release of aiter, which has `compile_ops` without it.

An operator that is declared so gets its tensors as `aiter_tensor_t` and the current stream beforehand; its module is
built on the first call, by the release's own `build_module`. It is no torch operator: its caller is one.
"""

import functools

import torch


def with_develop(compile_ops):
    """`compile_ops` of the release, extended by `develop`; other operators are left to it."""

    @functools.wraps(compile_ops)
    def compile_any(_md_name, *args, develop=False, **kwargs):
        return _develop_op(_md_name) if develop else compile_ops(_md_name, *args, **kwargs)

    return compile_any


def _develop_op(md_name):
    def decorator(func):
        @functools.wraps(func)
        def call(*args):
            module = _module(md_name)
            module._set_current_hip_stream(torch.cuda.current_stream().cuda_stream)
            return getattr(module, func.__name__)(*(_to_aiter_tensor(module, value) for value in args))

        return call

    return decorator


def _to_aiter_tensor(module, value):
    if not isinstance(value, torch.Tensor):
        return value
    return module.aiter_tensor_t(value.data_ptr(), list(value.shape), list(value.stride()))


@functools.cache
def _module(md_name):
    """The module, built unless it is there or AITER_REBUILD asks for it. RuntimeError when it does not build."""
    from . import core

    try:
        if core.AITER_REBUILD:
            raise ModuleNotFoundError(md_name)
        return core.get_module(md_name)
    except ModuleNotFoundError:
        names = ["srcs", "flags_extra_cc", "flags_extra_hip", "blob_gen_cmd", "extra_include", "extra_ldflags"]
        names += ["verbose", "is_python_module", "is_standalone", "torch_exclude"]
        settings = core.get_args_of_build(md_name)
        try:
            core.build_module(md_name, *(settings[name] for name in names))
        except SystemExit as error:
            # The release ends the process, main raises.
            raise RuntimeError(str(error)) from error
        return core.get_module(md_name)

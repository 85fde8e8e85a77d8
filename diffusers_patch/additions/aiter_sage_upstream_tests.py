# SPDX-License-Identifier: MIT
"""The tests that diffusers receives: refusals run anywhere, parity where the hardware and the kernel are."""

import pytest
import torch
import torch.nn.functional as F
from tests.testing_utils import is_attention, torch_device

from diffusers.models import attention_dispatch
from diffusers.models.attention_dispatch import attention_backend as attention_backend_ctx
from diffusers.models.attention_dispatch import dispatch_attention_fn


def _is_gfx1201() -> bool:
    if torch.version.hip is None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_properties(0).gcnArchName.split(":")[0] == "gfx1201"


@is_attention
@pytest.mark.parametrize(
    "backend", [name.value for name in attention_dispatch.AttentionBackendName if name.value.startswith("aiter_sage")]
)
class TestAiterSageBackends:
    """Tests of SageAttention for gfx1201. The refusals never reach the kernel, so they need no GPU."""

    @pytest.mark.parametrize(
        "refused",
        [
            {"attn_mask": torch.ones(1, 1, 8, 8, dtype=torch.bool)},
            {"dropout_p": 0.1},
            {"is_causal": True},
            {"enable_gqa": True},
            {"attention_kwargs": {"return_lse": True}},
        ],
        ids=["attn_mask", "dropout_p", "is_causal", "enable_gqa", "return_lse"],
    )
    def test_unsupported_argument_raises(self, backend, refused):
        query, key, value = (torch.zeros(1, 8, 2, 128, dtype=torch.bfloat16) for _ in range(3))
        with pytest.raises(ValueError, match="is not supported for aiter sage attention"):
            dispatch_attention_fn(query, key, value, backend=backend, **refused)

    @pytest.mark.parametrize(
        "shape, key_shape, dtype, message",
        [
            ((1, 8, 2, 64), (1, 8, 2, 64), torch.bfloat16, "head dimension must be 128"),
            ((1, 8, 2, 128), (1, 9, 2, 128), torch.bfloat16, "same shape"),
            ((1, 8, 2, 128), (1, 8, 2, 128), torch.float16, "must be bfloat16"),
        ],
        ids=["head_dim", "cross_attention", "dtype"],
    )
    def test_unsupported_input_raises(self, backend, shape, key_shape, dtype, message):
        query, key, value = (torch.zeros(s, dtype=dtype) for s in (shape, key_shape, key_shape))
        with pytest.raises(ValueError, match=message):
            dispatch_attention_fn(query, key, value, backend=backend)

    @pytest.mark.skipif(not _is_gfx1201(), reason="The kernel is built for gfx1201 only.")
    @pytest.mark.parametrize("seq_len", [14, 1000, 4096])
    def test_matches_sdpa(self, backend, seq_len):
        try:
            attention_dispatch._check_attention_backend_requirements(attention_dispatch.AttentionBackendName(backend))
        except RuntimeError as e:
            pytest.skip(str(e))

        generator = torch.Generator(torch_device).manual_seed(0)
        query, key, value = (
            torch.randn(1, seq_len, 4, 128, generator=generator, device=torch_device, dtype=torch.bfloat16)
            for _ in range(3)
        )
        with attention_backend_ctx(backend):
            out = dispatch_attention_fn(query, key, value).float()
        expected = F.scaled_dot_product_attention(*(x.float().transpose(1, 2) for x in (query, key, value)))
        expected = expected.transpose(1, 2)
        # INT8 scores and FP8 weights: about 0.03 on such inputs, whatever the length.
        assert (out - expected).norm() / expected.norm() <= 0.05

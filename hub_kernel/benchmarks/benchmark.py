# SPDX-License-Identifier: MIT
"""`kernels benchmark <repo id>`: one call, quantisation included, against PyTorch's fused SDPA."""

import torch
from kernels.benchmark import Benchmark
from torch.nn.attention import SDPBackend, sdpa_kernel


class SageAttentionBenchmark(Benchmark):
    seed: int = 42

    def setup_image(self):
        self._setup(1, 4096, 24)

    def benchmark_image(self):
        self._attend()

    def verify_image(self) -> torch.Tensor:
        return self._fused_sdpa()

    def setup_video(self):
        self._setup(1, 16384, 24)

    def benchmark_video(self):
        self._attend()

    def verify_video(self) -> torch.Tensor:
        return self._fused_sdpa()

    def _setup(self, batch: int, sequence: int, heads: int) -> None:
        shape = (batch, sequence, heads, 128)
        self.q, self.k, self.v = (torch.randn(shape, device=self.device, dtype=torch.bfloat16) for _ in range(3))

    def _attend(self) -> None:
        self.out = self.kernel.gfx1201_sage_attention(self.q, self.k, self.v)

    def _fused_sdpa(self) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (self.q, self.k, self.v))
        # Without the MATH path in the list PyTorch raises rather than lending us an easy opponent.
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)

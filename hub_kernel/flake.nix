# SPDX-License-Identifier: MIT
{
  description = "SageAttention for AMD RDNA4 (gfx1201)";

  inputs.kernel-builder.url = "github:huggingface/kernels";

  outputs =
    { self, kernel-builder }:
    kernel-builder.lib.genKernelFlakeOutputs {
      inherit self;
      path = ./.;
    };
}

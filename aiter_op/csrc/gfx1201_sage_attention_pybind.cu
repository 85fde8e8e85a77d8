// SPDX-License-Identifier: MIT
#include "aiter_stream.h"
#include "gfx1201_sage_attention.h"
#include "rocm_ops.hpp"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    AITER_SET_STREAM_PYBIND
    m.def("gfx1201_sage_attention_workspace_bytes", &aiter::gfx1201_sage_attention_workspace_bytes,
          "Bytes of scratch memory that one call of gfx1201_sage_attention_launch needs.", py::arg("batch"),
          py::arg("sequence"), py::arg("heads"));
    m.def("gfx1201_sage_attention_launch", &aiter::gfx1201_sage_attention_launch,
          "SageAttention forward for gfx1201: INT8 Q K^T, FP8 P V, BF16 in and out.", py::arg("out"),
          py::arg("workspace"), py::arg("q"), py::arg("k"), py::arg("v"), py::arg("softmax_scale"));
}

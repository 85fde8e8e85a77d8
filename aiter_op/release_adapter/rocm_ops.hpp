// SPDX-License-Identifier: MIT
// What gfx1201_sage_attention_pybind.cu takes from main's rocm_ops.hpp, for the release. Here the module also
// brings the tensor type, which main keeps in a module of its own; develop_ops.py uses it.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "aiter_stream.h"
#include "aiter_tensor.h"

namespace py = pybind11;

#define AITER_SET_STREAM_PYBIND                                                                            \
    m.def("_set_current_hip_stream",                                                                       \
          [](uintptr_t stream) { aiter::current_stream = reinterpret_cast<hipStream_t>(stream); });        \
    py::class_<aiter_tensor_t>(m, "aiter_tensor_t", py::module_local())                                    \
        .def(py::init([](uintptr_t address, std::vector<int64_t> shape, std::vector<int64_t> strides) {    \
            return aiter_tensor_t{reinterpret_cast<void*>(address), std::move(shape), std::move(strides)}; \
        }));

// SPDX-License-Identifier: MIT
// Prints the launch contract of sage_attention_launch.h as JSON, for everything that is not C++.
//   print_launch_manifest            the "launch" object of manifest.json
//   print_launch_manifest B S H      what C++ computes for one shape, against which tests hold Python
//
// C headers only: ziglang compiles a C++ library anew for each set of flags, which takes a minute.
#include <stdio.h>
#include <stdlib.h>

#include "sage_attention_launch.h"

using namespace gfx1201_sage;

static void print_contract() {
    printf("{\n \"head_dim\": %d,\n \"threads\": %d,\n \"keys_per_tile\": %d,\n", kHeadDim, kThreads,
           kKeysPerTile);
    printf(" \"keys_per_quantise_group\": %d,\n", kKeysPerQuantiseGroup);
    printf(" \"statistics_rows\": %d,\n \"max_statistics_groups\": %d,\n \"max_grid_y\": %d,\n",
           kStatisticsRows, kMaxStatisticsGroups, kMaxGridY);
    printf(
        " \"workspace\": {\"bytes_per_tile\": %d, \"bytes_per_head\": %d, \"bytes_per_statistics_group\": "
        "%d, \"bytes_per_quantise_group\": %d},\n",
        kOperandBytesPerTile + kScaleBytesPerTile, kCentreBytesPerHead, kPartialBytesPerGroup,
        kValueSumBytesPerGroup);
    printf(" \"launches\": [");
    const char* separator = "";
    auto print_launch = [&](const char* kernel, int64_t rows_of_short, int64_t rows_of_long) {
        printf("%s{\"kernel\": \"%s\", \"rows\": ", separator, kernel);
        if (rows_of_short == rows_of_long)
            printf("%lld}", static_cast<long long>(rows_of_short));
        else
            printf("\"statistics_rows\"}");
        separator = ", ";
    };
#define LAUNCH(kernel, expression)                                                           \
    {                                                                                        \
        auto rows = []([[maybe_unused]] int64_t sequence) -> int64_t { return expression; }; \
        print_launch(#kernel, rows(1), rows(1 << 20));                                       \
    }
    GFX1201_SAGE_LAUNCHES(LAUNCH)
#undef LAUNCH
    printf("],\n \"arguments\": [");
    separator = "";
#define ARGUMENT(name, type) printf("%s[\"%s\", \"%s\"]", separator, #name, type), separator = ", ";
#define POINTER(name) ARGUMENT(name, "pointer")
#define INT64(name) ARGUMENT(name, "int64")
#define FLOAT(name) ARGUMENT(name, "float")
    GFX1201_SAGE_ARGUMENTS(POINTER, INT64, FLOAT)
    printf("],\n \"argument_bytes\": %zu\n}\n", sizeof(Arguments));
}

static void print_shape(int64_t batch, int64_t sequence, int64_t heads) {
    printf("{\"workspace_bytes\": %lld, \"grids\": [",
           static_cast<long long>(workspace_bytes(batch, sequence, heads)));
    const char* separator = "";
#define LAUNCH(kernel, rows)                                                                       \
    {                                                                                              \
        Grid g = grid(rows, batch, sequence, heads);                                               \
        printf("%s[%lld, %lld, %lld]", separator, (long long)g.x, (long long)g.y, (long long)g.z); \
        separator = ", ";                                                                          \
    }
    GFX1201_SAGE_LAUNCHES(LAUNCH)
    printf("]}\n");
}

int main(int count, char** values) {
    if (count == 4)
        print_shape(atoll(values[1]), atoll(values[2]), atoll(values[3]));
    else
        print_contract();
}

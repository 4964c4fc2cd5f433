// What an instruction set provides: the same few functions, compiled once for each in isa_*.cpp.
#pragma once
#include "problem.h"

namespace torchcaps {

struct Kernels {
    const char* name;
    int width;                 // floats in a vector
    int64_t row_block;         // input capsules are padded to a multiple of it

    // Floats of one thread's scratch.
    size_t (*scratch_size)(const Problem&, bool backward);
    // weight [inputs][outputs][16] -> [vectors][rows][16][width]; first, second to [vectors][16][width] or [lanes].
    void (*pack)(const Problem&, float* weight, float* first, float* second);
    // The reverse, for gradients.
    void (*unpack)(const Problem&, const ParameterGradients& from, float* weight, float* first, float* second, float* bandwidth);
    // Fields [begin, end) of the output map. The packed parameters are shared, the scratch is the thread's own.
    void (*forward)(const Problem&, const ParameterGradients& packed, float* scratch, int64_t begin, int64_t end);
    void (*backward)(const Problem&, const ParameterGradients& packed, const ParameterGradients& sinks, float* scratch,
                     int64_t begin, int64_t end);
    // Positions [begin, end) of the head of the primary capsules.
    void (*primary_forward)(const Primary&, int64_t begin, int64_t end);
    void (*primary_backward)(const Primary&, const PrimarySums& sums, int64_t begin, int64_t end);
    // The residual block. Filters at the points, for one panel of outputs; tiles [begin, end), at most a block, of the output.
    ResidualSizes (*residual_sizes)(const Residual&);
    void (*residual_filters)(const Residual&, float* filters, int64_t panel);
    void (*residual_forward)(const Residual&, const float* filters, float* scratch, int64_t begin, int64_t end);
    // Its weight gradient: one tile of the shared block that starts at `begin`; the block's sums at one point; one panel.
    void (*residual_tile)(const Residual&, float* inputs, float* grads, int64_t begin, int64_t tile);
    void (*residual_point)(const Residual&, const float* inputs, const float* grads, int64_t tiles, float* sums, int64_t point);
    void (*residual_weight)(const Residual&, const float* sums, float* weight, int64_t panel);
};

extern const Kernels baseline_kernels;
#ifdef TORCHCAPS_WITH_AVX2
extern const Kernels avx2_kernels;
#endif

}  // namespace torchcaps

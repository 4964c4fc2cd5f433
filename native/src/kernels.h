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
    void (*unpack)(const Problem&, const ParameterGradients& from, float* weight, float* first, float* second);
    // Fields [begin, end) of the output map. The packed parameters are shared, the scratch is the thread's own.
    void (*forward)(const Problem&, const ParameterGradients& packed, float* scratch, int64_t begin, int64_t end);
    void (*backward)(const Problem&, const ParameterGradients& packed, const ParameterGradients& sinks, float* scratch,
                     int64_t begin, int64_t end);
    // Positions [begin, end) of the head of the primary capsules.
    void (*primary_forward)(const Primary&, int64_t begin, int64_t end);
    void (*primary_backward)(const Primary&, const PrimarySums& sums, int64_t begin, int64_t end);
    // The residual block's weight gradient: rows [begin, end) are added to the sums of output tiles [first, last).
    ResidualSizes (*residual_sizes)(const Residual&);
    void (*residual_clear)(const Residual&, float* sums, int64_t first, int64_t last);
    void (*residual_backward)(const Residual&, float* sums, float* scratch, int64_t begin, int64_t end, int64_t first,
                              int64_t last);
    // Sums -> weight [channels][kernel][kernel][channels], bias [channels].
    void (*residual_unpack)(const Residual&, const float* sums, float* weight, float* bias, int64_t first, int64_t last);
};

extern const Kernels baseline_kernels;
#ifdef TORCHCAPS_WITH_AVX2
extern const Kernels avx2_kernels;
#endif

}  // namespace torchcaps

// The portable kernels, compiled with the platform's default flags.
#define TORCHCAPS_ISA baseline
#include "simd/vec_baseline.h"
#include "kernel/table.h"

namespace torchcaps {
using namespace baseline;
const Kernels baseline_kernels = {
    "baseline", Vec::W, kRows, scratch_size, pack, unpack, forward, backward,
    primary_forward, primary_backward, residual_sizes, residual_filters, residual_forward,
    residual_tile, residual_point, residual_weight,
};
}

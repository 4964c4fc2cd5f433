// The portable kernels, compiled with the platform's default flags.
#define TORCHCAPS_ISA baseline
#include "simd/vec_baseline.h"
#include "kernel/table.h"

namespace torchcaps {
const Kernels baseline_kernels = {"baseline",     baseline::Vec::W, baseline::kRows,   baseline::scratch_size,
                                  baseline::pack, baseline::unpack, baseline::forward, baseline::backward};
}

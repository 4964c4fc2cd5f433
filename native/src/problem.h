// What one call is about, in plain data: the options, the geometry, and where the arrays lie.
// Plain on purpose: this header is also compiled into the AVX2 unit, and an inline function here could end up in the
// program as AVX2 code that a CPU without AVX2 then runs.
#pragma once
#include <cstddef>
#include <cstdint>

namespace torchcaps {

enum class Method { frms, frem, em };
enum class Kernel { epanechnikov, epanechnikov_clipped, gaussian };
enum class Distance { l1, l2 };
enum class Normalize { softmax, sum };

constexpr int kPoseSize = 16;   // a 4x4 pose, row by row

struct Options {
    int64_t kernel_size[2], stride[2], padding[2];
    Method method;
    int64_t iterations;
    Kernel kernel, activation_kernel;               // of the couplings; of the output activation
    Distance distance;
    Normalize normalize;
    float bandwidth, activation_bandwidth, step, final_lambda, lambda_decay, variance_floor;
    int64_t vote_budget;   // bytes of votes a thread may keep; a larger field recomputes them in each sweep
};

// A map [batch, height, width, channels] whose channels are adjacent; the other strides are free.
struct Map {
    float* data;
    int64_t stride[3];
};

struct Problem {
    Options options;
    int64_t batch, height, width, capsules;             // input map
    int64_t out_height, out_width, outputs;             // output map
    int64_t inputs;                                     // input capsules of one field
    bool every_position_once;                           // no overlap and no gap: gradients are written, not added

    Map pose, activation;                               // 16 * capsules and capsules channels
    const float *weight, *first, *second;               // as the caller holds them
    const float* offset;                                // [inputs][16]: added to the votes for every output; or null
    const float *scale, *shift;                         // [16 outputs]: out_pose = scale pose + shift; or null
    Map out_pose, out_activation;                       // contiguous; read by the backward pass
    Map grad_out_pose, grad_out_activation;
    Map grad_pose, grad_activation;                     // contiguous
};

// Gradients of the parameters that one thread has gathered, in the packed layout of the kernels. Bandwidth: one vector,
// the sum of d dL/dd over all pairs, which is -h dL/dh.
struct ParameterGradients {
    float *weight, *first, *second, *bandwidth;
};

// The head of the primary capsules. Dense arrays: maps [positions][16 capsules], activations [positions][capsules].
struct Primary {
    int64_t positions, capsules;
    const float *map, *weight, *bias;                   // weight [capsules][16 capsules]
    float *pose, *activation;                           // read by the backward pass
    const float *grad_pose, *grad_activation;
    float* grad_map;
};

// Gradients that one part adds up, [capsules][16 capsules] and [capsules]; and its scratch of kPrimaryRows positions.
struct PrimarySums {
    float *weight, *bias, *logit;
};
constexpr int kPrimaryRows = 4;

// The residual block: input + convolution, kernel x kernel, or the convolution alone; and its gradients. Dense maps [batch][height][width][channels];
// channels is a multiple of 16, kernel is 3 or 5.
struct Residual {
    int64_t batch, height, width, channels, kernel;
    const float *input, *weight, *bias;                 // weight [output][input][tap]
    bool reversed;                                      // the filter's axes exchanged, its taps reversed: the input's gradient
    bool skip;                                          // whether the input is added to the convolution
    float* output;
    const float* grad;                                  // of the output, where the weight's gradient is wanted
};

struct ResidualSizes {
    int64_t tiles, panels, points;                      // of the maps; of output channels; where filters are evaluated
    int64_t block, least, shared_block;                 // tiles worked on together: by a thread, at least; and by all
    size_t filters, scratch, shared;                    // floats: filters at the points; a thread's; tiles of a shared block
};

}  // namespace torchcaps

// The specification in double precision, written for clarity: one field at a time, votes and all.
#pragma once
#include "case.h"

namespace torchcaps { namespace testing {

using Doubles = std::vector<double>;

struct TwinInputs {
    Doubles pose, activation, weight, first, second, bandwidth;
};
struct TwinOutputs {
    Doubles pose, activation;
};

TwinInputs inputs_of(const Case& c);
TwinOutputs twin_forward(const Case& c, const TwinInputs& inputs);
// grad_out_pose . pose + grad_out_activation . activation
double twin_loss(const Case& c, const TwinInputs& inputs);

}}  // namespace

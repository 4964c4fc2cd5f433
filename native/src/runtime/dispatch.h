// Which kernels this machine runs.
#pragma once
#include <string>
#include <vector>

#include "../kernels.h"

namespace torchcaps {

const Kernels& kernels_in_use();
std::vector<std::string> compiled_paths();    // best first
std::vector<std::string> usable_paths();      // of those, what this CPU can run
void set_vector_path(const std::string& name);   // a name of the above, or "auto"; throws std::invalid_argument

}  // namespace torchcaps

#include "dispatch.h"

#include <atomic>
#include <stdexcept>

namespace torchcaps {
namespace {

struct Path {
    const Kernels* kernels;
    bool (*runs_here)();
};

// Best first. A new instruction set is one more line.
const Path paths[] = {
#ifdef TORCHCAPS_WITH_AVX2
    {&avx2_kernels,
     [] {
         __builtin_cpu_init();
         return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
     }},
#endif
    {&baseline_kernels, [] { return true; }},
};

const Kernels* best_path() {
    for (const Path& path : paths)
        if (path.runs_here()) return path.kernels;
    return &baseline_kernels;
}

std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

const Kernels& kernels_in_use() {
    const Kernels* kernels = chosen.load();
    if (!kernels) chosen.store(kernels = best_path());
    return *kernels;
}

std::vector<std::string> compiled_paths() {
    std::vector<std::string> names;
    for (const Path& path : paths) names.push_back(path.kernels->name);
    return names;
}
std::vector<std::string> usable_paths() {
    std::vector<std::string> names;
    for (const Path& path : paths)
        if (path.runs_here()) names.push_back(path.kernels->name);
    return names;
}

void set_vector_path(const std::string& name) {
    if (name == "auto") return chosen.store(best_path());
    std::string known = "'auto'";
    for (const Path& path : paths) {
        if (name == path.kernels->name) {
            if (!path.runs_here()) throw std::invalid_argument("vector path '" + name + "': this CPU does not have it");
            return chosen.store(path.kernels);
        }
        known += std::string(", '") + path.kernels->name + "'";
    }
    throw std::invalid_argument("vector path: got '" + name + "', expected one of " + known);
}

}  // namespace torchcaps

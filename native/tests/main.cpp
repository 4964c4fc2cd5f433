#include <chrono>

#include "case.h"

using namespace torchcaps::testing;

static void run(const char* name, void (*test)()) {
    const auto start = std::chrono::steady_clock::now();
    test();
    std::printf("%-8s ok  %.1f s\n", name, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    std::fflush(stdout);
}

int main() {
    std::printf("vector paths:");
    for (const std::string& path : torchcaps::usable_paths()) std::printf(" %s", path.c_str());
    std::printf("\n");
    run("primary", test_primary);
    run("residual", test_residual);
    run("runtime", test_runtime);
    run("limits", test_limits);
    run("values", test_values);
    return 0;
}

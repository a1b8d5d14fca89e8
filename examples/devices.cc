// SPDX-License-Identifier: BSD-2-Clause
// Prints the RDMA devices of this machine and the processors near to each: DeviceInfo, Locality,
// UarKernel, VerbsError.
#include <heddle/device.h>
#include <heddle/error.h>
#include <heddle/locality.h>
#include <heddle/usage.h>

#include <cstdio>

int main() {
    try {
        for (const heddle::DeviceInfo& device : heddle::devices()) {
            std::printf("%s: firmware %s, %u QPs of depth %u, port %s\n", device.name.c_str(),
                        device.firmware.c_str(), device.max_qps, device.max_qp_depth,
                        device.port_active ? "active" : "not active");
            const heddle::Locality locality = heddle::locality_of(device);
            std::printf("  NUMA node %d, %zu cores near to it of %zu, thread domains: %s\n",
                        locality.numa_node, locality.near_cores(), locality.cores(),
                        device.thread_domains ? "yes" : "no");
            if (!device.port_active) continue;
            if (const auto kernel = heddle::uar_kernel(device.name))
                std::printf("  UARs of a new context: %s\n",
                            *kernel == heddle::UarKernel::kStatic ? "static" : "on demand");
        }
    } catch (const heddle::VerbsError& error) {
        std::fprintf(stderr, "devices: %s\n", error.what());
        return 1;
    }
    return 0;
}

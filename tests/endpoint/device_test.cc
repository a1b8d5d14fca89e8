// SPDX-License-Identifier: BSD-2-Clause
// What a program reads of a device and of the processors near it.
#include "heddle/device.h"

#include <gtest/gtest.h>

#include "heddle/locality.h"

namespace heddle::test {
namespace {

TEST(Devices, AreDescribedBySysfsAndByTheDevice) {
    const std::vector<DeviceInfo> all = devices();
    ASSERT_EQ(all.size(), 1u);
    const DeviceInfo& device = all.front();
    EXPECT_EQ(device.name, "mlx5_0");
    EXPECT_EQ(device.board, "SFT0000000001");
    EXPECT_EQ(device.pci, "5afc:00:00.0");
    EXPECT_TRUE(device.mlx5);
    EXPECT_TRUE(device.software);
    EXPECT_TRUE(device.port_active);
    EXPECT_FALSE(device.firmware.empty());
    EXPECT_GT(device.max_qps, 0u);
}

// Several processors of a core are one core.
TEST(Localities, CountCoresNearTheDevice) {
    Locality locality;
    for (int number = 0; number < 8; ++number) {
        Processor processor;
        processor.number = number;
        processor.first_of_core = number < 5;
        processor.near = number < 3 || number == 7;
        locality.processors.push_back(processor);
    }
    EXPECT_EQ(locality.cores(), 5u);
    EXPECT_EQ(locality.near_cores(), 3u);
}

}  // namespace
}  // namespace heddle::test

// SPDX-License-Identifier: BSD-2-Clause
// What is reported as missing if there is no device, by what sysfs and /dev show. A tree in the
// scratch directory replaces both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "verbs/missing_device.h"

namespace heddle::verbs {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class MissingDevice : public ::testing::Test {
protected:
    MissingDevice() {
        std::string name = (fs::temp_directory_path() / "missing-device-XXXXXX").string();
        root = ::mkdtemp(name.data());
        sys = root / "sys";
        dev = root / "dev";
    }
    ~MissingDevice() override { fs::remove_all(root); }

    void add(const fs::path& file) const {
        fs::create_directories(file.parent_path());
        std::ofstream(file) << "6\n";
    }
    void add_modules() const { add(sys / "class/infiniband_verbs/abi_version"); }
    void add_kernel_device() const {
        add(sys / "class/infiniband/mlx5_3/node_type");
        add(sys / "class/infiniband_verbs/uverbs3/ibdev");
    }
    std::string why() const { return missing_device(sys, dev); }

    fs::path root, sys, dev;
};

TEST_F(MissingDevice, SysfsIsNotMounted) { EXPECT_THAT(why(), HasSubstr("mount -t sysfs")); }

TEST_F(MissingDevice, ModuleIsNotLoaded) {
    fs::create_directories(sys / "class/net");
    EXPECT_THAT(why(), HasSubstr("ib_uverbs is not loaded"));
    EXPECT_THAT(why(), HasSubstr("modprobe -a ib_uverbs mlx5_ib"));
}

TEST_F(MissingDevice, SysfsCannotBeRead) {
    fs::create_directories(sys / "class/infiniband_verbs");
    EXPECT_THAT(why(), HasSubstr("infiniband_verbs/abi_version cannot be read: No such file"));
}

TEST_F(MissingDevice, NoDriverOfTheKernelHasAnAdapter) {
    add_modules();
    EXPECT_THAT(why(), HasSubstr("lspci -d 15b3:"));
    EXPECT_THAT(why(), HasSubstr("modprobe mlx5_ib"));
}

TEST_F(MissingDevice, ContainerHasNoDeviceFile) {
    add_modules();
    add_kernel_device();
    EXPECT_THAT(why(), HasSubstr("the kernel has mlx5_3"));
    EXPECT_THAT(why(), HasSubstr("infiniband/uverbs3 does not exist"));
}

TEST_F(MissingDevice, LibibverbsHasNoDriver) {
    add_modules();
    add_kernel_device();
    add(dev / "infiniband/uverbs3");
    EXPECT_THAT(why(), HasSubstr("apt install ibverbs-providers"));
}

}  // namespace
}  // namespace heddle::verbs

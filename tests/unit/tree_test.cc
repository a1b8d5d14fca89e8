// SPDX-License-Identifier: BSD-2-Clause
// The discovery tree: its content, its links, its permissions, and its removal.
#include "softhca/device/tree.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "softhca/device/identity.h"
#include "softhca/device/tree_host.h"

namespace softhca::device {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kGuid = 0x0250'4f01'2345'6789ULL;
constexpr Port kPort{PortKind::kInfiniBand, kGuid, default_address(kGuid)};

class Tree : public testing::Test {
protected:
    void SetUp() override {
        std::string name = (fs::temp_directory_path() / "softhca-tree-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        above_ = name;
        root_ = above_ / "NAME.tree";
    }
    void TearDown() override { fs::remove_all(above_); }

    std::string read(const fs::path& path) const {
        std::ifstream file(root_ / path, std::ios::binary);
        EXPECT_TRUE(file.is_open()) << path;
        std::ostringstream text;
        text << file.rdbuf();
        return text.str();
    }

    fs::path above_, root_;
    const fs::path class_ = "sys/class/infiniband/mlx5_0";
};

TEST_F(Tree, SeveralDevicesAndPorts) {
    std::vector<Port> ports;
    for (unsigned index = 0; index < 4; ++index)
        ports.emplace_back(PortKind::kRoce, kGuid, 0x0aff'fffe, index, 2);
    ASSERT_EQ(write_tree(root_.string(), ports), 0);
    const fs::path second = "sys/class/infiniband/mlx5_1";
    EXPECT_EQ(read(class_ / "node_guid"), "0250:4f01:2345:6789\n");
    EXPECT_EQ(read(second / "node_guid"), "0250:4f01:2345:678b\n");
    EXPECT_EQ(read("sys/class/infiniband_verbs/uverbs1/dev"), "231:193\n");
    EXPECT_EQ(read("sys/class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
    EXPECT_TRUE(fs::is_directory(root_ / "sys/bus/pci/devices/5afc:00:01.0/net/softhca3"));
    // The addresses go round within their /8.
    EXPECT_EQ(read(class_ / "ports/2/gids/3"), "0000:0000:0000:0000:0000:ffff:0aff:ffff\n");
    EXPECT_EQ(read(second / "ports/1/gids/3"), "0000:0000:0000:0000:0000:ffff:0a00:0000\n");
    EXPECT_FALSE(fs::exists(root_ / second / "ports/3"));
    EXPECT_FALSE(fs::exists(root_ / "sys/class/infiniband/mlx5_2"));
}

TEST_F(Tree, WhatLibibverbsReads) {
    ASSERT_EQ(write_tree(root_.string(), {&kPort, 1}), 0);
    const fs::path uverbs = "sys/class/infiniband_verbs/uverbs0";
    EXPECT_EQ(read("sys/class/infiniband_verbs/abi_version"), "6\n");
    EXPECT_EQ(read(uverbs / "abi_version"), "1\n");
    EXPECT_EQ(read(uverbs / "ibdev"), "mlx5_0\n");
    EXPECT_EQ(read(uverbs / "dev"), "231:192\n");
    EXPECT_EQ(read(class_ / "node_type"), "1: CA\n");
    EXPECT_EQ(read(class_ / "node_guid"), "0250:4f01:2345:6789\n");
    EXPECT_EQ(read(class_ / "fw_ver"), "20.31.1014\n");
    EXPECT_EQ(read(class_ / "hca_type"), "MT4123\n");
    // What makes it choose the mlx5 provider.
    EXPECT_EQ(read(class_ / "device/modalias").rfind("pci:v000015B3d0000101Bsv", 0), 0U);
    EXPECT_EQ(read(class_ / "device/local_cpus"), host_processors().online_mask + "\n");
}

TEST_F(Tree, ThePort) {
    ASSERT_EQ(write_tree(root_.string(), {&kPort, 1}), 0);
    const fs::path port = class_ / "ports/1";
    EXPECT_EQ(read(port / "state"), "4: ACTIVE\n");
    EXPECT_EQ(read(port / "phys_state"), "5: LinkUp\n");
    EXPECT_EQ(read(port / "rate"), "200 Gb/sec (4X HDR)\n");
    EXPECT_EQ(read(port / "lid"), "0x1\n");
    EXPECT_EQ(read(port / "link_layer"), "InfiniBand\n");
    EXPECT_EQ(read(port / "cap_mask"), "0x2651e848\n");
    EXPECT_EQ(read(port / "gids/0"), "fe80:0000:0000:0000:0250:4f01:2345:6789\n");
    EXPECT_EQ(read(port / "gids/1"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
    EXPECT_EQ(read(port / "gid_attrs/types/0"), "IB/RoCE v1\n");
    EXPECT_EQ(read(port / "pkeys/0"), "0xffff\n");
    EXPECT_EQ(read(port / "pkeys/1"), "0x0000\n");
    const auto entries = [&](const char* name) {
        return std::distance(fs::directory_iterator(root_ / port / name), fs::directory_iterator());
    };
    EXPECT_EQ(entries("gids"), kGidTableLength);
    EXPECT_EQ(entries("gid_attrs/types"), kGidTableLength);
    EXPECT_EQ(entries("pkeys"), kPkeyTableLength);
    EXPECT_EQ(fs::exists(root_ / class_ / "ports/2"), false);
}

TEST_F(Tree, ThePciDevice) {
    ASSERT_EQ(write_tree(root_.string(), {&kPort, 1}), 0);
    const fs::path pci = "sys/bus/pci/devices/5afc:00:00.0";
    EXPECT_EQ(read(pci / "vendor"), "0x15b3\n");
    EXPECT_EQ(read(pci / "device"), "0x101b\n");
    EXPECT_EQ(read(pci / "class"), "0x020700\n");
    EXPECT_EQ(read(pci / "current_link_width"), "16\n");
    EXPECT_NE(read(pci / "uevent").find("PCI_SLOT_NAME=5afc:00:00.0\n"), std::string::npos);
    const std::string config = read(pci / "config");
    ASSERT_EQ(config.size(), 256U);
    EXPECT_EQ(config.substr(0, 4), "\xb3\x15\x1b\x10");
    EXPECT_EQ(config.substr(10, 2), "\x07\x02");
    EXPECT_EQ(config[static_cast<unsigned char>(config[0x34])], '\x10') << "PCI Express capability";
    EXPECT_EQ(fs::read_symlink(root_ / pci / "driver").filename(), "mlx5_core");
    EXPECT_EQ(fs::read_symlink(root_ / pci / "subsystem").filename(), "pci");
}

TEST_F(Tree, EveryLinkIsRelativeAndLeadsSomewhereInside) {
    ASSERT_EQ(write_tree(root_.string(), {&kPort, 1}), 0);
    unsigned links = 0;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
        if (!entry.is_symlink()) {
            continue;
        }
        ++links;
        EXPECT_TRUE(fs::read_symlink(entry).is_relative()) << entry;
        const fs::path target = fs::canonical(entry);
        EXPECT_EQ(target.string().rfind(fs::canonical(root_).string() + "/", 0), 0U) << entry;
    }
    EXPECT_EQ(links, 12U);
    EXPECT_EQ(fs::canonical(root_ / class_ / "device"),
              fs::canonical(root_ / "sys/bus/pci/devices/5afc:00:00.0"));
    EXPECT_EQ(fs::canonical(root_ / "dev/char/231:192"),
              fs::canonical(root_ / "dev/infiniband/uverbs0"));
}

TEST_F(Tree, OnlyItsOwnerHasAccess) {
    const mode_t old = ::umask(0);
    ASSERT_EQ(write_tree(root_.string(), {&kPort, 1}), 0);
    ::umask(old);
    struct stat status {};
    ASSERT_EQ(::lstat(root_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode, S_IFDIR | 0700U);
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
        ASSERT_EQ(::lstat(entry.path().c_str(), &status), 0);
        if (S_ISDIR(status.st_mode)) {
            EXPECT_EQ(status.st_mode, S_IFDIR | 0700U) << entry;
        } else if (!S_ISLNK(status.st_mode)) {
            EXPECT_EQ(status.st_mode, S_IFREG | 0600U) << entry;
        }
    }
}

TEST_F(Tree, ReplacesWhatAKilledProcessLeft) {
    fs::create_directories(root_ / "sys/class/stale/deep");
    std::ofstream(root_ / "sys/class/stale/deep/file") << "x";
    ASSERT_EQ(write_tree(root_.string(), {&kPort, 1}), 0);
    EXPECT_FALSE(fs::exists(root_ / "sys/class/stale"));
    ASSERT_EQ(write_tree(root_.string(), {&kPort, 1}), 0) << "a second time";
    EXPECT_EQ(read(class_ / "node_type"), "1: CA\n");
}

TEST_F(Tree, RemovalFollowsNoLink) {
    const fs::path other = above_ / "other";
    fs::create_directory(other);
    std::ofstream(other / "precious") << "x";
    ASSERT_EQ(write_tree(root_.string(), {&kPort, 1}), 0);
    fs::create_directory_symlink(other, root_ / "sys/class/trap");
    remove_tree(root_.string());
    EXPECT_FALSE(fs::exists(root_));
    EXPECT_TRUE(fs::exists(other / "precious"));

    // Nor is the root itself followed.
    fs::create_directory_symlink(other, root_);
    remove_tree(root_.string());
    EXPECT_TRUE(fs::exists(other / "precious"));
    EXPECT_NE(write_tree(root_.string(), {&kPort, 1}), 0);
    EXPECT_TRUE(fs::exists(other / "precious"));
    EXPECT_EQ(std::distance(fs::directory_iterator(other), fs::directory_iterator()), 1);
}

TEST_F(Tree, RemovesManyEntriesAndToleratesNothing) {
    fs::create_directories(root_ / "many");
    for (int i = 0; i < 3000; ++i) {
        std::ofstream(root_ / "many" / ("a_rather_long_name_" + std::to_string(i)));
    }
    remove_tree(root_.string());
    EXPECT_FALSE(fs::exists(root_));
    remove_tree(root_.string());
    remove_tree("/nonexistent/tree");
}

TEST_F(Tree, AnErrorLeavesNothing) {
    EXPECT_EQ(write_tree((above_ / "missing/NAME.tree").string(), {&kPort, 1}), ENOENT);
    EXPECT_FALSE(fs::exists(above_ / "missing"));
}

TEST(ProcessorMask, AsSysfsPrintsThem) {
    EXPECT_EQ(processor_mask("0-1", 2), "3");
    EXPECT_EQ(processor_mask("0", 1), "1");
    EXPECT_EQ(processor_mask("0-3,8", 12), "10f");
    EXPECT_EQ(processor_mask("0-31", 32), "ffffffff");
    EXPECT_EQ(processor_mask("0-39", 40), "ff,ffffffff");
    EXPECT_EQ(processor_mask("32", 64), "00000001,00000000");
    EXPECT_EQ(processor_mask("0,64", 65), "1,00000000,00000001");
    EXPECT_EQ(processor_mask("0-7", 4), "f") << "beyond what there can be";
}

TEST(ProcessorMask, RefusesWhatIsNoList) {
    for (const char* list : {"", "x", "1-", "3-1", "1,", ",1", "0-1 ", "1;2", "99999999", "-1"}) {
        EXPECT_EQ(processor_mask(list, 64), "") << list;
    }
}

TEST(HostProcessors, AreThoseOnline) {
    const HostProcessors host = host_processors();
    EXPECT_FALSE(host.online_list.empty());
    unsigned long bits = 0;
    for (const char digit : host.online_mask) {
        bits += digit == ',' ? 0
                             : static_cast<unsigned long>(__builtin_popcount(static_cast<unsigned>(
                                   std::stoi(std::string(1, digit), nullptr, 16))));
    }
    EXPECT_EQ(bits, static_cast<unsigned long>(::sysconf(_SC_NPROCESSORS_ONLN)));
    EXPECT_GE(host.numa_node, -1);
}

}  // namespace
}  // namespace softhca::device

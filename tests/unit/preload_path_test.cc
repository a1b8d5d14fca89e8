// SPDX-License-Identifier: BSD-2-Clause
// Path redirection, its text side: what is ours, what is certainly not, and what a path means.
#include "softhca/preload/path.h"

#include <cerrno>
#include <string>

#include <gtest/gtest.h>

namespace softhca::preload {
namespace {

// One symbolic link of each kind, and everything else a plain directory.
bool example_links(PathBuffer* path) {
    if (path->view() == "/sys/class/infiniband/mlx5_0") {
        return path->assign("/sys/devices/pci5afc:00/5afc:00:00.0/infiniband/mlx5_0");
    }
    if (path->view() == "/link") {
        return path->assign("/elsewhere/deep");
    }
    return path->view() != "/missing";
}

std::string meaning(const char* base, const char* path) {
    PathBuffer out;
    Walk steps{};
    const int error = walk(base, path, example_links, &out, &steps);
    if (error != 0) {
        return "error " + std::to_string(error);
    }
    return std::string(out.view()) + (steps.trailing_slash ? "/" : "");
}

TEST(PreloadPath, NormalisesSegments) {
    EXPECT_EQ(meaning("/", "/sys/class/infiniband"), "/sys/class/infiniband");
    EXPECT_EQ(meaning("/", "//sys///class/./infiniband/"), "/sys/class/infiniband/");
    EXPECT_EQ(meaning("/", "/sys/./."), "/sys/");
    EXPECT_EQ(meaning("/", "/"), "/");
    EXPECT_EQ(meaning("/", "/..//../sys"), "/sys");
    EXPECT_EQ(meaning("/", "/tmp/../sys/class/../class/net"), "/sys/class/net");
    EXPECT_EQ(meaning("/", "/sys/..."), "/sys/...");
    EXPECT_EQ(meaning("/", "/sys/..a/b.."), "/sys/..a/b..");
}

TEST(PreloadPath, ResolvesAgainstABase) {
    EXPECT_EQ(meaning("/", "sys/class"), "/sys/class");
    EXPECT_EQ(meaning("/sys/class", "infiniband/mlx5_0"), "/sys/class/infiniband/mlx5_0");
    EXPECT_EQ(meaning("/sys/class", "../bus"), "/sys/bus");
    EXPECT_EQ(meaning("/sys/class", "."), "/sys/class/");
    EXPECT_EQ(meaning("/sys/class", "/dev/null"), "/dev/null");
    EXPECT_EQ(meaning("/sys", ""), "error " + std::to_string(ENOENT));
}

TEST(PreloadPath, FollowsLinksInFrontOfParent) {
    EXPECT_EQ(meaning("/", "/sys/class/infiniband/mlx5_0/../.."),
              "/sys/devices/pci5afc:00/5afc:00:00.0/");
    EXPECT_EQ(meaning("/", "/link/../x"), "/elsewhere/x");
    // Only there: the kernel follows the others.
    EXPECT_EQ(meaning("/", "/link/x"), "/link/x");
    EXPECT_EQ(meaning("/", "/missing/../sys"), "error " + std::to_string(EAGAIN));
}

TEST(PreloadPath, SaysWhenAWalkLeftOurs) {
    PathBuffer out;
    Walk steps{};
    ASSERT_EQ(walk("/", "/sys/class/infiniband/../net", example_links, &out, &steps), 0);
    EXPECT_EQ(out.view(), "/sys/class/net");
    EXPECT_TRUE(steps.crossed_ours);
    ASSERT_EQ(walk("/", "/sys/class/net/../infiniband", example_links, &out, &steps), 0);
    EXPECT_FALSE(steps.crossed_ours);
}

TEST(PreloadPath, RefusesWhatIsTooLong) {
    const std::string segment(250, 'x');
    std::string path;
    while (path.size() + segment.size() + 1 < PATH_MAX) {
        path += "/" + segment;
    }
    EXPECT_EQ(meaning("/", path.c_str()), path);
    EXPECT_EQ(meaning("/", (path + "/" + segment).c_str()),
              "error " + std::to_string(ENAMETOOLONG));
    EXPECT_EQ(meaning(path.c_str(), segment.c_str()), "error " + std::to_string(ENAMETOOLONG));
}

TEST(PreloadPath, ClaimsExactlyOurs) {
    for (const char* path :
         {"/sys/class/infiniband", "/sys/class/infiniband/mlx5_0/ports/1/lid",
          "/sys/class/infiniband_verbs", "/sys/class/infiniband_verbs/uverbs0/dev",
          // These belong to the host's hardware; softhca reports them as absent.
          "/sys/class/infiniband_mad", "/sys/class/infiniband_cm/x", "/dev/infiniband",
          "/dev/infiniband/rdma_cm2", "/dev/infiniband/uverbs8", "/dev/infiniband/uverbs0x",
          "/sys/devices/pci5afc:00", "/sys/devices/pci5afc:00/5afc:00:00.0/vendor",
          "/sys/bus/pci/devices/5afc:00:00.0", "/sys/bus/pci/devices/5afc:00:00.0/net",
          "/sys/dev/char/231:192", "/sys/bus/pci/drivers/mlx5_core/5afc:00:00.0",
          "/sys/dev/char/231:199", "/sys/bus/pci/devices/5afc:00:07.0/net"}) {
        EXPECT_EQ(claim_of(path), Claim::kTree) << path;
    }
    for (const char* path :
         {"", "/", "/sys", "/sys/class", "/sys/class/infini", "/sys/class/net", "/dev",
          "/dev/infiniband2", "/dev/null", "/dev/char/231:1920", "/sys/devices/pci5afc:001",
          "/sys/devices/pci0000:00", "/sys/bus/pci/devices", "/sys/bus/pci/devices/5afc:00:00.01",
          "/sys/dev/char/231:200", "/sys/bus/pci/devices/5afc:00:08.0", "/home/dev/infiniband",
          "/sys/bus/pci/drivers/mlx5_core"}) {
        EXPECT_EQ(claim_of(path), Claim::kNone) << path;
    }
    EXPECT_EQ(claim_of("/dev/infiniband/uverbs0"), Claim::kDevice);
    EXPECT_EQ(claim_of("/dev/infiniband/rdma_cm"), Claim::kManager);
    EXPECT_EQ(claim_of("/dev/char/231:192"), Claim::kDeviceLink);
    unsigned device = 0;
    EXPECT_EQ(claim_of("/dev/infiniband/uverbs7", &device), Claim::kDevice);
    EXPECT_EQ(device, 7U);
    EXPECT_EQ(claim_of("/dev/char/231:194", &device), Claim::kDeviceLink);
    EXPECT_EQ(device, 2U);
}

TEST(PreloadPath, FastTestNeverMissesOurs) {
    for (const char* path : {"/sys/class/infiniband", "//sys/class/infiniband", "/./dev/infiniband",
                             "/../dev/infiniband/uverbs0", "/tmp/../sys/class/infiniband_verbs",
                             "/a/b/../../dev/char/231:192", "/sys/devices/pci5afc:00/x",
                             "/sys/bus/pci/devices/5afc:00:00.0", "/sys/dev/char/231:192"}) {
        EXPECT_FALSE(foreign_absolute(path)) << path;
    }
    for (const char* path : {"/", "/sys", "/sys/class/net/lo", "/dev/null", "/usr/lib/x.so",
                             "/home/u/infiniband", "/proc/self/maps", "/tmp/../etc/passwd",
                             "/dev/shm/file", "/sys/devices/system/cpu/online"}) {
        EXPECT_TRUE(foreign_absolute(path)) << path;
    }
}

TEST(PreloadPath, RelativePathsThatMayBeOurs) {
    for (const char* path :
         {"infiniband", "class/infiniband/mlx5_0", "uverbs0", "231:192", "uverbs7", "231:199",
          "pci5afc:00", "5afc:00:00.0/vendor", "x/y/infiniband_verbs"}) {
        EXPECT_TRUE(mentions_device(path)) << path;
    }
    for (const char* path : {"", "x", "infini", "uverb", "5afc:0", "231", "a.out", "231:2"}) {
        EXPECT_FALSE(mentions_device(path)) << path;
    }
    EXPECT_TRUE(has_parent_segment(".."));
    EXPECT_TRUE(has_parent_segment("../x"));
    EXPECT_TRUE(has_parent_segment("x/.."));
    EXPECT_TRUE(has_parent_segment("...x/../y"));
    EXPECT_FALSE(has_parent_segment("..."));
    EXPECT_FALSE(has_parent_segment("x..y/..z/w.."));
    EXPECT_FALSE(has_parent_segment(""));
}

TEST(PreloadPath, BufferKeepsItsBounds) {
    PathBuffer buffer;
    const std::string most(PATH_MAX - 1, 'x');
    EXPECT_TRUE(buffer.assign(most));
    EXPECT_EQ(buffer.length(), most.size());
    EXPECT_EQ(buffer.c_str()[most.size()], '\0');
    EXPECT_FALSE(buffer.append("y"));
    EXPECT_FALSE(buffer.push(""));
    EXPECT_EQ(buffer.view(), most);
    EXPECT_FALSE(buffer.assign(most + "y"));
    EXPECT_EQ(buffer.length(), 0U);
    EXPECT_TRUE(buffer.push("a"));
    EXPECT_TRUE(buffer.push("bc"));
    EXPECT_EQ(buffer.view(), "/a/bc");
    buffer.pop();
    EXPECT_EQ(buffer.view(), "/a");
    buffer.pop();
    buffer.pop();
    EXPECT_EQ(buffer.view(), "");
}

}  // namespace
}  // namespace softhca::preload

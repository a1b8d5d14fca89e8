// SPDX-License-Identifier: BSD-2-Clause
// The fabric's segment, as any process of the same user can map and change it.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "softhca/device/segment.h"
#include "verbs_fixture.h"

namespace softhca::test {

class SegmentFile {
public:
    SegmentFile() {
        const char* fabric = std::getenv("SOFTHCA_FABRIC");
        const std::string path = "/dev/shm/softhca-" + std::to_string(geteuid()) + "/" +
                                 (fabric != nullptr ? fabric : "default") + ".fabric";
        const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (fd < 0) fail("open " + path);
        void* at =
            mmap(nullptr, sizeof(device::Segment), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (at == MAP_FAILED) fail("mmap " + path);
        segment_ = static_cast<device::Segment*>(at);
    }
    SegmentFile(SegmentFile&&) = delete;
    ~SegmentFile() { munmap(segment_, sizeof(device::Segment)); }
    device::Segment& operator*() const { return *segment_; }
    device::Segment* operator->() const { return segment_; }

private:
    device::Segment* segment_;
};

}  // namespace softhca::test

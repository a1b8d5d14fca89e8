// SPDX-License-Identifier: BSD-2-Clause
// What the fuzz targets of softhca share: a fabric of their own, ioctl calls as libibverbs makes
// them (rdma/rdma_user_ioctl_cmds.h), and memory between inaccessible pages.
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "input.h"
#include "softhca/device/segment.h"

namespace softhca::fuzz {

// Names a fabric for this process alone, before anything joins it, and removes what earlier runs of
// the same target left when they crashed. Begins the program anew, with `arguments`, the first
// time.
void use_own_fabric(const char* target, char** arguments);

// libFuzzer has a thread that watches the memory in use. It writes nothing that softhca shares, so
// that it may count as one of softhca's own: then pages are shared as in a program of one thread.
// To be called when all threads are there.
void count_threads_as_own();

// One ioctl: a header and its attributes.
class Call {
public:
    Call(std::uint16_t object, std::uint16_t method) : object_(object), method_(method) {}

    ib_uverbs_attr& add(std::uint16_t id, std::uint64_t data, std::uint16_t length);
    // Inputs of up to eight bytes travel in the attribute itself.
    void in(std::uint16_t id, const void* from, std::size_t length);
    void out(std::uint16_t id, void* to, std::size_t length);
    ib_uverbs_attr* last() { return count_ ? &attributes_[count_ - 1] : nullptr; }
    // 0 or the errno.
    int run(int fd);

    struct Header {
        std::uint16_t length, object, method, attributes;
        std::uint64_t reserved1;
        std::uint32_t driver, reserved2;
    };
    static_assert(sizeof(Header) == sizeof(ib_uverbs_ioctl_hdr));
    // The header that run() would send. A target corrupts it, then sends it with send().
    Header header() const;
    int send(int fd, const Header& header);

    // After run(): what the attribute was set to, for new handles.
    std::uint64_t data_of(std::uint16_t id) const;

private:
    static constexpr std::size_t kMost = 16;
    std::uint16_t object_, method_, count_ = 0;
    std::array<ib_uverbs_attr, kMost> attributes_{};
};

// A segment that nobody shares, all zeros at first: always the same one.
device::Segment& segment();

// Memory of `length` bytes (whole pages) with inaccessible pages before and behind it.
std::byte* guarded_pages(std::size_t length, int protection, int flags, int fd = -1);

}  // namespace softhca::fuzz

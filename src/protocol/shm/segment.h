// SPDX-License-Identifier: BSD-2-Clause
// The memory of a ring (wire/shm_layout.h): a memfd of the sender, which the receiver opens by
// /proc/PID/fd/N. It has no name, so that nothing is left behind whatever ends either process, and
// no file system limits it. Its size is sealed, so that neither side can take pages from the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/wire/shm_layout.h"
#include "protocol/wire/wire.h"

namespace heddle::protocol {

class ShmSegment {
public:
    // The sender's: zero behind its ShmControl. All pages are there. Throws std::system_error.
    explicit ShmSegment(const ShmShape& shape);
    // The receiver's: the one that its peer has. What is not such a ring is refused. Throws
    // std::system_error.
    explicit ShmSegment(const ShmOpenBody& peers);
    ~ShmSegment();
    ShmSegment(const ShmSegment&) = delete;
    ShmSegment& operator=(const ShmSegment&) = delete;

    std::byte* memory() const noexcept { return memory_; }
    const ShmShape& shape() const noexcept { return shape_; }

    // The sender's: what the receiver has to know, which opens the memory while the descriptor is
    // open; and what it has answered.
    ShmOpenBody body() const noexcept;
    ShmControl::Answer answer() const noexcept;
    bool must_sender_fence() const noexcept;
    void close_descriptor() noexcept;
    // The receiver's. can_read: the memory of the sender's process. can_fence: the receiver can
    // make barriers there.
    void accept(bool can_read, bool can_fence) noexcept;
    void refuse() noexcept;

private:
    void map(int fd);

    const ShmShape shape_;
    int fd_ = -1;
    std::byte* memory_ = nullptr;
};

}  // namespace heddle::protocol

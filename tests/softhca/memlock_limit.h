// SPDX-License-Identifier: BSD-2-Clause
// How much a process may lock, for tests of what is registered beyond that.
#pragma once

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>

namespace softhca::test {

// RLIMIT_MEMLOCK of this process, and that this thread, and those it starts, have no CAP_IPC_LOCK
// (or have it, if that is allowed); as before at the end.
class MemlockLimit {
public:
    explicit MemlockLimit(std::size_t bytes, bool privileged = false) {
        EXPECT_EQ(getrlimit(RLIMIT_MEMLOCK, &before_), 0);
        set(bytes);
        EXPECT_EQ(syscall(SYS_capget, &header_, capabilities_), 0);
        __user_cap_data_struct changed[_LINUX_CAPABILITY_U32S_3] = {capabilities_[0],
                                                                    capabilities_[1]};
        changed[0].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
        if (privileged)
            changed[0].effective |= capabilities_[0].permitted & CAP_TO_MASK(CAP_IPC_LOCK);
        EXPECT_EQ(syscall(SYS_capset, &header_, changed), 0);
    }
    MemlockLimit(const MemlockLimit&) = delete;
    MemlockLimit& operator=(const MemlockLimit&) = delete;
    ~MemlockLimit() {
        EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &before_), 0);
        EXPECT_EQ(syscall(SYS_capset, &header_, capabilities_), 0);
    }
    void set(std::size_t bytes) {
        rlimit limit = before_;
        limit.rlim_cur = bytes;
        EXPECT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0)
            << bytes << " bytes: the hard limit is " << before_.rlim_max;
    }
    // As much as this process may have.
    void lift() { set(before_.rlim_max); }
    bool may_be_privileged() const {
        return capabilities_[0].permitted & CAP_TO_MASK(CAP_IPC_LOCK);
    }

private:
    __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct capabilities_[_LINUX_CAPABILITY_U32S_3] = {};
    rlimit before_{};
};

}  // namespace softhca::test

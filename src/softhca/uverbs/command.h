// SPDX-License-Identifier: BSD-2-Clause
// The buffers of one command: the core's request and response (rdma/ib_user_verbs.h) and the
// driver's private ones (UHW; rdma/mlx5-abi.h). As in the kernel, a request that is too short is
// padded with zeros, and a response is truncated to the buffer's length. No pointer is trusted: a
// bad one gives EFAULT, not a crash.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/uverbs/context.h"

namespace softhca::uverbs {

// Copy between our memory and memory at an address that the application passed. 0 or EFAULT.
int copy_in(void* to, std::uint64_t from, std::size_t length) noexcept;
int copy_out(std::uint64_t to, const void* from, std::size_t length) noexcept;

struct Buffer {
    std::uint64_t address = 0;
    std::size_t length = 0;
    bool present() const noexcept { return address != 0 && length != 0; }
};

struct Command {
    DeviceContext& context;
    std::uint32_t number;
    bool extended;
    Buffer core_in, core_out, driver_in, driver_out;

    device::Fabric& fabric() const noexcept {
        SOFTHCA_DEBUG_ASSERT(context.fabric != nullptr);
        return *context.fabric;
    }
    device::Segment& segment() const noexcept { return context.fabric->segment(); }

    template <class T>
    int request(T& value) const noexcept {
        return read(core_in, value);
    }
    template <class T>
    int driver_request(T& value) const noexcept {
        return read(driver_in, value);
    }
    template <class T>
    int respond(const T& value) const noexcept {
        return write(core_out, &value, sizeof value);
    }
    template <class T>
    int driver_respond(const T& value) const noexcept {
        return write(driver_out, &value, sizeof value);
    }

private:
    template <class T>
    static int read(const Buffer& from, T& value) noexcept {
        static_assert(std::is_trivially_copyable_v<T>);
        memset(static_cast<void*>(&value), 0, sizeof value);
        if (!from.present()) return 0;
        return copy_in(&value, from.address,
                       from.length < sizeof value ? from.length : sizeof value);
    }
    static int write(const Buffer& to, const void* value, std::size_t size) noexcept {
        if (!to.present()) return 0;
        return copy_out(to.address, value, to.length < size ? to.length : size);
    }
};

// Each returns 0 or an errno.
int get_context(Command& command) noexcept;
int query_device(Command& command) noexcept;
int query_port(Command& command) noexcept;
int alloc_pd(Command& command) noexcept;
int dealloc_pd(Command& command) noexcept;
int reg_mr(Command& command) noexcept;
int rereg_mr(Command& command) noexcept;
int dereg_mr(Command& command) noexcept;
int alloc_mw(Command& command) noexcept;
int dealloc_mw(Command& command) noexcept;
int create_comp_channel(Command& command) noexcept;
int create_cq(Command& command) noexcept;
int resize_cq(Command& command) noexcept;
int modify_cq(Command& command) noexcept;
int destroy_cq(Command& command) noexcept;
int create_qp(Command& command) noexcept;
int open_qp(Command& command) noexcept;
int modify_qp(Command& command) noexcept;
int query_qp(Command& command) noexcept;
int destroy_qp(Command& command) noexcept;
int create_srq(Command& command) noexcept;  // CREATE_SRQ and CREATE_XSRQ
int modify_srq(Command& command) noexcept;
int query_srq(Command& command) noexcept;
int destroy_srq(Command& command) noexcept;
int open_xrcd(Command& command) noexcept;
int close_xrcd(Command& command) noexcept;
int attach_mcast(Command& command) noexcept;
int detach_mcast(Command& command) noexcept;
int create_ah(Command& command) noexcept;
int destroy_ah(Command& command) noexcept;
int destroy_ah(DeviceContext& context, std::uint32_t handle) noexcept;

// Runs one write command, IB_USER_VERBS_CMD_*, with or without IB_USER_VERBS_CMD_FLAG_EXTENDED.
int run_command(Command& command) noexcept;

// The functions below also serve closing a context. They work on objects of this process only.
// The events that were sent for an object. It is read when no thread can send more of them.
struct EventsSent {
    std::uint32_t completion = 0, async = 0;
};
EventsSent free_cq(DeviceContext& context, std::uint32_t index) noexcept;
EventsSent free_qp(DeviceContext& context, std::uint32_t index) noexcept;
EventsSent free_srq(DeviceContext& context, std::uint32_t index) noexcept;
// The number of events that the application has read. It waits until it has acknowledged as many.
inline std::uint32_t events_read(std::uint32_t sent, std::uint32_t removed) noexcept {
    return sent > removed ? sent - removed : 0;
}
void free_mr(DeviceContext& context, std::uint32_t index) noexcept;
void free_mw(DeviceContext& context, std::uint32_t index) noexcept;

// What this process knows of its region, whatever becomes of the record in the segment. False:
// there is no memory for it.
bool keep_region(std::uint32_t index, std::uint64_t address, std::uint64_t length,
                 const device::memory::Extents& extents) noexcept;
// Adds the shared bytes of a region to the process's count, or takes them away.
void account_shared(device::Fabric& fabric, const device::memory::Extents& extents,
                    bool add) noexcept;

// Pins a buffer or a doorbell record of the driver (pinned.h), and makes it reachable by peers.
// Returns 0 or an errno; after an error `out` is empty.
int share_queue(Command& command, std::uint64_t address, std::uint64_t length,
                device::QueueMemory* out, device::memory::Extents* extents) noexcept;
int share_record(Command& command, std::uint64_t address, device::QueueMemory* out,
                 device::memory::Extents* extents) noexcept;

}  // namespace softhca::uverbs

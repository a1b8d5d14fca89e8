// SPDX-License-Identifier: BSD-2-Clause
// The objects that wqe_fuzz works on: one context, made once by commands as libmlx5 issues them
// (rdma/ib_user_verbs.h, rdma/mlx5-abi.h), and put back to its beginning before each input. All
// queues and regions lie in one block of memory, apart from each other; what lies between them is
// checked.
#pragma once

#include <endian.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <type_traits>
#include <vector>

#include "softhca/device/fabric.h"
#include "softhca/device/identity.h"
#include "support.h"

namespace softhca::fuzz {

inline constexpr std::uint32_t kQkey = 0x11111111;
inline constexpr unsigned kReceives = 8, kReceiveBytes = 64;  // of every receive queue

struct MemoryPart {
    std::uint64_t address = 0;
    std::uint64_t length = 0;
    std::uint32_t key = 0;  // of regions

    std::byte* bytes() const {
        return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
    }
    // of a doorbell record
    std::uint32_t word(unsigned n) const {
        std::uint32_t value;
        std::memcpy(&value, bytes() + n * 4, sizeof value);
        return be32toh(value);
    }
    void set_word(unsigned n, std::uint32_t value) const {
        value = htobe32(value);
        std::memcpy(bytes() + n * 4, &value, sizeof value);
    }
};

struct CompletionQueue {
    std::uint32_t index = 0;
    MemoryPart ring, record;
};

struct SharedQueue {
    std::uint32_t index = 0, number = 0;
    MemoryPart ring, record;
};

struct Queue {
    std::uint32_t index = 0, number = 0, type = 0;
    std::size_t peer = 0;         // in World.queues
    std::uint32_t choices = ~0u;  // of the last connect()
    MemoryPart receive_ring, send_ring, record;

    std::uint16_t posted() const { return static_cast<std::uint16_t>(record.word(1)); }
    void set_posted(std::uint16_t value) const { record.set_word(1, value); }
};

class World {
public:
    World();
    // Everything as it was made, all queue pairs connected and ready to send. `choices`: timers and
    // how often to retry.
    void begin(std::uint32_t choices);
    // Aborts when something was written that lies between the parts, or was copied from there.
    void check();

    // Undoes what inputs corrupted in the segment. Restores all records as they were made, and
    // the memory between the parts, which a record may have named as a queue.
    void restore();
    // One command; its errno. Objects that an input makes lie in `spare`.
    template <class Request, class Driver, class Answer>
    int attempt(std::uint32_t number, const Request& request, const Driver& driver, Answer* answer);

    // As connect() with these choices left it?
    bool untouched(const Queue& queue, std::uint32_t choices);
    void modify(Queue& queue, std::uint32_t state);
    void connect(Queue& queue, std::uint32_t choices);

    device::Fabric& fabric() { return *device::Fabric::current(); }
    device::Segment& segment() { return fabric().segment(); }

    bool is_corrupt = false;  // the segment is, so that commands may be refused
    std::vector<Queue> queues;
    std::vector<CompletionQueue> cqs;
    SharedQueue srq, xrc_srq;
    std::uint8_t group_gid[16] = {0xff, 0x12};  // of a multicast group that all UD QPs are in
    std::vector<MemoryPart> regions;            // registered
    std::vector<std::uint32_t> windows;         // memory windows: their indices
    std::vector<std::uint32_t> mkeys;           // indirect keys: their indices
    std::vector<MemoryPart> queue_parts;        // rings
    std::vector<MemoryPart> records;
    std::vector<std::byte*> holes;  // pages in the middle of a region, to be replaced
    MemoryPart spare;
    std::uint32_t pd = 0, xrcd = 0, uar = 0, context = 0;
    int channel = -1;

private:
    struct Record {
        void* at;
        std::vector<std::byte> bytes;
    };
    template <class Table>
    void remember(Table& table);
    void remember(void* at, std::size_t bytes);
    MemoryPart part(std::uint64_t length);
    void add_cq(std::uint32_t entries, std::uint32_t entry_bytes, bool events);
    void add_srq(SharedQueue& queue, bool xrc);
    void add_queue(std::uint32_t type, std::uint32_t blocks, std::size_t peer, bool shared_receive,
                   std::size_t send_cq, std::size_t receive_cq);
    void add_region(const MemoryPart& part, std::uint32_t access, std::uint32_t pd);
    void add_window(std::uint8_t type);
    void add_mkey(std::uint32_t parts);
    void join_group(const Queue& queue);
    void post_receives();
    void read_events(int fd);
    template <class Request, class Driver, class Answer>
    void command(std::uint32_t number, const Request& request, const Driver& driver,
                 Answer* answer);

    int fd_ = -1, async_fd_ = -1;
    std::uint32_t other_pd_ = 0;
    std::byte* block_ = nullptr;
    std::size_t used_ = 0;
    std::vector<MemoryPart> parts_;  // ascending
    std::vector<Record> records_;    // of the segment, as they were made
};

// No driver's part, or no answer.
struct None {};

template <class Request, class Driver, class Answer>
int World::attempt(std::uint32_t number, const Request& request, const Driver& driver,
                   Answer* answer) {
    Call call(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    call.add(UVERBS_ATTR_WRITE_CMD, number, 0);
    call.in(UVERBS_ATTR_CORE_IN, &request, sizeof request);
    if constexpr (!std::is_same_v<Driver, None>)
        call.in(UVERBS_ATTR_UHW_IN, &driver, sizeof driver);
    if constexpr (!std::is_same_v<Answer, None>)
        call.out(UVERBS_ATTR_CORE_OUT, answer, sizeof *answer);
    return call.run(fd_);
}

}  // namespace softhca::fuzz

// SPDX-License-Identifier: BSD-2-Clause
// A QP that is connected to itself, posted to and polled by the direct path, and the memory that
// its messages come from and go to.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "heddle/endpoint.h"
#include "tests/endpoint/address_of.h"
#include "verbs/connection.h"
#include "verbs/handles.h"
#include "verbs/open_device.h"

namespace heddle::post::test {

inline constexpr std::uint32_t kDepth = 16;
inline constexpr std::size_t kOut = 0, kIn = 4096, kSlot = 512, kMemory = kIn + kDepth * kSlot;

// Returns a number from 1 to n.
inline std::uint32_t below(std::mt19937& random, std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(1, n)(random);
}

inline void fill(std::byte* at, std::size_t bytes, std::uint32_t seed) {
    for (std::size_t i = 0; i < bytes; ++i)
        at[i] = static_cast<std::byte>(seed * 31 + i * 7);
}

using Srq = std::unique_ptr<ibv_srq, verbs::Destroy<ibv_destroy_srq>>;

struct Memory {
    verbs::Context context = verbs::open_device("").context;
    verbs::ProtectionDomain pd{ibv_alloc_pd(context.get())};
    std::vector<std::byte> bytes = std::vector<std::byte>(kMemory);
    verbs::MemoryRegion mr{ibv_reg_mr(pd.get(), bytes.data(), bytes.size(),
                                      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                          IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_WRITE)};
    ibv_sge piece(std::size_t at, std::size_t length) const {
        return {address_of(bytes.data()) + at, static_cast<std::uint32_t>(length), mr->lkey};
    }
};

inline Srq shared_queue(const Memory& memory) {
    ibv_srq_init_attr attributes{};
    attributes.attr = {kDepth, 3, 0};
    Srq srq(ibv_create_srq(memory.pd.get(), &attributes));
    if (!srq) throw VerbsError("a shared receive queue", errno);
    return srq;
}

// A QP that is connected to itself, posted to and polled by the direct path.
template <class Lock = SingleThreaded>
struct Loop {
    struct Options {
        ibv_srq* srq = nullptr;  // else it has receives of its own
        ibv_comp_channel* channel = nullptr;
        bool signal_all = false;
    };
    Loop(const Memory& memory, const Options& o)
        : cq(ibv_create_cq(memory.context.get(), 128, nullptr, o.channel, 0)),
          qp(make(memory, o)),
          send(qp.get(), o.signal_all, 200, false),
          completions(cq.get()) {
        completions.add(send);
    }
    verbs::QueuePair make(const Memory& memory, const Options& o) const {
        ibv_qp_init_attr a{};
        a.send_cq = a.recv_cq = cq.get();
        a.srq = o.srq;
        a.qp_type = IBV_QPT_RC;
        a.sq_sig_all = o.signal_all ? 1 : 0;
        a.cap = {kDepth, o.srq != nullptr ? 0 : kDepth, 3, o.srq != nullptr ? 0u : 3u, 200};
        verbs::QueuePair made(ibv_create_qp(memory.pd.get(), &a));
        if (!made) throw VerbsError("a queue pair", errno);
        verbs::connect_locally(made.get(), made.get());
        return made;
    }
    Completion wait() {
        Completion completion;
        while (completions.poll(&completion, 1) == 0) {
        }
        return completion;
    }

    verbs::CompletionQueue cq;
    verbs::QueuePair qp;
    Mlx5SendQueue<Lock> send;
    Mlx5CompletionQueue<Lock> completions;
};

// With a receive queue of its own.
struct OwnReceives : Loop<> {
    explicit OwnReceives(const Memory& memory, ibv_comp_channel* channel = nullptr)
        : Loop(memory, {nullptr, channel, false}), receive(qp.get()) {
        completions.add(receive);
    }
    Mlx5ReceiveQueue<SingleThreaded> receive;
};

// Divides a message into up to three SGEs, some of them empty.
inline std::vector<ibv_sge> cut(const Memory& memory, std::size_t at, std::uint32_t length,
                                std::mt19937& random) {
    std::vector<ibv_sge> sges;
    std::uint32_t from = 0;
    for (int i = 0; i < 3; ++i) {
        const std::uint32_t part =
            i == 2 ? length - from
                   : std::uniform_int_distribution<std::uint32_t>(0, length - from)(random);
        if (part != 0 || random() % 2 == 0) sges.push_back(memory.piece(at + from, part));
        from += part;
    }
    return sges;
}

}  // namespace heddle::post::test

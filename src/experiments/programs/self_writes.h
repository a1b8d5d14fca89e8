// SPDX-License-Identifier: BSD-2-Clause
// 8-byte inline RDMA writes of an endpoint to itself, one after the other. Nearly all their
// instructions are those of posting, and of polling for the completion.
#pragma once

#include <cstdint>
#include <cstdlib>

#include "heddle/detail/assert.h"
#include "heddle/endpoint.h"

namespace heddle::bench {

// The endpoint is connected to itself.
inline void write_to_itself(Endpoint& e, int count) {
    HEDDLE_ASSERT(count > 0 && e.mr() != nullptr, "the endpoint has a buffer to write to");
    const auto address = reinterpret_cast<std::uintptr_t>(e.buffer());
    const std::uint32_t local_key = e.mr()->lkey, remote_key = e.mr()->rkey;
    e.visit([&](auto& queues) {
        auto& send = queues.send();
        auto& completions = queues.completions();
        post::Completion completion;
        for (int i = 0; i < count; ++i) {
            // as a runtime does it: which operation is known when it is compiled, of what is not
            const ibv_sge piece{address, 8, local_key};
            post::WorkRequest work;
            work.opcode = post::Opcode::kWrite;
            work.flags = post::kInline | post::kSignaled;
            work.sges = {&piece, 1};
            work.remote_address = address + 64;
            work.remote_key = remote_key;
            work.id = static_cast<std::uint64_t>(i);
            if (send.post_now(work) != post::Posted::kOk) std::abort();
            while (completions.poll(&completion, 1) == 0) {
            }
            if (completion.status != IBV_WC_SUCCESS) std::abort();
        }
    });
}

}  // namespace heddle::bench

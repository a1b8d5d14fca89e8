// SPDX-License-Identifier: BSD-2-Clause
// One process of a team that takes turns (turns.h), with an endpoint of the provider's, used as an
// MPI library uses it.
#pragma once

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>

#include "experiments/turns.h"
#include "protocol/common/address_vector.h"
#include "protocol/common/completions.h"
#include "protocol/common/options.h"
#include "protocol/rdm_endpoint.h"

namespace heddle::bench {

// Private memory, never given back: a process of a team ends with its experiment.
std::byte* map_memory(std::size_t bytes);

class Member {
public:
    Member(Turns& turns, std::uint32_t team, std::uint32_t rank, std::uint32_t size,
           const protocol::Options& options);
    virtual ~Member() = default;
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

    // Takes part in turns, to their end.
    void take_part();

protected:
    static constexpr std::uint64_t kTag = 7;

    // When all else is registered: the software HCA can share pages most easily while the process
    // has one thread.
    void open();
    virtual void turn() = 0;

    void progress() {
        endpoint_->progress();
        if (++polls_ % 1024 == 0) {
            if (yields_) ::sched_yield();
            turns_.throw_if_failed();
        }
    }
    bool taken(protocol::Completions& from) {
        if (from.empty()) return false;
        if (from.front().error != 0) throw std::runtime_error("an operation has failed");
        from.pop();
        return true;
    }
    void take(protocol::Completions& from) {
        while (!taken(from))
            progress();
    }
    template <class Call>
    void insist(const Call& call) {
        ssize_t result = call();
        for (; result == -FI_EAGAIN; result = call())
            progress();
        if (result != 0) throw std::runtime_error("an operation is not taken");
    }

    // Their completions are entries in sent_ and received_.
    void begin_send(std::uint32_t to, const void* from, std::size_t bytes,
                    std::uint64_t tag = kTag);
    void post(std::uint64_t from, void* to, std::size_t bytes, std::uint64_t tag = kTag);
    // Like MPI_Send and MPI_Recv: these return when the buffer may be used again.
    void send(std::uint32_t to, const void* from, std::size_t bytes, std::uint64_t tag = kTag) {
        begin_send(to, from, bytes, tag);
        take(sent_);
    }
    void receive(std::uint64_t from, void* to, std::size_t bytes, std::uint64_t tag = kTag) {
        post(from, to, bytes, tag);
        take(received_);
    }
    // A barrier of the team; makes progress while it waits.
    void barrier();

    bool yields_ = true;  // there may be more processes than processors
    Turns& turns_;
    const std::uint32_t team_, rank_, size_;
    std::shared_ptr<protocol::Domain> domain_;
    protocol::AddressVector addresses_;
    protocol::Completions sent_, received_;
    std::unique_ptr<protocol::RdmEndpoint> endpoint_;

private:
    std::uint32_t polls_ = 0;
};

}  // namespace heddle::bench

// SPDX-License-Identifier: BSD-2-Clause
#include "experiments/member.h"

#include <sys/mman.h>

#include "heddle/detail/assert.h"

namespace heddle::bench {
namespace {

// The arguments of a message, except its peer.
template <class Arguments>
Arguments message(const iovec& iov, std::uint64_t tag) {
    Arguments a;
    a.iov = &iov;
    a.iov_count = 1;
    a.tag = tag;
    a.flags = FI_TAGGED | FI_COMPLETION;
    return a;
}

}  // namespace

std::byte* map_memory(std::size_t bytes) {
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error("no memory for buffers");
    return static_cast<std::byte*>(memory);
}

Member::Member(Turns& turns, std::uint32_t team, std::uint32_t rank, std::uint32_t size,
               const protocol::Options& options)
    : turns_(turns),
      team_(team),
      rank_(rank),
      size_(size),
      domain_(std::make_shared<protocol::Domain>(options)) {
    HEDDLE_ASSERT(rank < size && size <= Turns::kMostProcesses, "a team has places for so many");
}

void Member::open() {
    HEDDLE_ASSERT(endpoint_ == nullptr, "a member has one endpoint");
    protocol::Bindings bindings;
    bindings.transmit = &sent_;
    bindings.receive = &received_;
    endpoint_ = std::make_unique<protocol::RdmEndpoint>(domain_, addresses_, bindings);
    turns_.name(team_, rank_) = endpoint_->name();
}

void Member::take_part() {
    HEDDLE_ASSERT(endpoint_ != nullptr, "open() tells the others the name");
    turns_.done(team_);
    bool introduced = false;
    while (turns_.next(team_, rank_)) {
        if (!introduced)
            for (std::uint32_t i = 0; i < size_; ++i)
                addresses_.insert(turns_.name(team_, i));
        HEDDLE_ASSERT(addresses_.size() == size_, "the address of a member is its rank");
        introduced = true;
        turn();
        turns_.done(team_);
    }
}

void Member::begin_send(std::uint32_t to, const void* from, std::size_t bytes, std::uint64_t tag) {
    HEDDLE_ASSERT(to < size_, "there is no such member");
    const iovec iov{const_cast<void*>(from), bytes};
    auto a = message<protocol::SendArguments>(iov, tag);
    a.to = to;
    insist([&] { return endpoint_->send(a); });
}

void Member::post(std::uint64_t from, void* to, std::size_t bytes, std::uint64_t tag) {
    const iovec iov{to, bytes};
    auto a = message<protocol::ReceiveArguments>(iov, tag);
    a.from = from;
    insist([&] { return endpoint_->receive(a); });
}

void Member::barrier() {
    std::atomic<std::uint32_t>& at_barrier = turns_.at_barrier(team_);
    const std::uint32_t round = at_barrier.fetch_add(1) / size_ + 1;
    HEDDLE_ASSERT(at_barrier.load() <= (round + 1) * size_, "a barrier waits for each process");
    while (at_barrier.load() < round * size_)
        progress();
}

}  // namespace heddle::bench

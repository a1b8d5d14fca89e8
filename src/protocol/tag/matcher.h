// SPDX-License-Identifier: BSD-2-Clause
// Which receive takes which message: MPI's rule, the oldest of either side that fits. Receives
// whose ignored bits are those that the MPI ignores in all of them are found by hash
// (docs/architecture/protocol.md: every MPI ignores some bits in every receive, so a hash of exact
// tags would never hit), or fewer; that mask is learnt. The rest is a list in order of posting.
//
// By one thread at a time. Never allocates for a receive or a message: they carry their links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace heddle::protocol {

inline constexpr std::uint32_t kAnySource = ~std::uint32_t{0};

namespace detail {
struct Link {
    Link* next = nullptr;
    Link* previous = nullptr;
};
}  // namespace detail

// A posted receive, as far as matching goes. Base of what the protocol keeps of it.
struct PostedReceive {
    std::uint32_t source = kAnySource;  // number of the peer
    std::uint64_t tag = 0, ignore = 0;  // bits set in `ignore` do not matter
    bool stays = false;  // for many messages: arrive() leaves it where it is, until take()
    bool waits = false;  // takes no message yet: what arrive() finds it for is kept instead
    // the matcher's own
    detail::Link link;
    std::uint64_t order = 0;
    bool queued = false;
};

// A message that came before its receive.
struct UnexpectedMessage {
    std::uint32_t source = 0;
    std::uint64_t tag = 0;
    // Its place among those of its source: they are in this order, whenever they were kept.
    std::uint64_t place = 0;
    std::uint32_t order = 0;
    // the matcher's own
    detail::Link hash_link, order_link;
    bool queued = false;
};

class Matcher {
public:
    Matcher();
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;

    // The oldest unexpected message that fits, taken out; or nullptr, and the receive is queued.
    UnexpectedMessage* post(PostedReceive& receive);
    // The oldest receive that fits a message that arrives, taken out; or nullptr: keep() it.
    PostedReceive* arrive(std::uint32_t source, std::uint64_t tag);
    // The same in matcher_tables.h, for most messages in fewer steps.
    PostedReceive* arrive_quickly(std::uint32_t source, std::uint64_t tag);
    // What it would be, if that takes few steps, or nullptr: wanted(receive) says if it is taken
    // out.
    template <class Wanted>
    PostedReceive* arrive_if(std::uint32_t source, std::uint64_t tag, const Wanted& wanted);
    // No receive is queued that could take it, which is seen in few steps. False says nothing.
    bool has_nothing_for(std::uint32_t source, std::uint64_t tag) const noexcept;
    // post() for most receives, in fewer steps; receive_of() makes the receive, and is called only
    // if no message fits. wanted(message): whether that one is taken. False: nothing was done, and
    // the caller has to call post().
    template <class Wanted, class ReceiveOf>
    bool post_quickly(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore,
                      const Wanted& wanted, const ReceiveOf& receive_of);
    void keep(UnexpectedMessage& message);
    void keep_in_place(UnexpectedMessage& message);  // not the last of its source, maybe

    // The oldest unexpected message that fits; stays where it is.
    UnexpectedMessage* find(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore);
    void take(UnexpectedMessage& message);
    void take(PostedReceive& receive);  // cancelled
    // The oldest receive for which `wanted` holds (fi_cancel: by context), or nullptr.
    PostedReceive* find_receive(const std::function<bool(PostedReceive&)>& wanted);
    // For tuple queues, that receives are posted to instead, and come back from. A place in the
    // order of posting without being queued; to where that place is; the oldest that takes
    // messages of that source and tag, all bits of `ignore` but no others ignored (taken out), or
    // nullptr; is there one that takes such messages, but others, too, or not all of them?
    void number(PostedReceive& receive) noexcept;
    void put_back(PostedReceive& receive) noexcept;
    PostedReceive* take_exact(std::uint32_t source, std::uint64_t tag,
                              std::uint64_t ignore) noexcept;
    bool has_inexact(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) noexcept;
    // All of them, in no particular order, taken out: at close.
    PostedReceive* any_receive();
    UnexpectedMessage* any_message();

    std::size_t receives() const noexcept;  // queued
    std::size_t messages() const noexcept;
    // The learnt mask of ignored bits: of the first receive, until many in a row ignore others.
    std::uint64_t mask() const noexcept;

private:
    struct Tables;
    std::unique_ptr<Tables> tables_;
};

}  // namespace heddle::protocol

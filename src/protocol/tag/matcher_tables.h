// SPDX-License-Identifier: BSD-2-Clause
// Where a Matcher keeps receives and messages (matching itself: matcher.cc), and the case that most
// messages are, inlined: the oldest receive of their bucket is theirs.
//
// Three places for receives: by (source, tag & ~mask), by (tag & ~mask) where any source will do,
// and a list for those that ignore bits outside the mask. A receive that ignores fewer bits than
// the mask is hashed, too: whatever fits it lies in its bucket. All chains are in order of posting,
// so the first that fits is the oldest there, and order numbers decide between the three.
#pragma once

#include <cstddef>
#include <new>

#include "heddle/detail/assert.h"
#include "protocol/tag/matcher.h"

namespace heddle::protocol {
namespace detail {

inline constexpr unsigned kFirstBits = 6;

inline void append(Link& head, Link& link) noexcept {
    link.previous = head.previous;
    link.next = &head;
    head.previous->next = &link;
    head.previous = &link;
}

inline void unlink(Link& link) noexcept {
    link.previous->next = link.next;
    link.next->previous = link.previous;
}

inline void make_empty(Link& head) noexcept { head.next = head.previous = &head; }

template <class T, std::size_t kOffset>
T& holder(Link* link) noexcept {
    return *reinterpret_cast<T*>(reinterpret_cast<std::byte*>(link) - kOffset);
}
inline PostedReceive& receive_of(Link* link) noexcept {
    return holder<PostedReceive, offsetof(PostedReceive, link)>(link);
}
inline UnexpectedMessage& hashed_message(Link* link) noexcept {
    return holder<UnexpectedMessage, offsetof(UnexpectedMessage, hash_link)>(link);
}
inline UnexpectedMessage& ordered_message(Link* link) noexcept {
    return holder<UnexpectedMessage, offsetof(UnexpectedMessage, order_link)>(link);
}

// Where bits count: the highest of a product depend on all of its factors.
inline std::uint64_t hash(std::uint32_t source, std::uint64_t key) noexcept {
    return (key ^ source * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
}

// Bucket heads of intrusive chains. Several keys may share a chain.
class Chains {
public:
    Chains() : heads_(new Link[std::size_t{1} << kFirstBits]) { clear(); }

    Link& at(std::uint64_t hash) noexcept { return heads_[hash >> shift_]; }
    Link& bucket(std::size_t at) noexcept { return heads_[at]; }
    std::size_t buckets() const noexcept { return std::size_t{1} << (64 - shift_); }
    std::size_t size() const noexcept { return size_; }

    void add(Link& link, std::uint64_t hash) noexcept {
        append(at(hash), link);
        ++size_;
    }
    void remove(Link& link) noexcept {
        unlink(link);
        --size_;
    }
    void clear() noexcept {
        for (std::size_t i = 0; i < buckets(); ++i)
            make_empty(heads_[i]);
        size_ = 0;
    }
    // Twice the buckets where there are more links than that. Without memory the chains grow
    // longer instead. Each bucket becomes two, so the order in chains is kept.
    template <class HashOf>
    void grow_if_full(HashOf hash_of) noexcept {
        if (size_ <= buckets()) [[likely]]
            return;
        std::unique_ptr<Link[]> old(new (std::nothrow) Link[2 * buckets()]);
        if (!old) return;
        const std::size_t before = buckets();
        heads_.swap(old);
        --shift_;
        clear();
        for (std::size_t i = 0; i < before; ++i) {
            for (Link* link = old[i].next; link != &old[i];) {
                Link* next = link->next;
                add(*link, hash_of(link));
                link = next;
            }
        }
    }

private:
    std::unique_ptr<Link[]> heads_;
    unsigned shift_ = 64 - kFirstBits;
    std::size_t size_ = 0;
};

inline bool fits(const PostedReceive& receive, std::uint64_t tag) noexcept {
    return ((receive.tag ^ tag) & ~receive.ignore) == 0;
}

}  // namespace detail

// What speaks for another mask. Matcher::Tables::learn() in matcher.cc counts the receives.
struct MaskCandidate {
    // How long it takes to learn another mask. It doubles each time.
    static constexpr unsigned kFirstPatience = 32;
    bool taught = false;
    std::uint64_t mask = 0;
    unsigned points = 0, patience = kFirstPatience;
};

struct Matcher::Tables {
    using Link = detail::Link;
    using Chains = detail::Chains;

    std::uint64_t mask = 0;
    MaskCandidate candidate;

    std::uint64_t next_order = 0;
    Chains of_source, of_any_source;  // receives
    Link others;                      // receives that ignore bits outside the mask
    std::size_t other_count = 0;
    Chains unexpected;
    Link arrivals;  // the same messages in order
    std::size_t drained = 0;

    Tables() {
        detail::make_empty(others);
        detail::make_empty(arrivals);
    }

    std::uint64_t hash_of(std::uint32_t source, std::uint64_t tag) const noexcept {
        return detail::hash(source, tag & ~mask);
    }
    // kAnySource is hashed like a source: in the chains of such receives all have it.
    std::uint64_t hash_of(const PostedReceive& receive) const noexcept {
        return hash_of(receive.source, receive.tag);
    }
    bool hashed(const PostedReceive& receive) const noexcept {
        return (receive.ignore & ~mask) == 0;
    }
    Chains& chains_of(const PostedReceive& receive) noexcept {
        return receive.source == kAnySource ? of_any_source : of_source;
    }

    void add(PostedReceive& receive) noexcept {
        if (!hashed(receive)) {
            detail::append(others, receive.link);
            ++other_count;
            return;
        }
        Chains& chains = chains_of(receive);
        chains.add(receive.link, hash_of(receive));
        chains.grow_if_full([this](Link* link) { return hash_of(detail::receive_of(link)); });
    }
    // The bucket of its chain.
    Link& head_of(const PostedReceive& receive) noexcept {
        return hashed(receive) ? chains_of(receive).at(hash_of(receive)) : others;
    }
    void remove(PostedReceive& receive) noexcept {
        HEDDLE_ASSERT(receive.queued);
        if (hashed(receive)) {
            chains_of(receive).remove(receive.link);
        } else {
            detail::unlink(receive.link);
            --other_count;
        }
        receive.queued = false;
    }
    void add(UnexpectedMessage& message) noexcept {
        unexpected.add(message.hash_link, hash_of(message.source, message.tag));
        unexpected.grow_if_full([this](Link* link) {
            const UnexpectedMessage& other = detail::hashed_message(link);
            return hash_of(other.source, other.tag);
        });
    }

    void remove(UnexpectedMessage& message) noexcept {
        HEDDLE_ASSERT(message.queued);
        unexpected.remove(message.hash_link);
        detail::unlink(message.order_link);
        message.queued = false;
    }

    UnexpectedMessage* find(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) noexcept;
    template <class Visit>
    void each_receive(Visit visit) noexcept;
    bool crowded(const PostedReceive& receive) noexcept;
    void learn(const PostedReceive& receive) noexcept;
    void use_mask(std::uint64_t mask) noexcept;
};

// Where there are receives of one kind only, and the first of the bucket fits.
template <class Wanted>
[[gnu::always_inline]] inline PostedReceive* Matcher::arrive_if(std::uint32_t source,
                                                                std::uint64_t tag,
                                                                const Wanted& wanted) {
    Tables& t = *tables_;
    const bool from_any = t.of_any_source.size() != 0;
    if (t.other_count == 0 && (!from_any || t.of_source.size() == 0)) [[likely]] {
        detail::Chains& chains = from_any ? t.of_any_source : t.of_source;
        const std::uint32_t from = from_any ? kAnySource : source;
        detail::Link& head = chains.at(t.hash_of(from, tag));
        if (head.next != &head) {
            PostedReceive& receive = detail::receive_of(head.next);
            if (receive.source == from && detail::fits(receive, tag) && wanted(receive)) {
                chains.remove(receive.link);
                receive.queued = false;
                return &receive;
            }
        }
    }
    return nullptr;
}

[[gnu::always_inline]] inline bool Matcher::has_nothing_for(std::uint32_t source,
                                                            std::uint64_t tag) const noexcept {
    Tables& t = *tables_;
    const auto is_empty = [](const detail::Link& head) { return head.next == &head; };
    return t.other_count == 0 &&
           (t.of_any_source.size() == 0 ||
            is_empty(t.of_any_source.at(t.hash_of(kAnySource, tag)))) &&
           (t.of_source.size() == 0 || is_empty(t.of_source.at(t.hash_of(source, tag))));
}

// Where the receive ignores what the mask says. All messages that fit one with a source are in one
// bucket; of one without, the oldest message of all is looked at.
template <class Wanted, class ReceiveOf>
[[gnu::always_inline]] inline bool Matcher::post_quickly(std::uint32_t source, std::uint64_t tag,
                                                         std::uint64_t ignore, const Wanted& wanted,
                                                         const ReceiveOf& receive_of) {
    Tables& t = *tables_;
    if (ignore != t.mask || !t.candidate.taught) [[unlikely]]
        return false;
    if (t.unexpected.size() != 0) {
        UnexpectedMessage* found = nullptr;
        if (source == kAnySource) {
            found = &detail::ordered_message(t.arrivals.next);
            if (((found->tag ^ tag) & ~ignore) != 0) return false;
        } else {
            found = t.find(source, tag, ignore);
        }
        if (found != nullptr) {
            if (!wanted(*found)) return false;
            t.candidate.points = 0;
            t.remove(*found);
            return true;
        }
    }
    t.candidate.points = 0;
    PostedReceive& receive = receive_of();
    receive.order = t.next_order++;
    receive.queued = true;
    t.add(receive);
    return true;
}

[[gnu::always_inline]] inline PostedReceive* Matcher::arrive_quickly(std::uint32_t source,
                                                                     std::uint64_t tag) {
    const auto passes = [](const PostedReceive& receive) {
        return !receive.stays && !receive.waits;
    };
    PostedReceive* const found = arrive_if(source, tag, passes);
    return found != nullptr ? found : arrive(source, tag);
}

}  // namespace heddle::protocol

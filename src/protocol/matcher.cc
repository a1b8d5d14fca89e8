// SPDX-License-Identifier: BSD-2-Clause
// Matching by hash under the learnt mask of ignored bits (MPI 4.1, section 3.5: messages of one
// sender do not overtake each other, and receives take them in the order they were posted).
//
// Three places for receives: by (source, tag & ~mask), by (tag & ~mask) where any source will do,
// and a list for those that ignore bits outside the mask. A receive that ignores fewer bits than
// the mask is hashed, too: whatever fits it lies in its bucket. All chains are in order of posting,
// so the first that fits is the oldest there, and order numbers decide between the three.
#include "protocol/matcher.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <new>

namespace heddle::protocol {
namespace {

using detail::Link;

constexpr unsigned kFirstBits = 6;

// What it takes to learn another mask: so many receives in a row with the same ignored bits. It
// doubles each time up to kMostPatience, so that programs of two kinds of receives settle.
constexpr unsigned kPatience = 32, kMostPatience = 2048;
// Receives that the mask serves although they ignore fewer bits count less: those of
// acknowledgements come in long runs between others, and the wider mask serves both.
constexpr unsigned kPointsOfHindered = 8, kPointsOfServed = 1;
constexpr int kCrowdLook = 4;

void append(Link& head, Link& link) noexcept {
    link.previous = head.previous;
    link.next = &head;
    head.previous->next = &link;
    head.previous = &link;
}

void unlink(Link& link) noexcept {
    link.previous->next = link.next;
    link.next->previous = link.previous;
}

void make_empty(Link& head) noexcept { head.next = head.previous = &head; }

template <class T, std::size_t kOffset>
T& holder(Link* link) noexcept {
    return *reinterpret_cast<T*>(reinterpret_cast<std::byte*>(link) - kOffset);
}
PostedReceive& receive_of(Link* link) noexcept {
    return holder<PostedReceive, offsetof(PostedReceive, link)>(link);
}
UnexpectedMessage& hashed_message(Link* link) noexcept {
    return holder<UnexpectedMessage, offsetof(UnexpectedMessage, hash_link)>(link);
}
UnexpectedMessage& ordered_message(Link* link) noexcept {
    return holder<UnexpectedMessage, offsetof(UnexpectedMessage, order_link)>(link);
}

// Where bits count: the highest of a product depend on all of its factors.
std::uint64_t hash(std::uint32_t source, std::uint64_t key) noexcept {
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

bool fits(const PostedReceive& receive, std::uint64_t tag) noexcept {
    return ((receive.tag ^ tag) & ~receive.ignore) == 0;
}

}  // namespace

struct Matcher::Tables {
    std::uint64_t mask = 0;
    bool taught = false;
    std::uint64_t candidate = 0;  // the other mask, and what speaks for it
    unsigned points = 0, patience = kPatience;

    std::uint64_t next_order = 0;
    Chains of_source, of_any_source;  // receives
    Link others;                      // receives that ignore bits outside the mask
    std::size_t other_count = 0;
    Chains unexpected;
    Link arrivals;  // the same messages in order
    std::size_t drained = 0;

    Tables() {
        make_empty(others);
        make_empty(arrivals);
    }

    std::uint64_t hash_of(std::uint32_t source, std::uint64_t tag) const noexcept {
        return hash(source, tag & ~mask);
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
            append(others, receive.link);
            ++other_count;
            return;
        }
        Chains& chains = chains_of(receive);
        chains.add(receive.link, hash_of(receive));
        chains.grow_if_full([this](Link* link) { return hash_of(receive_of(link)); });
    }
    void remove(PostedReceive& receive) noexcept {
        assert(receive.queued);
        if (hashed(receive)) {
            chains_of(receive).remove(receive.link);
        } else {
            unlink(receive.link);
            --other_count;
        }
        receive.queued = false;
    }
    void add(UnexpectedMessage& message) noexcept {
        unexpected.add(message.hash_link, hash_of(message.source, message.tag));
        unexpected.grow_if_full([this](Link* link) {
            const UnexpectedMessage& other = hashed_message(link);
            return hash_of(other.source, other.tag);
        });
    }

    UnexpectedMessage* find(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) noexcept;
    template <class Visit>
    void each_receive(Visit visit) noexcept;
    bool crowded(const PostedReceive& receive) noexcept;
    void learn(const PostedReceive& receive) noexcept;
    void use_mask(std::uint64_t mask) noexcept;
};

UnexpectedMessage* Matcher::Tables::find(std::uint32_t source, std::uint64_t tag,
                                         std::uint64_t ignore) noexcept {
    if (source != kAnySource && (ignore & ~mask) == 0) {
        Link& head = unexpected.at(hash_of(source, tag));
        for (Link* link = head.next; link != &head; link = link->next) {
            UnexpectedMessage& message = hashed_message(link);
            if (message.source == source && ((message.tag ^ tag) & ~ignore) == 0) return &message;
        }
        return nullptr;
    }
    for (Link* link = arrivals.next; link != &arrivals; link = link->next) {
        UnexpectedMessage& message = ordered_message(link);
        if ((source == kAnySource || message.source == source) &&
            ((message.tag ^ tag) & ~ignore) == 0)
            return &message;
    }
    return nullptr;
}

// In no particular order. `visit` may take the receive out.
template <class Visit>
void Matcher::Tables::each_receive(Visit visit) noexcept {
    const auto walk = [&](Link& head) {
        for (Link* link = head.next; link != &head;) {
            Link* next = link->next;
            visit(receive_of(link));
            link = next;
        }
    };
    walk(others);
    for (Chains* chains : {&of_source, &of_any_source}) {
        if (chains->size() == 0) continue;
        for (std::size_t i = 0; i < chains->buckets(); ++i)
            walk(chains->bucket(i));
    }
}

// Does the mask put a receive that ignores less than it beside what it cannot match? Then the
// chains are longer than they had to be.
bool Matcher::Tables::crowded(const PostedReceive& receive) noexcept {
    const auto beside = [&](std::uint32_t source, std::uint64_t tag) {
        return source == receive.source && ((tag ^ receive.tag) & ~mask) == 0 &&
               !fits(receive, tag);
    };
    const std::uint64_t at = hash_of(receive);
    Link* head = &chains_of(receive).at(at);
    Link* link = head->next;
    for (int n = 0; n < kCrowdLook && link != head; ++n, link = link->next)
        if (beside(receive_of(link).source, receive_of(link).tag)) return true;
    head = &unexpected.at(at);
    link = head->next;
    for (int n = 0; n < kCrowdLook && link != head; ++n, link = link->next)
        if (beside(hashed_message(link).source, hashed_message(link).tag)) return true;
    return false;
}

// Called for receives whose ignored bits are not the mask.
void Matcher::Tables::learn(const PostedReceive& receive) noexcept {
    if (!taught) {
        taught = true;
        use_mask(receive.ignore);
        return;
    }
    if (receive.ignore != candidate) {
        candidate = receive.ignore;
        points = 0;
    }
    const bool hindered = !hashed(receive) || crowded(receive);
    points += hindered ? kPointsOfHindered : kPointsOfServed;
    if (points < patience * kPointsOfHindered) return;
    points = 0;
    patience = std::min(2 * patience, kMostPatience);
    use_mask(candidate);
}

// Puts everything where the new mask wants it. Without the memory to sort the receives, the old
// mask stays.
void Matcher::Tables::use_mask(std::uint64_t new_mask) noexcept {
    if (new_mask == mask) return;
    const std::size_t count = of_source.size() + of_any_source.size() + other_count;
    std::unique_ptr<PostedReceive*[]> queued(new (std::nothrow) PostedReceive*[count]);
    if (!queued) return;
    PostedReceive** end = queued.get();
    each_receive([&](PostedReceive& receive) { *end++ = &receive; });
    assert(end == queued.get() + count);
    std::sort(queued.get(), end,
              [](const PostedReceive* a, const PostedReceive* b) { return a->order < b->order; });

    mask = new_mask;
    of_source.clear();
    of_any_source.clear();
    make_empty(others);
    other_count = 0;
    for (PostedReceive** receive = queued.get(); receive != end; ++receive)
        add(**receive);
    unexpected.clear();
    for (Link* link = arrivals.next; link != &arrivals; link = link->next)
        add(ordered_message(link));
}

Matcher::Matcher() : tables_(std::make_unique<Tables>()) {}
Matcher::~Matcher() = default;

UnexpectedMessage* Matcher::post(PostedReceive& receive) {
    assert(!receive.queued);
    Tables& t = *tables_;
    if (receive.ignore != t.mask || !t.taught) [[unlikely]]
        t.learn(receive);
    else
        t.points = 0;
    if (t.unexpected.size() != 0) {
        UnexpectedMessage* message = t.find(receive.source, receive.tag, receive.ignore);
        if (message) {
            take(*message);
            return message;
        }
    }
    receive.order = t.next_order++;
    receive.queued = true;
    t.add(receive);
    return nullptr;
}

PostedReceive* Matcher::arrive(std::uint32_t source, std::uint64_t tag) {
    assert(source != kAnySource);
    Tables& t = *tables_;
    PostedReceive* oldest = nullptr;
    Link& head = t.of_source.at(t.hash_of(source, tag));
    for (Link* link = head.next; link != &head; link = link->next) {
        PostedReceive& receive = receive_of(link);
        if (receive.source == source && fits(receive, tag)) {
            oldest = &receive;
            break;
        }
    }
    const auto look = [&](Link& chain) {
        for (Link* link = chain.next; link != &chain; link = link->next) {
            PostedReceive& receive = receive_of(link);
            if (oldest && oldest->order < receive.order) return;
            if ((receive.source == kAnySource || receive.source == source) && fits(receive, tag)) {
                oldest = &receive;
                return;
            }
        }
    };
    if (t.of_any_source.size() != 0) look(t.of_any_source.at(t.hash_of(kAnySource, tag)));
    if (t.other_count != 0) look(t.others);
    if (oldest && !oldest->stays) t.remove(*oldest);
    return oldest;
}

void Matcher::keep(UnexpectedMessage& message) {
    assert(!message.queued && message.source != kAnySource);
    Tables& t = *tables_;
    message.queued = true;
    append(t.arrivals, message.order_link);
    t.add(message);
}

UnexpectedMessage* Matcher::find(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) {
    return tables_->unexpected.size() == 0 ? nullptr : tables_->find(source, tag, ignore);
}

void Matcher::take(UnexpectedMessage& message) {
    assert(message.queued);
    tables_->unexpected.remove(message.hash_link);
    unlink(message.order_link);
    message.queued = false;
}

void Matcher::take(PostedReceive& receive) { tables_->remove(receive); }

PostedReceive* Matcher::find_receive(const std::function<bool(const PostedReceive&)>& wanted) {
    PostedReceive* oldest = nullptr;
    tables_->each_receive([&](PostedReceive& receive) {
        if ((!oldest || receive.order < oldest->order) && wanted(receive)) oldest = &receive;
    });
    return oldest;
}

PostedReceive* Matcher::any_receive() {
    Tables& t = *tables_;
    Link* link = nullptr;
    if (t.other_count != 0) link = t.others.next;
    for (Chains* chains : {&t.of_source, &t.of_any_source}) {
        if (link || chains->size() == 0) continue;
        // From where the last one was found: all of them take one walk through the buckets.
        for (;; ++t.drained) {
            Link& head = chains->bucket(t.drained & (chains->buckets() - 1));
            if (head.next == &head) continue;
            link = head.next;
            break;
        }
    }
    if (!link) return nullptr;
    PostedReceive& receive = receive_of(link);
    t.remove(receive);
    return &receive;
}

UnexpectedMessage* Matcher::any_message() {
    Tables& t = *tables_;
    if (t.unexpected.size() == 0) return nullptr;
    UnexpectedMessage& message = ordered_message(t.arrivals.next);
    take(message);
    return &message;
}

std::size_t Matcher::receives() const noexcept {
    return tables_->of_source.size() + tables_->of_any_source.size() + tables_->other_count;
}
std::size_t Matcher::messages() const noexcept { return tables_->unexpected.size(); }
std::uint64_t Matcher::mask() const noexcept { return tables_->mask; }

}  // namespace heddle::protocol

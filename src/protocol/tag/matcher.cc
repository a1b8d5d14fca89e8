// SPDX-License-Identifier: BSD-2-Clause
// Matching by hash under the learnt mask of ignored bits (MPI 4.1, section 3.5: messages of one
// sender do not overtake each other, and receives take them in the order they were posted).
#include <algorithm>
#include <cstddef>
#include <new>

#include "heddle/detail/assert.h"
#include "protocol/tag/matcher_tables.h"

namespace heddle::protocol {
namespace {

using detail::append, detail::fits, detail::hashed_message, detail::Link, detail::make_empty,
    detail::ordered_message, detail::receive_of, detail::unlink, detail::Chains;

// What it takes to learn another mask: so many receives in a row with the same ignored bits. It
// doubles each time up to kMostPatience, so that programs of two kinds of receives settle.
constexpr unsigned kMostPatience = 2048;
// Receives that the mask serves although they ignore fewer bits count less: those of
// acknowledgements come in long runs between others, and the wider mask serves both.
constexpr unsigned kPointsOfHindered = 8, kPointsOfServed = 1;
constexpr int kCrowdLook = 4;

}  // namespace

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
    if (!candidate.taught) {
        candidate.taught = true;
        use_mask(receive.ignore);
        return;
    }
    if (receive.ignore != candidate.mask) {
        candidate.mask = receive.ignore;
        candidate.points = 0;
    }
    const bool hindered = !hashed(receive) || crowded(receive);
    candidate.points += hindered ? kPointsOfHindered : kPointsOfServed;
    if (candidate.points < candidate.patience * kPointsOfHindered) return;
    candidate.points = 0;
    candidate.patience = std::min(2 * candidate.patience, kMostPatience);
    use_mask(candidate.mask);
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
    HEDDLE_ASSERT(end == queued.get() + count);
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
    HEDDLE_ASSERT(!receive.queued);
    Tables& t = *tables_;
    if (receive.ignore != t.mask || !t.candidate.taught) [[unlikely]]
        t.learn(receive);
    else
        t.candidate.points = 0;
    if (t.unexpected.size() != 0) {
        UnexpectedMessage* message = t.find(receive.source, receive.tag, receive.ignore);
        if (message) {
            t.remove(*message);
            return message;
        }
    }
    receive.order = t.next_order++;
    receive.queued = true;
    t.add(receive);
    return nullptr;
}

PostedReceive* Matcher::arrive(std::uint32_t source, std::uint64_t tag) {
    HEDDLE_ASSERT(source != kAnySource);
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
    if (oldest && oldest->waits) [[unlikely]]
        return nullptr;
    if (oldest && !oldest->stays) t.remove(*oldest);
    return oldest;
}

void Matcher::keep(UnexpectedMessage& message) {
    HEDDLE_ASSERT(!message.queued && message.source != kAnySource);
    Tables& t = *tables_;
    message.queued = true;
    append(t.arrivals, message.order_link);
    t.add(message);
}

void Matcher::keep_in_place(UnexpectedMessage& message) {
    keep(message);
    const auto later = [&](const UnexpectedMessage& other) {
        return &other != &message && other.source == message.source &&
               (other.place != message.place ? other.place > message.place
                                             : other.order > message.order);
    };
    Link* before = nullptr;
    for (Link* link = tables_->arrivals.next; link != &tables_->arrivals && !before;
         link = link->next)
        if (later(ordered_message(link))) before = link;
    if (before == nullptr) return;
    unlink(message.order_link);
    append(*before, message.order_link);
    Link& head = tables_->unexpected.at(tables_->hash_of(message.source, message.tag));
    for (Link* link = head.next; link != &head; link = link->next)
        if (later(hashed_message(link))) {
            unlink(message.hash_link);
            append(*link, message.hash_link);
            return;
        }
}

UnexpectedMessage* Matcher::find(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) {
    return tables_->unexpected.size() == 0 ? nullptr : tables_->find(source, tag, ignore);
}

void Matcher::take(UnexpectedMessage& message) { tables_->remove(message); }
void Matcher::take(PostedReceive& receive) { tables_->remove(receive); }

PostedReceive* Matcher::find_receive(const std::function<bool(PostedReceive&)>& wanted) {
    PostedReceive* oldest = nullptr;
    tables_->each_receive([&](PostedReceive& receive) {
        if ((!oldest || receive.order < oldest->order) && wanted(receive)) oldest = &receive;
    });
    return oldest;
}

void Matcher::number(PostedReceive& receive) noexcept { receive.order = tables_->next_order++; }

void Matcher::put_back(PostedReceive& receive) noexcept {
    HEDDLE_ASSERT(!receive.queued);
    Tables& t = *tables_;
    receive.queued = true;
    t.add(receive);
    // To its place: behind the last that is older. Younger ones are few, mostly none.
    Link* before = receive.link.previous;
    Link& head = t.head_of(receive);
    while (before != &head && receive_of(before).order > receive.order)
        before = before->previous;
    if (before == receive.link.previous) return;
    unlink(receive.link);
    append(*before->next, receive.link);
}

PostedReceive* Matcher::take_exact(std::uint32_t source, std::uint64_t tag,
                                   std::uint64_t ignore) noexcept {
    Tables& t = *tables_;
    Link& head = (ignore & ~t.mask) == 0 ? t.of_source.at(t.hash_of(source, tag)) : t.others;
    for (Link* link = head.next; link != &head; link = link->next) {
        PostedReceive& receive = receive_of(link);
        if (receive.source != source || receive.ignore != ignore || !fits(receive, tag)) continue;
        t.remove(receive);
        return &receive;
    }
    return nullptr;
}

bool Matcher::has_inexact(std::uint32_t source, std::uint64_t tag, std::uint64_t ignore) noexcept {
    Tables& t = *tables_;
    const auto look = [&](Link& chain) {
        for (Link* link = chain.next; link != &chain; link = link->next) {
            const PostedReceive& receive = receive_of(link);
            const bool takes = (receive.source == kAnySource || receive.source == source) &&
                               ((receive.tag ^ tag) & ~receive.ignore & ~ignore) == 0;
            const bool exact = receive.source != kAnySource && receive.ignore == ignore &&
                               !receive.stays && !receive.waits;
            if (takes && !exact) return true;
        }
        return false;
    };
    return (t.other_count != 0 && look(t.others)) ||
           (t.of_any_source.size() != 0 && look(t.of_any_source.at(t.hash_of(kAnySource, tag)))) ||
           (t.of_source.size() != 0 && look(t.of_source.at(t.hash_of(source, tag))));
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

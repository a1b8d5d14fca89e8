// SPDX-License-Identifier: BSD-2-Clause
// Attaching QPs to multicast groups, and finding groups: see multicast.h.
#include "softhca/device/multicast.h"

#include <endian.h>

#include <cerrno>
#include <cstring>

#include "softhca/base/assert.h"
#include "softhca/device/segment.h"

namespace softhca::device {
namespace {

struct Gid {
    std::uint64_t words[2];
    explicit Gid(const std::uint8_t* raw) noexcept { std::memcpy(words, raw, sizeof words); }
    bool is_of(const MulticastGroup& group) const noexcept {
        return group.gid[0].load(std::memory_order_acquire) == words[0] &&
               group.gid[1].load(std::memory_order_acquire) == words[1];
    }
};

std::uint32_t used_groups(const MulticastGroups& all) noexcept {
    const std::uint32_t high = all.high.load(std::memory_order_acquire);
    return high < kMaxMulticastGroups ? high : kMaxMulticastGroups;
}

bool has_members(const MulticastGroups& all, std::uint32_t group) noexcept {
    for (const auto& place : all.members[group])
        if (place.load(std::memory_order_acquire) != 0) return true;
    return false;
}

// The group of that GID, with members or without, or kNone. The caller holds the lock.
std::uint32_t find(const MulticastGroups& all, const Gid& gid) noexcept {
    for (std::uint32_t i = 0; i < used_groups(all); ++i)
        if (gid.is_of(all.groups[i])) return i;
    return kNone;
}

// A group for a GID that has none, or kNone. Nobody else finds members in it before the first one
// is stored, so a process may be killed at any place here.
std::uint32_t make(MulticastGroups& all, const Gid& gid) noexcept {
    const std::uint32_t high = used_groups(all);
    std::uint32_t group = high;
    if (high == kMaxMulticastGroups)
        for (group = 0; group < high && has_members(all, group);)
            ++group;
    if (group == kMaxMulticastGroups) return kNone;
    for (unsigned i = 0; i < 2; ++i)
        all.groups[group].gid[i].store(gid.words[i], std::memory_order_release);
    if (group == high) all.high.store(high + 1, std::memory_order_release);
    return group;
}

std::uint32_t index_of(const Segment& segment, const QueuePair& qp) noexcept {
    const auto index = static_cast<std::uint32_t>(&qp - segment.qps.items);
    SOFTHCA_ASSERT(index < kMaxQps);
    return index;
}

// Calls visit(place, member) for each member of the group.
template <class Visit>
void each_member(MulticastGroups& all, std::uint32_t group, const Visit& visit) noexcept {
    for (auto& place : all.members[group])
        if (const std::uint64_t word = place.load(std::memory_order_acquire); word != 0)
            visit(place, unpack(word));
}

std::uint32_t count_join(MulticastGroup& group) noexcept {
    const std::uint32_t joins = group.joins.load(std::memory_order_relaxed) + 1;
    group.joins.store(joins, std::memory_order_release);
    return joins & (kJoinsModulus - 1);
}

template <class Leaves>
bool remove_members(Segment& segment, const Leaves& leaves) noexcept {
    MulticastGroups& all = segment.multicast;
    if (used_groups(all) == 0) return true;
    if (!all.lock.lock()) return false;
    for (std::uint32_t group = 0; group < used_groups(all); ++group)
        each_member(all, group, [&](std::atomic<std::uint64_t>& place, const Membership& member) {
            if (leaves(member.qp)) place.store(0, std::memory_order_release);
        });
    all.lock.unlock();
    return true;
}

}  // namespace

bool is_multicast_gid(const std::uint8_t* gid) noexcept {
    constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return gid[0] == 0xff ||
           (std::memcmp(gid, kMapped, sizeof kMapped) == 0 && (gid[12] & 0xf0) == 0xe0);
}

int attach_multicast(Segment& segment, QueuePair& qp, const std::uint8_t* raw,
                     std::uint16_t lid) noexcept {
    SOFTHCA_ASSERT(is_multicast_gid(raw), "the command has checked it");
    const Gid gid(raw);
    const std::uint32_t index = index_of(segment, qp);
    MulticastGroups& all = segment.multicast;
    if (!all.lock.lock()) return ETIMEDOUT;
    std::uint32_t group = find(all, gid);
    if (group == kNone) group = make(all, gid);
    int error = ENOMEM;
    if (group != kNone) {
        bool is_there = false, is_same = false;
        std::atomic<std::uint64_t>* free = nullptr;
        for (auto& place : all.members[group])
            if (place.load(std::memory_order_relaxed) == 0 && free == nullptr) free = &place;
        each_member(all, group, [&](std::atomic<std::uint64_t>&, const Membership& member) {
            is_there = is_there || member.qp == index;
            is_same = is_same || (member.qp == index && member.lid == lid);
        });
        if (is_same) {
            error = 0;
        } else if (free != nullptr) {
            // Counted before it is there, so that a QP with a membership always has a count. And a
            // thread that destroys the QP meanwhile sees the count, or this one sees the state.
            qp.multicast_groups.fetch_add(1);
            if (qp.head.state.load() == kLive) {
                free->store(pack({index, lid, is_there, count_join(all.groups[group])}),
                            std::memory_order_release);
                error = 0;
            } else {
                qp.multicast_groups.fetch_sub(1);
                error = EINVAL;
            }
        }
    }
    all.lock.unlock();
    return error;
}

int detach_multicast(Segment& segment, QueuePair& qp, const std::uint8_t* raw,
                     std::uint16_t lid) noexcept {
    const std::uint32_t index = index_of(segment, qp);
    MulticastGroups& all = segment.multicast;
    if (!all.lock.lock()) return ETIMEDOUT;
    const std::uint32_t group = find(all, Gid(raw));
    std::atomic<std::uint64_t>*left = nullptr, *other = nullptr;
    Membership ends{}, stays{};
    if (group != kNone)
        each_member(all, group, [&](std::atomic<std::uint64_t>& place, const Membership& member) {
            if (member.qp != index) return;
            (member.lid == lid ? left : other) = &place;
            (member.lid == lid ? ends : stays) = member;
        });
    if (left != nullptr) {
        left->store(0, std::memory_order_release);
        qp.multicast_groups.fetch_sub(1);
        if (other != nullptr && !ends.is_duplicate) {  // from now on it receives by the other LID
            stays.is_duplicate = false;
            stays.joined = count_join(all.groups[group]);
            other->store(pack(stays), std::memory_order_release);
        }
    }
    all.lock.unlock();
    return left != nullptr ? 0 : EINVAL;
}

bool leave_multicast(Segment& segment, QueuePair& qp) noexcept {
    if (qp.multicast_groups.load() == 0) return true;
    const std::uint32_t index = index_of(segment, qp);
    return remove_members(segment, [&](std::uint32_t member) { return member == index; });
}

bool leave_multicast_of(Segment& segment, std::uint32_t slot) noexcept {
    return remove_members(segment, [&](std::uint32_t member) {
        const ObjectHead& head = segment.qps[member].head;
        return head.dying() && head.owner() == slot;
    });
}

FoundGroup find_multicast(const Segment& segment, const std::uint8_t* raw) noexcept {
    const Gid gid(raw);
    const MulticastGroups& all = segment.multicast;
    for (std::uint32_t i = 0; i < used_groups(all); ++i) {
        const std::uint32_t joins = all.groups[i].joins.load(std::memory_order_acquire);
        if (gid.is_of(all.groups[i])) return {i, joins};
    }
    return {kNone, 0};
}

}  // namespace softhca::device

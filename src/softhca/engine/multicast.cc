// SPDX-License-Identifier: BSD-2-Clause
// Datagrams to a multicast group: see multicast.h.
#include "softhca/engine/multicast.h"

#include <bit>

#include "softhca/base/assert.h"
#include "softhca/device/port.h"
#include "softhca/engine/retries.h"

namespace softhca::engine {

using device::Fabric;
using device::kNone;
using device::QueuePair;

namespace {

// Whether the packet is one that a group's members can get. On InfiniBand the switches need a LID
// of groups, and the members a header with the GID (IBTA 10.5.1). On Ethernet, RoCE v2 sends an
// IPv4 packet from an IPv4 entry of the GID table. It can only go to an IPv4 group (annex A17).
bool reaches_groups(const device::Port& port, const Request& request) noexcept {
    if (!request.ud.has_grh || !device::is_multicast_gid(request.ud.dgid)) return false;
    if (!port.is_ethernet()) return device::is_multicast_lid(request.ud.dlid);
    const device::GidEntry source = port.gid(request.ud.sgid_index);
    const bool to_ipv4 = request.ud.dgid[0] == 0;
    return source.type == device::GidType::kV1 ||
           (source.type == device::GidType::kV2 && source.is_ipv4() == to_ipv4);
}

constexpr std::uint64_t member_bit(unsigned place) noexcept {
    return std::uint64_t{1} << place % 64;
}

// Notes which members get the datagram. False: the group has none.
bool begin_group_send(const device::Segment& segment, GroupSend& send, std::uint32_t entry,
                      const Request& request) noexcept {
    const device::FoundGroup found = device::find_multicast(segment, request.ud.dgid);
    const bool is_another = found.index != send.group;
    const std::uint32_t joins_before = send.joins;
    send.is_begun = true;
    send.entry = entry;
    send.group = found.index;
    send.joins = found.joins;
    bool any = false;
    for (std::uint64_t& word : send.left)
        word = 0;
    if (is_another)
        for (std::uint64_t& word : send.in_vain)
            word = 0;
    if (found.index == kNone) return false;
    for (unsigned place = 0; place < device::kMaxGroupMembers; ++place) {
        const std::uint64_t packed =
            segment.multicast.members[found.index][place].load(std::memory_order_acquire);
        const device::Membership member = device::unpack(packed);
        if (packed == 0 || member.is_duplicate || !device::had_joined(member, found.joins))
            continue;
        send.left[place / 64] |= member_bit(place);
        if (!device::had_joined(member, joins_before))
            send.in_vain[place / 64] &= ~member_bit(place);
        any = true;
    }
    return any;
}

// The member that still has that place, or nullptr.
QueuePair* member_at(Fabric& fabric, const GroupSend& send, unsigned place) noexcept {
    device::Segment& segment = fabric.segment();
    SOFTHCA_DEBUG_ASSERT(send.group < device::kMaxMulticastGroups);
    const std::uint64_t packed =
        segment.multicast.members[send.group][place].load(std::memory_order_acquire);
    const device::Membership member = device::unpack(packed);
    if (packed == 0 || !device::had_joined(member, send.joins)) return nullptr;
    QueuePair* const there = find_receiver(fabric, segment.qps[member.qp].number, IB_UVERBS_QPT_UD);
    return there != nullptr && device::link_is_up(segment, there->attr.lid) ? there : nullptr;
}

bool blocks_loopback(const QueuePair& requester, const QueuePair& member) noexcept {
    return &requester == &member &&
           (requester.create_flags & IBV_QP_CREATE_BLOCK_SELF_MCAST_LB) != 0;
}

// Calls visit(place) for each member that is left.
template <class Visit>
void each_left(GroupSend& send, const Visit& visit) noexcept {
    for (unsigned word = 0; word < GroupSend::kWords; ++word)
        for (std::uint64_t bits = send.left[word]; bits != 0; bits &= bits - 1)
            visit(word * 64 + static_cast<unsigned>(std::countr_zero(bits)));
}

}  // namespace

void respond_as_group(Fabric& fabric, LocalQp& local, QueuePair& requester, Request& request,
                      Response& response) noexcept {
    SOFTHCA_DEBUG_ASSERT(local.run_lock.is_locked(), "the run lock guards `group_send`");
    GroupSend& send = local.group_send;
    const std::uint32_t entry = requester.sq_consumer;
    if (!device::link_is_up(fabric.segment(), requester.attr.lid) ||
        !reaches_groups(device::port_at(fabric.segment(), port_index(requester)), request)) {
        response.answer = Answer::kSilent;
        return;
    }
    if ((!send.is_begun || send.entry != entry) &&
        !begin_group_send(fabric.segment(), send, entry, request)) {
        send.is_begun = false;
        response.answer = Answer::kSilent;
        return;
    }
    const std::uint32_t qkey = qkey_of(requester, request);
    bool is_busy = false, lacks_receive = false;
    each_left(send, [&](unsigned place) {
        if (response.answer == Answer::kError) return;
        std::uint64_t& left = send.left[place / 64];
        std::uint64_t& in_vain = send.in_vain[place / 64];
        QueuePair* const member = member_at(fabric, send, place);
        Response one;
        one.completion = response.completion;
        one.answer = Answer::kSilent;
        if (member && member->attr.qkey == qkey && !blocks_loopback(requester, *member))
            respond_as(fabric, requester, *member, request, one);
        switch (one.answer) {
            case Answer::kBusy:
                is_busy = true;
                return;
            case Answer::kNoReceive:
                // This thread is the one that would post a receive to the sender's own QP.
                if (member == &requester || (in_vain & member_bit(place)) != 0) break;
                lacks_receive = true;
                return;
            case Answer::kDone:
                in_vain &= ~member_bit(place);
                break;
            case Answer::kError:  // the sender's own fault, which is that of its whole request
                response = one;
                break;
            case Answer::kSilent:
            case Answer::kRnr:
                break;
        }
        left &= ~member_bit(place);
    });
    if (response.answer != Answer::kError)
        response.answer = is_busy         ? Answer::kBusy
                          : lacks_receive ? Answer::kNoReceive
                                          : Answer::kDone;
    send.is_begun = response.answer == Answer::kBusy || response.answer == Answer::kNoReceive;
}

bool hold_for_group(LocalQp& local) noexcept {
    if (hold_longer(local)) return true;
    GroupSend& send = local.group_send;
    for (unsigned word = 0; word < GroupSend::kWords; ++word)
        send.in_vain[word] |= send.left[word];
    send.is_begun = false;
    return false;
}

}  // namespace softhca::engine

// SPDX-License-Identifier: BSD-2-Clause
// See protocol_storm_support.h.
#include "tests/unit/protocol_storm_support.h"

#include <algorithm>
#include <utility>

#include "heddle/detail/assert.h"
#include "tests/unit/protocol_fake_verbs.h"

namespace heddle::protocol::test {

using std::chrono::milliseconds;

FakeDevice::FakeDevice() {
    verbs_.sz = sizeof verbs_;
    verbs_.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    verbs_.create_qp_ex = [](ibv_context* context, ibv_qp_init_attr_ex*) {
        return fake_verbs::make_queue_pair(context);
    };
    pd_.context = context();
}

Storm::Storm(std::size_t processes, const StormCosts& costs, const Connector::Options& options)
    : costs_(costs) {
    own_.mtu = IBV_MTU_4096;
    for (std::size_t i = 0; i < processes; ++i) {
        EndpointAddress name;
        name.flags = EndpointAddress::kXrc;
        name.process.nonce = 0x9e37'79b9'7f4a'7c15 * (i + 1);
        name.process.ud_qpn = static_cast<std::uint32_t>(2 + i);  // and so it says which it is
        name.process.lid = static_cast<std::uint16_t>(1 + i);
        name.process.pkey = 0xffff;
        name.process.gid[15] = static_cast<std::uint8_t>(i);
        name.process.gid[14] = static_cast<std::uint8_t>(i >> 8);
        processes_.push_back(std::make_unique<Process>(name, own_, options));
        LocalEndpoint endpoint;
        endpoint.name = name;
        endpoint.context = device_.context();
        endpoint.pd = device_.pd();
        static ibv_xrcd domain;
        endpoint.xrcd = &domain;
        processes_.back()->targets.add(endpoint);
    }
}

Storm::~Storm() {
    for (const auto& process : processes_)
        process->requests.stop_all(now_, ended_);
    for (ConnectionRequest& request : asked_)
        ibv_destroy_qp(request.qp);
}

void Storm::kill(std::size_t process) { processes_[process]->is_dead = true; }

void Storm::connect(std::size_t from, std::size_t to) {
    ConnectionRequest& request = asked_.emplace_back();
    request.qp = fake_verbs::make_queue_pair(device_.context());
    request.from = processes_[from]->name;
    request.to = processes_[to]->name;
    processes_[from]->requests.start(request, now_);
    wake(from, now_);
}

void Storm::wake(std::size_t process, Clock::time_point at) {
    Process& p = *processes_[process];
    at = std::max(at, p.busy_until);
    if (at >= p.wakes_at) return;
    p.wakes_at = at;
    events_.push({at, ++order_, process, nullptr});
}

void Storm::send(Process& from, const Datagram& datagram, const EndpointAddress& to, bool again) {
    switch (datagram.kind) {
        case DatagramKind::kRequest:
            ++(again ? totals_.repeats : totals_.requests);
            from.outstanding.insert(datagram.id);
            from.instants[datagram.id].push_back(now_);
            most_outstanding_ = std::max(most_outstanding_, from.outstanding.size());
            break;
        case DatagramKind::kReply:
            ++totals_.replies;
            break;
        case DatagramKind::kBye:
            ++totals_.byes;
            break;
    }
    const std::size_t number = to.process.ud_qpn - 2;
    events_.push(
        {now_ + costs_.wire, ++order_, number, std::make_shared<const Datagram>(datagram)});
}

void Storm::arrive(Process& process, const Datagram& datagram) {
    if (process.is_dead) return;
    const auto tick = std::chrono::floor<milliseconds>(now_);
    if (std::exchange(process.tick, tick) != tick) process.in_tick = 0;
    const bool exceeds = costs_.most_in_ms != 0 && ++process.in_tick > costs_.most_in_ms;
    if (exceeds || process.received.size() >= costs_.receive_queue) {
        ++totals_.lost;
        return;
    }
    process.received.push_back(datagram);
}

void Storm::count_ends(Process&) {
    for (const auto& each : ended_) {
        ++(each.error == 0 ? totals_.connected : totals_.failed);
        last_end_ = now_;
    }
    ended_.clear();
}

Storm::Clock::duration Storm::take(Process& process, const Datagram& datagram) {
    const std::size_t targets = process.targets.size();
    switch (datagram.kind) {
        case DatagramKind::kRequest:
            send(process, process.targets.answer(datagram, now_), datagram.from, false);
            break;
        case DatagramKind::kReply:
            if (const auto bye = process.requests.answered(datagram, now_, ended_))
                send(process, bye->datagram, bye->to, false);
            process.outstanding.erase(datagram.id);
            break;
        case DatagramKind::kBye:
            if (!process.requests.bye(datagram)) process.targets.bye(datagram, now_);
            break;
    }
    count_ends(process);
    return process.targets.size() > targets ? costs_.new_target : costs_.datagram;
}

// As the connector's thread does: what has come, then what is due.
void Storm::work(std::size_t number) {
    Process& process = *processes_[number];
    process.wakes_at = Clock::time_point::max();
    Clock::duration busy{};
    if (!process.received.empty()) {
        const Datagram datagram = process.received.front();
        process.received.pop_front();
        busy += take(process, datagram);
    }
    const auto due = process.requests.due(now_, ended_);
    count_ends(process);
    most_at_once_ = std::max(most_at_once_, due.size());
    for (const auto& out : due) {
        if (out.datagram.kind == DatagramKind::kBye) process.outstanding.erase(out.datagram.id);
        send(process, out.datagram, out.to, out.again);
    }
    process.busy_until = now_ + busy;
    if (!process.received.empty())
        wake(number, process.busy_until);
    else if (const auto next = process.requests.next())
        wake(number, *next);
}

void Storm::run(std::chrono::milliseconds most) {
    const Clock::time_point end = now_ + most;
    while (!events_.empty() && events_.top().at <= end) {
        const Event event = events_.top();
        events_.pop();
        HEDDLE_ASSERT(event.at >= now_, "time goes one way");
        now_ = event.at;
        Process& process = *processes_[event.process];
        if (event.arrives != nullptr) {
            arrive(process, *event.arrives);
            wake(event.process, now_);
        } else if (event.at == process.wakes_at) {
            work(event.process);
        }
    }
}

}  // namespace heddle::protocol::test

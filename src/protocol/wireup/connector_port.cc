// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/wireup/connector_port.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/connection.h"
#include "verbs/memlock.h"

namespace heddle::protocol {

std::size_t PathCache::PortHash::operator()(const Port& port) const noexcept {
    return static_cast<std::size_t>(port.gid[0] * 31 ^ port.gid[1] ^ std::uint64_t{port.lid} << 40);
}

PathCache::~PathCache() { clear(); }

void PathCache::clear() noexcept {
    for (const Path& path : recent_)
        ibv_destroy_ah(path.handle);
    recent_.clear();
    found_.clear();
}

void PathCache::take_port(const verbs::LocalPort& own) noexcept {
    clear();
    own_ = own;
}

ibv_ah* PathCache::find(const EndpointAddress& name) noexcept {
    const QpAddress address = address_of(name, name.process.ud_qpn);
    Port port;
    port.is_global = verbs::is_global(address, own_);
    if (port.is_global) std::memcpy(port.gid, address.gid, sizeof port.gid);
    port.lid = address.lid;
    HEDDLE_ASSERT(recent_.size() == found_.size() && recent_.size() <= kMost,
                  "the list and the table have the same ports");
    if (const auto at = found_.find(port); at != found_.end()) {
        recent_.splice(recent_.begin(), recent_, at->second);
        return at->second->handle;
    }
    ibv_ah_attr path = verbs::path_to(address, own_);
    ibv_ah* const handle = ibv_create_ah(pd_, &path);
    if (handle == nullptr) return nullptr;
    if (recent_.size() == kMost) {
        ibv_destroy_ah(recent_.back().handle);
        found_.erase(recent_.back().port);
        recent_.pop_back();
    }
    recent_.push_front({port, handle});
    found_.emplace(port, recent_.begin());
    return handle;
}

ConnectorPort::ConnectorPort(ibv_context* context, ibv_pd* pd, const verbs::LocalPort& port,
                             unsigned receives, std::uint32_t qkey, Clock::duration repair_every)
    : receives_(receives), qkey_(qkey), repair_every_(repair_every), port_(port), paths_(pd, port) {
    HEDDLE_ASSERT(receives != 0, "a port that receives nothing is never asked");
    HEDDLE_ASSERT(qkey >> 31 == 0, "IBTA 10.2.5: a Q_Key with the highest bit is privileged");
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = ((receives + kSends) * kSlot + kOverflow + page - 1) / page * page;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(page, bytes)));
    if (!memory_) throw VerbsError("memory for datagrams", ENOMEM);
    std::memset(memory_.get(), 0, bytes);
    region_.reset(ibv_reg_mr(pd, memory_.get(), bytes, IBV_ACCESS_LOCAL_WRITE));
    if (!region_)
        throw VerbsError("registering " + std::to_string(bytes) + " bytes for datagrams", errno,
                         verbs::memlock_hint(errno));

    channel_.reset(ibv_create_comp_channel(context));
    if (!channel_) throw VerbsError("a completion channel for datagrams", errno);
    const int flags = fcntl(channel_->fd, F_GETFL);
    if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        throw VerbsError("making a completion channel non-blocking", errno);
    const unsigned entries = receives + kSends;
    cq_.reset(ibv_create_cq(context, static_cast<int>(entries), nullptr, channel_.get(), 0));
    if (!cq_)
        throw VerbsError("a CQ of " + std::to_string(entries) + " entries for datagrams", errno,
                         verbs::memlock_hint(errno));

    ibv_qp_init_attr wanted{};
    wanted.qp_type = IBV_QPT_UD;
    wanted.send_cq = wanted.recv_cq = cq_.get();
    wanted.cap.max_send_wr = kSends;
    wanted.cap.max_recv_wr = receives;
    wanted.cap.max_send_sge = 1;
    wanted.cap.max_recv_sge = 2;
    qp_.reset(ibv_create_qp(pd, &wanted));
    if (!qp_)
        throw VerbsError("a UD QP of " + std::to_string(kSends) + " sends and " +
                             std::to_string(receives) + " receives",
                         errno);
    address_ = verbs::address_of(qp_.get(), port_);
    if (const int error = to_ready())
        throw VerbsError("taking UD QP " + std::to_string(qp_->qp_num) + " to RTS", error);
    for (std::uint32_t k = kSends; k-- != 0;)
        free_sends_.push_back(receives_ + k);
    post_all_receives();
}

int ConnectorPort::to_ready() noexcept {
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = port_.number;
    a.pkey_index = port_.pkey_index;
    a.qkey = qkey_;
    int error =
        ibv_modify_qp(qp_.get(), &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    if (error != 0) return error;
    a = {};
    a.qp_state = IBV_QPS_RTR;
    error = ibv_modify_qp(qp_.get(), &a, IBV_QP_STATE);
    if (error != 0) return error;
    a.qp_state = IBV_QPS_RTS;
    return ibv_modify_qp(qp_.get(), &a, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

void ConnectorPort::post_receive(std::uint64_t k) noexcept {
    HEDDLE_ASSERT(k < receives_, "the slots behind these are of sends");
    ibv_sge sges[] = {{reinterpret_cast<std::uint64_t>(slot(k)), kSlot, region_->lkey},
                      {reinterpret_cast<std::uint64_t>(overflow()), kOverflow, region_->lkey}};
    ibv_recv_wr work{};
    work.wr_id = k;
    work.sg_list = sges;
    work.num_sge = 2;
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp_.get(), &work, &bad) != 0) broken_ = true;
}

void ConnectorPort::post_all_receives() noexcept {
    for (unsigned k = 0; k < receives_; ++k)
        post_receive(k);
}

bool ConnectorPort::send(const Datagram& datagram, const EndpointAddress& to) noexcept {
    if (free_sends_.empty()) return false;
    ibv_ah* const path = paths_.find(to);
    if (path == nullptr) return false;
    const std::uint32_t k = free_sends_.back();
    HEDDLE_ASSERT(k >= receives_ && k - receives_ < kSends, "a datagram would overwrite a receive");
    write(datagram, std::span<std::byte, kDatagramBytes>(slot(k), kDatagramBytes));
    ibv_sge sge{reinterpret_cast<std::uint64_t>(slot(k)), kDatagramBytes, region_->lkey};
    ibv_send_wr work{};
    work.wr_id = k;
    work.sg_list = &sge;
    work.num_sge = 1;
    work.opcode = IBV_WR_SEND;
    work.send_flags = IBV_SEND_SIGNALED;
    work.wr.ud.ah = path;
    work.wr.ud.remote_qpn = to.process.ud_qpn;
    work.wr.ud.remote_qkey = to.process.qkey();
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp_.get(), &work, &bad) != 0) return false;
    free_sends_.pop_back();
    return true;
}

unsigned ConnectorPort::poll(ibv_wc (&completions)[kBatch]) noexcept {
    const int n = ibv_poll_cq(cq_.get(), kBatch, completions);
    return n > 0 ? static_cast<unsigned>(n) : 0;
}

bool ConnectorPort::is_arrival(const ibv_wc& completion) noexcept {
    // A failed one has only the number and the status.
    if (completion.status != IBV_WC_SUCCESS) broken_ = true;
    if (completion.wr_id >= receives_) {
        HEDDLE_ASSERT(completion.wr_id - receives_ < kSends && free_sends_.size() < kSends,
                      "the slot of a send came back twice");
        free_sends_.push_back(static_cast<std::uint32_t>(completion.wr_id));
        return false;
    }
    return completion.status == IBV_WC_SUCCESS;
}

ConnectorPort::Arrival ConnectorPort::arrival_of(const ibv_wc& completion) const noexcept {
    HEDDLE_ASSERT(completion.wr_id < receives_);
    const std::byte* const at = slot(completion.wr_id);
    Arrival arrival;
    if (completion.byte_len > kGrh) arrival.length = completion.byte_len - kGrh;
    arrival.bytes = {at + kGrh, std::min(arrival.length, kSlot - kGrh)};
    arrival.source.qpn = completion.src_qp;
    arrival.source.lid = completion.slid;
    if (completion.wc_flags & IBV_WC_GRH) arrival.source.grh = {at, kGrh};
    return arrival;
}

bool ConnectorPort::arm() noexcept {
    ibv_cq* of = nullptr;
    void* unused = nullptr;
    unsigned events = 0;
    while (ibv_get_cq_event(channel_.get(), &of, &unused) == 0)
        ++events;
    if (events != 0) ibv_ack_cq_events(cq_.get(), events);
    if (events == 0 && armed_) return true;
    armed_ = ibv_req_notify_cq(cq_.get(), 0) == 0;
    // What came before it was armed makes no event. If it cannot be armed, timers still wake us.
    return !armed_;
}

// The QP keeps its number, by which the others know us. Whatever breaks it may do so again at once:
// the rate of repairs is limited, so that they do not take a processor.
bool ConnectorPort::repair() noexcept {
    HEDDLE_ASSERT(broken_, "what works is not reset");
    const Clock::time_point now = Clock::now();
    if (now < repair_from_) return false;
    repair_from_ = now + repair_every_;
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RESET;
    if (ibv_modify_qp(qp_.get(), &a, IBV_QP_STATE) != 0) return false;
    // The reset has done away with what was posted; completions of it must not be met later.
    ibv_wc completions[kBatch];
    while (poll(completions) != 0) {
    }
    free_sends_.clear();
    for (std::uint32_t k = kSends; k-- != 0;)
        free_sends_.push_back(receives_ + k);
    if (to_ready() != 0) return false;
    broken_ = false;
    post_all_receives();  // it may break again
    return !broken_;
}

void ConnectorPort::drain(std::chrono::milliseconds most) noexcept {
    const auto end = std::chrono::steady_clock::now() + most;
    while (free_sends_.size() < kSends) {
        ibv_wc completions[kBatch];
        const unsigned n = poll(completions);
        for (unsigned i = 0; i < n; ++i)
            if (is_arrival(completions[i])) post_receive(completions[i].wr_id);
        if (std::chrono::steady_clock::now() >= end) return;
        if (n == 0) std::this_thread::yield();
    }
}

}  // namespace heddle::protocol

// SPDX-License-Identifier: BSD-2-Clause
// Scalable communication endpoints: what n threads of a process need to send each on its own, at
// the price in resources that a category names. ICPADS'18, sections V and VI.
//
//   heddle::EndpointSet set({}, heddle::Category::kDynamic, 4);
//   set[0].connect(peer);                    // once, by one thread
//   heddle::post::WorkRequest work;                 // then by the endpoint's own thread
//   ...
//   set[0].post(work);
//   set[0].poll(&completion, 1);
//
// Making, connecting and destroying a set: one thread at a time. Posting and polling:
// docs/endpoints.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "heddle/address.h"
#include "heddle/category.h"
#include "heddle/device.h"
#include "heddle/error.h"
#include "heddle/post/queues.h"
#include "heddle/usage.h"

struct ibv_context;
struct ibv_cq;
struct ibv_mr;
struct ibv_pd;
struct ibv_qp;

namespace heddle {

struct EndpointOptions {
    std::uint32_t depth = 128;  // send queue entries; the CQ has as many for each of its QPs
    std::uint32_t receive_depth = 0;
    std::uint32_t max_inline = 60;  // bytes
    std::uint32_t max_sge = 1;
    std::uint32_t qps_per_thread = 1;  // on the thread's one CQ: one for each neighbour, say
    Path path = Path::kVerbs;
    // Works that ring_doorbell() hands over together. By the verbs path they wait in a list of this
    // length; the direct path has the send queue itself for it.
    std::uint32_t post_list = 1;
    std::size_t buffer_bytes = 4096;  // payload of each endpoint, registered
    // Of each buffer, in bytes: less than 64 lets neighbours have cache lines in common.
    std::size_t buffer_alignment = 64;
};

class Endpoint {
public:
    // What it is made of. Shared with other endpoints as the set's category says.
    ibv_context* context() const noexcept { return context_; }
    ibv_pd* pd() const noexcept { return pd_; }
    ibv_mr* mr() const noexcept { return mr_; }
    ibv_cq* cq() const noexcept { return cq_; }
    std::uint32_t qps() const noexcept { return static_cast<std::uint32_t>(qps_.size()); }
    ibv_qp* qp(std::uint32_t k = 0) const noexcept { return qps_[k]; }
    // The register that QP rings: endpoints for which it is the same share a uUAR. nullptr: not an
    // mlx5 device.
    const void* uuar(std::uint32_t k = 0) const noexcept;
    std::byte* buffer() const noexcept { return buffer_; }
    std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
    // May threads other than this endpoint's own post to its QP, poll its CQ?
    bool qp_shared() const noexcept { return qp_shared_; }
    bool cq_shared() const noexcept { return cq_shared_; }

    // The path is chosen when the set is made; this calls `use` with the queues of that path
    // (heddle/post/queues.h), so that everything within is decided when it is compiled.
    template <class Use>
    decltype(auto) visit(Use&& use) {
        return std::visit(std::forward<Use>(use), queues_);
    }

    // The same for both paths. A work's memory must stay until it completes. `k`: on which QP.
    // kFull: poll, then try again. Nothing throws.
    post::Posted post(const post::WorkRequest& work, std::uint32_t k = 0) noexcept {
        return visit([&](auto& q) { return q.send(k).post_now(work); });
    }
    post::Posted post_receive(std::span<const ibv_sge> sges, std::uint64_t id,
                              std::uint32_t k = 0) noexcept {
        return visit([&](auto& q) { return q.receive(k).post_now(sges, id); });
    }
    // How many of at most `most` have come.
    unsigned poll(post::Completion* out, unsigned most) noexcept {
        return visit([&](auto& q) { return q.completions().poll(out, most); });
    }
    QpAddress address(std::uint32_t k = 0) const;
    // Takes its k-th QP to RTS, connected to `peer`. A shared QP is connected once. Throws
    // VerbsError.
    void connect(const QpAddress& peer, std::uint32_t k = 0) const;

private:
    friend class EndpointSet;
    ibv_context* context_ = nullptr;
    ibv_pd* pd_ = nullptr;
    ibv_mr* mr_ = nullptr;
    ibv_cq* cq_ = nullptr;
    std::vector<ibv_qp*> qps_;
    std::byte* buffer_ = nullptr;
    std::size_t buffer_bytes_ = 0;
    bool qp_shared_ = false, cq_shared_ = false;
    post::AnyQueues queues_;
};

class EndpointSet {
public:
    // n endpoints on the device of that name (empty: the first with an active port).
    // Throws VerbsError: which resource was short, how many there are, and which category would
    // fit. On a device without thread domains (DeviceInfo::thread_domains) a category that consists
    // of them is made as static, and usage().thread_domains is 0; a Sharing that asks for them is
    // refused (EOPNOTSUPP).
    EndpointSet(const std::string& device, Category category, std::uint32_t threads,
                const EndpointOptions& options = {});
    EndpointSet(const std::string& device, const Sharing& sharing, std::uint32_t threads,
                const EndpointOptions& options = {});
    EndpointSet(EndpointSet&&) noexcept;
    EndpointSet& operator=(EndpointSet&&) noexcept;
    ~EndpointSet();

    std::uint32_t size() const noexcept;
    Endpoint& operator[](std::uint32_t thread) noexcept;
    const Endpoint& operator[](std::uint32_t thread) const noexcept;
    const Usage& usage() const noexcept;  // measured while the set was made

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace heddle

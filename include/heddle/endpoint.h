// SPDX-License-Identifier: BSD-2-Clause
// Scalable communication endpoints: the verbs objects that the threads of a process need to send
// independently of each other, at the price in resources that a category names. ICPADS'18, sections
// V and VI.
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
#include "heddle/detail/assert.h"
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

/// The sizes of an EndpointSet's queues and buffers.
///
///     heddle::EndpointOptions options;
///     options.path = heddle::Path::kDirect;
///     options.depth = 512;
///     options.receive_depth = 64;
///     heddle::EndpointSet set("", heddle::Category::kDynamic, 4, options);
struct EndpointOptions {
    /// Work requests of each send queue, at least 1. The CQ has as many entries for each of its
    /// QPs.
    std::uint32_t depth = 128;
    std::uint32_t receive_depth = 0;  ///< receives of each QP; 0: endpoints cannot receive
    std::uint32_t max_inline = 60;    ///< bytes of payload that a work request may carry inline
    std::uint32_t max_sge = 1;        ///< scatter/gather entries of a send work request
    /// QPs of each thread, at least 1. They share the thread's CQ: one for each neighbour, say.
    std::uint32_t qps_per_thread = 1;
    Path path = Path::kVerbs;  ///< how work requests reach the device
    /// Work requests that ring_doorbell() hands over together. The verbs path keeps them in a list
    /// of this length; the direct path keeps them in the send queue itself.
    std::uint32_t post_list = 1;
    std::size_t buffer_bytes = 4096;  ///< bytes of payload memory of each endpoint
    /// Alignment of each buffer in bytes, 1 to 4096. With less than 64, neighbours may share cache
    /// lines.
    std::size_t buffer_alignment = 64;
};

/// The verbs objects of one thread: QPs, a CQ, and registered memory.
///
/// An EndpointSet owns its endpoints; pointers and references are valid as long as the set.
///
///     heddle::Endpoint& endpoint = set[thread];
///     ibv_sge sge{reinterpret_cast<std::uintptr_t>(endpoint.buffer()), 8, endpoint.mr()->lkey};
///     heddle::post::WorkRequest request;
///     request.flags = heddle::post::kSignaled;
///     request.sges = {&sge, 1};
///     if (endpoint.post(request) == heddle::post::Posted::kFull) poll_and_try_again();
///     heddle::post::Completion completion;
///     while (endpoint.poll(&completion, 1) == 0) {}
///
/// Thread safety: docs/concepts/endpoints.md has a table. In short, post(), post_receive(),
/// poll() and visit() are for one thread at a time, unless the category keeps locks
/// (kMpiEverywhere, kStatic, kMpiThreads). A program that breaks this rule is stopped if it defines
/// HEDDLE_CHECK_THREADS. The accessors are for any thread.
class Endpoint {
public:
    /// Returns the device context. Endpoints share it as their category says. The set owns it.
    ibv_context* context() const noexcept { return context_; }
    /// Returns the protection domain, shared as the category says. The set owns it.
    ibv_pd* pd() const noexcept { return pd_; }
    /// Returns the memory region that covers buffer(), shared as the category says. The set owns
    /// it.
    ibv_mr* mr() const noexcept { return mr_; }
    /// Returns the completion queue. The set owns it. With the direct path the program must not
    /// poll or arm it by libibverbs.
    ibv_cq* cq() const noexcept { return cq_; }
    /// Returns the number of QPs: EndpointOptions::qps_per_thread.
    std::uint32_t qps() const noexcept { return static_cast<std::uint32_t>(qps_.size()); }
    /// Returns a queue pair. The set owns it. With the direct path the program must not post to it
    /// by libibverbs.
    /// @param k which QP, less than qps()
    ibv_qp* qp(std::uint32_t k = 0) const noexcept {
        HEDDLE_DEBUG_ASSERT(k < qps_.size(), "an endpoint has no QP of that index");
        return qps_[k];
    }
    /// Returns the doorbell register that a QP rings. Endpoints with the same value share a uUAR.
    /// @param k which QP, less than qps()
    /// @return nullptr if the device is not an mlx5
    const void* uuar(std::uint32_t k = 0) const noexcept;
    /// Returns the payload memory: zeroed at first, registered by mr(). The set owns it.
    std::byte* buffer() const noexcept { return buffer_; }
    /// Returns the size of buffer() in bytes: EndpointOptions::buffer_bytes.
    std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
    /// Returns whether threads other than this endpoint's own post to its QPs.
    bool qp_shared() const noexcept { return qp_shared_; }
    /// Returns whether threads other than this endpoint's own poll its CQ: poll() may then return
    /// completions of their work requests.
    bool cq_shared() const noexcept { return cq_shared_; }

    /// Calls `use` with the queues of this endpoint's path (heddle/post/queues.h), so that the
    /// compiler sees their types and the path is decided once.
    ///
    ///     set[t].visit([&](auto& queues) {
    ///         for (const auto& request : requests) queues.send().post(request);
    ///         queues.send().ring_doorbell();
    ///     });
    ///
    /// @param use callable with post::VerbsQueues&, and post::DirectQueues<Lock>& for both locks
    /// @return what `use` returns
    template <class Use>
    decltype(auto) visit(Use&& use) {
        return std::visit(std::forward<Use>(use), queues_);
    }

    /// Posts a work request and rings the doorbell.
    ///
    /// @param request its memory must stay unchanged until it completes; with post::kInline, until
    ///     this call returns. The WorkRequest itself and its list of SGEs are free at return
    /// @param k on which QP, less than qps()
    /// @return kOk. kFull: the send queue has no room; poll, then try again. kInvalid: the request
    ///     is not possible on this QP (too many SGEs, too much inline payload, wrong opcode)
    post::Posted post(const post::WorkRequest& request, std::uint32_t k = 0) noexcept {
        HEDDLE_DEBUG_ASSERT(k < qps_.size(), "an endpoint has no QP of that index");
        return visit([&](auto& q) { return q.send(k).post_now(request); });
    }
    /// Posts a receive. EndpointOptions::receive_depth is not 0.
    ///
    /// @param sges registered memory; it must stay until the receive completes. The list itself is
    ///     free at return
    /// @param id any value; the completion has it
    /// @param k on which QP, less than qps()
    /// @return kOk. kFull: the receive queue has no room. kInvalid: there are too many SGEs
    post::Posted post_receive(std::span<const ibv_sge> sges, std::uint64_t id,
                              std::uint32_t k = 0) noexcept {
        return visit([&](auto& q) { return q.receive(k).post_now(sges, id); });
    }
    /// Takes completions from the CQ. Never waits.
    ///
    /// @param out room for `most` completions
    /// @param most the largest number of completions to take
    /// @return how many were written to `out`; 0: none has arrived
    unsigned poll(post::Completion* out, unsigned most) noexcept {
        HEDDLE_DEBUG_ASSERT(out != nullptr || most == 0);
        return visit([&](auto& q) { return q.completions().poll(out, most); });
    }
    /// Returns the address that a peer passes to connect().
    ///
    /// @param k which QP, less than qps()
    /// @throw VerbsError the port cannot be queried, or has no GID
    QpAddress address(std::uint32_t k = 0) const;
    /// Takes a QP from RESET to RTS, connected to a peer's (IBTA 10.3.1). Both sides do so. A QP
    /// that endpoints share is connected once.
    ///
    /// Thread safety: one thread at a time for the whole set, before the first post.
    ///
    /// @param peer what the peer's address() returned; its own address connects a QP to itself
    /// @param k which QP, less than qps()
    /// @throw VerbsError EINVAL: the QP is not in RESET. Another errno: the kernel refused a step
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
    std::uint8_t port_ = 1;
    bool qp_shared_ = false, cq_shared_ = false;
    post::AnyQueues queues_;
};

/// The endpoints of n threads and everything they consist of.
///
///     heddle::EndpointSet set("", heddle::Category::kDynamic, 4);
///     for (std::uint32_t t = 0; t < set.size(); ++t) set[t].connect(peer[t]);
///     // then thread t posts to and polls set[t]
///
/// Thread safety: one thread at a time constructs, moves or destroys a set, while no thread uses
/// its endpoints. The accessors are for any thread.
class EndpointSet {
public:
    /// Creates the endpoints of a category.
    ///
    /// On a device without thread domains (DeviceInfo::thread_domains) a category that consists of
    /// them is created as Category::kStatic, and usage().thread_domains is 0.
    ///
    /// @param device the device's name; empty: the first device with an active port
    /// @param category how much the threads share
    /// @param threads the number of endpoints, at least 1
    /// @param options sizes of queues and buffers
    /// @throw VerbsError ENODEV: no such device. EINVAL: an option or a number is out of range.
    ///     Another errno: a resource ran out; the message says which, how many exist, and which
    ///     category would fit
    /// @throw std::bad_alloc there is no memory for the buffers
    EndpointSet(const std::string& device, Category category, std::uint32_t threads,
                const EndpointOptions& options = {});
    /// Creates endpoints with any sharing of single resources.
    ///
    /// @param device the device's name; empty: the first device with an active port
    /// @param sharing how many threads share each object
    /// @param threads the number of endpoints, at least 1
    /// @param options sizes of queues and buffers
    /// @throw VerbsError as above. EINVAL also: the sharing breaks a rule of Sharing. EOPNOTSUPP:
    ///     the placement needs thread domains, and the device has none
    EndpointSet(const std::string& device, const Sharing& sharing, std::uint32_t threads,
                const EndpointOptions& options = {});
    /// Takes over everything. References to endpoints stay valid. The other set may only be
    /// assigned to or destroyed.
    EndpointSet(EndpointSet&&) noexcept;
    /// Destroys what this set has, then takes over everything as the move constructor does.
    EndpointSet& operator=(EndpointSet&&) noexcept;
    /// Destroys all QPs, CQs, registrations and buffers. Outstanding work requests are lost.
    ~EndpointSet();

    /// Returns the number of endpoints.
    std::uint32_t size() const noexcept;
    /// Returns the endpoint of a thread.
    /// @param thread less than size()
    Endpoint& operator[](std::uint32_t thread) noexcept;
    /// Returns the endpoint of a thread.
    /// @param thread less than size()
    const Endpoint& operator[](std::uint32_t thread) const noexcept;
    /// Returns what the endpoints use of the device, as measured during construction. Valid as long
    /// as the set.
    const Usage& usage() const noexcept;

private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace heddle

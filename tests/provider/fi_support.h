// SPDX-License-Identifier: BSD-2-Clause
// What tests of libfabric's interface need. As in a program, libfabric loads the provider, here the
// one of this build tree. Each object that a test opens is closed at its end, and the test fails if
// closing fails.
#pragma once

#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace heddle::test {

inline constexpr std::uint32_t kApi = FI_VERSION(1, 17);
inline constexpr std::size_t kNameBytes = 48;

struct FreeInfo {
    void operator()(fi_info* info) const { fi_freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

// What a program may say before anything is known.
inline Info no_hints() { return Info(fi_allocinfo()); }

// As most programs ask: messages, RMA and atomics, one thread.
inline Info usual_hints() {
    Info hints = no_hints();
    hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV | FI_SOURCE;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    return hints;
}

// The provider's answer; empty: -FI_ENODATA.
inline Info ask(const fi_info* hints, std::uint32_t api = kApi) {
    fi_info* info = nullptr;
    const int result = fi_getinfo(api, nullptr, nullptr, 0, hints, &info);
    EXPECT_TRUE(result == 0 || result == -FI_ENODATA) << fi_strerror(-result);
    return Info(result == 0 ? info : nullptr);
}

// Closes at the end; close() does it now and tells how it went.
template <class Object>
class Opened {
public:
    Opened() = default;
    explicit Opened(Object* object) : object_(object) {}
    Opened(Opened&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Opened& operator=(Opened&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Opened() {
        if (object_ != nullptr) {
            EXPECT_EQ(fi_close(&object_->fid), 0);
        }
    }
    Object* get() const { return object_; }
    Object* operator->() const { return object_; }
    fid* handle() const { return &object_->fid; }
    explicit operator bool() const { return object_ != nullptr; }
    int close() {
        const int result = fi_close(&object_->fid);
        if (result == 0) object_ = nullptr;
        return result;
    }

private:
    Object* object_ = nullptr;
};

// Fails the test and returns nothing where the call fails.
template <class Object, class Open>
Opened<Object> opened(const char* what, Open&& open) {
    Object* object = nullptr;
    const int result = open(&object);
    EXPECT_EQ(result, 0) << what << ": " << fi_strerror(-result);
    return Opened<Object>(result == 0 ? object : nullptr);
}

inline Opened<fid_cq> open_cq(fid_domain* domain, fi_cq_format format = FI_CQ_FORMAT_TAGGED,
                              fi_wait_obj wait = FI_WAIT_NONE) {
    fi_cq_attr attributes{};
    attributes.format = format;
    attributes.wait_obj = wait;
    return opened<fid_cq>(
        "fi_cq_open", [&](fid_cq** cq) { return fi_cq_open(domain, &attributes, cq, nullptr); });
}
inline Opened<fid_av> open_av(fid_domain* domain, fi_av_type type = FI_AV_TABLE,
                              std::uint64_t flags = 0) {
    fi_av_attr attributes{};
    attributes.type = type;
    attributes.flags = flags;
    return opened<fid_av>(
        "fi_av_open", [&](fid_av** av) { return fi_av_open(domain, &attributes, av, nullptr); });
}
inline Opened<fid_cntr> open_counter(fid_domain* domain, fi_wait_obj wait = FI_WAIT_UNSPEC) {
    fi_cntr_attr attributes{};
    attributes.events = FI_CNTR_EVENTS_COMP;
    attributes.wait_obj = wait;
    return opened<fid_cntr>("fi_cntr_open", [&](fid_cntr** counter) {
        return fi_cntr_open(domain, &attributes, counter, nullptr);
    });
}
inline Opened<fid_ep> open_endpoint(fid_domain* domain, fi_info* info) {
    return opened<fid_ep>("fi_endpoint",
                          [&](fid_ep** ep) { return fi_endpoint(domain, info, ep, nullptr); });
}

// A fabric and a domain of it.
struct World {
    explicit World(Info asked = usual_hints()) : info(ask(asked.get())) {
        if (info == nullptr) throw std::runtime_error("nothing is offered");
        fabric = opened<fid_fabric>("fi_fabric", [&](fid_fabric** out) {
            return fi_fabric(info->fabric_attr, out, nullptr);
        });
        domain = opened<fid_domain>("fi_domain", [&](fid_domain** out) {
            return fi_domain(fabric.get(), info.get(), out, nullptr);
        });
    }
    Info info;
    Opened<fid_fabric> fabric;
    Opened<fid_domain> domain;
};

// An endpoint with all that it needs, and its name.
struct Station {
    explicit Station(World& world, fi_wait_obj wait = FI_WAIT_NONE,
                     fi_cq_format format = FI_CQ_FORMAT_TAGGED, std::uint64_t bind_flags = 0)
        : av(open_av(world.domain.get())),
          transmit(open_cq(world.domain.get(), format, wait)),
          receive(open_cq(world.domain.get(), format, wait)),
          ep(open_endpoint(world.domain.get(), world.info.get())) {
        EXPECT_EQ(fi_ep_bind(ep.get(), av.handle(), 0), 0);
        EXPECT_EQ(fi_ep_bind(ep.get(), transmit.handle(), FI_TRANSMIT | bind_flags), 0);
        EXPECT_EQ(fi_ep_bind(ep.get(), receive.handle(), FI_RECV), 0);
    }
    void enable() {
        ASSERT_EQ(fi_enable(ep.get()), 0);
        std::size_t bytes = sizeof name;
        ASSERT_EQ(fi_getname(ep.handle(), name, &bytes), 0);
        ASSERT_EQ(bytes, kNameBytes);
    }
    fi_addr_t add(const Station& peer) {
        fi_addr_t address = FI_ADDR_NOTAVAIL;
        EXPECT_EQ(fi_av_insert(av.get(), peer.name, 1, &address, 0, nullptr), 1);
        return address;
    }
    // Closed in the other order: the endpoint first.
    Opened<fid_av> av;
    Opened<fid_cq> transmit, receive;
    Opened<fid_ep> ep;
    std::byte name[kNameBytes] = {};
};

// Two endpoints of one domain that know each other.
struct Pair {
    explicit Pair(World& world, fi_wait_obj wait = FI_WAIT_NONE,
                  fi_cq_format format = FI_CQ_FORMAT_TAGGED, std::uint64_t bind_flags = 0)
        : a(world, wait, format, bind_flags), b(world, wait, format, bind_flags) {
        a.enable();
        b.enable();
        to_b = a.add(b);
        to_a = b.add(a);
    }
    Station a, b;
    fi_addr_t to_a, to_b;
};

inline constexpr std::chrono::seconds kPatience{20};

// Reads both CQs (progress) until `wanted` has an entry; its error, or 0.
template <class Entry = fi_cq_tagged_entry>
int next(fid_cq* wanted, Entry& entry, fid_cq* other = nullptr) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
        const ssize_t got = fi_cq_read(wanted, &entry, 1);
        if (got == 1) return 0;
        if (got == -FI_EAVAIL) {
            fi_cq_err_entry error{};
            EXPECT_EQ(fi_cq_readerr(wanted, &error, 0), 1);
            return error.err;
        }
        if (got != -FI_EAGAIN) return static_cast<int>(-got);
        if (other != nullptr) fi_cq_read(other, nullptr, 0);
    }
    return FI_ETIMEDOUT;
}

// Again and again while it is -FI_EAGAIN.
template <class Call>
ssize_t insist(fid_cq* cq, Call&& call) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    ssize_t result = -FI_EAGAIN;
    while (result == -FI_EAGAIN && std::chrono::steady_clock::now() < end) {
        result = call();
        if (result == -FI_EAGAIN) fi_cq_read(cq, nullptr, 0);
    }
    return result;
}

// Sends `bytes` from `from` once, and receives them at `to`, where there are `room` bytes. Messages
// of failed checks show `number`.
inline void transfer(Pair& pair, const void* from, void* to, std::size_t bytes, std::size_t room,
                     std::uint64_t number) {
    ASSERT_EQ(fi_trecv(pair.b.ep.get(), to, room, nullptr, FI_ADDR_UNSPEC, 1, 0, nullptr), 0);
    const auto send = [&] {
        return fi_tsend(pair.a.ep.get(), from, bytes, nullptr, pair.to_b, 1, nullptr);
    };
    ASSERT_EQ(insist(pair.a.transmit.get(), send), 0);
    fi_cq_tagged_entry entry;
    ASSERT_EQ(next(pair.b.receive.get(), entry, pair.a.transmit.get()), 0);
    ASSERT_EQ(entry.len, bytes);
    ASSERT_EQ(next(pair.a.transmit.get(), entry, pair.b.receive.get()), 0);
    ASSERT_EQ(std::memcmp(from, to, bytes), 0) << "message " << number;
}

}  // namespace heddle::test

// SPDX-License-Identifier: BSD-2-Clause
// What stands behind an fi_domain: its part of the process's devices. Beneath it the domains of a
// process share contexts, protection domain, registrations and registers as the category of
// endpoints says (MPICH opens one domain for each VCI). Registrations of an application, too.
#pragma once

#include <rdma/fi_domain.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "heddle/device.h"
#include "heddle/usage.h"
#include "memory/registration_cache.h"
#include "protocol/common/options.h"

namespace heddle::protocol {

// Memory registered for remote access, and for local use without another registration. Ends with
// the object.
class Region {
public:
    virtual ~Region() = default;
    virtual std::uint32_t local_key() const noexcept = 0;
    virtual std::uint32_t key() const noexcept = 0;  // for peers
    // May the device write to it for an operation of this process?
    virtual bool is_writable() const noexcept = 0;
};

// What SendArguments::descriptors point to: the handle of a region, as the application has it
// (`key` is Region's), with its other key. Applications that give fid_mr where fi_mr_desc(fid_mr)
// is wanted get along with most providers, as there the two are one: so they are here.
struct RegionHandle : fid_mr {
    std::uint32_t local_key = 0;
    bool is_writable = false;  // by the device, for an operation of this process
    std::uintptr_t address = 0;
    std::size_t bytes = 0;
};

class Domain {
public:
    // The first of a process opens the device. Throws VerbsError.
    explicit Domain(const Options& options);
    ~Domain();
    Domain(const Domain&) = delete;
    Domain& operator=(const Domain&) = delete;

    const Options& options() const noexcept;
    const DeviceInfo& device() const noexcept;
    Category category() const noexcept;
    // The lock of the category mpi+threads, one for the process. Callers hold it around every call
    // to an endpoint and to what is bound to it. In other categories nullptr.
    std::recursive_mutex* lock() const noexcept;

    // Any thread. `access` as of fi_mr_reg. Zero bytes are possible. Throws VerbsError.
    std::unique_ptr<Region> register_memory(void* address, std::size_t bytes, std::uint64_t access);

    // After register_memory() found no room: small buffers in frequent use are in its way no more,
    // and are copied again. The caller must be one that may use the domain's endpoints.
    void give_up_held() noexcept;

    // What all domains of the process have taken by now. Any thread.
    Usage usage() const;
    memory::CacheCounts cache_counts() const;

    class Body;  // domain_body.h, for endpoints
    Body& body() noexcept { return *body_; }

private:
    std::unique_ptr<Body> body_;
};

}  // namespace heddle::protocol

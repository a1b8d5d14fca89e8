// SPDX-License-Identifier: BSD-2-Clause
// An endpoint of the provider, opened through libfabric as an MPI does it, that sends messages to
// endpoints of other hosts or to itself. libfabric is loaded at run time: the command works without
// it, and a user can name the libfabric of an MPI.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace heddle::cli {

class ProbeError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// One thread. Sizes of messages: kSmall and kLarge bytes.
class FabricProbe {
public:
    static constexpr std::size_t kSmall = 8, kLarge = 1 << 20;

    // Loads libfabric. The environment must name the provider before (FI_PROVIDER_PATH). Throws
    // ProbeError: the library is not there, or is none.
    explicit FabricProbe(const std::string& library);
    ~FabricProbe();
    FabricProbe(const FabricProbe&) = delete;
    FabricProbe& operator=(const FabricProbe&) = delete;

    std::string version() const;
    // Whether fi_getinfo() lists heddle for a device. "": it does; else libfabric's reason.
    std::string why_not_listed();
    // Opens the endpoint, on what why_not_listed() found. Throws ProbeError.
    void open();
    const std::string& domain() const noexcept { return domain_name_; }

    // The endpoint's address, in hexadecimal.
    std::string address() const;
    // Makes these the peers 0 and so on; it replaces earlier ones. Exchanges with a peer whose
    // address libfabric does not accept fail. Throws ProbeError: a text is not hexadecimal.
    void take_peers(const std::vector<std::string>& addresses);

    struct Times {
        double small_us = 0, large_us = 0;  // of a message and its answer, the second time
    };
    // Sends messages of both sizes to a peer, which sends them back, and compares them. `tag`, at
    // least 1, is that of this exchange alone. Throws ProbeError, also when `seconds` have passed.
    Times ask(std::size_t peer, std::uint64_t tag, double seconds);
    // The peer's part.
    void serve(std::size_t peer, std::uint64_t tag, double seconds);
    // Both parts, by this endpoint, with itself.
    Times loop(double seconds);

private:
    struct Library;
    struct Message;
    struct Exchange;

    void check(const char* what, int result) const;
    fi_addr_t peer_at(std::size_t index) const;
    // The tags of the messages: first + step * turn, and `answer` more for what comes back.
    struct Numbers {
        std::uint64_t first;
        unsigned step, answer;
    };
    // Sends messages of both sizes and compares what comes back: see ask() and loop().
    Times exchange(fi_addr_t address, const Numbers& numbers, double seconds, const char* what);
    template <class Steps>
    void with_messages(std::size_t bytes, const Steps& steps);
    void receive(Message& message, fi_addr_t from, std::uint64_t tag);
    void send(Message& message, fi_addr_t to, std::uint64_t tag, double until);
    void wait(const bool& done, double until);
    void progress();

    std::unique_ptr<Library> library_;
    fi_info* info_ = nullptr;
    fid_fabric* fabric_ = nullptr;
    fid_domain* domain_ = nullptr;
    fid_cq* queue_ = nullptr;
    fid_av* av_ = nullptr;
    fid_ep* endpoint_ = nullptr;
    std::string domain_name_;
    std::vector<fi_addr_t> peers_;
    fi_addr_t self_ = FI_ADDR_UNSPEC;
    // Exchanges that failed.
    std::vector<std::unique_ptr<Exchange>> left_;
};

}  // namespace heddle::cli

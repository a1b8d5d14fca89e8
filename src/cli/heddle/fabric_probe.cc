// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/fabric_probe.h"

#include <dlfcn.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

constexpr std::uint32_t kProbeApi = FI_VERSION(1, 17);

// An exchange: two turns of small messages, then two of large ones. Its tags begin at a multiple of
// kTags, and those of loop() are below it.
constexpr unsigned kTurns = 4, kTags = 16;

std::size_t size_of(unsigned turn) noexcept {
    return turn < kTurns / 2 ? FabricProbe::kSmall : FabricProbe::kLarge;
}

double probe_clock() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Bytes that a message of another exchange, or memory that nothing was written to, has not.
unsigned char pattern_at(std::uint64_t tag, std::size_t i) noexcept {
    return static_cast<unsigned char>(tag * 31 + i * 7 + i / 251 + 1);
}

std::vector<unsigned char> bytes_of(const std::string& hexadecimal) {
    std::vector<unsigned char> bytes;
    for (std::size_t i = 0; i + 1 < hexadecimal.size(); i += 2) {
        const auto digit = [&](std::size_t at) -> int {
            const char c = hexadecimal[at];
            if (c >= '0' && c <= '9') return c - '0';
            if (c >= 'a' && c <= 'f') return c - 'a' + 10;
            throw ProbeError("an address is not in hexadecimal: " + hexadecimal.substr(0, 80));
        };
        bytes.push_back(static_cast<unsigned char>(digit(i) * 16 + digit(i + 1)));
    }
    return bytes;
}

}  // namespace

struct FabricProbe::Library {
    void* handle = nullptr;
    decltype(&::fi_getinfo) getinfo = nullptr;
    decltype(&::fi_freeinfo) freeinfo = nullptr;
    decltype(&::fi_dupinfo) dupinfo = nullptr;
    decltype(&::fi_fabric) open_fabric = nullptr;
    decltype(&::fi_strerror) strerror = nullptr;
    decltype(&::fi_version) version = nullptr;
};

// An operation's context is its Message; libfabric may write to `reserved`.
struct FabricProbe::Message {
    fi_context2 reserved{};
    std::vector<unsigned char> bytes;
    bool is_done = false;
};

struct FabricProbe::Exchange {
    Message sent, received;
};

FabricProbe::FabricProbe(const std::string& library) : library_(std::make_unique<Library>()) {
    Library& l = *library_;
    l.handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (l.handle == nullptr) throw ProbeError(::dlerror());
    const auto find = [&](auto& function, const char* name) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(l.handle, name));
        if (function == nullptr) throw ProbeError(library + " has no " + name);
    };
    find(l.getinfo, "fi_getinfo");
    find(l.freeinfo, "fi_freeinfo");
    find(l.dupinfo, "fi_dupinfo");
    find(l.open_fabric, "fi_fabric");
    find(l.strerror, "fi_strerror");
    find(l.version, "fi_version");
}

// The library stays loaded: its providers may have threads.
FabricProbe::~FabricProbe() {
    const auto close = [](auto* object) {
        if (object != nullptr) ::fi_close(&object->fid);
    };
    close(endpoint_);
    close(av_);
    close(queue_);
    close(domain_);
    close(fabric_);
    if (info_ != nullptr) library_->freeinfo(info_);
}

std::string FabricProbe::version() const {
    const std::uint32_t number = library_->version();
    return std::to_string(FI_MAJOR(number)) + "." + std::to_string(FI_MINOR(number));
}

void FabricProbe::check(const char* what, int result) const {
    if (result < 0) throw ProbeError(std::string(what) + ": " + library_->strerror(-result));
}

std::string FabricProbe::why_not_listed() {
    HEDDLE_ASSERT(info_ == nullptr, "it is asked once");
    fi_info* const hints = library_->dupinfo(nullptr);
    if (hints == nullptr) throw ProbeError("no memory for hints");
    hints->caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = ::strdup("heddle");
    const int result = library_->getinfo(kProbeApi, nullptr, nullptr, 0, hints, &info_);
    library_->freeinfo(hints);
    if (result != 0) {
        info_ = nullptr;
        return library_->strerror(-result);
    }
    domain_name_ = info_->domain_attr->name;
    return {};
}

void FabricProbe::open() {
    HEDDLE_ASSERT(info_ != nullptr && endpoint_ == nullptr);
    info_->domain_attr->mr_mode &= ~FI_MR_LOCAL;  // the provider registers what it needs
    check("fi_fabric", library_->open_fabric(info_->fabric_attr, &fabric_, nullptr));
    check("fi_domain", ::fi_domain(fabric_, info_, &domain_, nullptr));
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_CONTEXT;
    queue.wait_obj = FI_WAIT_NONE;
    check("fi_cq_open", ::fi_cq_open(domain_, &queue, &queue_, nullptr));
    fi_av_attr table{};
    table.type = FI_AV_TABLE;
    check("fi_av_open", ::fi_av_open(domain_, &table, &av_, nullptr));
    check("fi_endpoint", ::fi_endpoint(domain_, info_, &endpoint_, nullptr));
    check("fi_ep_bind", ::fi_ep_bind(endpoint_, &queue_->fid, FI_TRANSMIT | FI_RECV));
    check("fi_ep_bind", ::fi_ep_bind(endpoint_, &av_->fid, 0));
    check("fi_enable", ::fi_enable(endpoint_));
    const std::vector<unsigned char> own = bytes_of(address());
    if (::fi_av_insert(av_, own.data(), 1, &self_, 0, nullptr) != 1)
        throw ProbeError("the endpoint's own address is not accepted");
}

std::string FabricProbe::address() const {
    HEDDLE_ASSERT(endpoint_ != nullptr);
    static constexpr char kDigits[] = "0123456789abcdef";
    unsigned char name[256];
    std::size_t bytes = sizeof name;
    check("fi_getname", ::fi_getname(&endpoint_->fid, name, &bytes));
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) {
        text += kDigits[name[i] >> 4];
        text += kDigits[name[i] & 15];
    }
    return text;
}

void FabricProbe::take_peers(const std::vector<std::string>& addresses) {
    const std::size_t length = address().size();
    peers_.clear();
    for (const std::string& each : addresses) {
        const std::vector<unsigned char> bytes = bytes_of(each);
        fi_addr_t peer = FI_ADDR_UNSPEC;
        if (each.size() == length && ::fi_av_insert(av_, bytes.data(), 1, &peer, 0, nullptr) != 1)
            peer = FI_ADDR_UNSPEC;
        peers_.push_back(peer);
    }
}

fi_addr_t FabricProbe::peer_at(std::size_t index) const {
    if (index >= peers_.size()) throw ProbeError("there is no such peer");
    if (peers_[index] == FI_ADDR_UNSPEC)
        throw ProbeError("the peer's address is not accepted: is another version of heddle there?");
    return peers_[index];
}

// Runs `steps` with two messages of that size. If they fail, the provider may still use the
// messages, so these live as long as the endpoint.
template <class Steps>
void FabricProbe::with_messages(std::size_t bytes, const Steps& steps) {
    auto both = std::make_unique<Exchange>();
    both->sent.bytes.resize(bytes);
    both->received.bytes.resize(bytes);
    try {
        steps(both->sent, both->received);
    } catch (const ProbeError&) {
        left_.push_back(std::move(both));
        throw;
    }
}

void FabricProbe::progress() {
    fi_cq_entry entry{};
    const ssize_t got = ::fi_cq_read(queue_, &entry, 1);
    if (got == 1) {
        static_cast<Message*>(entry.op_context)->is_done = true;
        return;
    }
    if (got != -FI_EAVAIL) {
        if (got != -FI_EAGAIN) check("fi_cq_read", static_cast<int>(got));
        return;
    }
    fi_cq_err_entry error{};
    if (::fi_cq_readerr(queue_, &error, 0) != 1) return;
    // What belongs to an earlier exchange has had its error.
    for (const auto& each : left_)
        if (error.op_context == &each->sent || error.op_context == &each->received) return;
    char text[128] = "";
    if (error.prov_errno != 0)
        ::fi_cq_strerror(queue_, error.prov_errno, error.err_data, text, sizeof text);
    throw ProbeError(std::string(library_->strerror(error.err)) +
                     (text[0] != '\0' ? std::string(" (") + text + ")" : ""));
}

void FabricProbe::wait(const bool& done, double until) {
    while (!done) {
        progress();
        if (probe_clock() > until) throw ProbeError("no answer in time");
    }
}

void FabricProbe::receive(Message& message, fi_addr_t from, std::uint64_t tag) {
    check("fi_trecv",
          static_cast<int>(::fi_trecv(endpoint_, message.bytes.data(), message.bytes.size(),
                                      nullptr, from, tag, 0, &message)));
}

void FabricProbe::send(Message& message, fi_addr_t to, std::uint64_t tag, double until) {
    ssize_t result;
    while ((result = ::fi_tsend(endpoint_, message.bytes.data(), message.bytes.size(), nullptr, to,
                                tag, &message)) == -FI_EAGAIN) {
        progress();
        if (probe_clock() > until) throw ProbeError("no connection in time");
    }
    check("fi_tsend", static_cast<int>(result));
}

FabricProbe::Times FabricProbe::exchange(fi_addr_t address, const Numbers& numbers, double seconds,
                                         const char* what) {
    const double until = probe_clock() + seconds;
    Times times;
    for (unsigned turn = 0; turn < kTurns; ++turn)
        with_messages(size_of(turn), [&](Message& sent, Message& received) {
            const std::uint64_t number = numbers.first + std::uint64_t{numbers.step} * turn;
            for (std::size_t i = 0; i < sent.bytes.size(); ++i)
                sent.bytes[i] = pattern_at(number, i);
            const double begin = probe_clock();
            receive(received, address, number + numbers.answer);
            send(sent, address, number, until);
            wait(received.is_done, until);
            wait(sent.is_done, until);
            (turn < kTurns / 2 ? times.small_us : times.large_us) = (probe_clock() - begin) * 1e6;
            if (received.bytes != sent.bytes)
                throw ProbeError(std::string(what) + " of " + std::to_string(sent.bytes.size()) +
                                 " bytes is not what was sent");
        });
    return times;
}

FabricProbe::Times FabricProbe::ask(std::size_t peer, std::uint64_t tag, double seconds) {
    const fi_addr_t address = peer_at(peer);
    return exchange(address, {tag * kTags, 2, 1}, seconds, "an answer");
}

void FabricProbe::serve(std::size_t peer, std::uint64_t tag, double seconds) {
    const fi_addr_t address = peer_at(peer);
    const double until = probe_clock() + seconds;
    for (unsigned turn = 0; turn < kTurns; ++turn)
        with_messages(size_of(turn), [&](Message& sent, Message& received) {
            const std::uint64_t number = tag * kTags + std::uint64_t{2} * turn;
            receive(received, address, number);
            wait(received.is_done, until);
            sent.bytes = received.bytes;
            send(sent, address, number + 1, until);
            wait(sent.is_done, until);
        });
}

FabricProbe::Times FabricProbe::loop(double seconds) {
    HEDDLE_ASSERT(endpoint_ != nullptr && self_ != FI_ADDR_UNSPEC);
    return exchange(self_, {0, 1, 0}, seconds, "a message");
}

}  // namespace heddle::cli

// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/wireup/connector_report.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <system_error>

#include "heddle/detail/assert.h"

namespace heddle::protocol {
namespace {

std::string port_text(const EndpointAddress& name) {
    char gid[INET6_ADDRSTRLEN] = "?";
    ::inet_ntop(AF_INET6, name.process.gid, gid, sizeof gid);
    const std::string text = std::string("GID ") + gid;
    if (name.ethernet()) return text;
    return "LID " + std::to_string(name.process.lid) + ", " + text;
}

std::string seconds_text(std::chrono::steady_clock::duration duration) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
    return text;
}

}  // namespace

bool is_on_another_fabric(const EndpointAddress& self, const EndpointAddress& peer) noexcept {
    constexpr std::size_t kGuid = 8;
    return !self.ethernet() && !peer.ethernet() && self.process.lid == peer.process.lid &&
           !std::equal(self.process.gid + kGuid, std::end(self.process.gid),
                       peer.process.gid + kGuid);
}

void tell_user(void (*complain)(const char* line), const std::string& line) noexcept {
    HEDDLE_ASSERT(!line.empty() && line.find('\n') == std::string::npos, "it is one line");
    if (complain != nullptr)
        complain(line.c_str());
    else
        std::fprintf(stderr, "heddle: %s\n", line.c_str());
}

std::string peer_text(const EndpointAddress& peer) {
    return port_text(peer) + ", UD QP " + std::to_string(peer.process.ud_qpn);
}

std::string unreachable_text(const Unreachable& what) {
    HEDDLE_ASSERT(what.error != 0, "a peer that answered is reachable");
    std::string text = "the peer at " + peer_text(what.peer);
    if (what.error == ETIMEDOUT)
        text += " did not answer in " + seconds_text(what.waited) + " (" +
                std::to_string(what.times_sent) + " requests)";
    else
        text += " cannot be connected to after " + seconds_text(what.waited) + " (" +
                std::generic_category().message(what.error) + ")";
    text += "; asked by " + what.device + ", " + port_text(what.self);
    if (is_on_another_fabric(what.self, what.peer))
        text += ": it has the LID of this port, so it is on another fabric";
    return text;
}

}  // namespace heddle::protocol

// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/wireup/connector_report.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <iterator>
#include <system_error>

#include "heddle/detail/assert.h"
#include "verbs/local_port.h"

namespace heddle::protocol {
namespace {

std::string port_text(const EndpointAddress& name) {
    const std::string text = "GID " + verbs::gid_text(std::to_array(name.process.gid));
    if (name.ethernet()) return text;
    return "LID " + std::to_string(name.process.lid) + ", " + text;
}

const char* link_layer(const EndpointAddress& name) noexcept {
    return name.ethernet() ? "Ethernet" : "InfiniBand";
}

const char* roce_version(const EndpointAddress& name) noexcept {
    return name.roce_v1() ? "RoCE v1" : "RoCE v2";
}

std::string seconds_text(std::chrono::steady_clock::duration duration) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(duration).count());
    return text;
}

}  // namespace

Obstacle obstacle_to(const EndpointAddress& self, const EndpointAddress& peer) noexcept {
    if (self.ethernet() != peer.ethernet()) return Obstacle::kLinkLayer;
    if (self.roce_v1() != peer.roce_v1()) return Obstacle::kRoceVersion;
    const std::uint16_t ours = self.process.pkey, theirs = peer.process.pkey;
    constexpr std::uint16_t kFullMember = 0x8000;
    if (((ours ^ theirs) & ~kFullMember) != 0 || ((ours | theirs) & kFullMember) == 0)
        return Obstacle::kPartition;
    constexpr std::size_t kGuid = 8;
    const bool same_prefix =
        std::equal(self.process.gid, self.process.gid + kGuid, peer.process.gid);
    if (!self.ethernet() && same_prefix && self.process.lid == peer.process.lid &&
        !std::equal(self.process.gid + kGuid, std::end(self.process.gid), peer.process.gid + kGuid))
        return Obstacle::kAnotherFabric;
    return Obstacle::kNone;
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
    if (what.error == EPROTOTYPE) text += ": its FI_HEDDLE_TRANSPORT is another";
    if (what.error == EMSGSIZE) text += ": its port has another MTU, and DC has one for all peers";
    switch (obstacle_to(what.self, what.peer)) {
        case Obstacle::kNone:
            break;
        case Obstacle::kLinkLayer:
            text += std::string(": its port is ") + link_layer(what.peer) + ", and this one is " +
                    link_layer(what.self);
            break;
        case Obstacle::kRoceVersion:
            text += std::string(": its GID is of ") + roce_version(what.peer) +
                    ", and this one of " + roce_version(what.self) +
                    "; FI_HEDDLE_GID_INDEX chooses another";
            break;
        case Obstacle::kPartition:
            text += ": it is in partition " + verbs::pkey_text(what.peer.process.pkey) +
                    ", and this process in " + verbs::pkey_text(what.self.process.pkey) +
                    "; FI_HEDDLE_PKEY chooses another";
            break;
        case Obstacle::kAnotherFabric:
            text += ": it has the LID of this port, so it is on another fabric";
            break;
    }
    return text;
}

}  // namespace heddle::protocol

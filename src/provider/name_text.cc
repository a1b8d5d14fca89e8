// SPDX-License-Identifier: BSD-2-Clause
// The text of an address: where its process listens, and which endpoint of the process it names.
#include "provider/name_text.h"

#include <arpa/inet.h>

#include <cinttypes>
#include <cstdio>

#include "heddle/detail/assert.h"

namespace heddle::provider {

std::size_t name_text(const protocol::EndpointAddress& name, char (&out)[kNameText]) noexcept {
    char gid[INET6_ADDRSTRLEN] = "?";
    inet_ntop(AF_INET6, name.process.gid, gid, sizeof gid);
    char queue[32] = "";
    if (name.xrc()) std::snprintf(queue, sizeof queue, "&srq=0x%" PRIx32, name.srqn);
    const int length = std::snprintf(
        out, sizeof out, "heddle://[%s]/%u:0x%" PRIx32 "/%u?context=%u%s&process=%016" PRIx64, gid,
        unsigned{name.process.lid}, name.process.ud_qpn, unsigned{name.endpoint},
        unsigned{name.context}, queue, name.process.nonce);
    HEDDLE_ASSERT(length < static_cast<int>(sizeof out), "kNameText is enough for any address");
    return length < 0 ? 0 : static_cast<std::size_t>(length);
}

}  // namespace heddle::provider

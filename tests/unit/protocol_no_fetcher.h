// SPDX-License-Identifier: BSD-2-Clause
// For tests in which no message goes by rendezvous.
#pragma once

#include <cstdint>
#include <span>

#include <gtest/gtest.h>

#include "protocol/rndv/rendezvous.h"

namespace heddle::protocol::test {

class NoFetcher final : public MessageFetcher {
public:
    void fetch(Receive&, std::span<const iovec>, std::size_t, Peer&, const AnnouncedMessage&,
               std::span<const Segment>) override {
        ADD_FAILURE();
    }
    void refuse(Peer&, std::uint64_t, int) override { ADD_FAILURE(); }
};

}  // namespace heddle::protocol::test

// SPDX-License-Identifier: BSD-2-Clause
// The other process of the message-rate experiment. Its memory is what the threads write to, as in
// ICPADS'18, section IV. It has a QP and a buffer for each of the sender's, shared alike. It does
// nothing while messages arrive.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/common/team.h"
#include "experiments/message_rate.h"
#include "heddle/endpoint.h"

namespace heddle::bench {

// Where a thread writes to.
struct RateTarget {
    std::uint64_t address;
    std::uint32_t key;
};

// Runs `body` in rank 0 of a team of two, while rank 1 gives memory to the runs that `body` makes
// (MessageRateRun). As run_team() otherwise.
int run_with_rate_peer(TeamOptions options, const std::string& device,
                       const std::function<int(Team&)>& body);

// The memory and the QPs that the other process has for one run. For rank 0.
class RatePeer {
public:
    // Asks for them. The other process makes them meanwhile.
    RatePeer(Team& team, const MessageRate& m);
    ~RatePeer();
    RatePeer(const RatePeer&) = delete;
    RatePeer& operator=(const RatePeer&) = delete;

    // Connects each QP of the set to the other process's. Called once. Returns each thread's
    // target. Throws VerbsError, also the other process's; TeamError.
    std::vector<RateTarget> connect(EndpointSet& set);

private:
    Team& team_;
    std::uint32_t threads_, sharers_;  // of a QP
    std::uint64_t number_;
    enum class State : std::uint8_t { kAsked, kRefused, kConnected } state_ = State::kAsked;
};

}  // namespace heddle::bench

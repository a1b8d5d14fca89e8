// SPDX-License-Identifier: BSD-2-Clause
// Whether the peers are still there. Threads: the endpoint's.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "protocol/core/core.h"

namespace heddle::protocol {

class Liveness {
public:
    static constexpr auto kProbeEvery = std::chrono::seconds(1);

    explicit Liveness(Core& core) noexcept : core_(core) {}

    // True once a second. The caller then calls look().
    bool is_time() noexcept;
    // Probes peers, and fails those that have left. `find_receives` sets what is true for the
    // numbers of peers that a receive names; it is called only if it matters.
    void look(const std::function<void(std::vector<bool>&)>& find_receives);
    // A peer owes a reply.
    bool is_reply_owed() const noexcept;

private:
    void look_after(Peer& peer);
    void keep_alive(const std::function<void(std::vector<bool>&)>& find_receives);

    Core& core_;
    std::chrono::steady_clock::time_point last_look_{};
    std::chrono::steady_clock::duration passed_{};  // between the last two looks
    double due_ = 0;                                // so many peers have their turn of keep_alive()
    std::size_t next_ = 0;                          // the last that had one
};

}  // namespace heddle::protocol

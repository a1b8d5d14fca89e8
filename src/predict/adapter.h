// SPDX-License-Identifier: BSD-2-Clause
// The adapter of the model: a serial engine for each queue pair, units that fetch payloads for some
// queue pairs each, and the link that all messages share.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>

#include "predict/events.h"
#include "predict/machine.h"

namespace heddle::predict {

class Adapter {
public:
    Adapter(Events& events, const Machine& machine, Time measured_from, std::mt19937_64& random)
        : events_(events), machine_(machine), measured_from_(measured_from), random_(random) {}

    // `all`: the WQEs of one post, whose doorbell or BlueFlame write ends at t. They become events
    // of at most `most` WQEs each.
    void start(Time t, const WqeBatch& all, bool blueflame, std::uint32_t most);
    // An event of start(), now. Returns when the batch's completions can be seen in memory; nothing
    // as long as the batch has stages before it.
    std::optional<Time> advance(const WqeBatch& batch);

    // The time for which the busiest engine, fetching unit or port, the busiest cache line and the
    // link were in use.
    struct Busy {
        Time engine = 0, payload_reads = 0, line = 0, link = 0;
    };
    Busy busy() const;
    std::uint64_t payload_reads() const { return payload_reads_; }
    bool is_idle() const { return batches_ == 0; }

private:
    struct Server {
        Time until = 0, busy = 0;
    };
    struct Queued {
        Time arrives;
        WqeBatch batch;
    };
    struct Engine {
        Server server;
        bool is_handling = false;
        std::deque<Queued> waiting;
    };
    void handle_next(Engine& engine);
    // `cost` ns for something that arrives now. Returns when it ends.
    Time queue(Server& server, Time cost);
    // `cost` ns for something that may have begun up to `cost` ago.
    Time stream(Server& server, Time cost);
    std::optional<Time> leave(const WqeBatch& batch);

    Events& events_;
    const Machine& machine_;
    const Time measured_from_;
    std::mt19937_64& random_;
    std::map<std::uint32_t, Engine> engines_;  // by queue pair
    std::map<std::uint32_t, Server> units_;    // by queue pairs / Machine::fetch_group
    std::map<std::uint32_t, Server> lines_;    // by cache line of the payload
    Server port_, link_;
    std::uint64_t payload_reads_ = 0;
    std::uint64_t batches_ = 0;  // that have started and not left
};

}  // namespace heddle::predict

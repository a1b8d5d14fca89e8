// SPDX-License-Identifier: BSD-2-Clause
#include "predict/adapter.h"

#include <algorithm>
#include <cmath>

#include "heddle/detail/assert.h"

namespace heddle::predict {

void Adapter::start(Time t, const WqeBatch& all, bool blueflame, std::uint32_t most) {
    HEDDLE_ASSERT(all.count != 0 && most != 0, "a post has WQEs");
    HEDDLE_ASSERT(all.payload_reads <= all.count && all.cqes <= all.count,
                  "a WQE has at most one payload and one completion");
    Engine& engine = engines_[all.qp];
    const Time arrives = t + (blueflame ? 0 : machine_.dma_latency);
    const auto share = [&](std::uint32_t total, std::uint32_t done) {  // of the first `done` WQEs
        return static_cast<std::uint32_t>(std::uint64_t{total} * done / all.count);
    };
    // An engine waits for each payload, so that those of several engines take turns.
    if (all.payload_reads != 0 && machine_.fetch_unit > 0) most = 1;
    for (std::uint32_t done = 0; done < all.count;) {
        WqeBatch some = all;
        some.count = std::min(most, all.count - done);
        const std::uint32_t after = done + some.count;
        some.cqes = share(all.cqes, after) - share(all.cqes, done);
        some.payload_reads = share(all.payload_reads, after) - share(all.payload_reads, done);
        engine.waiting.push_back({arrives, some});
        ++batches_;
        done = after;
    }
    if (!engine.is_handling) handle_next(engine);
}

void Adapter::handle_next(Engine& engine) {
    if (engine.waiting.empty()) return;
    const auto [arrives, batch] = engine.waiting.front();
    engine.waiting.pop_front();
    engine.is_handling = true;
    const Time cost = batch.count * machine_.qp_wqe + batch.payload_reads * machine_.qp_payload +
                      batch.cqes * machine_.qp_completion;
    engine.server.until = std::max(engine.server.until, arrives) + cost;
    if (engine.server.until > measured_from_) engine.server.busy += cost;
    events_.push(engine.server.until, batch);
}

Time Adapter::queue(Server& server, Time cost) {
    server.until = std::max(server.until, events_.now()) + cost;
    if (events_.now() > measured_from_) server.busy += cost;
    return server.until;
}

Time Adapter::stream(Server& server, Time cost) {
    server.until = std::max(server.until, events_.now() - cost) + cost;
    if (events_.now() > measured_from_) server.busy += cost;
    return server.until;
}

std::optional<Time> Adapter::advance(const WqeBatch& batch) {
    Engine& engine = engines_.at(batch.qp);
    HEDDLE_ASSERT(engine.is_handling, "an engine handles the batch of its event");
    if (batch.stage == WqeBatch::Stage::kHandled && batch.payload_reads != 0 &&
        machine_.fetch_unit > 0) {
        // Memory answers sooner or later: exponential times, which have no parameter but the mean.
        std::exponential_distribution<Time> time(1 / (batch.payload_reads * machine_.fetch_unit));
        Server& unit = units_[batch.qp / static_cast<std::uint32_t>(machine_.fetch_group)];
        WqeBatch fetched = batch;
        fetched.stage = WqeBatch::Stage::kFetched;
        const Time began = events_.now();
        engine.server.until = queue(unit, time(random_));
        if (began > measured_from_) engine.server.busy += engine.server.until - began;
        events_.push(engine.server.until, fetched);
        return std::nullopt;
    }
    engine.is_handling = false;
    handle_next(engine);
    return leave(batch);
}

// What all queue pairs share comes after their engines.
std::optional<Time> Adapter::leave(const WqeBatch& batch) {
    HEDDLE_ASSERT(batches_ != 0, "what leaves has started");
    --batches_;
    Time ready = events_.now();
    if (batch.payload_reads != 0) {
        if (ready > measured_from_) payload_reads_ += batch.payload_reads;
        const Time line =
            stream(lines_[batch.payload_line], batch.payload_reads * machine_.same_line);
        const Time port = stream(port_, batch.payload_reads * machine_.payload_read);
        ready = std::max({ready, line, port});
    }
    const Time left = std::max(ready, stream(link_, batch.count * machine_.link));
    return left + machine_.completion_latency;
}

Adapter::Busy Adapter::busy() const {
    Busy busy{0, port_.busy, 0, link_.busy};
    for (const auto& [qp, engine] : engines_)
        busy.engine = std::max(busy.engine, engine.server.busy);
    for (const auto& [number, unit] : units_)
        busy.payload_reads = std::max(busy.payload_reads, unit.busy);
    for (const auto& [line, server] : lines_)
        busy.line = std::max(busy.line, server.busy);
    return busy;
}

}  // namespace heddle::predict

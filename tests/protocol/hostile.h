// SPDX-License-Identifier: BSD-2-Clause
// Two endpoints of one process that know each other: a victim, and one that says what the test
// wants.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "tests/support/endpoint_support.h"

namespace heddle::protocol::test {

inline constexpr std::size_t kLarge = 100'000;

inline Options options_of_both() {
    Options options;
    options.endpoints = Category::kMpiEverywhere;
    return options;
}

class Hostile : public ::testing::Test {
protected:
    explicit Hostile(const Options& of_both = options_of_both())
        : victim(of_both), hostile(std::make_unique<End>(of_both)) {}
    void meet() {
        to_hostile = victim.addresses.insert(hostile->endpoint->name());
        to_victim = hostile->addresses.insert(victim.endpoint->name());
        std::vector<char> one(8, 'x');
        victim.send(to_hostile, one);
        hostile->send(to_victim, one);
        ASSERT_TRUE(until([&] { return !victim.transmit.empty() && !hostile->transmit.empty(); }));
        victim.transmit.pop();
        hostile->transmit.pop();
        // Kept at both: what is sent next is sent at once.
        ASSERT_TRUE(until([&] {
            return victim.endpoint->counts().unexpected == 1 &&
                   hostile->endpoint->counts().unexpected == 1;
        }));
    }
    bool until(const std::function<bool()>& true_at_last, bool both = true) {
        return both ? test::until(true_at_last, {&victim, hostile.get()})
                    : test::until(true_at_last, {&victim});
    }
    // What the hostile one says. As it makes no progress of its own, nothing else.
    template <class Contents>
    void say(Kind kind, const Contents& contents, std::span<const std::byte> more = {}) {
        EndpointImpl& body = hostile->impl();
        body.control(*body.peers.at(to_victim), kind, std::as_bytes(std::span(&contents, 1)), more);
    }
    // The id of the victim's only operation that waits for an answer.
    std::uint64_t operation() {
        std::uint64_t id = 0;
        victim.impl().requests.for_each(
            [&](const SendRequest& transfer) { id = SlotPool<SendRequest>::id(transfer); });
        return id;
    }
    void begin_atomic() {
        region = hostile->domain->register_memory(&value, sizeof value, 0);
        ASSERT_EQ(
            victim.fetch_add(to_hostile, 1, &result_value, reinterpret_cast<std::uintptr_t>(&value),
                             region->key(), nullptr),
            0);
    }
    void begin_rendezvous() {
        large.assign(kLarge, 'l');
        victim.send(to_hostile, large);
    }
    // Its operation ends with an error, once it has heard what was said.
    void expect_end(int error) {
        ASSERT_TRUE(until([&] { return !victim.transmit.empty(); }, false));
        EXPECT_EQ(victim.transmit.front().error, error);
    }
    void expect_damage() {
        ASSERT_NO_FATAL_FAILURE(expect_end(EPROTO));
        EXPECT_EQ(victim.endpoint->counts().protocol_errors, 1);
    }

    End victim;
    std::unique_ptr<End> hostile;
    std::uint64_t to_hostile = 0, to_victim = 0;
    std::uint64_t value = 7, result_value = 0;
    std::unique_ptr<Region> region;
    std::vector<char> large;
};

}  // namespace heddle::protocol::test

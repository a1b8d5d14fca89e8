// SPDX-License-Identifier: BSD-2-Clause
// The users of a channel: the endpoints that hear of what its device has done.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "heddle/detail/assert.h"

namespace heddle::protocol {

class Connection;

// Told of what a channel's device has done. An endpoint.
class ChannelUser {
public:
    virtual ~ChannelUser() = default;
    // A message for this endpoint; the bytes are gone when it returns.
    virtual void received(std::span<const std::byte> bytes, bool has_immediate,
                          std::uint32_t immediate, std::uint32_t qpn) = 0;
    // A WR that was posted with kEntry or kCount is done. error: 0, or an errno.
    virtual void sent(const struct WrContext& sent, int error, int device_error) = 0;
    // A WR of the application without a report has failed on that connection. False: this user
    // sends nothing there.
    virtual bool lost(const Connection& connection, int error, int device_error) = 0;
    // The connection is ready, or has failed.
    virtual void changed(Connection& connection) = 0;
    // Reads everything that is in completion queues of its own.
    virtual void drain() = 0;
    // Posts what waits for room, as far as there is some: see ChannelUsers::set_waits().
    virtual void flush_waiting() = 0;
    // The channel has broken: nothing is sent any more, and nothing arrives. All its connections
    // have failed.
    virtual void broken(int error) = 0;

private:
    friend class Channel;
    friend class ChannelUsers;
    std::uint16_t number_ = 0;  // of attach()
    bool waits_ = false;
};

// The users of a channel, by the number of the endpoint.
class ChannelUsers {
public:
    void attach(std::uint16_t number, ChannelUser& user) {
        if (users_.size() <= number) users_.resize(number + 1u);
        HEDDLE_ASSERT(users_[number] == nullptr, "two endpoints have the same number");
        users_[number] = &user;
        user.number_ = number;
    }
    void detach(std::uint16_t number) {
        HEDDLE_ASSERT(number < users_.size() && users_[number] != nullptr, "attach() comes first");
        set_waits(*users_[number], false);
        users_[number] = nullptr;
    }
    bool empty() const noexcept {
        return std::count(users_.begin(), users_.end(), nullptr) ==
               static_cast<std::ptrdiff_t>(users_.size());
    }
    // nullptr: the endpoint is gone.
    ChannelUser* at(std::uint16_t number) const noexcept { return users_[number]; }

    // Gives a message to the user of that number, by its ChannelUser::received.
    void hand_over(std::uint16_t number, std::span<const std::byte> bytes, bool has_immediate,
                   std::uint32_t immediate, std::uint32_t qpn);

    // The user has something that waits for room, or not any more. Whoever polls the channel makes
    // room for all of its users, so it also flushes all: a user that has posted something need not
    // poll.
    void set_waits(ChannelUser& user, bool waits) noexcept {
        waiting_ += waits - user.waits_;
        user.waits_ = waits;
    }
    bool is_anybody_waiting() const noexcept { return waiting_ != 0; }
    void flush();

    template <class Call>
    void each(const Call& call) {
        for (ChannelUser* const user : users_)
            if (user != nullptr) call(*user);
    }
    // A WR without a report has failed. It is not known which of several users posted it: one of
    // those that send there gets the error.
    void tell_of_lost(const Connection& connection, int error, int device_error);

private:
    std::vector<ChannelUser*> users_;
    int waiting_ = 0;  // users
};

}  // namespace heddle::protocol

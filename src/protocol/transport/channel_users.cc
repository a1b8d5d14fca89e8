// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/transport/channel_users.h"

namespace heddle::protocol {

void ChannelUsers::hand_over(std::uint16_t number, std::span<const std::byte> bytes,
                             bool has_immediate, std::uint32_t immediate, std::uint32_t qpn) {
    if (number < users_.size() && users_[number] != nullptr)
        users_[number]->received(bytes, has_immediate, immediate, qpn);
}

void ChannelUsers::flush() {
    for (ChannelUser* const user : users_)
        if (user != nullptr && user->waits_) user->flush_waiting();
}

void ChannelUsers::tell_of_lost(const Connection& connection, int error, int device_error) {
    for (ChannelUser* const user : users_)
        if (user != nullptr && user->lost(connection, error, device_error)) return;
}

}  // namespace heddle::protocol

// SPDX-License-Identifier: BSD-2-Clause
// What one input of uverbs_fuzz has made so far: open devices, handles, mappings; memory of all
// kinds for commands to name; and what must hold when it is over.
#pragma once

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <rdma/rdma_user_ioctl.h>

#include <endian.h>

#include <array>
#include <vector>

#include "softhca/device/identity.h"
#include "support.h"

namespace softhca::fuzz {

enum class Kind : std::size_t { kPd, kMr, kCq, kQp, kSrq, kXrcd, kUar, kChannel, kDm, kMw, kMkey };
inline constexpr std::size_t kKinds = 11;

struct Handle {
    std::uint32_t value;
    std::uint8_t type;  // of queue pairs
};

class Session {
public:
    explicit Session(Input& input);
    // Closes everything; aborts when something is left.
    void close_all();
    // Aborts when a use count of an object went below zero.
    void check_counts();

    int device();  // one of the open ones; sometimes one that is closed
    void add(Kind kind, std::uint32_t value, std::uint8_t type = 0);
    // The handle of something that was made, and perhaps destroyed since; sometimes that of nothing
    // at all.
    std::uint32_t handle(Kind kind, std::uint8_t* type = nullptr);
    std::uint32_t qp_number();
    std::int32_t channel();
    int plain_file();
    std::uint64_t address();
    std::uint64_t length();
    std::uint32_t access();
    std::uint64_t user_handle();

    void open_one();
    void close_one();
    void duplicate();
    void close_channel();
    void scribble();
    void replace_pages();
    void damage_user_object();
    void call_user_object();

    struct Mapping {
        std::byte* at;
        std::size_t length;
        bool writable;
    };
    Input& input;
    std::array<std::vector<Handle>, kKinds> handles;
    std::vector<std::uint32_t> qp_numbers;
    std::vector<std::uint64_t> offsets;  // of UARs and device memory
    std::vector<Mapping> mappings;

private:
    std::vector<int> devices_;
};

}  // namespace softhca::fuzz

// SPDX-License-Identifier: BSD-2-Clause
// What endpoints took in "Scalable Communication Endpoints for MPI+Threads Applications"
// (ICPADS'18), to show beside what they take here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "heddle/endpoint.h"

namespace heddle::cli {

// UARs of a process in the paper's figures 12b and 14b, with the kernel of its time. `qps`: of all
// its threads.
std::uint32_t paper_uars(Category category, std::uint32_t threads, std::uint32_t qps);

// Bytes of as many objects by the paper's table I: queues of its depths, libmlx5 of 2018.
std::size_t paper_bytes(const Usage& usage);

}  // namespace heddle::cli

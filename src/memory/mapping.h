// SPDX-License-Identifier: BSD-2-Clause
// What is mapped at an address of this process, as far as it matters to memory that stays
// registered.
#pragma once

#include <cstdint>

namespace heddle::memory {

// Is all of [begin, end) private memory without a file (malloc(), brk(), anonymous mmap(), stacks)?
// Only of such memory the kernel tells each change by userfaultfd: shmdt(), ftruncate() and
// fallocate(FALLOC_FL_PUNCH_HOLE) take pages of shared memory and files away without an event, also
// when another process calls them (kernel: ksys_shmdt() and shmem_fallocate() know no userfaultfd).
// The pages by which the software HCA replaces private memory count as such.
bool is_private_anonymous(std::uintptr_t begin, std::uintptr_t end) noexcept;

namespace detail {

// Reads one line of /proc/PID/maps. False: the text is no such line.
struct MapsLine {
    std::uintptr_t begin = 0, end = 0;
    bool private_anonymous = false;
};
bool read_maps_line(const char* line, MapsLine* out) noexcept;
// The same answer from the text of that file, as on kernels before 6.11. For tests.
bool is_private_anonymous_by_text(std::uintptr_t begin, std::uintptr_t end) noexcept;

}  // namespace detail
}  // namespace heddle::memory

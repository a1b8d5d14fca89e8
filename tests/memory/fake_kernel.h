// SPDX-License-Identifier: BSD-2-Clause
// A userfaultfd and a device for tests of src/memory that have neither: fake_kernel.cc has
// functions that stand before those of libc and libibverbs. The fake kernel knows which pages are
// watched, and reports that memory is gone only if a page of it is watched, as Linux does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::memory::test::fake_kernel {

inline constexpr std::size_t kPage = 4096;

// Does the kernel report changes of every page, or of some page, of [begin, end)?
bool watches_all(std::uintptr_t begin, std::uintptr_t end);
bool watches_any(std::uintptr_t begin, std::uintptr_t end);
// Reports that the program unmapped [begin, end). False: no page of it is watched, so nobody hears
// of it. The memory itself stays.
bool report_unmap(std::uintptr_t begin, std::uintptr_t end);
// Memory regions that the device has now.
std::size_t regions_of_device();

}  // namespace heddle::memory::test::fake_kernel

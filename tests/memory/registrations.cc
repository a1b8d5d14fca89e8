// SPDX-License-Identifier: BSD-2-Clause
// The functions of libibverbs that register memory. They stand before those of the library, to
// count calls and to refuse some.
#include "tests/memory/registrations.h"

#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <mutex>

namespace heddle::test {

std::atomic<unsigned> deregistrations{0};
std::atomic<unsigned> registrations_to_refuse{0};

namespace {

template <class Function>
Function* of_libibverbs(const char* name, const char* version) {
    return reinterpret_cast<Function*>(dlvsym(RTLD_NEXT, name, version));
}

std::mutex registrations_mutex;
std::vector<Registration> all_registrations;  // under registrations_mutex

}  // namespace

std::vector<Registration> registrations() {
    const std::scoped_lock lock(registrations_mutex);
    return all_registrations;
}
void clear_registrations() {
    const std::scoped_lock lock(registrations_mutex);
    all_registrations.clear();
}

}  // namespace heddle::test

extern "C" int ibv_dereg_mr(ibv_mr* mr) {
    static const auto real =
        heddle::test::of_libibverbs<int(ibv_mr*)>("ibv_dereg_mr", "IBVERBS_1.1");
    ++heddle::test::deregistrations;
    return real(mr);
}

extern "C" ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t bytes, uint64_t iova,
                                    unsigned access) {
    static const auto real =
        heddle::test::of_libibverbs<ibv_mr*(ibv_pd*, void*, size_t, uint64_t, unsigned)>(
            "ibv_reg_mr_iova2", "IBVERBS_1.8");
    if (heddle::test::registrations_to_refuse != 0) {
        --heddle::test::registrations_to_refuse;
        errno = ENOMEM;
        return nullptr;
    }
    {
        const auto begin = reinterpret_cast<std::uintptr_t>(address);
        const std::scoped_lock lock(heddle::test::registrations_mutex);
        heddle::test::all_registrations.push_back({begin, begin + bytes, access});
    }
    return real(pd, address, bytes, iova, access);
}

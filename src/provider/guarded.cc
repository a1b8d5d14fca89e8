// SPDX-License-Identifier: BSD-2-Clause
// Translates exceptions into the numbers of fi_errno(3).
#include "provider/guarded.h"

#include <rdma/fi_errno.h>

#include <exception>
#include <new>
#include <string>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "provider/host.h"

namespace heddle::provider {

int caught(const char* what) noexcept {
    HEDDLE_ASSERT(std::current_exception() != nullptr, "called outside of a handler");
    try {
        throw;
    } catch (const VerbsError& error) {
        const bool is_memlock = error.hint().find("RLIMIT_MEMLOCK") != std::string::npos;
        is_memlock ? complain_of_memlock("%s: %s", what, error.what())
                   : log(FI_LOG_WARN, "%s: %s", what, error.what());
        HEDDLE_ASSERT(error.error() >= 0, "an errno is not negative");
        return error.error() > 0 ? -error.error() : -FI_EOTHER;
    } catch (const std::bad_alloc&) {
        log(FI_LOG_WARN, "%s: out of memory", what);
        return -FI_ENOMEM;
    } catch (const std::exception& error) {
        log(FI_LOG_WARN, "%s: %s", what, error.what());
        return -FI_EOTHER;
    } catch (...) {
        log(FI_LOG_WARN, "%s: an unknown error", what);
        return -FI_EOTHER;
    }
}

}  // namespace heddle::provider

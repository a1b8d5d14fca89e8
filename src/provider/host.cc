// SPDX-License-Identifier: BSD-2-Clause
// Finds libfabric's functions and logs through them.
#include "provider/host.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>

#include "heddle/detail/assert.h"

namespace heddle::provider {
namespace {

Host found;

template <class Function>
void look_up(void* library, const char* name, Function& function) noexcept {
    function = reinterpret_cast<Function>(dlsym(library, name));
}

void log_text(fi_log_level level, const char* text) noexcept {
    HEDDLE_ASSERT(found.log != nullptr, "the caller has asked logged()");
    const int saved = errno;
    found.log(&self(), level, FI_LOG_CORE, "heddle", 0, "%s\n", text);
    errno = saved;
}

void complain_text(const char* text) noexcept {
    if (logged(FI_LOG_WARN))
        log_text(FI_LOG_WARN, text);
    else
        std::fprintf(stderr, "heddle: %s\n", text);
}

}  // namespace

void find_host(const void* caller) noexcept {
    HEDDLE_ASSERT(caller != nullptr && found.log == nullptr, "called once");
    Dl_info where{};
    void* library = nullptr;
    // RTLD_NOLOAD: the library is not loaded again. It stays as long as its provider.
    if (dladdr(caller, &where) != 0 && where.dli_fname != nullptr)
        library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    // Without a library the program has libfabric linked into it, and may export the functions.
    void* const from = library != nullptr ? library : RTLD_DEFAULT;
    look_up(from, "fi_param_define", found.param_define);
    look_up(from, "fi_param_get", found.param_get);
    look_up(from, "fi_log_enabled", found.log_enabled);
    look_up(from, "fi_log", found.log);
    if (library != nullptr) dlclose(library);
}

const Host& host() noexcept { return found; }

bool logged(fi_log_level level) noexcept {
    return found.log != nullptr && found.log_enabled != nullptr &&
           found.log_enabled(&self(), level, FI_LOG_CORE) != 0;
}

void log(fi_log_level level, const char* format, ...) noexcept {
    if (!logged(level)) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    log_text(level, text);
}

void complain(const char* format, ...) noexcept {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    complain_text(text);
}

void complain_of_memlock(const char* format, ...) noexcept {
    static std::atomic<bool> complained{false};
    const bool is_first = !complained.exchange(true, std::memory_order_relaxed);
    if (!is_first && !logged(FI_LOG_WARN)) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    complain_text(text);
}

}  // namespace heddle::provider

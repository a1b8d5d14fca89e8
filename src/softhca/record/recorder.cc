// SPDX-License-Identifier: BSD-2-Clause
// Threads' logs, and what goes to the file when: see recorder.h.
#include "softhca/record/recorder.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include <new>

#include "softhca/base/assert.h"
#include "softhca/base/left_behind.h"
#include "softhca/base/libc.h"
#include "softhca/base/log.h"
#include "softhca/base/options.h"
#include "softhca/device/lock.h"
#include "softhca/record/numbering.h"
#include "softhca/record/record_file.h"
#include "softhca/record/record_path.h"
#include "softhca/record/run_length.h"

namespace softhca::record {

std::atomic<bool> g_on{false};

namespace {

using device::Guard;
using device::SpinLock;

constexpr std::size_t kLogBytes = 32 << 10;
constexpr std::uint32_t kMostLines = 1u << 16, kMostBarriers = 1u << 10;
constexpr unsigned kPatience = 1000;  // attempts to take a lock at an abrupt end

// The events of one thread that are not in the file yet. Its thread adds to it; a thread that
// destroys an object, or ends the process, writes it out.
struct ThreadLog {
    SpinLock lock;
    std::uint32_t number = 0;
    std::uint64_t lines = 0;
    bool truncated = false;
    RunLength runs;
    std::size_t used = 0;
    ThreadLog* next = nullptr;  // under g_logs_lock
    char text[kLogBytes];
};

RecordFile g_file;
char g_directory[PATH_MAX] = "";  // where the process started
std::uint64_t g_limit = 0;        // lines of one thread

SpinLock g_objects_lock;           // orders descriptions, and the header before them
std::atomic<bool> g_begun{false};  // the header has been written
SpinLock g_logs_lock;              // taken before a log's lock
ThreadLog* g_logs = nullptr;       // under g_logs_lock
std::uint32_t g_threads = 0;       // under g_logs_lock
Numbering<kMostLines> g_lines;
Numbering<kMostBarriers> g_barriers;

bool append(Ending ending, const char* text, std::size_t size) noexcept {
    const bool done =
        ending == Ending::kOrderly ? g_file.append(text, size) : g_file.try_append(text, size);
    if (!done) g_on.store(false, std::memory_order_relaxed);
    return done;
}

void write_out(ThreadLog& log, Ending ending) noexcept {
    SOFTHCA_DEBUG_ASSERT(log.lock.is_locked() && log.used <= kLogBytes);
    if (log.used != 0) append(ending, log.text, log.used);
    log.used = 0;
}

void put(ThreadLog& log, const Line& line, Ending ending) noexcept {
    if (kLogBytes - log.used < line.size()) write_out(log, ending);
    SOFTHCA_ASSERT(line.size() <= kLogBytes - log.used, "a line is shorter than a log");
    memcpy(log.text + log.used, line.text(), line.size());
    log.used += line.size();
}

template <Ending kEnding>
void emit(void* to, std::span<const EventRun> runs, std::uint64_t times) noexcept {
    ThreadLog& log = *static_cast<ThreadLog*>(to);
    if (log.truncated) return;
    if (log.lines == g_limit) {
        log.truncated = true;
        put(log, Line::truncated(log.number), kEnding);
        return;
    }
    ++log.lines;
    put(log, Line::of(log.number, runs, times), kEnding);
}

bool lock(SpinLock& lock, Ending ending) noexcept {
    if (ending == Ending::kOrderly) {
        lock.lock();
        return true;
    }
    for (unsigned attempt = 0; attempt < kPatience; ++attempt) {
        if (lock.try_lock()) return true;
        device::cpu_relax();
    }
    return false;
}

void flush(ThreadLog& log, Ending ending) noexcept {
    log.runs.flush(ending == Ending::kOrderly ? emit<Ending::kOrderly> : emit<Ending::kAbruptly>,
                   &log);
    write_out(log, ending);
}

void flush_all(Ending ending) noexcept {
    if (!lock(g_logs_lock, ending)) return;
    for (ThreadLog* log = g_logs; log != nullptr; log = log->next) {
        if (!lock(log->lock, ending)) continue;
        flush(*log, ending);
        log->lock.unlock();
    }
    g_logs_lock.unlock();
}

thread_local ThreadLog* t_log = nullptr;

// Writes a thread's events out when it ends. The main thread's log stays: exit() runs this before
// the handlers of the program, which may still post.
struct ThreadEnd {
    bool armed = false;
    ~ThreadEnd() {
        ThreadLog* log = t_log;
        if (!armed || log == nullptr || libc::gettid() == libc::getpid()) return;
        t_log = nullptr;
        Guard<SpinLock> guard(g_logs_lock);
        log->lock.lock();
        flush(*log, Ending::kOrderly);
        put(*log, Line::ends(log->number), Ending::kOrderly);
        write_out(*log, Ending::kOrderly);
        for (ThreadLog** at = &g_logs; *at != nullptr; at = &(*at)->next) {
            if (*at != log) continue;
            *at = log->next;
            break;
        }
        delete log;
    }
};
thread_local ThreadEnd t_end;

ThreadLog* own_log() noexcept {
    if (t_log != nullptr) [[likely]]
        return t_log;
    auto* log = new (std::nothrow) ThreadLog;
    if (log == nullptr) {
        LOG_WARN_ONCE("no memory for the run record: events of a thread are missing");
        return nullptr;
    }
    t_end.armed = true;
    Guard<SpinLock> guard(g_logs_lock);
    log->number = g_threads++;
    log->next = g_logs;
    g_logs = log;
    const Line line = Line::begins(log->number);  // at once: it is after the end of earlier threads
    append(Ending::kOrderly, line.text(), line.size());
    return t_log = log;
}

void write_object(const Line& line) noexcept {
    Guard<SpinLock> guard(g_objects_lock);
    if (!g_begun.load(std::memory_order_relaxed)) {
        const Line header = Line::header(program_invocation_short_name, libc::getpid());
        append(Ending::kOrderly, header.text(), header.size());
        g_begun.store(true, std::memory_order_release);
    }
    append(Ending::kOrderly, line.text(), line.size());
}

// The pid may be in the name, so a forked child names its file anew.
void name_file() noexcept {
    char path[PATH_MAX];
    if (expand_path(options().record, g_directory, libc::getpid(), path, sizeof path)) {
        g_file.name(path);
        return;
    }
    LOG_WARN("the path of the run record %s is too long: nothing is recorded", options().record);
    g_on.store(false);
}

// At the start of the process, because the program may change its directory before its first QP.
__attribute__((constructor)) void start() noexcept {
    if (options_without_report().record[0] == '\0') return;
    const ssize_t length = libc::getcwd(g_directory, sizeof g_directory);
    if (length <= 0 || g_directory[0] != '/') g_directory[0] = '\0';
    g_limit = options_without_report().record_limit;
    g_on.store(true);
    name_file();
}

}  // namespace

std::int64_t line_of(std::uint64_t address) noexcept {
    constexpr std::uint64_t kLineBytes = 64;
    return g_lines.of(address / kLineBytes);
}

std::uint32_t barrier_of(const void* barrier) noexcept {
    return g_barriers.of(reinterpret_cast<std::uintptr_t>(barrier));
}

void add(const Event& event) noexcept {
    if (!g_begun.load(std::memory_order_acquire)) return;
    const int saved_errno = errno;  // a caller is a wrapped function of the program
    if (ThreadLog* log = own_log()) {
        Guard<SpinLock> guard(log->lock);
        if (!log->truncated) log->runs.add(event, emit<Ending::kOrderly>, log);
    }
    errno = saved_errno;
}

void add_barrier(const void* barrier) noexcept {
    if (!g_begun.load(std::memory_order_acquire)) return;
    Event event;
    event.kind = EventKind::kBarrier;
    event.object = barrier_of(barrier);
    add(event);
}

void describe(const CqObject& cq) noexcept { write_object(Line::of(cq)); }
void describe(const QpObject& qp) noexcept { write_object(Line::of(qp)); }

void end_qp(std::uint32_t number, const QpTotals& totals) noexcept {
    flush_all(Ending::kOrderly);
    write_object(Line::qp_totals(number, totals));
}

void end_cq(std::uint32_t number, std::uint64_t cqes) noexcept {
    flush_all(Ending::kOrderly);
    write_object(Line::cq_totals(number, cqes));
}

void write_totals(Ending ending, const Line& line) noexcept {
    append(ending, line.text(), line.size());
}

void finish(Ending ending, void (*totals)(Ending)) noexcept {
    if (!g_begun.exchange(false)) return;  // from here on, events are dropped
    flush_all(ending);
    totals(ending);
    g_on.store(false);
}

void forget_after_fork() noexcept {
    if (!on()) return;
    g_file.forget_after_fork();
    g_objects_lock.unlock();  // threads that are not in the child may have held them
    g_logs_lock.unlock();
    for (const ThreadLog* log = g_logs; log != nullptr; log = log->next)
        leave_behind(log);
    g_logs = nullptr;
    t_log = nullptr;
    g_threads = 0;
    g_lines.forget_after_fork();
    g_barriers.forget_after_fork();
    g_begun.store(false);
    name_file();
}

}  // namespace softhca::record

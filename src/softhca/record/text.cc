// SPDX-License-Identifier: BSD-2-Clause
// The lines of a run record: see text.h.
#include "softhca/record/text.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "softhca/base/assert.h"
#include "softhca/record/run_length.h"

namespace softhca::record {
namespace {

const char* text_of(Locked lock) noexcept {
    switch (lock) {
        case Locked::kNo:
            return "false";
        case Locked::kYes:
            return "true";
        case Locked::kUnknown:
            break;
    }
    return "null";
}

constexpr std::size_t kMostNameBytes = 256;  // of a program

// A number, or "null" where it is `none`.
struct Number {
    char text[16];
    Number(std::uint32_t value, std::uint32_t none) noexcept {
        if (value == none)
            snprintf(text, sizeof text, "null");
        else
            snprintf(text, sizeof text, "%u", value);
    }
};

}  // namespace

void Line::add(const char* format, ...) noexcept {
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text_ + size_, sizeof text_ - size_, format, arguments);
    va_end(arguments);
    SOFTHCA_ASSERT(length >= 0 && static_cast<std::size_t>(length) < sizeof text_ - size_,
                   "the longest line is a cycle of kMostInCycle posts");
    size_ += static_cast<std::size_t>(length);
}

Line Line::header(const char* program, int pid) noexcept {
    Line line;
    line.add("{\"schema\":%d,\"kind\":\"softhca-record\",\"program\":\"", kSchema);
    for (std::size_t i = 0; program[i] != '\0' && i < kMostNameBytes; ++i) {
        const auto byte = static_cast<unsigned char>(program[i]);
        if (byte < 0x20 || byte >= 0x7f)
            line.add("\\u%04x", byte);  // one character a byte: names are bytes, JSON is Unicode
        else
            line.add(byte == '"' || byte == '\\' ? "\\%c" : "%c", byte);
    }
    line.add("\",\"pid\":%d,\"version\":\"" SOFTHCA_VERSION "\"}\n", pid);
    return line;
}

Line Line::of(const CqObject& cq) noexcept {
    Line line;
    line.add("{\"cq\":%u,\"context\":%u,\"lock\":%s}\n", cq.number, cq.context, text_of(cq.lock));
    return line;
}

Line Line::of(const QpObject& qp) noexcept {
    Line line;
    line.add("{\"qp\":%u,\"context\":%u,\"page\":%s,\"uuar\":%s,\"send_cq\":%u,\"depth\":%u,",
             qp.number, qp.context, Number(qp.page, kNoPage).text,
             Number(qp.uuar, kUnknownUuar).text, qp.send_cq, qp.depth);
    line.add("\"lock\":%s,\"uuar_lock\":%s}\n", text_of(qp.lock), text_of(qp.uuar_lock));
    return line;
}

void Line::add_event(const Event& event) noexcept {
    switch (event.kind) {
        case EventKind::kPost:
            add("\"post\":%u,\"wqes\":%u,\"inline\":%u,\"signaled\":%u,\"reads\":%u,", event.object,
                event.entries, event.inlines, event.signaled, event.reads);
            add("\"bytes\":%" PRIu64 ",", event.bytes);
            if (event.line == kNoLine)
                add("\"line\":null,");
            else
                add("\"line\":%" PRId64 ",", event.line);
            add("\"blueflame\":%s", event.blueflame ? "true" : "false");
            break;
        case EventKind::kPoll:
            add("\"poll\":%u,\"cqes\":%u", event.object, event.entries);
            break;
        case EventKind::kBarrier:
            add("\"barrier\":%u", event.object);
            break;
    }
}

Line Line::of(std::uint32_t thread, std::span<const EventRun> runs, std::uint64_t times) noexcept {
    SOFTHCA_ASSERT(!runs.empty() && runs.size() <= kMostInCycle && times != 0);
    SOFTHCA_ASSERT(runs.size() > 1 || times == 1, "a single run counts its events itself");
    Line line;
    line.add("{\"thread\":%u,", thread);
    if (runs.size() > 1) line.add("\"cycle\":[");
    for (const EventRun& run : runs) {
        if (runs.size() > 1) line.add(&run == runs.data() ? "{" : ",{");
        line.add_event(run.event);
        line.add(",\"times\":%" PRIu64, run.times);
        if (runs.size() > 1) line.add("}");
    }
    if (runs.size() > 1) line.add("],\"times\":%" PRIu64, times);
    line.add("}\n");
    return line;
}

Line Line::begins(std::uint32_t thread) noexcept {
    Line line;
    line.add("{\"thread\":%u,\"begins\":true}\n", thread);
    return line;
}

Line Line::ends(std::uint32_t thread) noexcept {
    Line line;
    line.add("{\"thread\":%u,\"ends\":true}\n", thread);
    return line;
}

Line Line::truncated(std::uint32_t thread) noexcept {
    Line line;
    line.add("{\"thread\":%u,\"truncated\":true}\n", thread);
    return line;
}

Line Line::qp_totals(std::uint32_t number, const QpTotals& totals) noexcept {
    Line line;
    line.add("{\"totals\":{\"qp\":%u,\"wqes\":%" PRIu64 ",\"doorbells\":%" PRIu64
             ",\"blueflame\":%" PRIu64 ",\"payload_reads\":%" PRIu64 "}}\n",
             number, totals.wqes, totals.doorbells, totals.blueflame, totals.payload_reads);
    return line;
}

Line Line::cq_totals(std::uint32_t number, std::uint64_t cqes) noexcept {
    Line line;
    line.add("{\"totals\":{\"cq\":%u,\"cqes\":%" PRIu64 "}}\n", number, cqes);
    return line;
}

}  // namespace softhca::record

// SPDX-License-Identifier: BSD-2-Clause
// The sweeps of ICPADS'18, section V: see figures.h.
//
// Where threads have contexts of their own ("naive endpoints"), each has one thread domain. Where
// they share one context, its thread domains are maximally independent. PDs (8a) and CQs (9, 10)
// are shared within one context for all, and MRs (8b) within one PD: only so can they be shared by
// all. QPs that are shared (11) are in no thread domain, for these have no lock, and their threads
// share CQ and buffer, too.
#include "experiments/figures.h"
#include "heddle/detail/assert.h"

#include <algorithm>
#include <array>
#include <functional>

namespace heddle::bench {
namespace {

constexpr std::uint32_t kPaperThreads = 16;
constexpr const char* kWithoutPostlist = "w/o Postlist";
constexpr const char* kWithoutInlining = "w/o Inlining";

// What the paper leaves out one by one. "All" is p = 32, q = 64, inline, and BlueFlame, though
// lists of more than one never use it.
struct Feature {
    const char* series;
    void (*leave_out)(MessageRate&);
};
constexpr std::array kFeatures = {
    Feature{"All", [](MessageRate&) {}},
    Feature{"w/o BlueFlame", [](MessageRate& m) { m.blueflame = false; }},
    Feature{kWithoutInlining, [](MessageRate& m) { m.inlining = false; }},
    Feature{kWithoutPostlist, [](MessageRate& m) { m.post_list = 1; }},
    Feature{"w/o Unsignaled", [](MessageRate& m) { m.signal_every = 1; }},
};

// The point x of a curve.
using At = std::function<void(MessageRate&, std::uint32_t x)>;

class Builder {
public:
    Builder(std::string_view name, const MessageRate& base) : base_(base) {
        figure_.name = name;
        base_.depth = 128;
        base_.post_list = 32;
        base_.signal_every = 64;
        base_.bytes = 2;
        base_.inlining = base_.blueflame = true;
    }

    Builder& title(const char* text, const char* x_name) {
        figure_.title = text;
        figure_.x_name = x_name;
        return *this;
    }
    Builder& by_threads(const std::string& series, const At& at) {
        for (std::uint32_t x = 1; x <= base_.threads; x *= 2) {
            MessageRate m = base_;
            m.threads = x;
            at(m, x);
            add(series, x, m, true);
        }
        return *this;
    }
    Builder& by_sharing(const std::string& series, const At& at) {
        for (std::uint32_t x = 1; x <= base_.threads; x *= 2) {
            if (base_.threads % x != 0) break;
            MessageRate m = base_;
            at(m, x);
            add(series, x, m, base_.threads == kPaperThreads);
        }
        return *this;
    }
    Builder& features_by_threads(const At& at) {
        for (const Feature& feature : kFeatures)
            by_threads(feature.series, both(feature, at));
        return *this;
    }
    Builder& features_by_sharing(const At& at) {
        for (const Feature& feature : kFeatures)
            by_sharing(feature.series, both(feature, at));
        return *this;
    }
    Figure take() {
        HEDDLE_ASSERT(!figure_.points.empty(), "a figure has curves");
        return std::move(figure_);
    }

private:
    static At both(const Feature& feature, const At& at) {
        return [leave_out = feature.leave_out, at](MessageRate& m, std::uint32_t x) {
            leave_out(m);
            at(m, x);
        };
    }
    void add(const std::string& series, std::uint32_t x, const MessageRate& m, bool comparable) {
        HEDDLE_ASSERT(x != 0 && m.threads != 0 && m.threads <= base_.threads,
                      "a point is one of the threads that were asked for");
        HEDDLE_ASSERT(m.threads % m.sharing.qp == 0 && m.threads % m.sharing.cq == 0,
                      "threads that share come in whole groups");
        FigurePoint point{series, x, m, std::nullopt};
        // The paper's values of 8a and 8b are one set.
        const bool either = figure_.name == "8a" || figure_.name == "8b";
        if (comparable) point.paper = paper_value(either ? "8" : figure_.name, series, x);
        figure_.points.push_back(std::move(point));
    }

    MessageRate base_;
    Figure figure_;
};

void own_contexts(MessageRate& m, std::uint32_t) {
    m.sharing = {};
    m.sharing.placement = Placement::kPaired;  // one alone in its context: nobody to pair with
}

// All threads, or x, in one context with what belongs to it.
void shared_contexts(MessageRate& m, std::uint32_t x, Placement placement) {
    m.sharing = {};
    m.sharing.context = m.sharing.pd = m.sharing.mr = x;
    m.sharing.placement = placement;
}
void one_context(MessageRate& m) { shared_contexts(m, m.threads, Placement::kIndependent); }

void category_of_threads(Category category, MessageRate& m) {
    m.sharing = sharing_of(category, m.threads);
    m.sharing.buffer = m.sharing.qp;
}

Figure figure_2b(Builder& b) {
    return b.title("MPI everywhere and MPI+threads", "threads")
        .by_threads(
            "MPI everywhere",
            [](MessageRate& m, std::uint32_t) { category_of_threads(Category::kMpiEverywhere, m); })
        .by_threads(
            "MPI+threads",
            [](MessageRate& m, std::uint32_t) { category_of_threads(Category::kMpiThreads, m); })
        .take();
}

Figure figure_6(Builder& b) {
    const auto curve = [](std::uint32_t alignment) {
        return [alignment](MessageRate& m, std::uint32_t x) {
            own_contexts(m, x);
            m.inlining = false;
            m.buffer_alignment = alignment;
        };
    };
    return b.title("Payloads on cache lines of their own or not, w/o Inlining", "threads")
        .by_threads("aligned", curve(64))
        .by_threads("not aligned", curve(1))
        .take();
}

Figure figure_7(Builder& b) {
    const auto without_postlist = [](Placement placement) {
        return [placement](MessageRate& m, std::uint32_t x) {
            m.post_list = 1;
            shared_contexts(m, x, placement);
        };
    };
    return b.title("Contexts shared x-way", "x")
        .features_by_sharing(
            [](MessageRate& m, std::uint32_t x) { shared_contexts(m, x, Placement::kIndependent); })
        .by_sharing("w/o Postlist 2xQPs", without_postlist(Placement::kDoubled))
        .by_sharing("w/o Postlist Sharing 2", without_postlist(Placement::kPaired))
        .take();
}

Figure figure_10(Builder& b) {
    b.title("CQs shared x-way, by Postlist (p) and Unsignaled (q)", "x");
    for (const std::uint32_t p : {32u, 1u})
        for (std::uint32_t q = 1; q <= 128; q *= 2)
            b.by_sharing("p=" + std::to_string(p) + " q=" + std::to_string(q),
                         [p, q](MessageRate& m, std::uint32_t x) {
                             one_context(m);
                             m.sharing.cq = x;
                             m.post_list = p;
                             m.signal_every = q;
                         });
    return b.take();
}

}  // namespace

const std::vector<std::string>& figure_names() {
    static const std::vector<std::string> kNames = {"2b", "3",  "5", "6",  "7",
                                                    "8a", "8b", "9", "10", "11"};
    return kNames;
}

Figure figure(std::string_view name, const MessageRate& base) {
    HEDDLE_ASSERT(std::count(figure_names().begin(), figure_names().end(), name) == 1);
    Builder b(name, base);
    if (name == "2b") return figure_2b(b);
    if (name == "3")
        return b.title("Threads, each with a context", "threads")
            .features_by_threads(own_contexts)
            .take();
    if (name == "5")
        return b.title("Payload buffers shared x-way", "x")
            .features_by_sharing([](MessageRate& m, std::uint32_t x) {
                own_contexts(m, x);
                m.sharing.buffer = x;
            })
            .take();
    if (name == "6") return figure_6(b);
    if (name == "7") return figure_7(b);
    if (name == "8a")
        return b.title("PDs shared x-way, each thread with an MR", "x")
            .features_by_sharing([](MessageRate& m, std::uint32_t x) {
                one_context(m);
                m.sharing.pd = x;
                m.sharing.mr = 1;
            })
            .take();
    if (name == "8b")
        return b.title("MRs shared x-way, all in one PD", "x")
            .features_by_sharing([](MessageRate& m, std::uint32_t x) {
                one_context(m);
                m.sharing.mr = x;
            })
            .take();
    if (name == "9")
        return b.title("CQs shared x-way", "x")
            .features_by_sharing([](MessageRate& m, std::uint32_t x) {
                one_context(m);
                m.sharing.cq = x;
            })
            .take();
    if (name == "10") return figure_10(b);
    return b.title("QPs shared x-way, and their CQs", "x")
        .features_by_sharing([](MessageRate& m, std::uint32_t x) {
            one_context(m);
            m.sharing.cq = m.sharing.qp = m.sharing.buffer = x;
            if (x > 1) m.sharing.placement = Placement::kDriver;
        })
        .take();
}

}  // namespace heddle::bench

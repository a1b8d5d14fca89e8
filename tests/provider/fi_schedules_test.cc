// SPDX-License-Identifier: BSD-2-Clause
// Random schedules of sends, receives - exact, from anybody, of any tag -, probes, claimed messages
// and cancelled receives between some endpoints, by each way that messages can take, checked
// against MPI's rules of matching (MPI 4.1, section 3.5): no message overtakes another of its
// sender that the same receive could have taken, no receive is passed over by a message that it
// could have taken, and all arrives once and whole.
//
// A failure names its seed; HEDDLE_TEST_SEED runs that one alone, HEDDLE_TEST_SCHEDULES so many.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/provider/fi_schedule.h"

namespace heddle::test {
namespace {

class Schedule {
public:
    explicit Schedule(unsigned seed) : random_(seed) {
        for (auto& end : ends_)
            end = std::make_unique<End>();
        for (std::size_t i = 0; i < kStations; ++i)
            for (std::size_t j = 0; j < kStations; ++j)
                ends_[i]->to[j] = ends_[i]->station.add(ends_[j]->station);
    }

    // What was found wrong, or nothing.
    std::string run() {
        repeat();
        // How often there are wildcards, and whether receives mostly come first.
        wild_ = std::array{0u, 0u, 1u, 5u, 30u}[below(5)];
        const std::size_t early = 20 + below(60), steps = 300 + below(500);
        large_ = below(3) == 0;
        for (std::size_t step = 0; step < steps && wrong_.empty(); ++step) {
            const std::size_t what = below(100);
            if (what < early)
                receive();
            else if (what < 92)
                send();
            else if (what < 94)
                cancel();
            else if (what < 95 && wild_ != 0)
                claim();
            if (below(3) == 0) look();
        }
        finish();
        return wrong_;
    }

private:
    std::size_t below(std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
    }
    template <class... What>
    void wrong(const What&... what) {
        if (!wrong_.empty()) return;
        std::ostringstream text;
        (text << ... << what);
        wrong_ = text.str();
    }

    // A tag that repeats: the endpoints learn of each other which bits of tags are ignored.
    void repeat() {
        for (std::size_t from = 0; from < kStations; ++from)
            for (std::size_t to = 0; to < kStations; ++to)
                for (int i = 0; i < 6 && wrong_.empty(); ++i) {
                    std::vector<std::byte> in(40000), out(40000);
                    End &sender = *ends_[from], &receiver = *ends_[to];
                    fi_cq_tagged_entry entry{};
                    fi_trecv(receiver.station.ep.get(), in.data(), in.size(), nullptr,
                             receiver.to[from], kTags, kIgnored, nullptr);
                    fi_tsenddata(sender.station.ep.get(), out.data(), out.size(), nullptr, from,
                                 sender.to[to], kTags, nullptr);
                    if (next(receiver.station.receive.get(), entry,
                             sender.station.transmit.get()) != 0 ||
                        next(sender.station.transmit.get(), entry,
                             receiver.station.receive.get()) != 0)
                        wrong("a tag that repeats");
                }
    }

    std::size_t some_size() {
        static constexpr std::size_t kSizes[] = {8,    0,    1,     100,   200,   4000,
                                                 8192, 8193, 20000, 32768, 32769, 100000};
        return large_ ? kSizes[8 + below(4)] : kSizes[below(std::size(kSizes))];
    }

    void send() {
        const std::size_t from = below(kStations), to = below(kStations);
        End& end = *ends_[from];
        std::deque<Message>& sent = end.sent[to];
        if (sent.size() - ends_[to]->taken[from] >= kMostOpen) return;
        const auto number = static_cast<std::uint32_t>(sent.size());
        Message& message = sent.emplace_back();
        message.tag = below(kTags);
        message.bytes = some_size();
        message.buffer.resize(message.bytes);
        for (std::size_t i = 0; i < message.bytes; ++i)
            message.buffer[i] = content(from, number, i);
        const std::uint64_t tag = message.tag | std::uint64_t{number & 0x7f} << kNumberShift;
        fid_ep* const ep = end.station.ep.get();
        const bool injects = message.bytes <= 100 && below(2) == 0;
        const ssize_t result = insist(end.station.transmit.get(), [&] {
            return injects ? fi_tinjectdata(ep, message.buffer.data(), message.bytes, from,
                                            end.to[to], tag)
                           : fi_tsenddata(ep, message.buffer.data(), message.bytes, nullptr, from,
                                          end.to[to], tag, &message);
        });
        if (result != 0) wrong("send: ", fi_strerror(static_cast<int>(-result)));
        if (injects)
            std::fill(message.buffer.begin(), message.buffer.end(), std::byte{0});
        else
            ++end.sends_open;
    }

    void post(End& end, int from, std::uint64_t tag, std::uint64_t ignore, std::size_t room) {
        Posted& receive = end.posted.emplace_back();
        receive.from = from;
        receive.tag = tag;
        receive.ignore = ignore;
        receive.buffer.resize(room);
        const ssize_t result =
            fi_trecv(end.station.ep.get(), receive.buffer.data(), room, nullptr,
                     from < 0 ? FI_ADDR_UNSPEC : end.to[static_cast<std::size_t>(from)], tag,
                     ignore, &receive);
        if (result != 0) wrong("receive: ", fi_strerror(static_cast<int>(-result)));
    }

    void receive() {
        End& end = *ends_[below(kStations)];
        const bool wild = below(100) < wild_;
        const int from = wild && below(2) == 0 ? -1 : static_cast<int>(below(kStations));
        const std::uint64_t ignore = wild && below(2) == 0 ? kAnyTag : kIgnored;
        // Now and then too short.
        const std::size_t room = below(20) == 0 ? 50 : 100000;
        post(end, from, below(kTags), ignore, room);
    }

    void cancel() {
        End& end = *ends_[below(kStations)];
        if (end.posted.empty()) return;
        Posted& receive = end.posted[below(end.posted.size())];
        if (receive.done) return;
        fi_cancel(end.station.ep.handle(), &receive);
    }

    // As MPI_Improbe and MPI_Mrecv.
    void claim() {
        End& end = *ends_[below(kStations)];
        fi_msg_tagged message{};
        Posted probe;
        probe.from = below(2) == 0 ? -1 : static_cast<int>(below(kStations));
        probe.tag = below(kTags);
        probe.ignore = below(2) == 0 ? kAnyTag : kIgnored;
        message.addr =
            probe.from < 0 ? FI_ADDR_UNSPEC : end.to[static_cast<std::size_t>(probe.from)];
        message.tag = probe.tag;
        message.ignore = probe.ignore;
        message.context = &probe;
        end.station.receive.get();
        fid_ep* const ep = end.station.ep.get();
        look();
        if (fi_trecvmsg(ep, &message, FI_PEEK | FI_CLAIM) != 0) return wrong("peek");
        fi_cq_tagged_entry entry{};
        int error = -1;
        for (const auto until = std::chrono::steady_clock::now() + kPatience; error < 0;) {
            const ssize_t got = fi_cq_read(end.station.receive.get(), &entry, 1);
            if (got == 1) {
                if (entry.op_context == &probe)
                    error = 0;
                else
                    ended(end, entry, 0);
            } else if (got == -FI_EAVAIL) {
                fi_cq_err_entry failed{};
                fi_cq_readerr(end.station.receive.get(), &failed, 0);
                if (failed.op_context == &probe)
                    error = failed.err;
                else
                    ended(end, failed);
            } else if (std::chrono::steady_clock::now() > until) {
                return wrong("no answer to a probe");
            }
        }
        if (error != 0) return;
        // A receive that is matched at once, and stands before all that were posted.
        Posted& receive = end.posted.emplace_back();
        receive.from = probe.from;
        receive.tag = probe.tag;
        receive.ignore = probe.ignore;
        receive.buffer.resize(100000);
        iovec room{receive.buffer.data(), receive.buffer.size()};
        // The claim is known by its context: that of the receive has to be the same.
        message.msg_iov = &room;
        message.iov_count = 1;
        message.context = &probe;
        claims_.push_back(&receive);
        if (fi_trecvmsg(ep, &message, FI_CLAIM) != 0) return wrong("claim");
        for (const auto until = std::chrono::steady_clock::now() + kPatience;;) {
            for (auto& each : ends_)
                if (each.get() != &end) look(*each);
            const ssize_t got = fi_cq_read(end.station.receive.get(), &entry, 1);
            if (got == 1) {
                if (entry.op_context != &probe) {
                    ended(end, entry, 0);
                    continue;
                }
                entry.op_context = &receive;
                return ended(end, entry, 0);
            }
            if (got == -FI_EAVAIL) {
                fi_cq_err_entry failed{};
                fi_cq_readerr(end.station.receive.get(), &failed, 0);
                if (failed.op_context == &probe) return wrong("a claimed message failed");
                ended(end, failed);
            } else if (std::chrono::steady_clock::now() > until) {
                return wrong("a claimed message did not come");
            }
        }
    }

    void ended(End& end, const fi_cq_err_entry& failed) {
        fi_cq_tagged_entry entry{};
        entry.op_context = failed.op_context;
        entry.tag = failed.tag;
        entry.len = failed.len;
        entry.data = failed.data;
        ended(end, entry, failed.err);
    }

    void ended(End& end, const fi_cq_tagged_entry& entry, int error) {
        Posted& receive = *static_cast<Posted*>(entry.op_context);
        if (receive.done) return wrong("a receive ended twice");
        receive.done = true;
        if (error == FI_ECANCELED) {
            receive.cancelled = true;
            return;
        }
        if (error != 0 && error != FI_ETRUNC) return wrong("receive: ", fi_strerror(error));
        const std::size_t from = entry.data;
        if (from >= kStations) return wrong("from ", from);
        std::size_t me = 0;
        while (ends_[me].get() != &end)
            ++me;
        std::deque<Message>& sent = ends_[from]->sent[me];
        // Which it is, its number says: of the first that may be, as fewer are open.
        const auto low = static_cast<std::uint32_t>(entry.tag >> kNumberShift & 0x7f);
        std::uint32_t number = low;
        while (number < sent.size() && sent[number].receive >= 0)
            number += 0x80;
        if (number >= sent.size()) return wrong("a message came that was not sent, or twice");
        Message& message = sent[number];
        message.receive = static_cast<int>(index_of(end, receive));
        receive.source = static_cast<int>(from);
        receive.number = number;
        ++end.taken[from];
        if ((entry.tag & 0xff) != message.tag) return wrong("tag ", entry.tag);
        if (!fits(receive, from, message)) return wrong("it does not fit its receive");
        const bool cut = message.bytes > receive.buffer.size();
        if (cut != (error == FI_ETRUNC)) return wrong("cut off: ", cut, ", error ", error);
        if (!cut && entry.len != message.bytes)
            return wrong("bytes ", entry.len, " of ", message.bytes);
        for (std::size_t i = 0; i < std::min(message.bytes, receive.buffer.size()); ++i)
            if (receive.buffer[i] != content(from, number, i))
                return wrong("message ", number, " of ", from, ", byte ", i, " of ", message.bytes);
    }

    static std::size_t index_of(const End& end, const Posted& receive) {
        for (std::size_t i = 0; i < end.posted.size(); ++i)
            if (&end.posted[i] == &receive) return i;
        return end.posted.size();
    }

    void look(End& end) {
        fi_cq_tagged_entry entry{};
        for (fid_cq* const cq : {end.station.receive.get(), end.station.transmit.get()}) {
            for (;;) {
                const ssize_t got = fi_cq_read(cq, &entry, 1);
                if (got == -FI_EAVAIL) {
                    fi_cq_err_entry failed{};
                    fi_cq_readerr(cq, &failed, 0);
                    if (cq == end.station.transmit.get())
                        return wrong("a send failed: ", fi_strerror(failed.err));
                    ended(end, failed);
                } else if (got == 1) {
                    if (cq == end.station.transmit.get())
                        --end.sends_open;
                    else
                        ended(end, entry, 0);
                } else {
                    break;
                }
            }
        }
    }
    void look() {
        for (auto& end : ends_)
            look(*end);
    }

    // Whatever was sent finds a receive.
    void finish() {
        const auto until = std::chrono::steady_clock::now() + kPatience;
        // Some of those that wait are taken by receives that were there; for the others one each.
        for (std::size_t i = 0; i < kStations && wrong_.empty(); ++i)
            for (std::size_t from = 0; from < kStations; ++from)
                for (const Message& message : ends_[from]->sent[i])
                    if (message.receive < 0)
                        post(*ends_[i], static_cast<int>(from), message.tag, kIgnored, 100000);
        const auto open = [&] {
            std::size_t messages = 0;
            for (std::size_t i = 0; i < kStations; ++i) {
                messages += ends_[i]->sends_open;
                for (std::size_t to = 0; to < kStations; ++to)
                    messages += ends_[i]->sent[to].size() - ends_[to]->taken[i];
            }
            return messages;
        };
        while (wrong_.empty() && open() != 0) {
            look();
            if (std::chrono::steady_clock::now() > until)
                wrong(open(), " messages and sends were not done");
        }
        for (auto& end : ends_)
            for (Posted& receive : end->posted)
                if (!receive.done) fi_cancel(end->station.ep.handle(), &receive);
        const auto waits = [&] {
            std::size_t receives = 0;
            for (auto& end : ends_)
                for (const Posted& receive : end->posted)
                    receives += !receive.done;
            return receives;
        };
        while (wrong_.empty() && waits() != 0) {
            look();
            if (std::chrono::steady_clock::now() > until)
                wrong(waits(), " cancelled receives did not end");
        }
        if (wrong_.empty()) check_order();
    }

    // Pairs of messages of one sender to one receiver.
    void check_order() {
        for (std::size_t to = 0; to < kStations; ++to) {
            const End& end = *ends_[to];
            for (std::size_t from = 0; from < kStations; ++from) {
                const std::deque<Message>& sent = ends_[from]->sent[to];
                for (std::size_t a = 0; a < sent.size(); ++a) {
                    for (std::size_t b = a + 1; b < sent.size(); ++b) {
                        const Posted& first = end.posted[static_cast<std::size_t>(sent[a].receive)];
                        const Posted& second =
                            end.posted[static_cast<std::size_t>(sent[b].receive)];
                        if (is_claim(first) || is_claim(second)) continue;
                        // b took a receive that was posted before a's, and that a fitted.
                        if (sent[b].receive < sent[a].receive && fits(second, from, sent[a]))
                            return wrong("message ", b, " of ", from, " to ", to, " overtook ", a,
                                         ": receives ", sent[b].receive, ", ", sent[a].receive);
                        // a took a later receive than one that it fitted, and that b took.
                    }
                }
            }
        }
    }
    bool is_claim(const Posted& receive) const {
        return std::find(claims_.begin(), claims_.end(), &receive) != claims_.end();
    }

    std::mt19937 random_;
    std::array<std::unique_ptr<End>, kStations> ends_;
    std::vector<const Posted*> claims_;
    std::size_t wild_ = 0;
    bool large_ = false;
    std::string wrong_;
};

// By FI_HEDDLE_RNDV; "_few": where there are few entries, queue pairs and queues,
// and neither copies nor fragments.
class Schedules : public testing::TestWithParam<const char*> {
protected:
    // Read once in a process: not by each schedule.
    Schedules() {
        const std::string way = GetParam();
        const bool few = way.ends_with("_few");
        setenv("FI_HEDDLE_RNDV", way.substr(0, way.find('_')).c_str(), 1);
        setenv("FI_HEDDLE_TUPLE_AFTER", "4", 1);
        setenv("FI_HEDDLE_TUPLE_QPS", few ? "1" : "2", 1);
        setenv("FI_HEDDLE_TUPLES", few ? "2" : "64", 1);
        setenv("FI_HEDDLE_TUPLE_COPY", few ? "0" : "8192", 1);
        setenv("FI_HEDDLE_RNDV_SIZE", few ? "0" : "32768", 1);
        setenv("FI_HEDDLE_SEND_DEPTH", few ? "16" : "128", 1);
    }
};

TEST_P(Schedules, FollowTheRulesOfMatching) {
    const char* const one = std::getenv("HEDDLE_TEST_SEED");
    const char* const many = std::getenv("HEDDLE_TEST_SCHEDULES");
    const unsigned first = one != nullptr ? static_cast<unsigned>(std::atoi(one)) : 1;
    const unsigned count = one != nullptr    ? 1
                           : many != nullptr ? static_cast<unsigned>(std::atoi(many))
                                             : 12;
    for (unsigned seed = first; seed < first + count; ++seed) {
        Schedule schedule(seed);
        ASSERT_EQ(schedule.run(), "") << "seed " << seed << ", " << GetParam();
    }
}

INSTANTIATE_TEST_SUITE_P(RndvModes, Schedules,
                         testing::Values("tupleq", "tupleq_few", "auto", "auto_few", "rget",
                                         "rget_few", "rput", "rput_few"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle::test

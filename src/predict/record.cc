// SPDX-License-Identifier: BSD-2-Clause
// Reading run records: see record.h.
#include "predict/record.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace heddle::predict {
namespace {

using Json = nlohmann::json;

class Reader {
public:
    Reader(std::istream& in, const std::string& where) : in_(in), where_(where) {}
    Record read();

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw RecordError(where_ + ":" + std::to_string(line_) + ": " + what);
    }
    std::uint64_t number(const Json& of, const char* key, std::uint64_t most) const;
    bool flag(const Json& of, const char* key) const;
    std::uint32_t small(const Json& of, const char* key) const {
        return static_cast<std::uint32_t>(number(of, key, 0xffffffffu));
    }
    void header(const Json& line);
    void cq(const Json& line);
    void qp(const Json& line);
    void totals(const Json& of);
    void of_thread(const Json& line);
    void run(std::vector<Step>& steps, const Json& event, std::uint64_t rounds);
    Step post(const Json& event, std::uint64_t times);
    void append(std::vector<Step>& steps, const Step& step, std::uint64_t times);
    void join_successors();

    struct Life {
        std::uint64_t begins = 0, ends = ~0ull;  // lines
    };

    std::istream& in_;
    const std::string& where_;
    std::uint64_t line_ = 0, steps_ = 0, ended_qps_ = 0;
    std::map<std::uint32_t, std::uint32_t> qps_, cqs_;  // by number: those that live now
    std::vector<Life> lives_;                           // of threads
    Record record_;
};

std::uint64_t Reader::number(const Json& of, const char* key, std::uint64_t most) const {
    const auto found = of.find(key);
    if (found == of.end() || !found->is_number_unsigned() || found->get<std::uint64_t>() > most)
        fail("'" + std::string(key) + "' has to be a whole number up to " + std::to_string(most));
    return found->get<std::uint64_t>();
}

// Unknown (null) is false.
bool Reader::flag(const Json& of, const char* key) const {
    const auto found = of.find(key);
    if (found == of.end() || found->is_null()) return false;
    if (!found->is_boolean()) fail("'" + std::string(key) + "' has to be true, false or null");
    return found->get<bool>();
}

void Reader::header(const Json& line) {
    if (line.value("kind", Json()) != "softhca-record") fail("it is no run record of softhca");
    if (line.value("schema", Json()) != 1) fail("the record's 'schema' has to be 1");
    const Json program = line.value("program", Json());
    record_.program = program.is_string() ? program.get<std::string>() : "";
}

void Reader::cq(const Json& line) {
    cqs_[small(line, "cq")] = static_cast<std::uint32_t>(record_.cqs.size());
    record_.cqs.emplace_back();
}

void Reader::qp(const Json& line) {
    const auto cq = cqs_.find(small(line, "send_cq"));
    if (cq == cqs_.end()) fail("the CQ of this QP has not been described");
    qps_[small(line, "qp")] = static_cast<std::uint32_t>(record_.qps.size());
    const bool has_page = line.contains("page") && !line["page"].is_null();
    const bool has_uuar = line.contains("uuar") && !line["uuar"].is_null();
    record_.qps.push_back({small(line, "context"), has_page ? small(line, "page") : 0,
                           has_uuar ? small(line, "uuar") : 0, cq->second,
                           line.contains("depth") ? small(line, "depth") : 0, flag(line, "lock"),
                           flag(line, "uuar_lock")});
}

void Reader::totals(const Json& of) {
    if (!of.is_object()) fail("'totals' has to be an object");
    if (of.contains("cq")) {
        cqs_.erase(small(of, "cq"));
        return;
    }
    record_.counted.wqes += number(of, "wqes", ~0ull >> 1);
    record_.counted.doorbells += number(of, "doorbells", ~0ull >> 1);
    record_.counted.blueflame += number(of, "blueflame", ~0ull >> 1);
    ended_qps_ += qps_.erase(small(of, "qp"));
}

Step Reader::post(const Json& event, std::uint64_t times) {
    const auto qp = qps_.find(small(event, "post"));
    if (qp == qps_.end()) fail("the QP of this post has not been described");
    Step step;
    step.queue = qp->second;
    step.wqes = small(event, "wqes");
    step.cqes = small(event, "signaled");
    step.blueflame = flag(event, "blueflame");
    const std::uint32_t inlined = small(event, "inline");
    const std::uint32_t reads = event.contains("reads") ? small(event, "reads") : 0;
    if (step.cqes > step.wqes || inlined > step.wqes || reads > step.wqes - inlined)
        fail("of a post's WQEs at most all are inline, reads or signaled");
    record_.reads += std::uint64_t{reads} * times;
    const bool has_payload = event.contains("line") && !event["line"].is_null();
    if (has_payload) {
        step.payload_line = small(event, "line");
        step.payload_reads = step.wqes - inlined - reads;
    }
    if (step.wqes != 0)
        record_.most_bytes =
            std::max(record_.most_bytes, number(event, "bytes", ~0ull >> 1) / step.wqes);
    const Record::Qp& its = record_.qps[qp->second];
    step.cq = its.cq;
    record_.cqs[its.cq].signaled += step.cqes * times;
    record_.posted.wqes += step.wqes * times;
    (step.blueflame ? record_.posted.blueflame : record_.posted.doorbells) += times;
    return step;
}

void Reader::append(std::vector<Step>& steps, const Step& step, std::uint64_t times) {
    if (++steps_ > kMostSteps)
        fail("more than " + std::to_string(kMostSteps) + " steps: record a shorter run");
    steps.push_back(step);
    steps.back().times = static_cast<std::uint32_t>(times);
}

// `rounds`: how often the whole event is repeated by a cycle; it is counted so often, too.
void Reader::run(std::vector<Step>& steps, const Json& event, std::uint64_t rounds) {
    if (!event.is_object()) fail("an event has to be an object");
    const std::uint64_t times = number(event, "times", 0xffffffffu);
    if (event.contains("post")) {
        const Step step = post(event, times * rounds);
        if (step.wqes != 0) append(steps, step, times);
        return;
    }
    Step step;
    if (event.contains("poll")) {
        const auto cq = cqs_.find(small(event, "poll"));
        if (cq == cqs_.end()) fail("the CQ of this poll has not been described");
        step.kind = Step::Kind::kWait;
        step.cq = cq->second;
        step.cqes = small(event, "cqes");
        record_.cqs[step.cq].polled += step.cqes * times * rounds;
    } else if (event.contains("barrier")) {
        step.kind = Step::Kind::kBarrier;
        step.group = small(event, "barrier");
    } else {
        fail("an event is a post, a poll or a barrier");
    }
    append(steps, step, times);
}

void Reader::of_thread(const Json& line) {
    const std::uint64_t thread = number(line, "thread", 65535);
    if (record_.threads.size() <= thread) record_.threads.resize(thread + 1);
    lives_.resize(record_.threads.size());
    std::vector<Step>& steps = record_.threads[thread];
    if (line.contains("begins")) {
        lives_[thread].begins = line_;
        return;
    }
    if (line.contains("ends")) {
        lives_[thread].ends = line_;
        return;
    }
    if (line.contains("truncated")) {
        record_.is_truncated = true;
        return;
    }
    if (!line.contains("cycle")) return run(steps, line, 1);
    const Json& cycle = line["cycle"];
    const std::uint64_t rounds = number(line, "times", 0xffffffffu);
    if (!cycle.is_array() || cycle.empty() || rounds == 0)
        fail("a 'cycle' has to be a list of events that happens at least once");
    const std::size_t begin = steps.size();
    for (const Json& event : cycle)
        run(steps, event, rounds);
    const std::size_t length = steps.size() - begin;
    for (std::uint64_t round = 1; length != 0 && round < rounds; ++round)
        for (std::size_t i = 0; i < length; ++i) {
            const Step step = steps[begin + i];
            append(steps, step, step.times);
        }
}

// The threads of an experiment's repetitions, for instance, have its queue pairs one after the
// other.
void Reader::join_successors() {
    std::vector<std::vector<std::uint32_t>> queues;
    for (const std::vector<Step>& steps : record_.threads)
        queues.push_back(queues_of(steps));
    for (std::size_t thread = 0; thread < lives_.size(); ++thread) {
        for (std::size_t before = 0; !queues[thread].empty() && before < thread; ++before) {
            if (lives_[before].ends >= lives_[thread].begins || queues[before] != queues[thread])
                continue;
            std::vector<Step>& steps = record_.threads[thread];
            std::vector<Step>& joined = record_.threads[before];
            joined.insert(joined.end(), steps.begin(), steps.end());
            steps.clear();
            queues[thread].clear();
            lives_[before].ends = lives_[thread].ends;
            break;
        }
    }
}

Record Reader::read() {
    std::string text;
    while (std::getline(in_, text)) {
        ++line_;
        const Json line = Json::parse(text, nullptr, false);
        if (!line.is_object()) fail("it is no JSON object");
        if (line_ == 1)
            header(line);
        else if (line.contains("thread"))
            of_thread(line);
        else if (line.contains("totals"))
            totals(line["totals"]);
        else if (line.contains("qp"))
            qp(line);
        else if (line.contains("cq"))
            cq(line);
    }
    if (line_ == 0) fail("it is empty");
    join_successors();
    record_.has_totals = ended_qps_ == record_.qps.size();
    return std::move(record_);
}

}  // namespace

std::vector<std::uint32_t> queues_of(const std::vector<Step>& steps) {
    std::set<std::uint32_t> found;
    for (const Step& step : steps)
        if (step.kind == Step::Kind::kPost) found.insert(step.queue);
    return {found.begin(), found.end()};
}

Record parse_record(std::istream& in, const std::string& where) { return Reader(in, where).read(); }

Record read_record(const std::string& path) {
    std::ifstream in(path);
    if (!in) throw RecordError("cannot read '" + path + "'");
    return parse_record(in, path);
}

}  // namespace heddle::predict

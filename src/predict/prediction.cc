// SPDX-License-Identifier: BSD-2-Clause
#include "predict/prediction.h"

#include <algorithm>
#include <stdexcept>

#include "heddle/detail/assert.h"
#include "predict/likeness.h"

namespace heddle::predict {
namespace {

void check(const Question& question) {
    const Sharing& sharing = question.layout.sharing;
    const std::uint32_t threads = question.layout.threads;
    if (threads == 0 || question.layout.processes == 0 || question.layout.qps_per_thread == 0)
        throw std::invalid_argument("threads, processes and queue pairs are at least 1");
    for (const std::uint32_t share : {sharing.context, sharing.cq, sharing.qp, sharing.buffer})
        if (share == 0 || threads % share != 0)
            throw std::invalid_argument(std::to_string(threads) +
                                        " threads do not divide into groups of " +
                                        std::to_string(share));
    if (sharing.context % sharing.qp != 0 || sharing.cq % sharing.qp != 0)
        throw std::invalid_argument(
            "threads that share a queue pair share its context and its completion queue");
    const std::uint32_t most = std::max(question.post_list, question.signal_every);
    if (question.post_list == 0 || question.signal_every == 0 || most > question.depth)
        throw std::invalid_argument("lists and signaling periods are from 1 to the depth (" +
                                    std::to_string(question.depth) + ")");
    if (most % std::min(question.post_list, question.signal_every) != 0)
        throw std::invalid_argument(
            "of the list and the signaling period one has to be a multiple of the other");
}

}  // namespace

std::vector<std::string> extrapolations(std::uint64_t threads, std::uint64_t bytes,
                                        const MachineFile& file) {
    std::vector<std::string> all;
    if (threads > file.threads)
        all.push_back(std::to_string(threads) + " threads: the model was fitted with at most " +
                      std::to_string(file.threads));
    if (bytes > file.bytes)
        all.push_back("messages of " + std::to_string(bytes) +
                      " bytes: the model was fitted with at most " + std::to_string(file.bytes) +
                      ", and has no cost for a byte");
    if (file.intervals.empty()) all.emplace_back("this machine file was never validated");
    return all;
}

void apply_kernel(std::string_view kernel, Question& question) {
    HEDDLE_ASSERT(std::ranges::find(kKernels, kernel) != kKernels.end(), "a kernel has a name");
    if (kernel == "message-rate") return;
    question.post_list = question.signal_every = 1;
    if (kernel == "global-array") return;
    question.layout.qps_per_thread = 2;
    question.rows = std::max<std::uint32_t>(1, kStencilRows / question.layout.threads);
}

Workload workload_of(const Question& question, const Machine& machine) {
    check(question);
    Workload work;
    work.post_list = question.post_list;
    work.signal_every = question.signal_every;
    work.depth = question.depth;
    work.inlined = question.inlined;
    work.rows = question.rows;
    work.threads = place(machine, question.layout);
    if (work.rows != 0) work.message_extra = machine.kernel_message;
    return work;
}

Answer predict(const Question& question, const MachineFile& file) {
    const Workload work = workload_of(question, file.machine);
    const Simulated simulated = simulate(work, file.machine);
    Answer answer;
    answer.per_microsecond = simulated.per_microsecond;
    answer.limit = simulated.busiest();
    answer.limit_share = simulated.used(answer.limit);
    answer.counts = simulated.counts;
    answer.warnings = extrapolations(
        std::uint64_t{question.layout.threads} * question.layout.processes, question.bytes, file);
    if (const MachineFile::Interval* interval = interval_for(file, work)) {
        answer.low = simulated.per_microsecond * interval->low;
        answer.high = simulated.per_microsecond * interval->high;
    }
    return answer;
}

}  // namespace heddle::predict

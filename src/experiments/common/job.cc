// SPDX-License-Identifier: BSD-2-Clause
// Processes that meet in a directory. Each writes files and reads those of the others; a file is
// there as a whole or not at all, because it is renamed into place.
//
// A directory may hold files of a job that died. So rank 0 chooses a random token, without which no
// file is looked at, and gives it to those it has seen: each other process writes a random number
// (hello.RANK), rank 0 answers with the token and the numbers it has read (job), and a process that
// finds its own number there acknowledges (ack.TOKEN.RANK). A stale hello is replaced when its
// process comes, and rank 0 answers anew until all have acknowledged.
#include "experiments/common/job.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <random>
#include <sstream>
#include <thread>

#include "heddle/detail/assert.h"

namespace heddle::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::optional<std::uint32_t> number(const char* name) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') return std::nullopt;
    char* end = nullptr;
    const unsigned long value = std::strtoul(text, &end, 10);
    if (*end != '\0' || value > 1u << 20) return std::nullopt;
    return static_cast<std::uint32_t>(value);
}

std::string random_number() {
    std::random_device random;
    std::ostringstream text;
    text << std::hex << std::setfill('0') << std::setw(8) << random() << std::setw(8) << random();
    return text.str();
}

std::optional<std::string> contents(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return std::nullopt;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

class MeetingTeam final : public Team {
public:
    MeetingTeam(fs::path directory, const Job& job, Seconds patience)
        : Team(job.rank, job.size, patience), directory_(std::move(directory)) {
        rank() == 0 ? invite() : join();
        all_gather("here");
    }
    ~MeetingTeam() override {
        std::error_code ignored;
        if (uncaught_ < std::uncaught_exceptions()) {
            try {
                write("failed." + token_, std::to_string(rank()));
            } catch (const TeamError&) {
            }
            return;
        }
        // Everybody has read all but what was written last; rank 0 waits for that, too.
        if (rank() != 0) {
            const std::ofstream mark(directory_ / name(step_, rank()));
            return;
        }
        const auto end = Clock::now() + std::chrono::seconds(5);
        for (std::uint32_t r = 1; r < size(); ++r)
            while (!fs::exists(directory_ / name(step_, r), ignored) && Clock::now() < end)
                nap();
        for (const auto& entry : fs::directory_iterator(directory_, ignored)) {
            const std::string file = entry.path().filename().string();
            if (file.find(token_) != std::string::npos || file.starts_with("hello.") ||
                file == "job")
                fs::remove(entry.path(), ignored);
        }
        fs::remove(directory_, ignored);  // if it is empty
    }

    std::vector<std::string> all_gather(const std::string& mine) override {
        HEDDLE_ASSERT(size() == 1 || !token_.empty(), "the processes have met");
        write(name(step_, rank()), mine);
        std::vector<std::string> all(size());
        const auto end = deadline();
        for (std::uint32_t r = 0; r < size(); ++r) {
            std::optional<std::string> read;
            while (!(read = contents(directory_ / name(step_, r))))
                wait(end, r);
            all[r] = std::move(*read);
        }
        ++step_;
        return all;
    }

    void check() override {
        if (const auto who = contents(directory_ / ("failed." + token_)))
            throw TeamError("process " + *who + " failed");
    }

private:
    std::string name(std::uint64_t step, std::uint32_t rank) const {
        return std::to_string(step) + "." + token_ + "." + std::to_string(rank);
    }
    static void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
    Clock::time_point deadline() const {
        return Clock::now() + std::chrono::duration_cast<Clock::duration>(patience());
    }
    void wait(Clock::time_point end, std::uint32_t who) {
        if (!token_.empty()) check();
        if (Clock::now() > end)
            throw TeamError("process " + std::to_string(who) + " of " + std::to_string(size()) +
                            " did not come to " + directory_.string() +
                            " in time (is the directory, given by --exchange, seen by all?)");
        nap();
    }

    void write(const std::string& file, const std::string& bytes) {
        const fs::path at = directory_ / file;
        fs::path part = at;
        part += ".part" + std::to_string(rank());
        std::ofstream out(part, std::ios::binary);
        out << bytes;
        out.close();
        std::error_code error;
        if (out) fs::rename(part, at, error);
        if (!out || error) throw TeamError("cannot write " + at.string());
    }

    void invite() {
        HEDDLE_ASSERT(rank() == 0 && token_.empty(), "rank 0 chooses the token, once");
        const std::string token = random_number();
        std::string answered;
        const auto end = deadline();
        for (std::uint32_t r = 1; r < size();) {
            std::string answer = token;
            for (std::uint32_t other = 1; other < size(); ++other)
                answer +=
                    " " + contents(directory_ / ("hello." + std::to_string(other))).value_or("-");
            if (answer != answered) write("job", answered = answer);
            token_ = token;
            while (r < size() &&
                   fs::exists(directory_ / ("ack." + token + "." + std::to_string(r))))
                ++r;
            if (r < size()) wait(end, r);
        }
    }
    void join() {
        HEDDLE_ASSERT(rank() != 0, "rank 0 invites the others");
        const std::string mine = random_number();
        write("hello." + std::to_string(rank()), mine);
        const auto end = deadline();
        for (;;) {
            const std::string answer = contents(directory_ / "job").value_or("");
            if (answer.find(" " + mine) != std::string::npos) {
                token_ = answer.substr(0, answer.find(' '));
                write("ack." + token_ + "." + std::to_string(rank()), {});
                return;
            }
            wait(end, 0);
        }
    }

    fs::path directory_;
    std::string token_;
    std::uint64_t step_ = 0;
    int uncaught_ = std::uncaught_exceptions();
};

}  // namespace

std::optional<Job> job_of_environment() {
    constexpr std::pair<const char*, const char*> kNames[] = {
        {"PMI_RANK", "PMI_SIZE"},
        {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
        {"PMIX_RANK", "SLURM_NTASKS"}};
    for (const auto& [rank, size] : kNames) {
        const auto r = number(rank), s = number(size);
        if (!r || !s || *s < 2 || *r >= *s) continue;
        Job job{*r, *s, {}};
        for (const char* id : {"PMIX_NAMESPACE", "PMI_JOBID", "SLURM_JOB_ID"})
            if (const char* text = std::getenv(id); text != nullptr && job.id.empty())
                job.id = text;
        if (const char* step = std::getenv("SLURM_STEP_ID"); step != nullptr && !job.id.empty())
            job.id += std::string(".") + step;
        // Hydra names no job, but all its processes on a machine have one parent.
        if (job.id.empty()) job.id = "parent-" + std::to_string(::getppid());
        for (char& c : job.id)
            if (c == '/') c = '-';
        HEDDLE_ASSERT(job.rank < job.size && job.size > 1, "a job has more than one process");
        HEDDLE_ASSERT(!job.id.empty() && job.id.find('/') == std::string::npos,
                      "the id is part of a file's name");
        return job;
    }
    return std::nullopt;
}

std::string default_exchange(const Job& job) {
    const char* base = std::getenv("TMPDIR");
    const std::string directory = std::string(base != nullptr && *base != '\0' ? base : "/tmp") +
                                  "/heddle-" + std::to_string(::getuid()) + "-" + job.id;
    ::mkdir(directory.c_str(), 0700);
    struct stat found {};
    // Others may write into /tmp: the directory must be ours, and no link to one.
    if (::lstat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode) ||
        found.st_uid != ::getuid() || (found.st_mode & 077) != 0)
        throw TeamError(directory + " is not a directory of this user alone; use --exchange");
    return directory;
}

std::unique_ptr<Team> meet_in(const std::string& directory, const Job& job, Seconds patience) {
    std::error_code ignored;
    fs::create_directories(directory, ignored);
    return std::make_unique<MeetingTeam>(directory, job, patience);
}

}  // namespace heddle::bench

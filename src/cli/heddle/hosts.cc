// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "cli/common/program.h"
#include "cli/heddle/launcher.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

[[noreturn]] void refuse_hosts(const std::string& why) {
    throw cli_common::ProgramError(cli_common::kRunFailed, why);
}

// What a shell or ssh would read as something else is no host: "-oProxyCommand=...", "a;b".
void add_host(std::vector<std::string>& names, std::string_view word, const std::string& where) {
    const std::string name(word.substr(0, word.find(':')));
    const auto allowed = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == '@';
    };
    if (name.empty() || name.front() == '-' || !std::ranges::all_of(name, allowed))
        refuse_hosts(where + ": '" + std::string(word) + "' is not the name of a host");
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
}

std::string short_name(const std::string& host) { return host.substr(0, host.find('.')); }

}  // namespace

bool HostList::is_remote() const {
    return names.size() > 1 || (names.size() == 1 && !is_this_host(names.front()));
}

std::vector<std::string> split_hosts(const std::string& list) {
    std::vector<std::string> names;
    std::istringstream words(list);
    for (std::string word; std::getline(words, word, ',');)
        add_host(names, word, "-hosts");
    if (names.empty()) refuse_hosts("-hosts: no host is named");
    return names;
}

std::vector<std::string> read_hostfile(const std::string& file) {
    std::ifstream lines(file);
    if (!lines) refuse_hosts(file + ": " + std::strerror(errno));
    std::vector<std::string> names;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        if (std::string name; words >> name) add_host(names, name, file);
    }
    if (names.empty()) refuse_hosts(file + " names no host");
    return names;
}

std::optional<HostList> allocated_hosts() {
    if (const char* list = std::getenv("SLURM_JOB_NODELIST");
        list != nullptr && std::getenv("SLURM_JOB_ID") != nullptr) {
        HostList hosts{{}, HostSource::kSlurm, "Slurm"};
        std::istringstream lines(output_of({"scontrol", "show", "hostnames", list}));
        for (std::string name; std::getline(lines, name);)
            add_host(hosts.names, name, "scontrol");
        if (hosts.names.empty())
            refuse_hosts(std::string("SLURM_JOB_NODELIST is ") + list +
                         ", and scontrol show hostnames does not expand it");
        return hosts;
    }
    if (const char* file = std::getenv("PBS_NODEFILE"); file != nullptr && file[0] != '\0')
        return HostList{read_hostfile(file), HostSource::kPbs, "PBS"};
    return std::nullopt;
}

std::optional<HostList> chosen_hosts(const std::string& list, const std::string& file) {
    if (!list.empty()) return HostList{split_hosts(list), HostSource::kOption, "-hosts"};
    if (!file.empty()) return HostList{read_hostfile(file), HostSource::kOption, file};
    return allocated_hosts();
}

bool is_this_host(const std::string& name) {
    char own[256] = "";
    ::gethostname(own, sizeof own - 1);
    HEDDLE_ASSERT(!name.empty());
    return name == "localhost" || name == own || short_name(name) == short_name(own);
}

}  // namespace heddle::cli

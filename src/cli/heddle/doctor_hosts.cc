// SPDX-License-Identifier: BSD-2-Clause
#include "cli/heddle/doctor_hosts.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <map>

#include "cli/common/text.h"
#include "cli/heddle/launcher.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string text_at(const Json& report, const char* key) {
    const auto found = report.find(key);
    if (found == report.end() || found->is_null()) return {};
    return found->is_string() ? found->get<std::string>() : found->dump();
}

std::vector<std::string> agent_words(const HostsRequest& request) {
    const DoctorRequest& doctor = request.doctor;
    std::vector<std::string> words{own_path().string(), "doctor", "--agent"};
    words.insert(words.end(), {"--of-hosts", std::to_string(request.hosts.names.size())});
    if (doctor.ranks != 0) words.insert(words.end(), {"--ranks", std::to_string(doctor.ranks)});
    words.insert(words.end(), {"--threads", std::to_string(doctor.threads)});
    words.insert(words.end(), {"--libfabric", doctor.libfabric});
    if (!doctor.device.empty()) words.insert(words.end(), {"--device", doctor.device});
    return words;
}

// Rounds in which each host has one partner at most, so that all pairs of a round work at once
// (round-robin tournament, circle method).
std::vector<std::vector<std::pair<std::size_t, std::size_t>>> rounds_of(std::size_t hosts) {
    std::vector<std::vector<std::pair<std::size_t, std::size_t>>> rounds;
    const std::size_t places = hosts + hosts % 2;
    for (std::size_t round = 0; round + 1 < places; ++round) {
        rounds.emplace_back();
        for (std::size_t i = 0; i < places / 2; ++i) {
            const auto at = [&](std::size_t place) {
                return place == 0 ? 0 : (place - 1 + round) % (places - 1) + 1;
            };
            const std::size_t a = at(i), b = at(places - 1 - i);
            if (a < hosts && b < hosts) rounds.back().emplace_back(std::min(a, b), std::max(a, b));
        }
    }
    return rounds;
}

constexpr const char* kPairRemedy =
    "both ports must be on one fabric: the same subnet manager, or for RoCE one VLAN or routed "
    "subnets without a filter of UDP port 4791. Compare ibv_devinfo -v on both; ibv_rc_pingpong "
    "tries the pair without heddle";

}  // namespace

std::string HostsCheckup::Host::address() const { return text_at(report, "address"); }

HostsCheckup::HostsCheckup(const HostsRequest& request) : request_(request) {
    HEDDLE_ASSERT(!request_.hosts.names.empty());
    const RemoteShell shell = remote_shell(request_.ssh, request_.hosts.source, request_.timeout_s);
    const std::vector<std::string> words = agent_words(request_);
    for (const std::string& name : request_.hosts.names)
        hosts_.push_back({HostAgent(shell, name, words), nullptr, ""});
    const auto until = HostAgent::Clock::now() + std::chrono::seconds(request_.timeout_s);
    for (Host& host : hosts_) {
        const auto line = host.agent.read(until);
        if (line && line->is_object() && line->contains("checks")) {
            host.report = *line;
            problems_ += line->value("problems", 1u) != 0;
        } else {
            host.why = host.agent.why().empty() ? "its answer is not understood" : host.agent.why();
            ++problems_;
        }
    }
    compare_hosts();
}

void HostsCheckup::compare(const char* key, const char* what, Severity verdict,
                           const char* remedy) {
    std::map<std::string, std::string> hosts_by_value;
    for (const Host& host : hosts_) {
        const std::string value = host.report.is_null() ? "" : text_at(host.report, key);
        if (value.empty()) continue;
        std::string& names = hosts_by_value[value];
        names += (names.empty() ? "" : ", ") + host.agent.host();
    }
    if (hosts_by_value.size() < 2) return;
    std::string seen = std::string(what) + " differs: ";
    for (const auto& [value, names] : hosts_by_value) {
        if (seen.back() != ' ') seen += "; ";
        seen += value + " on ";
        seen += names;
    }
    findings_.push_back({verdict, seen, remedy});
    problems_ += verdict == Severity::kProblem;
}

void HostsCheckup::compare_hosts() {
    compare("heddle", "the version of heddle", Severity::kProblem,
            "install one version on all hosts");
    compare("transport", "the link layer", Severity::kProblem,
            "name ports of one kind in FI_HEDDLE_DEVICE: InfiniBand and RoCE do not reach each "
            "other");
    compare("gid_type", "the type of the GID", Severity::kProblem,
            "RoCE v1 and v2 do not reach each other: give all ports IPv4 addresses, and unset "
            "FI_HEDDLE_GID_INDEX");
    compare("pkey", "the partition", Severity::kProblem,
            "FI_HEDDLE_PKEY names one that all ports are in");
    compare("libfabric", "the version of libfabric", Severity::kNote,
            "an MPI that brings its own libfabric has one version on all hosts");
    compare("mtu", "the MTU", Severity::kNote, "connections take the smaller one");
    const bool software = std::ranges::any_of(hosts_, [](const Host& host) {
        return !host.report.is_null() && host.report.value("software", false);
    });
    if (software)
        compare("boot", "the machine behind softhca", Severity::kProblem,
                "softhca has no network between machines: run the job on one of them, or on hosts "
                "that all have adapters");
}

bool HostsCheckup::any_without_device() const {
    return std::ranges::any_of(hosts_, [](const Host& host) {
        return !host.report.is_null() && host.report["device"].is_null();
    });
}

void HostsCheckup::try_pairs() {
    ::signal(SIGPIPE, SIG_IGN);  // an agent that has ended is noticed by write()
    Json addresses = Json::array();
    for (const Host& host : hosts_)
        addresses.push_back(host.address());
    for (std::size_t i = 0; i < hosts_.size(); ++i)
        if (!hosts_[i].address().empty()) {
            Json others = addresses;
            others[i] = "";
            hosts_[i].agent.write({{"peers", others}});
        }
    for (const auto& round : rounds_of(hosts_.size()))
        try_round(round);
}

void HostsCheckup::try_round(const std::vector<std::pair<std::size_t, std::size_t>>& round) {
    std::vector<Pair*> current;
    pairs_.reserve(hosts_.size() * hosts_.size() / 2);
    for (const auto& [a, b] : round) {
        pairs_.emplace_back();
        Pair& pair = pairs_.back();
        pair.a = a;
        pair.b = b;
        pair.is_tried = !hosts_[a].address().empty() && !hosts_[b].address().empty();
        if (!pair.is_tried) continue;
        // The second host serves, so it gets its command first.
        const Json job{{"tag", pairs_.size()}, {"seconds", request_.timeout_s}};
        Json serve = job, ask = job;
        serve["serve"] = a;
        ask["ask"] = b;
        if (hosts_[b].agent.write(serve) && hosts_[a].agent.write(ask))
            current.push_back(&pair);
        else
            pair.error = "one of them has ended";
    }
    constexpr unsigned kSlack = 5;
    const auto until = HostAgent::Clock::now() + std::chrono::seconds(request_.timeout_s + kSlack);
    for (Pair* pair : current)
        for (const std::size_t each : {pair->a, pair->b}) {
            HostAgent& agent = hosts_[each].agent;
            const auto answer = agent.read(until);
            if (!answer) {
                pair->error = agent.host() + ": " + agent.why();
                hosts_[each].report["address"] = nullptr;  // it is asked no more
            } else if (answer->contains("error") && pair->error.empty()) {
                pair->error = agent.host() + ": " + text_at(*answer, "error");
            } else if (each == pair->a) {
                pair->small_us = answer->value("small_us", 0.0);
                pair->large_us = answer->value("large_us", 0.0);
            }
        }
    for (const Pair* pair : current)
        problems_ += !pair->error.empty();
}

std::string HostsCheckup::host_lines() const {
    std::size_t width = 0;
    for (const Host& host : hosts_)
        width = std::max(width, host.agent.host().size());
    std::string text;
    for (const Host& host : hosts_) {
        std::string name = host.agent.host();
        name.resize(width + 2, ' ');
        text += name;
        if (host.report.is_null()) {
            text += "no answer: " + cli_common::printable(host.why, 300) + "\n";
            text += cli_common::wrapped(
                "-> heddle must be there at " + own_path().string() +
                    ", and ssh must reach the host without a password (--ssh names another "
                    "command)",
                width + 2);
            continue;
        }
        const auto fact = [&](const char* key, const std::string& before) {
            const std::string value = text_at(host.report, key);
            return value.empty() ? "" : before + cli_common::printable(value, 80);
        };
        text += "heddle" + fact("heddle", " ") + fact("libfabric", ", libfabric ");
        text += host.report["device"].is_null()
                    ? ", no device"
                    : fact("device", ", ") + fact("state", " ") +
                          (host.report.value("software", false) ? " (software HCA)" : "") +
                          fact("transport", ", ") + fact("gid_type", ", GID ") +
                          fact("mtu", ", MTU ");
        const unsigned count = host.report.value("problems", 0u);
        if (count != 0)
            text += ", " + std::to_string(count) + (count == 1 ? " problem" : " problems");
        text += "\n";
        for (const Json& check : host.report["checks"])
            if (text_at(check, "verdict") == text_of(Severity::kProblem))
                text +=
                    std::string(width + 2, ' ') + text_at(check, "name") + ": " +
                    cli_common::printable(text_at(check, "seen"), 300) + "\n" +
                    cli_common::wrapped(
                        "-> " + cli_common::printable(text_at(check, "remedy"), 500), width + 4);
    }
    return text;
}

std::string HostsCheckup::other_lines() const {
    std::string text;
    for (const HostsFinding& each : findings_)
        text += std::string(text_of(each.verdict)) + ": " + cli_common::printable(each.seen, 500) +
                "\n" + cli_common::wrapped("-> " + each.remedy, 4);
    std::size_t fine = 0, untried = 0;
    const Pair* slowest = nullptr;
    for (const Pair& each : pairs_) {
        if (!each.is_tried) {
            ++untried;
        } else if (each.error.empty()) {
            ++fine;
            if (slowest == nullptr || each.small_us > slowest->small_us) slowest = &each;
        } else {
            text += "PROBLEM: " + hosts_[each.a].agent.host() + " - " +
                    hosts_[each.b].agent.host() + ": " + cli_common::printable(each.error, 300) +
                    "\n";
        }
    }
    if (fine + untried != pairs_.size())
        text += cli_common::wrapped(std::string("-> ") + kPairRemedy, 4);
    if (pairs_.empty()) return text;
    text += std::to_string(fine) + " of " + std::to_string(pairs_.size()) +
            " pairs exchange 8 bytes and 1 MiB";
    if (slowest != nullptr) {
        char times[160];
        std::snprintf(times, sizeof times, "; the slowest, there and back: %.1f us and %.0f us (",
                      slowest->small_us, slowest->large_us);
        text +=
            times + hosts_[slowest->a].agent.host() + " - " + hosts_[slowest->b].agent.host() + ")";
    }
    if (untried != 0)
        text += "; " + std::to_string(untried) + " not tried, as a host of them has no endpoint";
    return text + "\n";
}

nlohmann::ordered_json HostsCheckup::to_json() const {
    Json all{{"problems", problems_},
             {"hosts", Json::array()},
             {"comparisons", Json::array()},
             {"pairs", Json::array()}};
    for (const Host& host : hosts_)
        all["hosts"].push_back({{"host", host.agent.host()},
                                {"answer", host.report.is_null() ? Json(nullptr) : host.report},
                                {"why", host.why}});
    for (const HostsFinding& each : findings_)
        all["comparisons"].push_back(
            {{"verdict", text_of(each.verdict)}, {"seen", each.seen}, {"remedy", each.remedy}});
    for (const Pair& each : pairs_)
        all["pairs"].push_back({{"a", hosts_[each.a].agent.host()},
                                {"b", hosts_[each.b].agent.host()},
                                {"tried", each.is_tried},
                                {"error", each.error},
                                {"remedy", each.error.empty() ? "" : kPairRemedy},
                                {"small_us", each.small_us},
                                {"large_us", each.large_us}});
    return all;
}

void print_for_launcher(const Json& line) {
    std::printf("%s%s\n", kAgentMark, line.dump().c_str());
    std::fflush(stdout);
}

// What arrives is the launching process's, by ssh: a wrong line is an error, not an assertion.
int serve_pairs(FabricProbe* probe) {
    for (std::string text; std::getline(std::cin, text);) {
        const Json line = Json::parse(text, nullptr, false);
        try {
            if (line.is_discarded() || !line.is_object() || probe == nullptr)
                throw ProbeError("a command is not understood");
            if (line.contains("peers")) {
                probe->take_peers(line["peers"].get<std::vector<std::string>>());
                continue;
            }
            const std::uint64_t tag = line.value("tag", std::uint64_t{1});
            const double seconds = line.value("seconds", 10.0);
            if (line.contains("serve")) {
                probe->serve(line["serve"].get<std::size_t>(), tag, seconds);
                print_for_launcher({{"served", tag}});
            } else {
                const FabricProbe::Times times =
                    probe->ask(line.at("ask").get<std::size_t>(), tag, seconds);
                print_for_launcher(
                    {{"asked", tag}, {"small_us", times.small_us}, {"large_us", times.large_us}});
            }
        } catch (const std::exception& error) {
            print_for_launcher({{"error", error.what()}});
        }
    }
    return 0;
}

}  // namespace heddle::cli

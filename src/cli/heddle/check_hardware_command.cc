// SPDX-License-Identifier: BSD-2-Clause
// heddle check-hardware: asks an adapter for all that heddle takes for granted, and writes one file
// that tells the project what was found.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>

#include "cli/common/text.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/hardware_check.h"
#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "verbs/open_device.h"

namespace heddle::cli {
namespace {

using Json = nlohmann::ordered_json;

struct CheckRequest {
    std::string device, out;
    std::vector<std::string> only;
    bool json = false, list = false;
};

std::string now() {
    const std::time_t time = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&time, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

Finding run(const HardwareCheck& check, CheckedDevice& device) {
    try {
        Finding finding = check.run(device);
        HEDDLE_ASSERT(!finding.seen.empty() && !finding.meaning.empty(),
                      "a finding says something");
        return finding;
    } catch (const std::exception& error) {
        Finding finding;
        finding.answer = Answer::kNotAsked;
        finding.seen = error.what();
        finding.meaning = "Nothing is known of this.";
        return finding;
    }
}

int check_hardware(const CheckRequest& request) {
    if (request.list) {
        for (const HardwareCheck& check : hardware_checks())
            std::printf("%-14s %s\n", check.name, check.question);
        return 0;
    }
    CheckedDevice device(request.device);
    std::vector<const HardwareCheck*> wanted;
    for (const HardwareCheck& check : hardware_checks())
        if (request.only.empty() ||
            std::find(request.only.begin(), request.only.end(), check.name) != request.only.end())
            wanted.push_back(&check);
    Json all = {{"heddle", HEDDLE_VERSION},
                {"device", device.info.name},
                {"software", device.info.software},
                {"time", now()},
                {"checks", Json::array()}};
    unsigned counts[3] = {};
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        const HardwareCheck& check = *wanted[i];
        std::fprintf(stderr, "[%zu/%zu] %s: %s\n", i + 1, wanted.size(), check.name,
                     check.question);
        const Finding finding = run(check, device);
        ++counts[static_cast<std::size_t>(finding.answer)];
        all["checks"].push_back({{"name", check.name},
                                 {"question", check.question},
                                 {"verdict", text_of(finding.answer)},
                                 {"seen", finding.seen},
                                 {"meaning", finding.meaning},
                                 {"details", finding.details}});
    }
    HEDDLE_ASSERT(counts[0] + counts[1] + counts[2] == wanted.size(), "each check has an answer");
    for (const Answer answer : {Answer::kAsExpected, Answer::kDiffers, Answer::kNotAsked})
        all["counts"][text_of(answer)] = counts[static_cast<std::size_t>(answer)];

    const std::string text = all.dump(2) + "\n";
    const std::string file =
        request.out.empty() ? "heddle-hardware-" + device.info.name + ".json" : request.out;
    std::ofstream stream(file);
    stream << text;
    stream.close();
    if (!stream) {
        std::fprintf(stderr, "heddle check-hardware: %s could not be written: %s\n", file.c_str(),
                     std::strerror(errno));
        return kFailed;
    }
    if (request.json) {
        std::fputs(text.c_str(), stdout);
        return 0;
    }
    for (const Json& check : all["checks"])
        std::printf("%s: %s\n  %s\n%s", check["name"].get<std::string>().c_str(),
                    check["verdict"].get<std::string>().c_str(),
                    check["seen"].get<std::string>().c_str(),
                    cli_common::wrapped(check["meaning"].get<std::string>(), 2).c_str());
    std::printf("\n%u as expected, %u differ, %u could not be asked. All of it: %s\n", counts[0],
                counts[1], counts[2], file.c_str());
    return 0;
}

}  // namespace

CheckedDevice::CheckedDevice(const std::string& name)
    : info(heddle::device(name)),
      context_(verbs::open_device(port_name(info)).context),
      pd_(ibv_alloc_pd(context_.get())),
      memory_(kBytes) {
    if (!pd_) throw VerbsError("a protection domain", errno);
    mr_.reset(ibv_reg_mr(pd_.get(), memory_.data(), memory_.size(),
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                             (info.atomics ? IBV_ACCESS_REMOTE_ATOMIC : 0)));
    if (!mr_) throw VerbsError("registering memory", errno);
}

void add_check_hardware_command(CLI::App& app, int* status) {
    CLI::App* command = app.add_subcommand(
        "check-hardware", "Ask an adapter for what heddle takes for granted; a file to send in");
    auto request = std::make_shared<CheckRequest>();
    command->add_option("--device", request->device, "which (default: the first that is active)");
    command->add_option("--out", request->out,
                        "the file to write (default: heddle-hardware-DEVICE.json)");
    std::vector<std::string> names;
    for (const HardwareCheck& check : hardware_checks()) {
        HEDDLE_ASSERT(std::find(names.begin(), names.end(), check.name) == names.end(),
                      "--only tells checks apart by their names");
        names.emplace_back(check.name);
    }
    command->add_option("--only", request->only, "a check; more than once: several")
        ->check(CLI::IsMember(names))
        ->take_all();
    command->add_flag("--list", request->list, "the checks, without asking");
    command->add_flag("--json", request->json, "as JSON");
    command->callback([request, status] { *status = check_hardware(*request); });
}

}  // namespace heddle::cli

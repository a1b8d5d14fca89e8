// SPDX-License-Identifier: BSD-2-Clause
// `softhca top`: the rates of a fabric's counters, live.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "cli/common/screen.h"
#include "cli/softhca/commands.h"
#include "cli/softhca/stat_view.h"
#include "softhca/base/assert.h"

namespace softhca::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct TopArguments {
    std::string fabric;
    double interval = 1;
    bool once = false, json = false;
};

// The rates since `*before`, which becomes the present; nothing when the fabric has ended.
std::optional<Rates> measure(const std::string& name, view::Snapshot* before,
                             Clock::time_point* then) {
    const std::unique_ptr<view::FabricFile> fabric = view::FabricFile::open(name);
    if (!fabric || !fabric->segment()) return std::nullopt;
    view::Snapshot now = view::take_snapshot(*fabric, *fabric->segment());
    const Clock::time_point time = Clock::now();
    SOFTHCA_ASSERT(time >= *then && before->fabric == now.fabric, "both are of one fabric");
    Rates rates = rates_between(*before, now, std::chrono::duration<double>(time - *then).count());
    *before = std::move(now);
    *then = time;
    return rates;
}

void watch_screen(const std::string& name, Clock::duration interval) {
    SOFTHCA_ASSERT(interval > Clock::duration::zero(), "--interval has a least value");
    view::Snapshot before = view::take_snapshot(name);
    Clock::time_point then = Clock::now(),
                      next = then +
                             std::min<Clock::duration>(interval, std::chrono::milliseconds(200));
    Rates rates = rates_between(before, before, 1);
    std::string note = "q quits";
    cli_common::Screen screen;
    for (;;) {
        const cli_common::Screen::Size size = screen.size();
        screen.draw(top_text(rates, size.columns, size.lines), note);
        switch (screen.wait(next)) {
            case cli_common::Screen::Event::kEnd:
                return;
            case cli_common::Screen::Event::kDraw:
            case cli_common::Screen::Event::kKey:
                continue;
            case cli_common::Screen::Event::kTime:
                break;
        }
        next = Clock::now() + interval;
        if (std::optional<Rates> measured = measure(name, &before, &then)) {
            rates = std::move(*measured);
            note = "q quits";
        } else {
            rates.processes.clear();
            rates.total = {};
            note = "the fabric has ended; waiting for the next process (q quits)";
        }
    }
}

void watch_lines(const std::string& name, Clock::duration interval, const TopArguments& arguments) {
    SOFTHCA_ASSERT(interval > Clock::duration::zero(), "--interval has a least value");
    view::Snapshot before = view::take_snapshot(name);
    Clock::time_point then = Clock::now();
    do {
        std::this_thread::sleep_for(interval);
        const std::optional<Rates> rates = measure(name, &before, &then);
        if (!rates) {
            std::fprintf(stderr, "softhca top: fabric %s has ended\n", name.c_str());
            return;
        }
        const std::string text =
            arguments.json ? top_json(*rates).dump() + "\n" : top_text(*rates, 200, 100000);
        if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return;
    } while (!arguments.once);
}

}  // namespace

void add_top_command(CLI::App& app, int* status) {
    auto arguments = std::make_shared<TopArguments>();
    CLI::App* top = app.add_subcommand("top", "show the rates of the counters, live");
    const CLI::Option* fabric = add_fabric_option(*top, &arguments->fabric);
    top->add_option("--interval", arguments->interval,
                    "time between two pictures, 0.1 to 3600 [default 1]")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.1, 3600.0).description(""));
    top->add_flag("--once", arguments->once, "one interval as plain text");
    top->add_flag("--json", arguments->json, "one line of JSON an interval");
    top->callback([arguments, fabric, status] {
        const std::string name = fabric_name(*fabric);
        const auto interval = std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(arguments->interval));
        if (!arguments->json && !arguments->once && !::isatty(STDOUT_FILENO))
            arguments->once = true;
        if (arguments->json || arguments->once)
            watch_lines(name, interval, *arguments);
        else
            watch_screen(name, interval);
        *status = kSuccess;
    });
}

}  // namespace softhca::cli

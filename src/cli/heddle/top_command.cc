// SPDX-License-Identifier: BSD-2-Clause
// `heddle top`: what running processes do, live.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "cli/common/screen.h"
#include "cli/heddle/commands.h"
#include "cli/heddle/top_view.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

using cli_common::Screen;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kLeastInterval = 0.2, kMostInterval = 3600;

struct Arguments {
    std::vector<int> pids;
    double interval = 1;
    bool once = false, json = false;
};

std::uint64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
           static_cast<std::uint64_t>(now.tv_nsec);
}

// What has changed since the last look.
class Watch {
public:
    explicit Watch(const std::vector<int>& pids)
        : pids_(pids), before_(running_processes(pids)), then_(Clock::now()) {}
    TopRates look() {
        Running now = running_processes(pids_);
        const Clock::time_point time = Clock::now();
        HEDDLE_ASSERT(time >= then_, "a steady clock does not go back");
        TopRates rates = rates_between(before_, now, Seconds(time - then_).count(), now_ns());
        before_ = std::move(now);
        then_ = time;
        return rates;
    }

private:
    const std::vector<int>& pids_;
    Running before_;
    Clock::time_point then_;
};

Clock::duration duration_of(double seconds) {
    HEDDLE_ASSERT(seconds > 0 && seconds <= kMostInterval, "an interval has bounds");
    return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

// What a key changes. False: it has no meaning.
bool press(int key, TopForm& form, std::size_t page, double& interval, bool& paused, bool& help) {
    switch (key) {
        case '1':
        case '2':
        case '3':
            form.view = static_cast<TopView>(key - '1');
            form.first = 0;
            break;
        case '\t':
            form.view = static_cast<TopView>((static_cast<int>(form.view) + 1) % kTopViews);
            form.first = 0;
            break;
        case 'e':
            form.by_process = !form.by_process;
            form.first = 0;
            break;
        case 's':
            form.busiest_first = !form.busiest_first;
            break;
        case 'p':
        case ' ':
            paused = !paused;
            break;
        case 'h':
        case '?':
            help = !help;
            return true;
        case '+':
            interval = std::min(interval * 2, kMostInterval);
            break;
        case '-':
            interval = std::max(interval / 2, kLeastInterval);
            break;
        case Screen::kUp:
            form.first -= std::min<std::size_t>(form.first, 1);
            break;
        case Screen::kDown:
            ++form.first;
            break;
        case Screen::kPageUp:
            form.first -= std::min(form.first, page);
            break;
        case Screen::kPageDown:
            form.first += page;
            break;
        case Screen::kHome:
            form.first = 0;
            break;
        case Screen::kEndKey:
            form.first = ~std::size_t{0} / 2;
            break;
        default:
            return false;
    }
    HEDDLE_ASSERT(static_cast<int>(form.view) >= 0 && static_cast<int>(form.view) < kTopViews);
    HEDDLE_ASSERT(interval >= kLeastInterval && interval <= kMostInterval);
    help = false;
    return true;
}

void watch_screen(const Arguments& arguments) {
    Watch watch(arguments.pids);
    double interval = arguments.interval;
    Clock::time_point next = Clock::now() + duration_of(std::min(interval, 0.5));
    TopRates rates = watch.look();
    TopForm form;
    bool paused = false, help = false;
    Screen screen;
    for (;;) {
        const Screen::Size size = screen.size();
        char note[120];
        std::snprintf(note, sizeof note, "%severy %g s   1 2 3 Tab  e  s  p  + -   h help   q quit",
                      paused ? "PAUSED   " : "", interval);
        screen.draw(help ? top_help() : top_text(rates, form, size.columns, size.lines), note);
        switch (screen.wait(paused ? Clock::now() + std::chrono::hours(1) : next)) {
            case Screen::Event::kEnd:
                return;
            case Screen::Event::kDraw:
                continue;
            case Screen::Event::kKey:
                press(screen.key(), form, top_rows(size.lines), interval, paused, help);
                next = std::min(next, Clock::now() + duration_of(interval));
                continue;
            case Screen::Event::kTime:
                break;
        }
        next = Clock::now() + duration_of(interval);
        if (!paused) rates = watch.look();
    }
}

// The exit status: whether the last look could be taken at any of the processes asked for.
int watch_lines(const Arguments& arguments) {
    int status = 0;
    Watch watch(arguments.pids);
    do {
        std::this_thread::sleep_for(duration_of(arguments.interval));
        const TopRates rates = watch.look();
        const bool nothing_to_see =
            rates.processes.empty() && rates.other_versions == 0 && !rates.absent.empty() &&
            std::none_of(rates.absent.begin(), rates.absent.end(),
                         [](const AbsentProcess& each) { return each.readable; });
        status = nothing_to_see ? kFailed : 0;
        std::string text;
        if (arguments.json) {
            text = top_json(rates).dump() + "\n";
        } else {
            TopForm form;
            for (int view = 0; view < kTopViews; ++view) {
                form.view = static_cast<TopView>(view);
                text += (view != 0 ? "\n" : "") + top_text(rates, form, 200, 100000);
                if (rates.processes.empty()) break;
            }
        }
        if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0) return status;
    } while (!arguments.once);
    return status;
}

}  // namespace

void add_top_command(CLI::App& app, int* status) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* top = app.add_subcommand("top", "What running programs do over heddle, live");
    top->footer("Keys:\n" + top_help());
    top->add_option("--pid", arguments->pids, "only of these processes (default: all of yours)")
        ->type_name("PID ...")
        ->check(CLI::PositiveNumber.description(""));
    top->add_option("--interval", arguments->interval,
                    "time between two pictures, 0.2 to 3600 [default 1]")
        ->type_name("SECONDS")
        ->check(CLI::Range(kLeastInterval, kMostInterval).description(""));
    top->add_flag("--once", arguments->once, "one interval, all tables, as plain text");
    top->add_flag("--json", arguments->json, "one line of JSON an interval");
    top->callback([arguments, status] {
        if (!arguments->json && !arguments->once && !::isatty(STDOUT_FILENO))
            arguments->once = true;
        *status = 0;
        if (arguments->json || arguments->once)
            *status = watch_lines(*arguments);
        else
            watch_screen(*arguments);
    });
}

}  // namespace heddle::cli

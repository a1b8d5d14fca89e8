// SPDX-License-Identifier: BSD-2-Clause
// `softhca top`: the rates of a fabric's counters, live. Plain ANSI control sequences (ECMA-48) and
// termios(3): nothing to install, works wherever a terminal does.
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <optional>
#include <thread>

#include "cli/commands.h"
#include "cli/stat_view.h"

namespace softhca::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
    std::string fabric;
    double interval = 1;
    bool once = false, json = false;
};

volatile std::sig_atomic_t g_stop = 0;
void stop(int) { g_stop = 1; }

// The alternate screen without echo or line editing, until the end of the scope.
class Screen {
public:
    Screen() {
        struct sigaction action {};
        action.sa_handler = stop;
        for (const int number : {SIGINT, SIGTERM, SIGHUP})
            ::sigaction(number, &action, nullptr);
        // A new size interrupts poll(), which is all that is wanted.
        action.sa_handler = [](int) {};
        ::sigaction(SIGWINCH, &action, nullptr);
        if (::tcgetattr(STDIN_FILENO, &before_) == 0) {
            termios keys = before_;
            keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
            restore_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
        }
        std::fputs("\x1b[?1049h\x1b[?25l", stdout);
    }
    ~Screen() {
        std::fputs("\x1b[?25h\x1b[?1049l", stdout);
        std::fflush(stdout);
        if (restore_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    }
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;

    void draw(const Rates& rates, const std::string& note) {
        winsize size{};
        if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
            size.ws_col = 80;
            size.ws_row = 24;
        }
        const std::string text = top_text(rates, size.ws_col, size.ws_row);
        // Home, each line with the rest of it cleared, then all below: no flicker.
        std::string out = "\x1b[H";
        for (const char c : text)
            out += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
        out += note.substr(0, size.ws_col) + "\x1b[K\x1b[J";
        std::fputs(out.c_str(), stdout);
        std::fflush(stdout);
    }

    // Waits until `time`, a new size (true: draw again) or a reason to end.
    enum class Event { kTime, kResize, kEnd };
    Event wait(Clock::time_point time) {
        const double left = std::chrono::duration<double, std::milli>(time - Clock::now()).count();
        pollfd input{STDIN_FILENO, POLLIN, 0};
        const int ready =
            ::poll(&input, listen_ ? 1 : 0, std::max(0, static_cast<int>(std::ceil(left))));
        if (g_stop) return Event::kEnd;
        if (ready < 0) return Event::kResize;
        if (ready == 0) return Event::kTime;
        char key = 0;
        if (::read(STDIN_FILENO, &key, 1) <= 0) listen_ = false;  // no more keys, but go on
        return key == 'q' || key == 'Q' || key == 4 ? Event::kEnd : Event::kResize;
    }

private:
    termios before_{};
    bool restore_ = false, listen_ = true;
};

// The rates since `*before`, which becomes the present; nothing when the fabric has ended.
std::optional<Rates> measure(const std::string& name, Snapshot* before, Clock::time_point* then) {
    const std::unique_ptr<FabricFile> fabric = FabricFile::open(name);
    if (!fabric || !fabric->segment()) return std::nullopt;
    Snapshot now = take_snapshot(*fabric, *fabric->segment());
    const Clock::time_point time = Clock::now();
    Rates rates = rates_between(*before, now, std::chrono::duration<double>(time - *then).count());
    *before = std::move(now);
    *then = time;
    return rates;
}

void watch_screen(const std::string& name, Clock::duration interval) {
    Snapshot before = take_snapshot(name);
    Clock::time_point then = Clock::now(),
                      next = then +
                             std::min<Clock::duration>(interval, std::chrono::milliseconds(200));
    Rates rates = rates_between(before, before, 1);
    std::string note = "q quits";
    Screen screen;
    for (;;) {
        screen.draw(rates, note);
        switch (screen.wait(next)) {
            case Screen::Event::kEnd:
                return;
            case Screen::Event::kResize:
                continue;
            case Screen::Event::kTime:
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

void watch_lines(const std::string& name, Clock::duration interval, const Arguments& arguments) {
    Snapshot before = take_snapshot(name);
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
    auto arguments = std::make_shared<Arguments>();
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

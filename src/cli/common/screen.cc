// SPDX-License-Identifier: BSD-2-Clause
#include "cli/common/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "heddle/detail/assert.h"

namespace cli_common {
namespace {

bool g_has_screen = false;
volatile std::sig_atomic_t g_stop = 0;
void stop(int) { g_stop = 1; }

// What terminals send for the keys that move (xterm's and the VT220's).
struct MovingKey {
    const char* bytes;
    int key;
};
constexpr MovingKey kMovingKeys[] = {
    {"\x1b[A", Screen::kUp},      {"\x1bOA", Screen::kUp},      {"\x1b[B", Screen::kDown},
    {"\x1bOB", Screen::kDown},    {"\x1b[5~", Screen::kPageUp}, {"\x1b[6~", Screen::kPageDown},
    {"\x1b[H", Screen::kHome},    {"\x1b[1~", Screen::kHome},   {"\x1b[F", Screen::kEndKey},
    {"\x1b[4~", Screen::kEndKey},
};

// The key at the front, taken off; 0: one that has no meaning.
int take_key(std::string& typed) {
    HEDDLE_ASSERT(!typed.empty(), "the caller has read what was typed");
    if (typed.front() != '\x1b') {
        const int key = static_cast<unsigned char>(typed.front());
        typed.erase(0, 1);
        return key;
    }
    for (const MovingKey& each : kMovingKeys)
        if (typed.starts_with(each.bytes)) {
            typed.erase(0, std::strlen(each.bytes));
            return each.key;
        }
    typed.clear();
    return 0;
}

}  // namespace

Screen::Screen() {
    HEDDLE_ASSERT(!g_has_screen, "two screens would restore each other's settings");
    g_has_screen = true;
    g_stop = 0;
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

Screen::~Screen() {
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
    if (restore_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    HEDDLE_ASSERT(g_has_screen);
    g_has_screen = false;
}

Screen::Size Screen::size() const {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
    return {size.ws_col, size.ws_row};
}

void Screen::draw(const std::string& text, const std::string& note) {
    HEDDLE_ASSERT(text.empty() || text.back() == '\n', "the note has a line of its own");
    HEDDLE_ASSERT(note.find('\n') == std::string::npos, "the note is one line");
    // Home, each line with the rest of it cleared, then all below: no flicker.
    std::string out = "\x1b[H";
    for (const char c : text)
        out += c == '\n' ? std::string("\x1b[K\n") : std::string(1, c);
    out += note.substr(0, size().columns) + "\x1b[K\x1b[J";
    std::fputs(out.c_str(), stdout);
    std::fflush(stdout);
}

Screen::Event Screen::wait(Clock::time_point time) {
    if (typed_.empty()) {
        const double left = std::chrono::duration<double, std::milli>(time - Clock::now()).count();
        pollfd input{STDIN_FILENO, POLLIN, 0};
        const int ready =
            ::poll(&input, listen_ ? 1 : 0, std::max(0, static_cast<int>(std::ceil(left))));
        if (g_stop) return Event::kEnd;
        if (ready < 0) return Event::kDraw;
        if (ready == 0) return Event::kTime;
        char bytes[64];
        const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
        if (count <= 0) {
            listen_ = false;  // no more keys, but go on
            return Event::kDraw;
        }
        typed_.assign(bytes, static_cast<std::size_t>(count));
    }
    key_ = take_key(typed_);
    if (key_ == 'q' || key_ == 'Q' || key_ == 4) return Event::kEnd;
    return key_ != 0 ? Event::kKey : Event::kDraw;
}

}  // namespace cli_common

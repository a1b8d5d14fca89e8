// SPDX-License-Identifier: BSD-2-Clause
// A picture that is drawn again and again, and the keys that are pressed meanwhile. Plain ANSI
// control sequences (ECMA-48) and termios(3): nothing to install, works wherever a terminal does.
#pragma once

#include <termios.h>

#include <chrono>
#include <cstddef>
#include <string>

namespace cli_common {

// The alternate screen without echo or line editing, until the end of the scope. One at a time.
class Screen {
public:
    using Clock = std::chrono::steady_clock;
    Screen();
    ~Screen();
    Screen(const Screen&) = delete;
    Screen& operator=(const Screen&) = delete;

    struct Size {
        std::size_t columns = 80, lines = 24;
    };
    Size size() const;
    // Lines, each ended, that fit the size; `note` is the last.
    void draw(const std::string& text, const std::string& note);

    // Waits until `time`; a key is pressed; another size, or a key that has no meaning here
    // (kDraw); or there is a reason to end: a signal, q, end of file (Ctrl-D).
    enum class Event { kTime, kDraw, kKey, kEnd };
    Event wait(Clock::time_point time);
    // The last kKey: a character, or one of these.
    enum Key : int { kUp = 256, kDown, kPageUp, kPageDown, kHome, kEndKey };
    int key() const { return key_; }

private:
    termios before_{};
    bool restore_ = false, listen_ = true;
    int key_ = 0;
    std::string typed_;  // and not yet dealt with
};

}  // namespace cli_common

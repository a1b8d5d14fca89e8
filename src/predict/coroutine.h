// SPDX-License-Identifier: BSD-2-Clause
// Coroutines of the simulator: a thread of the model is one, and may await parts of itself.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

#include "heddle/detail/assert.h"

namespace heddle::predict {

// Runs when a coroutine waits for it, and goes on with its caller when it ends. The outermost one
// of a thread is started by resume(), and never ends or is destroyed where it waits.
template <typename Result>
class [[nodiscard]] Part {
public:
    struct promise_type {  // NOLINT(readability-identifier-naming): the language's name
        std::optional<Result> result;
        std::coroutine_handle<> caller = std::noop_coroutine();

        Part get_return_object() {
            return Part(std::coroutine_handle<promise_type>::from_promise(*this));
        }
        std::suspend_always initial_suspend() noexcept { return {}; }
        auto final_suspend() noexcept {
            struct ToCaller {
                bool await_ready() noexcept { return false; }
                std::coroutine_handle<> await_suspend(
                    std::coroutine_handle<promise_type> ended) noexcept {
                    return ended.promise().caller;
                }
                void await_resume() noexcept {}
            };
            return ToCaller{};
        }
        void return_value(Result value) { result = std::move(value); }
        void unhandled_exception() { std::terminate(); }
    };

    Part(Part&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Part& operator=(Part&&) = delete;
    ~Part() {
        if (handle_) handle_.destroy();
    }

    void resume() { handle_.resume(); }

    bool await_ready() const noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller) noexcept {
        handle_.promise().caller = caller;
        return handle_;
    }
    Result await_resume() {
        HEDDLE_ASSERT(handle_.promise().result.has_value(), "a part goes on when it has ended");
        return std::move(*handle_.promise().result);
    }

private:
    explicit Part(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
    std::coroutine_handle<promise_type> handle_;
};

}  // namespace heddle::predict

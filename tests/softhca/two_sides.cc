// SPDX-License-Identifier: BSD-2-Clause
// The two sides of a test as threads or processes, and the socket between them: part of
// verbs_fixture.h. A child is forked before it opens the device.

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "verbs_fixture.h"

namespace softhca::test {

const char* name(Placement placement) {
    return placement == Placement::kThreads ? "Threads" : "Processes";
}

Channel::~Channel() {
    if (socket_ >= 0) close(socket_);
}

std::pair<Channel, Channel> Channel::make() {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
    return {Channel(ends[0]), Channel(ends[1])};
}

void Channel::send_bytes(const void* data, std::size_t size) {
    const auto* next = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t sent = ::send(socket_, next, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) fail("telling the other side of the test");
        next += sent;
        size -= static_cast<std::size_t>(sent);
    }
}

void Channel::receive_bytes(void* data, std::size_t size) {
    auto* next = static_cast<char*>(data);
    const auto end = Clock::now() + 2 * kDeadline;
    while (size > 0) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
        pollfd waiting = {socket_, POLLIN, 0};
        const int ready = left > 0 ? poll(&waiting, 1, static_cast<int>(left)) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready == 0) fail("waiting for the other side of the test", ETIMEDOUT);
        const ssize_t got = recv(socket_, next, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("hearing from the other side of the test");
        if (got == 0) fail("the other side of the test went away", EPIPE);
        next += got;
        size -= static_cast<std::size_t>(got);
    }
}

void Channel::meet() {
    send('m');
    if (receive<char>() != 'm') fail("the two sides of the test are out of step", EPROTO);
}

bool Channel::readable() const {
    pollfd waiting = {socket_, POLLIN, 0};
    return poll(&waiting, 1, 0) > 0;
}

bool Channel::closed_by_peer(Clock::duration time) {
    pollfd waiting = {socket_, POLLIN, 0};
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
    if (poll(&waiting, 1, static_cast<int>(ms)) <= 0) return false;
    char byte;
    return recv(socket_, &byte, 1, MSG_PEEK) <= 0;
}

namespace {

// Runs a side and turns what it throws into a failed check.
bool run_side(const char* which, const Side& side, Channel& channel) {
    try {
        side(channel);
        return true;
    } catch (const std::exception& error) {
        ADD_FAILURE() << which << " side: " << error.what();
        return false;
    }
}

}  // namespace

Child::Child(const std::function<void(Channel&)>& body) {
    auto [mine, its] = Channel::make();
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ < 0) fail("fork");
    if (pid_ == 0) {
        {
            const Channel closed = std::move(mine);
        }
        // Failures of the parent so far are not the child's.
        const auto* result = testing::UnitTest::GetInstance()->current_test_info()->result();
        const int before = result->total_part_count();
        run_side("child's", body, its);
        bool failed = false;
        for (int i = before; i < result->total_part_count(); ++i)
            failed = failed || result->GetTestPartResult(i).failed();
        std::fflush(nullptr);
        _exit(failed ? 1 : 0);
    }
    channel_.~Channel();
    new (&channel_) Channel(std::move(mine));
}

Child::~Child() {
    if (waited_ || pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
}

void Child::kill(int signal) const {
    if (::kill(pid_, signal) != 0) fail("kill");
}

bool Child::ended(Clock::duration time) {
    const auto end = Clock::now() + time;
    while (!waited_) {
        const pid_t done = waitpid(pid_, &status_, WNOHANG);
        if (done < 0 && errno != EINTR) fail("waitpid");
        waited_ = done == pid_;
        if (!waited_ && Clock::now() > end) return false;
        if (!waited_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

int Child::wait() {
    if (!ended(3 * kDeadline)) fail("the child process does not end", ETIMEDOUT);
    return status_;
}

void Child::expect_success() {
    const int status = wait();
    EXPECT_TRUE(WIFEXITED(status)) << "the child died of signal " << WTERMSIG(status);
    if (WIFEXITED(status)) {
        EXPECT_EQ(WEXITSTATUS(status), 0) << "checks failed in the child; see above";
    }
}

void run_sides(Placement placement, const Side& first, const Side& second) {
    if (placement == Placement::kProcesses) {
        Child child(second);
        // After a failure here the child would wait in vain: it is killed when `child` goes, unless
        // its own death is the cause.
        if (run_side("first", first, child.channel()) || child.ended(std::chrono::seconds(1)))
            child.expect_success();
        return;
    }
    auto ends = Channel::make();
    std::thread other([&] {
        Channel end = std::move(ends.second);
        run_side("second", second, end);
    });
    {
        Channel end = std::move(ends.first);
        run_side("first", first, end);
    }
    other.join();
}

void connect_over(Channel& channel, Endpoint& endpoint) {
    channel.send(endpoint.address());
    endpoint.connect(channel.receive<Address>());
    channel.meet();
}

void with_environment(const std::vector<std::pair<std::string, std::string>>& variables,
                      const std::function<void()>& body) {
    Child child([&](Channel&) {
        for (const auto& [key, value] : variables)
            setenv(key.c_str(), value.c_str(), 1);
        body();
    });
    child.expect_success();
}

}  // namespace softhca::test

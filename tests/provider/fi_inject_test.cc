// SPDX-License-Identifier: BSD-2-Clause
// Injected messages and writes of every size: the buffer is the program's again when the call
// returns.
#include <algorithm>
#include <cstdlib>

#include "tests/provider/fi_transfers.h"

namespace heddle::test {
namespace {

// How much shall go inline: also more than any device can take. What does not fit is copied.
class InlineSize : public testing::WithParamInterface<const char*> {
protected:
    InlineSize() { setenv("FI_HEDDLE_INLINE_SIZE", GetParam(), 1); }
};
class Injects : public InlineSize, public Memory {
protected:
    // Sizes around what devices can, and the ends.
    static constexpr std::size_t kSizes[] = {0, 1, 8, 60, 64, 128, 500, 900, 960, 1000, 1024};
    static std::vector<char> bytes_of(std::size_t size) {
        std::vector<char> bytes(size);
        for (std::size_t i = 0; i < size; ++i)
            bytes[i] = static_cast<char>(i * 7 + size);
        return bytes;
    }
};

TEST_P(Injects, MessagesOfEverySize) {
    for (const bool reported : {false, true}) {
        for (const std::size_t size : kSizes) {
            const std::vector<char> expected = bytes_of(size);
            std::vector<char> from = expected, to(1024);
            iovec piece{from.data(), size}, room{to.data(), to.size()};
            must([&] { return fi_trecv(b, to.data(), 1024, nullptr, pair.to_a, 5, 0, &room); });
            fi_msg_tagged message{};
            message.msg_iov = &piece;
            message.iov_count = 1;
            message.addr = pair.to_b;
            message.tag = 5;
            message.context = &context;
            if (reported)
                must([&] { return fi_tsendmsg(a, &message, FI_INJECT | FI_COMPLETION); });
            else
                must([&] { return fi_tinject(a, from.data(), size, pair.to_b, 5); });
            std::fill(from.begin(), from.end(), 'x');  // it is ours again
            entry = {};
            ASSERT_EQ(next(received, entry, sent), 0);
            ASSERT_EQ(entry.len, size);
            to.resize(size);
            EXPECT_EQ(to, expected) << size << " bytes";
            if (reported) {
                ASSERT_EQ(next(sent, entry, received), 0);
            }
        }
    }
}

TEST_P(Injects, WritesOfEverySize) {
    std::vector<char> into(1024);
    const auto own = opened<fid_mr>("fi_mr_reg", [&](fid_mr** out) {
        return fi_mr_reg(world.domain.get(), into.data(), into.size(), FI_REMOTE_WRITE, 0, 0, 0,
                         out, nullptr);
    });
    for (const std::size_t size : kSizes) {
        if (size == 0) continue;
        const std::vector<char> expected = bytes_of(size);
        std::vector<char> from = expected;
        must([&] {
            return fi_inject_write(a, from.data(), size, pair.to_b,
                                   reinterpret_cast<std::uintptr_t>(into.data()),
                                   fi_mr_key(own.get()));
        });
        std::fill(from.begin(), from.end(), 'x');
        // The last byte comes last.
        const volatile char* const last = into.data() + size - 1;
        const auto end = std::chrono::steady_clock::now() + kPatience;
        while (*last != expected.back() && std::chrono::steady_clock::now() < end) {
            fi_cq_read(sent, nullptr, 0);
            fi_cq_read(received, nullptr, 0);
        }
        EXPECT_EQ(std::memcmp(into.data(), expected.data(), size), 0) << size << " bytes";
        std::fill(into.begin(), into.end(), static_cast<char>(expected.back() + 1));
    }
}

INSTANTIATE_TEST_SUITE_P(Inline, Injects, testing::Values("0", "128", "1024"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace heddle::test

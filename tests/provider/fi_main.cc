// SPDX-License-Identifier: BSD-2-Clause
// libfabric reads its environment when it is first used: which provider, and from where, is set
// before the tests. The provider reads its options (FI_HEDDLE_*) then, too, and never again: a case
// that sets one needs a process of its own (EACH in tests/provider/CMakeLists.txt), or the cases
// after it would silently run with the options of the first.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <string>

namespace {

std::set<std::string> heddle_options() {
    std::set<std::string> options;
    for (char** each = environ; *each != nullptr; ++each)
        if (std::string entry = *each; entry.starts_with("FI_HEDDLE_"))
            options.insert(std::move(entry));
    return options;
}

// Fails where a case that sets options shares its process with another.
class OptionsGuard : public testing::EmptyTestEventListener {
public:
    void OnTestStart(const testing::TestInfo&) override {
        EXPECT_EQ(heddle_options(), at_start_)
            << "a case that ran in this process before has set these: it needs one of its own";
        ++cases_;
    }
    void OnTestEnd(const testing::TestInfo&) override {
        if (cases_ > 1) {
            EXPECT_EQ(heddle_options(), at_start_)
                << "the provider had read its options already: this case needs its own process";
        }
    }

private:
    const std::set<std::string> at_start_ = heddle_options();
    int cases_ = 0;
};

const bool environment = [] {
    setenv("FI_PROVIDER", "heddle", 1);
    setenv("FI_PROVIDER_PATH", HEDDLE_PROVIDER_DIR, 1);
    testing::UnitTest::GetInstance()->listeners().Append(new OptionsGuard);
    return true;
}();

}  // namespace

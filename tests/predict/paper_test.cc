// SPDX-License-Identifier: BSD-2-Clause
// The fit sees its own points only, gives the machine file that is shipped, and is as far off the
// other points as the docs say.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "predict/fit.h"
#include "predict/likeness.h"
#include "predict/prediction.h"
#include "predict/validation.h"

namespace heddle::predict {
namespace {

// What this much of a fit may differ by: it halves a range 14 times.
constexpr double kFitRounding = 0.005;

std::vector<Point> masked_points(const Revision& revision) {
    std::vector<Point> points = paper_points();
    for (Point& point : points)
        if (!revision.fits(point.name())) point.paper = std::numeric_limits<double>::quiet_NaN();
    return points;
}

TEST(PredictPaperPoints, TheFitSeesItsOwnPointsOnlyAndGivesTheShippedMachine) {
    const Revision last = revision(kRevisions);
    const MachineFile fitted = fit(last, masked_points(last));
    for (const Parameter& parameter : kParameters) {
        const double shipped = connectx4_haswell().machine.*parameter.value;
        EXPECT_NEAR(fitted.machine.*parameter.value, shipped,
                    std::max(0.05, kFitRounding * shipped))
            << parameter.name;
        EXPECT_EQ(fitted.origins.at(std::string(parameter.name)).source,
                  connectx4_haswell().origins.at(std::string(parameter.name)).source)
            << parameter.name;
    }
}

TEST(PredictPaperPoints, AFitOfAMissingPointIsRefused) {
    EXPECT_THROW(fit(revision(1), {}), MachineFileError);
}

TEST(PredictPaperPoints, EachFittedValueHasAPointOfItsOwn) {
    for (std::uint32_t number = 1; number <= kRevisions; ++number) {
        const Revision each = revision(number);
        EXPECT_LE(each.fitted_values(), 16u);
        EXPECT_EQ(each.number, number);
        std::vector<PointName> points;
        for (const FitStep& step : each.steps) {
            const PointName& point = step.points.front();
            EXPECT_EQ(std::ranges::count(points, point), 0)
                << number << ": " << point.figure << ", " << point.curve << ", " << point.x;
            points.push_back(point);
        }
    }
}

// What the model makes of all points, once for all cases.
class PredictErrorTable : public testing::Test {
protected:
    static void SetUpTestSuite() {
        points_ = paper_points();
        predictions_ = validate(revision(kRevisions), connectx4_haswell().machine, points_);
    }
    static void TearDownTestSuite() {
        predictions_.clear();
        points_.clear();
    }
    static std::vector<const Prediction*> hard() {
        std::vector<const Prediction*> some;
        for (const Prediction& each : predictions_)
            if (each.is_hard) some.push_back(&each);
        return some;
    }

    static std::vector<Point> points_;
    static std::vector<Prediction> predictions_;
};
std::vector<Point> PredictErrorTable::points_;
std::vector<Prediction> PredictErrorTable::predictions_;

TEST_F(PredictErrorTable, HardPoints) {
    const Score its = score(hard());
    EXPECT_GE(its.model.count, 140u);
    EXPECT_LE(its.model.median, 0.07);
    EXPECT_LE(its.model.mean, 0.11);
    EXPECT_GE(its.rank, 0.97);
    // Models that know nothing are far off: the table could tell.
    for (const Spread& null : its.nulls) {
        EXPECT_GT(null.median, 0.3);
        EXPECT_GT(null.mean, 0.6);
    }
}

TEST_F(PredictErrorTable, TheGlobalArrayIsInThePapersOrder) {
    std::vector<const Prediction*> its;
    for (const Prediction& each : predictions_)
        if (each.point->figure == "12") its.push_back(&each);
    ASSERT_EQ(its.size(), 6u);
    std::ranges::sort(its, {}, [](const Prediction* p) { return p->point->paper; });
    EXPECT_TRUE(std::ranges::is_sorted(its, {}, [](const Prediction* p) { return p->model; }));
    for (const Prediction* each : its) {
        const double most = each->point->x == "MPI+threads" ? 1.0 : 0.15;
        EXPECT_LE(std::max(each->model / each->point->paper, each->point->paper / each->model) - 1,
                  most)
            << each->point->x;
    }
}

TEST_F(PredictErrorTable, TheStencilsRatiosToMpiEverywhere) {
    const Spread errors = ratio_errors(predictions_, "14");
    EXPECT_EQ(errors.count, 25u);
    EXPECT_LE(errors.median, 0.06);
}

TEST_F(PredictErrorTable, IntervalsAreThoseOfTheShippedFile) {
    const auto intervals = intervals_of(predictions_, connectx4_haswell().machine);
    EXPECT_EQ(intervals.size(), connectx4_haswell().intervals.size());
    for (const auto& [kind, interval] : intervals) {
        ASSERT_TRUE(connectx4_haswell().intervals.contains(kind)) << kind;
        const MachineFile::Interval& shipped = connectx4_haswell().intervals.at(kind);
        EXPECT_NEAR(interval.low, shipped.low, 0.01) << kind;
        EXPECT_NEAR(interval.high, shipped.high, 0.01) << kind;
        EXPECT_EQ(interval.points, shipped.points) << kind;
    }
}

TEST(PredictScore, RanksAndSpreads) {
    EXPECT_EQ(spread({}).count, 0u);
    const Spread some = spread({0.3, 0.1, 0.2, 0.4, 0.0});
    EXPECT_DOUBLE_EQ(some.mean, 0.2);
    EXPECT_DOUBLE_EQ(some.median, 0.2);
    Point low, middle, high;
    low.paper = 1;
    middle.paper = 2;
    high.paper = 3;
    Prediction a, b, c;
    a.point = &low;
    b.point = &middle;
    c.point = &high;
    a.model = 30;
    b.model = 20;
    c.model = 10;
    EXPECT_DOUBLE_EQ(score({&a, &b, &c}).rank, -1);
    std::swap(a.model, c.model);
    EXPECT_DOUBLE_EQ(score({&a, &b, &c}).rank, 1);
    a.model = b.model = c.model = 5;  // a constant knows no order
    EXPECT_DOUBLE_EQ(score({&a, &b, &c}).rank, 0);
}

Question sixteen(Category category) {
    Question question;
    question.layout.threads = 16;
    question.layout.sharing = sharing_of(category, 16);
    return question;
}

TEST(PredictAnswer, NamesWhatLimits) {
    const Answer everywhere = predict(sixteen(Category::kMpiEverywhere), connectx4_haswell());
    EXPECT_EQ(everywhere.limit, Resource::kLink);
    EXPECT_TRUE(everywhere.warnings.empty());
    ASSERT_TRUE(everywhere.low && everywhere.high);
    EXPECT_LE(*everywhere.low, *everywhere.high);
    Question one_by_one = sixteen(Category::kMpiThreads);
    one_by_one.post_list = one_by_one.signal_every = 1;
    const Answer threads = predict(one_by_one, connectx4_haswell());
    EXPECT_TRUE(threads.limit == Resource::kQpLock || threads.limit == Resource::kCqLock);
    EXPECT_LT(threads.per_microsecond, everywhere.per_microsecond / 20);
}

TEST(PredictAnswer, WarnsWhereItExtrapolates) {
    Question question = sixteen(Category::kDynamic);
    question.layout.threads = 32;
    question.bytes = 4096;
    MachineFile machine = connectx4_haswell();
    machine.intervals.clear();
    const Answer answer = predict(question, machine);
    EXPECT_THAT(answer.warnings, testing::ElementsAre(testing::StartsWith("32 threads"),
                                                      testing::StartsWith("messages of 4096 bytes"),
                                                      testing::HasSubstr("never validated")));
    EXPECT_FALSE(answer.low);
}

TEST(PredictAnswer, RefusesWhatCannotBe) {
    const auto refused = [](auto change) {
        Question question = sixteen(Category::kDynamic);
        change(question);
        EXPECT_THROW(predict(question, connectx4_haswell()), std::invalid_argument);
    };
    refused([](Question& q) { q.layout.threads = 0; });
    refused([](Question& q) { q.layout.sharing.cq = 3; });
    refused([](Question& q) { q.layout.sharing.qp = 2; });  // of CQs that are not shared
    refused([](Question& q) { q.post_list = 0; });
    refused([](Question& q) { q.signal_every = 256; });
    refused([](Question& q) { q.signal_every = 48; });
}

}  // namespace
}  // namespace heddle::predict

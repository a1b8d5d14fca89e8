// SPDX-License-Identifier: BSD-2-Clause
// How well a fitted machine predicts the points that did not fit it, beside models that know
// nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "predict/figures.h"
#include "predict/revision.h"

namespace heddle::predict {

// Models that know nothing of contention.
enum class NullModel {
    kConstant,     // the geometric mean of the fitted points
    kFreeSharing,  // n times one thread, stopped by the fitted ceilings
    kNearest,      // the nearest fitted point of the same curve, else kFreeSharing
};
inline constexpr std::size_t kNullModels = 3;

struct Prediction {
    enum class Role { kFitted, kSameAsFitted, kUnseen } role = Role::kUnseen;
    const Point* point = nullptr;
    double model = 0;
    std::array<double, kNullModels> nulls = {};
    // Unseen, and kFreeSharing is off by more than 3 %: guessing does not give it.
    bool is_hard = false;

    double error() const { return model / point->paper - 1; }
};

// What the machine makes of the points, without null models. `points` has to live as long as the
// result.
std::vector<Prediction> compare(const Revision& revision, const Machine& machine,
                                const std::vector<Point>& points);
// The same beside null models, for the paper's points.
std::vector<Prediction> validate(const Revision& revision, const Machine& machine,
                                 const std::vector<Point>& points);

// Relative errors without their signs.
struct Spread {
    std::size_t count = 0;
    double mean = 0, median = 0, percentile_95 = 0;
};
Spread spread(std::vector<double> errors);

// What the paper is about: the rates of a category, divided by those of MPI everywhere in the same
// layout. Figures 12 and 14 have them.
struct Ratio {
    const Prediction* of = nullptr;
    double paper = 0, model = 0;
};
std::vector<Ratio> ratios_to_everywhere(const std::vector<Prediction>& all);
Spread ratio_errors(const std::vector<Prediction>& all, std::string_view figure);

// A set of predictions: the model's errors, its rank correlation with the paper (Spearman; 0 for
// fewer than three points), and the null models' errors.
struct Score {
    Spread model;
    double rank = 0;
    std::array<Spread, kNullModels> nulls;
};
Score score(const std::vector<const Prediction*>& of);

}  // namespace heddle::predict

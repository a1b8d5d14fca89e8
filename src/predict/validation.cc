// SPDX-License-Identifier: BSD-2-Clause
#include "predict/validation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "heddle/detail/assert.h"

namespace heddle::predict {
namespace {

constexpr double kHard = 0.03;

double paper_value(const std::vector<Point>& points, const PointName& name) {
    for (const Point& each : points)
        if (each.name() == name) return each.paper;
    HEDDLE_ASSERT(false, "the null models stand on points that the paper has");
    return 0;
}

std::optional<double> number(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end == text.c_str() || *end != '\0') return std::nullopt;
    return value;
}

// What the null models know: fitted points only.
class Nulls {
public:
    Nulls(const Revision& revision, const std::vector<Point>& points)
        : one_{{"w/o Inlining", paper_value(points, {"3", "w/o Inlining", "1"})},
               {"w/o Postlist", paper_value(points, {"3", "w/o Postlist", "1"})},
               {"w/o Unsignaled", paper_value(points, {"3", "w/o Unsignaled", "1"})}},
          all_features_(paper_value(points, {"3", "All", "1"})),
          messages_(paper_value(points, {"3", "All", "16"})),
          payloads_(paper_value(points, {"3", "w/o Inlining", "16"})) {
        double logs = 0;
        for (const Point& each : points) {
            if (!revision.fits(each.name())) continue;
            fitted_.push_back(&each);
            logs += std::log(each.paper);
        }
        HEDDLE_ASSERT(!fitted_.empty(), "a revision fits something");
        constant_ = std::exp(logs / static_cast<double>(fitted_.size()));
    }

    std::array<double, kNullModels> of(const Point& point) const {
        return {constant_, free_sharing(point), nearest(point)};
    }

private:
    double free_sharing(const Point& point) const {
        const double one_by_one = one_.at("w/o Postlist");
        if (point.figure == "14") return point.nodes * kPaperThreads * one_by_one;
        double threads = kPaperThreads, rate = all_features_, ceiling = messages_;
        if (point.figure == "3" || point.figure == "2b")
            threads = number(point.x).value_or(kPaperThreads);
        if (point.figure == "12" || point.curve.starts_with("p=1 ")) rate = one_by_one;
        for (const auto& [curve, value] : one_)
            if (point.curve.starts_with(curve)) rate = value;
        if (point.curve.starts_with("w/o Inlining")) ceiling = payloads_;
        return std::min(threads * rate, ceiling);
    }
    double nearest(const Point& point) const {
        const std::optional<double> x = number(point.x);
        double distance = std::numeric_limits<double>::max(), value = free_sharing(point);
        if (!x || point.figure == "3") return value;
        for (const Point* each : fitted_) {
            if (each->figure != point.figure || each->curve != point.curve) continue;
            const double away = std::abs(std::log(number(each->x).value_or(1) / *x));
            if (away < distance) std::tie(distance, value) = std::tie(away, each->paper);
        }
        return value;
    }

    const std::map<std::string, double> one_;  // thread, by the feature that it lacks
    const double all_features_, messages_, payloads_;
    std::vector<const Point*> fitted_;
    double constant_ = 0;
};

// 1 for the smallest; equal values share the mean of their ranks.
std::vector<double> ranks(const std::vector<double>& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
    std::vector<double> all(values.size());
    for (std::size_t begin = 0; begin < order.size();) {
        std::size_t end = begin + 1;
        while (end < order.size() && values[order[end]] == values[order[begin]])
            ++end;
        for (std::size_t i = begin; i < end; ++i)
            all[order[i]] = static_cast<double>(begin + 1 + end) / 2;
        begin = end;
    }
    return all;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
    if (a.size() < 3) return 0;
    const std::vector<double> x = ranks(a), y = ranks(b);
    const double middle = (static_cast<double>(a.size()) + 1) / 2;
    double xy = 0, xx = 0, yy = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        xy += (x[i] - middle) * (y[i] - middle);
        xx += (x[i] - middle) * (x[i] - middle);
        yy += (y[i] - middle) * (y[i] - middle);
    }
    return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

}  // namespace

std::vector<Prediction> compare(const Revision& revision, const Machine& machine,
                                const std::vector<Point>& points) {
    std::vector<Prediction> all;
    all.reserve(points.size());
    for (const Point& point : points) {
        Prediction one;
        one.point = &point;
        one.model = predicted(point, machine);
        if (revision.fits(point.name()))
            one.role = Prediction::Role::kFitted;
        else if (std::ranges::any_of(points, [&](const Point& other) {
                     return revision.fits(other.name()) && point.is_configured_as(other);
                 }))
            one.role = Prediction::Role::kSameAsFitted;
        all.push_back(one);
    }
    return all;
}

std::vector<Prediction> validate(const Revision& revision, const Machine& machine,
                                 const std::vector<Point>& points) {
    const Nulls nulls(revision, points);
    std::vector<Prediction> all = compare(revision, machine, points);
    for (Prediction& one : all) {
        one.nulls = nulls.of(*one.point);
        const double guess = one.nulls[static_cast<std::size_t>(NullModel::kFreeSharing)];
        one.is_hard =
            one.role == Prediction::Role::kUnseen && std::abs(guess / one.point->paper - 1) > kHard;
    }
    return all;
}

Spread spread(std::vector<double> errors) {
    if (errors.empty()) return {};
    std::ranges::sort(errors);
    const auto at = [&](double share) {
        const auto index = static_cast<std::size_t>(share * static_cast<double>(errors.size()));
        return errors[std::min(index, errors.size() - 1)];
    };
    const double sum = std::accumulate(errors.begin(), errors.end(), 0.0);
    return {errors.size(), sum / static_cast<double>(errors.size()), at(0.5), at(0.95)};
}

std::vector<Ratio> ratios_to_everywhere(const std::vector<Prediction>& all) {
    std::vector<Ratio> ratios;
    const Prediction* everywhere = nullptr;  // the first of its curve
    for (const Prediction& each : all) {
        if (each.point->figure != "12" && each.point->figure != "14") continue;
        if (each.point->x == "MPI everywhere") {
            everywhere = &each;
            continue;
        }
        HEDDLE_ASSERT(everywhere != nullptr && everywhere->point->figure == each.point->figure &&
                          everywhere->point->curve == each.point->curve,
                      "a curve begins with MPI everywhere");
        ratios.push_back(
            {&each, each.point->paper / everywhere->point->paper, each.model / everywhere->model});
    }
    return ratios;
}

Spread ratio_errors(const std::vector<Prediction>& all, std::string_view figure) {
    std::vector<double> errors;
    for (const Ratio& each : ratios_to_everywhere(all))
        if (each.of->point->figure == figure)
            errors.push_back(std::abs(each.model / each.paper - 1));
    return spread(std::move(errors));
}

Score score(const std::vector<const Prediction*>& of) {
    std::vector<double> errors, model, paper;
    std::array<std::vector<double>, kNullModels> nulls;
    for (const Prediction* each : of) {
        errors.push_back(std::abs(each->error()));
        model.push_back(each->model);
        paper.push_back(each->point->paper);
        for (std::size_t i = 0; i < kNullModels; ++i)
            nulls[i].push_back(std::abs(each->nulls[i] / each->point->paper - 1));
    }
    Score result;
    result.model = spread(errors);
    result.rank = rank_correlation(model, paper);
    for (std::size_t i = 0; i < kNullModels; ++i)
        result.nulls[i] = spread(nulls[i]);
    return result;
}

}  // namespace heddle::predict

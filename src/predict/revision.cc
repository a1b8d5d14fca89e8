// SPDX-License-Identifier: BSD-2-Clause
#include "predict/revision.h"

#include <algorithm>

#include "heddle/detail/assert.h"
#include "predict/embedded.h"
#include "predict/toml_reader.h"

namespace heddle::predict {
namespace {

std::vector<std::string> strings(const toml::node* node, const std::string& where,
                                 const std::string& what) {
    const toml::array* array = node != nullptr ? node->as_array() : nullptr;
    std::vector<std::string> all;
    if (array != nullptr)
        for (const toml::node& each : *array)
            if (const auto text = each.value<std::string>()) all.push_back(*text);
    if (array == nullptr || all.empty() || all.size() != array->size())
        fail_at(where, node, what + " has to be a list of strings");
    return all;
}

FitStep read_step(const toml::table& table, const std::string& where) {
    FitStep step;
    step.parameters = strings(table.get("parameters"), where, "'parameters'");
    for (const std::string& name : step.parameters)
        if (find_parameter(name) == nullptr)
            fail_at(where, &table, "the model has no parameter '" + name + "'");
    const toml::array* points = table["points"].as_array();
    if (points == nullptr || points->empty()) fail_at(where, &table, "a fit needs 'points'");
    for (const toml::node& each : *points) {
        const std::vector<std::string> cells = strings(&each, where, "a point");
        if (cells.size() != 3) fail_at(where, &each, "a point is [FIGURE, CURVE, X]");
        step.points.push_back({cells[0], cells[1], cells[2]});
    }
    step.low = number_at(table, "low", where, "a fit");
    step.high = number_at(table, "high", where, "a fit");
    if (step.low >= step.high) fail_at(where, &table, "'low' has to be less than 'high'");
    return step;
}

}  // namespace

bool Revision::fits(const PointName& point) const {
    return std::ranges::any_of(steps, [&](const FitStep& step) {
        return std::ranges::find(step.points, point) != step.points.end();
    });
}

Revision parse_revision(std::string_view text, const std::string& where) {
    const toml::table table = parse_table(text, where);
    Revision revision;
    read_head(revision.machine, table, where);
    read_parameters(revision.machine, table, "set", where);
    revision.number = static_cast<std::uint32_t>(number_at(table, "revision", where, "the file"));
    revision.passes = static_cast<std::uint32_t>(number_at(table, "passes", where, "the file"));
    if (revision.passes == 0 || revision.passes > 100)
        fail_at(where, table.get("passes"), "'passes' has to be from 1 to 100");
    revision.about = table["about"].value_or(std::string());
    const toml::array* fits = table["fit"].as_array();
    if (fits == nullptr) fail_at(where, nullptr, "it has no [[fit]]");
    for (const toml::node& each : *fits) {
        if (each.as_table() == nullptr) fail_at(where, &each, "[[fit]] has to be a table");
        revision.steps.push_back(read_step(*each.as_table(), where));
    }
    for (const Parameter& parameter : kParameters) {
        std::size_t found = revision.machine.origins.contains(parameter.name) ? 1 : 0;
        for (const FitStep& step : revision.steps)
            found += static_cast<std::size_t>(
                std::ranges::count(step.parameters, std::string(parameter.name)));
        if (found != 1)
            fail_at(where, nullptr,
                    "the parameter '" + std::string(parameter.name) +
                        (found == 0 ? "' is neither set nor fitted" : "' has two values"));
    }
    return revision;
}

Revision revision(std::uint32_t number) {
    HEDDLE_ASSERT(number >= 1 && number <= kRevisions, "only revisions that exist are asked for");
    const std::string_view texts[] = {kRevision1, kRevision2, kRevision3};
    return parse_revision(texts[number - 1], "revisions/" + std::to_string(number) + ".toml");
}

Revision other_points() { return parse_revision(kOtherPoints, "revisions/3-other-points.toml"); }

}  // namespace heddle::predict

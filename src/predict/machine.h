// SPDX-License-Identifier: BSD-2-Clause
// What a machine needs for what threads do on an mlx5 adapter: the parameters of the timing model.
// simulator.h says how time passes; a machine file has the values, each with its source.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace heddle::predict {

// In nanoseconds.
struct ProcessorCosts {
    double atomic = 0;            // a lock-prefixed operation on a line of one's own
    double line_transfer = 0;     // fetching a dirty line from another core of the socket
    double prepare = 0;           // writing one inlined WQE
    double post_call = 0;         // one post: register write, fence, call
    double empty_poll = 0;        // a poll that finds nothing
    double own_completion = 0;    // taking a CQE whose message this thread has posted
    double other_completion = 0;  // taking, under the CQ's lock, one of another thread
    double lock_transfer = 0;     // a lock and the lines that it protects pass to another core
    double cq_lock_waiter = 0;    // the same, more for each further thread that spins on a CQ's
    double qp_lock_waiter = 0;    // and on a queue pair's
    double barrier = 0;           // of OpenMP, for each doubling of the threads
    double kernel_message = 0;    // what a kernel does for each message besides posting it
    // BlueFlame writes take longer by the placement of uUARs.
    double crowded_context = 0;     // many driven QPs of a context on adjoining pages
    double shared_page = 0;         // another thread drives the other uUAR of the page
    double crowded_and_shared = 0;  // both
};

// In nanoseconds.
struct AdapterCosts {
    double qp_wqe = 0;              // a QP's engine, serial: a WQE
    double qp_payload = 0;          // more if it fetches a payload
    double qp_completion = 0;       // more for each CQE
    double fetch_unit = 0;          // the mean time of a payload in a unit of several queue pairs
    double link = 0;                // the adapter, for each message
    double payload_read = 0;        // the adapter, for each payload that it fetches
    double same_line = 0;           // reads of one cache line follow each other so
    double dma_latency = 0;         // from a doorbell to the WQE in the adapter
    double completion_latency = 0;  // from the last bit on the link to the CQE in memory
};

// Queue pairs.
struct Crowding {
    double fetch_group = 0;         // that share a unit which fetches payloads
    double crowd = 0;               // driven ones of a context that make it crowded
    double crowded_node = 0;        // driven ones of all contexts from which a few are enough:
    double crowd_of_full_node = 0;  // so many of a context then make it crowded
};

struct Machine : ProcessorCosts, AdapterCosts, Crowding {
    // What a BlueFlame write takes longer if another thread drives the page's other uUAR; and with
    // so many driven queue pairs of its context on adjoining pages, of so many of the node.
    double placement_cost(bool shares_page, std::size_t adjoining, std::size_t of_node) const {
        const double most =
            static_cast<double>(of_node) >= crowded_node ? crowd_of_full_node : crowd;
        const bool crowded = static_cast<double>(adjoining) >= most;
        return shares_page && crowded ? crowded_and_shared
               : shares_page          ? shared_page
               : crowded              ? crowded_context
                                      : 0;
    }
};

struct Parameter {
    std::string_view name, unit;
    double Machine::*value;
    int least = 0;  // with less the simulation would stand still
};
inline bool is_count(const Parameter& parameter) { return parameter.unit == "QPs"; }

// All of them, by the names that machine files use.
inline constexpr std::array kParameters{
    Parameter{"atomic", "ns", &Machine::atomic},
    Parameter{"line_transfer", "ns", &Machine::line_transfer},
    Parameter{"prepare", "ns", &Machine::prepare},
    Parameter{"post_call", "ns", &Machine::post_call, 1},
    Parameter{"empty_poll", "ns", &Machine::empty_poll, 1},
    Parameter{"own_completion", "ns", &Machine::own_completion},
    Parameter{"other_completion", "ns", &Machine::other_completion},
    Parameter{"lock_transfer", "ns", &Machine::lock_transfer},
    Parameter{"cq_lock_waiter", "ns", &Machine::cq_lock_waiter},
    Parameter{"qp_lock_waiter", "ns", &Machine::qp_lock_waiter},
    Parameter{"barrier", "ns", &Machine::barrier},
    Parameter{"kernel_message", "ns", &Machine::kernel_message},
    Parameter{"crowded_context", "ns", &Machine::crowded_context},
    Parameter{"shared_page", "ns", &Machine::shared_page},
    Parameter{"crowded_and_shared", "ns", &Machine::crowded_and_shared},
    Parameter{"qp_wqe", "ns", &Machine::qp_wqe},
    Parameter{"qp_payload", "ns", &Machine::qp_payload},
    Parameter{"qp_completion", "ns", &Machine::qp_completion},
    Parameter{"fetch_unit", "ns", &Machine::fetch_unit},
    Parameter{"link", "ns", &Machine::link},
    Parameter{"payload_read", "ns", &Machine::payload_read},
    Parameter{"same_line", "ns", &Machine::same_line},
    Parameter{"dma_latency", "ns", &Machine::dma_latency},
    Parameter{"completion_latency", "ns", &Machine::completion_latency},
    Parameter{"fetch_group", "QPs", &Machine::fetch_group, 1},
    Parameter{"crowd", "QPs", &Machine::crowd, 1},
    Parameter{"crowded_node", "QPs", &Machine::crowded_node, 1},
    Parameter{"crowd_of_full_node", "QPs", &Machine::crowd_of_full_node, 1},
};

// nullptr: the model has no such parameter.
constexpr const Parameter* find_parameter(std::string_view name) {
    for (const Parameter& parameter : kParameters)
        if (parameter.name == name) return &parameter;
    return nullptr;
}

}  // namespace heddle::predict

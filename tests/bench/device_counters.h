// SPDX-License-Identifier: BSD-2-Clause
// What the software HCA has counted, exactly, since its processes have opened it.
#pragma once

#include <cstdint>

#include "tests/endpoint/device_stat.h"

namespace heddle::bench {

struct Counters {
    std::uint64_t doorbells = 0, blueflame = 0, wqes = 0, wqe_reads = 0, payload_reads = 0,
                  payload_writes = 0, cqes = 0;

    Counters operator-(const Counters& before) const {
        return {doorbells - before.doorbells,
                blueflame - before.blueflame,
                wqes - before.wqes,
                wqe_reads - before.wqe_reads,
                payload_reads - before.payload_reads,
                payload_writes - before.payload_writes,
                cqes - before.cqes};
    }
};

// The sum of all processes: whichever posts a WQE, any of them may carry it out.
inline Counters fabric_counters() {
    Counters sum;
    const auto fabric = fabric_stat();
    for (const auto& process : fabric["processes"]) {
        const auto& c = process["counters"];
        sum.doorbells += c["doorbells"].get<std::uint64_t>();
        sum.blueflame += c["blueflame"].get<std::uint64_t>();
        sum.wqes += c["wqes"].get<std::uint64_t>();
        sum.wqe_reads += c["dma_read_wqe"].get<std::uint64_t>();
        sum.payload_reads += c["dma_read_payload"].get<std::uint64_t>();
        sum.payload_writes += c["dma_write_payload"].get<std::uint64_t>();
        sum.cqes += c["dma_write_cqe"].get<std::uint64_t>();
    }
    return sum;
}

}  // namespace heddle::bench

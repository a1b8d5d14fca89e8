// SPDX-License-Identifier: BSD-2-Clause
// Rendezvous with a peer on the same host whose memory this process may read
// (shm/process_memory.h): RTS, read, FIN. Neither side registers memory.
#include <algorithm>
#include <cerrno>

#include "heddle/detail/assert.h"
#include "protocol/rndv/rendezvous.h"
#include "protocol/shm/process_memory.h"

namespace heddle::protocol {
namespace {

// Bytes in one call of progress: about 0.1 ms of a processor.
constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;

}  // namespace

void RendezvousProtocol::read_from_processes() {
    std::size_t room = kReadAtOnce;
    // Messages that are longer take turns.
    for (std::size_t turns = reading_.size(); turns != 0 && room != 0 && is_reading(); --turns) {
        FetchedMessage& fetched = *reading_.front();
        reading_.pop_front();
        HEDDLE_ASSERT(fetched.peer->memory != nullptr,
                      "dispatch refuses such messages of peers whose memory cannot be read, and "
                      "those of a peer that fails have ended");
        const std::size_t wanted = std::min(fetched.taken - fetched.read, room);
        const ProcessMemory::Result result = fetched.peer->memory->read(
            {fetched.bulk.local.iov.data(), fetched.bulk.local.count},
            {fetched.bulk.remote.data(), fetched.bulk.remote_count}, fetched.read, wanted);
        fetched.read += result.bytes;
        room -= result.bytes;
        if (result.error == 0 && fetched.read != fetched.taken) {
            reading_.push_back(&fetched);
            continue;
        }
        ++core_.counts.shm.read;
        end(fetched, result.error == ESRCH ? ECONNRESET : result.error, 0);
    }
}

}  // namespace heddle::protocol

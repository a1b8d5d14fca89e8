// SPDX-License-Identifier: BSD-2-Clause
// What an input has the engine do: see wqe_operations.h.
#include "wqe_operations.h"

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <memory>
#include <vector>

#include "softhca/device/epoch.h"
#include "softhca/engine/completion.h"
#include "softhca/engine/doorbell_count.h"
#include "softhca/engine/pending_list.h"
#include "softhca/engine/receive.h"
#include "wqe_entries.h"

extern "C" void softhca_doorbell(void* uar_register);

namespace softhca::fuzz {
namespace {

// The segment's record of a region as any process of the fabric can leave it: another owner, or
// another number of shared extents. The destructor restores it when the input has ended.
class CorruptRegion {
public:
    CorruptRegion(device::MemoryRegion& region, Input& input)
        : region_(region), process_(region.head.owner()), count_(region.extents.count) {
        if (input.one_in(2))
            region.extents.count = input.one_in(2) ? input.byte() : input.word();
        else
            region.head.set_owner(input.one_in(2) ? input.byte() : input.word());
    }
    ~CorruptRegion() {
        region_.head.set_owner(process_);
        region_.extents.count = count_;
    }
    CorruptRegion(const CorruptRegion&) = delete;
    CorruptRegion& operator=(const CorruptRegion&) = delete;

private:
    device::MemoryRegion& region_;
    const std::uint32_t process_;
    const decltype(device::MemoryRegion::extents.count) count_;
};
std::vector<std::unique_ptr<CorruptRegion>> corrupt_regions;

void damage_region(World& w, Input& input) {
    const std::uint32_t key = w.regions[input.byte() % w.regions.size()].key;
    corrupt_regions.push_back(std::make_unique<CorruptRegion>(w.segment().mrs[key >> 8], input));
}

// A word of the segment's record of a queue, as any process of the fabric can leave it. It is as it
// was when the input has ended. Where queues lie is left alone: see SECURITY.md.
class CorruptWord {
public:
    CorruptWord(std::uint32_t& word, Input& input) : word_(word), before_(word) {
        switch (input.below(3)) {
            case 0:
                word = input.byte();
                break;
            case 1:
                word ^= 1u << input.below(32);
                break;
            default:
                word = input.word();
                break;
        }
    }
    ~CorruptWord() { word_ = before_; }
    CorruptWord(const CorruptWord&) = delete;
    CorruptWord& operator=(const CorruptWord&) = delete;

private:
    std::uint32_t& word_;
    const std::uint32_t before_;
};
std::vector<std::unique_ptr<CorruptWord>> corrupt_words;

std::uint32_t& word_of(device::QueuePair& qp, Input& input) {
    return *input.pick({&qp.type,
                        &qp.alias_of,
                        &qp.pd,
                        &qp.send_cq,
                        &qp.recv_cq,
                        &qp.srq,
                        &qp.xrcd,
                        &qp.uidx,
                        &qp.signal_all,
                        &qp.sq_count,
                        &qp.rq_count,
                        &qp.rq_shift,
                        &qp.sq_offset,
                        &qp.max_send_sge,
                        &qp.max_recv_sge,
                        &qp.max_inline,
                        &qp.scatter_recv,
                        &qp.scatter_send,
                        &qp.attr.qp_access_flags,
                        &qp.attr.dest_qpn,
                        &qp.attr.qkey,
                        &qp.rq_consumer,
                        &qp.rq_posted_seen,
                        &qp.responder_psn,
                        &qp.requester_psn});
}
std::uint32_t& word_of(device::SharedReceiveQueue& srq, Input& input) {
    return *input.pick({&srq.number, &srq.type, &srq.pd, &srq.cq, &srq.xrcd, &srq.wqe_count,
                        &srq.wqe_shift, &srq.max_wr, &srq.max_sge, &srq.uidx, &srq.next,
                        &srq.consumed, &srq.posted_seen, &srq.limit, &srq.failed});
}
std::uint32_t& word_of(device::CompletionQueue& cq, Input& input) {
    return *input.pick({&cq.number, &cq.cqe_size, &cq.channel, &cq.channel_generation,
                        &cq.ignore_overrun, &cq.timestamps, &cq.cqe_count, &cq.producer,
                        &cq.consumer_seen, &cq.last_solicited, &cq.announced, &cq.failed});
}
std::uint32_t& word_of(device::MemoryWindow& window, Input& input) {
    const auto plain = [](std::atomic<std::uint32_t>& word) {
        return reinterpret_cast<std::uint32_t*>(&word);
    };
    return *input.pick({&window.type, &window.pd, plain(window.changes), plain(window.key),
                        plain(window.is_bound), plain(window.access), plain(window.region),
                        plain(window.region_generation), plain(window.qp)});
}

void damage_word(World& w, Input& input) {
    device::Segment& s = w.segment();
    const auto damage = [&](auto& object) {
        corrupt_words.push_back(std::make_unique<CorruptWord>(word_of(object, input), input));
    };
    switch (input.below(4)) {
        case 3:
            return damage(s.mws[w.windows[input.byte() % w.windows.size()]]);
        case 0:
            return damage(s.qps[w.queues[input.byte() % w.queues.size()].index]);
        case 1:
            return damage(s.srqs[(input.one_in(2) ? w.xrc_srq : w.srq).index]);
        default:
            return damage(s.cqs[w.cqs[input.byte() % w.cqs.size()].index]);
    }
}

engine::Runner runner(Input& input) {
    return input.pick(
        {engine::Runner::kPoster, engine::Runner::kPoller, engine::Runner::kProgress});
}

void run(World& w, const Queue& queue, Input& input) {
    device::epoch::Section section;
    engine::LocalQp* local = engine::local_qp(queue.number);
    if (!local) fail("queue pair 0x%x is not there", queue.number);
    const engine::Runner who = runner(input);
    if (input.one_in(2))
        engine::run_or_list(w.fabric(), *local, who);
    else
        engine::run_send_queue(w.fabric(), *local, who);
}

void post_send(World& w, Input& input) {
    Queue& queue = w.queues[input.byte() % w.queues.size()];
    if (!queue.send_ring.length) return;
    std::uint16_t posted = queue.posted();
    for (unsigned n = 1 + input.below(4); n; --n) {
        const Entry entry = send_entry(w, queue, posted, input);
        for (unsigned at = 0; at < entry.units * kUnit; at += kUnit)
            std::memcpy(
                queue.send_ring.bytes() + (posted * std::size_t{64} + at) % queue.send_ring.length,
                entry.bytes + at, kUnit);
        posted = static_cast<std::uint16_t>(posted + (entry.units + 3) / 4);
    }
    queue.set_posted(input.one_in(16) ? input.value<std::uint16_t>() : posted);
    if (!input.one_in(3)) run(w, queue, input);
}

void post_receive(World& w, Input& input) {
    Queue& queue = w.queues[input.byte() % w.queues.size()];
    if (!queue.receive_ring.length) return;
    std::uint32_t posted = queue.record.word(0);
    for (unsigned n = 1 + input.below(4); n; --n, ++posted) {
        std::byte* at = queue.receive_ring.bytes() + posted % kReceives * kReceiveBytes;
        for (unsigned unit = 0; unit < kReceiveBytes / kUnit; ++unit) {
            mlx5_wqe_data_seg segment = data_segment(w, input);
            if (unit >= 1 && input.one_in(2)) segment = {0, htobe32(MLX5_INVALID_LKEY), 0};
            std::memcpy(at + unit * kUnit, &segment, sizeof segment);
        }
    }
    queue.record.set_word(0, posted);
}

void post_shared_receive(World& w, Input& input) {
    SharedQueue& queue = input.one_in(2) ? w.xrc_srq : w.srq;
    std::uint32_t posted = queue.record.word(0);
    for (unsigned n = 1 + input.below(4); n; --n, ++posted) {
        std::byte* at = queue.ring.bytes() + posted % kReceives * kReceiveBytes;
        mlx5_wqe_srq_next_seg next{};
        next.next_wqe_index =
            htobe16(input.one_in(16) ? input.value<std::uint16_t>()
                                     : static_cast<std::uint16_t>((posted + 1) % kReceives));
        std::memcpy(at, &next, sizeof next);
        for (unsigned unit = 1; unit < kReceiveBytes / kUnit; ++unit) {
            const mlx5_wqe_data_seg segment = data_segment(w, input);
            std::memcpy(at + unit * kUnit, &segment, sizeof segment);
        }
    }
    queue.record.set_word(0, posted);
}

// Bytes of the input, anywhere in queue memory.
void scribble(World& w, Input& input) {
    const MemoryPart& part = w.queue_parts[input.byte() % w.queue_parts.size()];
    const std::uint32_t at = input.below(static_cast<std::uint32_t>(part.length));
    const std::uint32_t most =
        std::min<std::uint32_t>(128, static_cast<std::uint32_t>(part.length) - at);
    input.bytes(part.bytes() + at, input.below(most) + 1);
}

void set_record(World& w, Input& input) {
    const MemoryPart& record = w.records[input.byte() % w.records.size()];
    const unsigned word = input.below(2);
    const std::uint32_t old = record.word(word);
    record.set_word(word, input.one_in(2) ? old + input.byte() : input.word());
}

void consume(World& w, Input& input) {
    CompletionQueue& cq = w.cqs[input.byte() % w.cqs.size()];
    const std::uint32_t producer = w.segment().cqs[cq.index].producer;
    cq.record.set_word(0, (producer - input.below(4)) & 0xffffff);
    // armed: serial number, for which kind of completions, and up to where the owner has read
    if (input.one_in(2))
        cq.record.set_word(1, input.below(4) << 28 | input.below(2) << 24 | (producer & 0xffffff));
}

void complete(World& w, Input& input) {
    engine::Completion completion;
    engine::clear(completion);
    input.bytes(&completion.cqe, sizeof completion.cqe);
    completion.opcode = input.byte() & 0xf;
    completion.solicited = input.one_in(2);
    completion.inline_length = input.pick<std::uint8_t>({0, 0, 1, 31, 32});
    input.bytes(completion.payload, 32);
    const std::uint32_t cq =
        input.one_in(8) ? input.word() : w.cqs[input.byte() % w.cqs.size()].index;
    device::epoch::Section section;
    engine::put_completion(w.fabric(), cq, completion, input.one_in(2));
}

void check_armed(World& w, Input& input) {
    device::epoch::Section section;
    engine::check_armed(w.fabric(),
                        input.one_in(8) ? input.word() : w.cqs[input.byte() % w.cqs.size()].index);
}

void change_state(World& w, Input& input) {
    if (!corrupt_words.empty()) return;  // commands may be refused then
    Queue& queue = w.queues[input.byte() % w.queues.size()];
    switch (input.below(5)) {
        case 0:
            w.modify(queue, IBV_QPS_ERR);
            break;
        case 1:
            w.modify(queue, IBV_QPS_SQD);
            break;
        case 2:
            w.modify(queue, IBV_QPS_RTS);
            break;
        case 3:
            w.modify(queue, IBV_QPS_RESET);
            break;
        default:
            w.connect(queue, input.word());
            break;
    }
}

void ring_doorbell(World& w, Input& input) {
    alignas(4096) static std::uint64_t page[512];
    const bool completion_queue = input.one_in(3);
    const std::uint32_t number = completion_queue
                                     ? w.cqs[input.byte() % w.cqs.size()].index
                                     : w.queues[input.byte() % w.queues.size()].number << 8;
    std::uint64_t* at = page + (completion_queue ? 0x20 / 8 : 0x800 / 8);
    *at = htobe64(input.one_in(8) ? input.value<std::uint64_t>() : number);
    at[1] = input.one_in(2) ? 0 : 0x5eed'5eed'5eed'5eedull;
    softhca_doorbell(at);
}

void count_post(World& w, Input& input) {
    device::epoch::Section section;
    Queue& queue = w.queues[input.byte() % w.queues.size()];
    engine::LocalQp* local = engine::local_qp(queue.number);
    if (!local || !local->send_ring) return;
    device::QueuePair& qp = w.segment().qps[queue.index];
    const auto from = static_cast<std::uint16_t>(engine::posted_so_far(*local) - input.byte());
    const std::uint32_t blocks =
        input.one_in(4) ? input.value<std::uint32_t>() : engine::blocks_in_ring(qp, *local);
    engine::count_post(qp, engine::shape_in_ring(qp, *local, from, blocks));
}

void flush(World& w, Input& input) {
    device::epoch::Section section;
    engine::flush_receives(w.fabric(), w.queues[input.byte() % w.queues.size()].index);
}

// A page in the middle of a registered region vanishes, or comes back.
void remap(World& w, Input& input) {
    std::byte* hole = w.holes[input.byte() % w.holes.size()];
    const int protection = input.pick({PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE});
    if (mmap(hole, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != hole)
        fail("cannot map the hole");
}

}  // namespace

void run_listed(World& w, engine::Runner who, unsigned most) {
    device::epoch::Section section;
    engine::run_pending(w.fabric(), who, most);
}

void run_all_listed(World& w) {
    for (unsigned n = 0; n < 8; ++n)
        run_listed(w, engine::Runner::kProgress, device::kMaxQps);
}

void one_operation(World& w, Input& input) {
    switch (input.below(26)) {
        case 0:
        case 1:
        case 2:
        case 3:
            return post_send(w, input);
        case 4:
        case 5:
            return post_receive(w, input);
        case 6:
        case 7:
            return post_shared_receive(w, input);
        case 8:
        case 9:
            return scribble(w, input);
        case 10:
            return set_record(w, input);
        case 11:
            return consume(w, input);
        case 12:
        case 13:
        case 14:
        case 15:
            return run(w, w.queues[input.byte() % w.queues.size()], input);
        case 16:
            return run_listed(w, runner(input), input.below(32));
        case 17:
            return complete(w, input);
        case 18:
            return check_armed(w, input);
        case 19:
            return change_state(w, input);
        case 20:
            return ring_doorbell(w, input);
        case 21:
            return count_post(w, input);
        case 22:
            return flush(w, input);
        case 23:
            return damage_region(w, input);
        case 24:
            return damage_word(w, input);
        default:
            return remap(w, input);
    }
}

void restore_words() {
    while (!corrupt_words.empty())  // the last change first, as a word may have been changed twice
        corrupt_words.pop_back();
}
void restore_regions() {
    while (!corrupt_regions.empty())
        corrupt_regions.pop_back();
}

}  // namespace softhca::fuzz

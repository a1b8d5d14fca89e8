// SPDX-License-Identifier: BSD-2-Clause
// The fabric's segment: the state of the device, mapped by every process that uses the fabric. It
// corresponds to the firmware's memory of a real HCA. It is plain data of fixed layout, with
// indices and offsets instead of pointers. A reader checks the range of an index before use,
// because another process may have corrupted it.
//
// The writers of the fields:
// - ObjectHead: see object.h.
// - Fields without a comment are written before the object becomes live, and are constant from then
//   on.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softhca/device/connections.h"
#include "softhca/device/identity.h"
#include "softhca/device/limits.h"
#include "softhca/device/lock.h"
#include "softhca/device/memory/sharing.h"
#include "softhca/device/mkey.h"
#include "softhca/device/multicast.h"
#include "softhca/device/object.h"
#include "softhca/device/relaxed_hint.h"

namespace softhca::device {

inline constexpr std::uint64_t kSegmentMagic = 0x736f'6674'6863'6101ULL;  // "softhca" 1
inline constexpr std::uint32_t kSegmentVersion = 12;

// Counters (docs/reference/softhca.md). The thread that holds a send queue's run lock writes
// that queue's counters. Counters of receive and completion queues are written under that queue's
// shared lock. Any thread may read them.
struct Counters {
    std::atomic<std::uint64_t> doorbells, blueflame, wqes;
    std::atomic<std::uint64_t> dma_read_wqe, dma_read_payload;
    std::atomic<std::uint64_t> dma_write_payload, dma_write_cqe;
    std::atomic<std::uint64_t> rnr_naks, retries;
    std::atomic<std::uint64_t> bytes_sent;
    std::atomic<std::uint64_t> bytes_resent;  // an adapter had sent them before an RNR NAK came
};

// WQEs that the device fetched from memory. A BlueFlame write carries its WQE, so these are a send
// queue's other WQEs, plus those of the receive side, which alone uses dma_read_wqe.
inline std::uint64_t wqe_reads(const Counters& counters) noexcept {
    const std::uint64_t executed = counters.wqes.load(std::memory_order_relaxed);
    const std::uint64_t carried = counters.blueflame.load(std::memory_order_relaxed);
    return (executed > carried ? executed - carried : 0) +
           counters.dma_read_wqe.load(std::memory_order_relaxed);
}

inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t n = 1) noexcept {
    // One writer at a time, so a plain load and store suffice, without a locked instruction.
    counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

// A range of driver-owned memory of the owning process.
struct QueueMemory {
    std::uint64_t address;  // in the owner's address space
    std::uint64_t length;
    std::uint64_t offset;  // in the owner's arena, or kNotShared
};
inline constexpr std::uint64_t kNotShared = ~0ull;

struct alignas(64) EpochRecord {
    std::atomic<std::uint64_t> value;  // odd while its thread is inside; only that thread writes it
};

struct alignas(128) Process {
    std::atomic<std::uint32_t> state;  // ObjectState; written by the process or its reclaimer
    std::atomic<std::uint32_t> generation;
    std::atomic<std::uint32_t> leaving;  // it is in _exit() and does not need the fabric's files
    std::int32_t pid;
    std::int32_t arena_fd;
    std::uint64_t arena_inode;
    std::uint64_t started_ns;
    // Random words, and the address where the process itself keeps them: see peers::verify().
    std::uint64_t cookie[2], cookie_address;
    char command[64];
    std::atomic<std::uint32_t> threads_high;  // all epoch records in use are below this index
    std::atomic<std::uint64_t> shared_bytes;
    std::atomic<std::uint64_t> pinned_pages;  // as the kernel counts them: uverbs/pinned.h
    // The progress thread's bell. A thread that wants its attention stores 1, and wakes the futex
    // if the progress thread sleeps.
    alignas(64) std::atomic<std::uint32_t> bell;
    std::atomic<std::uint32_t> sleeping;
    std::atomic<std::uint32_t> attention;  // a QP of this process has `attention` set
    // How often receives were posted that this process waits for. Written by the posting processes
    // (engine/srq_waiters.h).
    std::atomic<std::uint32_t> receives_posted;
    EpochRecord epochs[kMaxThreads];
};

struct alignas(64) Context {
    ObjectHead head;
    std::uint32_t device;       // which of the fabric's
    std::uint32_t static_uars;  // pages of the static kernel, 0 with the dynamic one
    std::uint32_t low_latency_uuars;
    std::uint32_t async_channel, async_generation;
    // The changes of its device's ports of which its program knows (engine/port_events.h).
    std::uint32_t link_changes[kMaxPorts], gid_changes[kMaxPorts];
    // Written by the owner, under its context lock.
    std::atomic<std::uint32_t> dynamic_uars;
    std::atomic<std::uint32_t> nc_uars;
    Counters counters;  // sums of this context's destroyed QPs and CQs
    Counters retired_cq;
};

struct alignas(64) ProtectionDomain {
    ObjectHead head;
    std::atomic<std::uint32_t> users;  // MRs, QPs and SRQs that refer to it
};

struct alignas(64) MemoryRegion {
    ObjectHead head;
    // rereg rewrites these in state kDying, after epoch::synchronize().
    std::uint32_t key;
    std::uint32_t pd;
    std::uint32_t access;
    std::uint32_t device_memory;  // the DeviceMemory under it, or kNone
    std::uint64_t address, length, iova;
    memory::Extents extents;
    std::uint64_t registered_at;  // CLOCK_MONOTONIC in ns; written by the owner
};

// A memory window: a part of a region, with a key and rights of its own (IBTA 10.6.7.2). Its keys
// follow those of the regions: key >> 8 is kMaxMrs plus its index.
struct alignas(64) MemoryWindow {
    ObjectHead head;
    std::uint32_t type;  // enum ibv_mw_type
    std::uint32_t pd;
    // Binds and invalidations rewrite the rest (engine/windows.h). Whoever makes `changes` odd may;
    // a reader whose values are not of one time reads them again.
    std::atomic<std::uint32_t> changes;
    std::atomic<std::uint32_t> key;
    std::atomic<std::uint32_t> is_bound, access;
    std::atomic<std::uint32_t> region, region_generation;
    std::atomic<std::uint32_t> qp;  // type 2: the number of the QP that it was bound by
    std::atomic<std::uint64_t> address, length, iova;  // address: in those of the region's key
};

// An allocation of device memory. Its index in the table is the number of its first page on the
// device. So the pages in use follow from the items that are not free, and a dying process cannot
// lose pages. Only its owner knows where the memory lies (uverbs/context.h, DeviceMemoryPlace).
struct alignas(64) DeviceMemory {
    ObjectHead head;
    std::uint32_t pages;  // written under the table's lock
    std::uint64_t length;
    std::atomic<std::uint32_t> users;  // memory regions on it
};

enum class ChannelKind : std::uint32_t { kCompletion, kAsynchronous, kConnection };

struct alignas(64) Channel {
    ObjectHead head;
    std::int32_t write_fd;  // descriptor in the owner
    std::uint32_t kind;     // ChannelKind
    std::uint64_t inode;    // of the pipe
    SharedLock lock;        // orders writes against the drain when an object is destroyed
    // kConnection, under Segment.connection_lock: the first event of its queue, or kNone. While
    // there is one, the pipe has a byte.
    std::uint32_t first_event;
};

struct alignas(128) CompletionQueue {
    ObjectHead head;
    std::uint32_t number, cqe_size;
    std::uint32_t channel, channel_generation;
    std::uint32_t ignore_overrun;
    std::uint32_t timestamps;  // CQEs carry timestamps; off if the program cannot read them
    std::uint64_t user_handle;
    QueueMemory record;
    std::atomic<std::uint32_t> users;  // QPs and SRQs that refer to it
    // Under lock:
    alignas(64) SharedLock lock;
    std::uint32_t cqe_count;  // a power of two; resize changes it and the buffer
    QueueMemory buffer;
    std::uint32_t producer;        // free-running
    std::uint32_t consumer_seen;   // last value read from the owner's record, perhaps outdated
    std::uint32_t last_solicited;  // producer after the last solicited or error CQE
    std::uint32_t announced;       // the CQEs before this index have had their event
    std::uint32_t failed;          // overrun: it accepts no more CQEs
    std::uint32_t arm_taken;       // trait `arm`: the arm in force, as in the record
    std::uint32_t events_sent, async_events_sent;
    Counters counters;  // dma_write_cqe, and dma_write_payload of CQEs that carry data
};

struct alignas(128) SharedReceiveQueue {
    ObjectHead head;
    std::uint32_t number, type;  // type: enum ibv_srq_type
    std::uint32_t pd, cq;
    std::uint32_t xrcd, xrcd_handle;  // the XRC domain, and the handle that names it
    std::uint32_t wqe_count, wqe_shift, max_wr, max_sge, uidx;
    std::uint64_t user_handle;
    QueueMemory buffer, record;
    std::atomic<std::uint32_t> users;
    // `announced`: the owner posts by libmlx5's calls. `waiters`: the processes that wait for a
    // receive. See engine/srq_waiters.h.
    std::atomic<std::uint32_t> announced, waiters;
    // Under lock:
    alignas(64) SharedLock lock;
    std::uint32_t next;         // index of the WQE that the next message takes
    std::uint32_t consumed;     // free-running; read without the lock, too (engine/receive.cc)
    std::uint32_t posted_seen;  // last value read from the owner's record, perhaps outdated
    std::uint32_t limit;        // the limit event is armed if not 0
    std::uint32_t failed;
    std::atomic<std::uint32_t> async_events_sent;
    Counters counters;
};

// The attributes that ibv_modify_qp set (IBTA 11.2.5.2; fields as in struct ib_uverbs_modify_qp).
struct QpAttributes {
    std::uint32_t qp_access_flags, qkey, rq_psn, sq_psn, dest_qpn;
    std::uint16_t pkey_index, alt_pkey_index;
    // Where it sends to, and the LID of its own port. Where ports have no LIDs, these are what
    // port.h has in their place. 0: nowhere.
    std::uint16_t dlid, lid;
    std::uint8_t path_mtu, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port, timeout;
    std::uint8_t retry_cnt, rnr_retry, sq_draining, sl, src_path_bits, static_rate, is_global;
    std::uint8_t dgid[16];
    std::uint32_t flow_label;
    std::uint8_t sgid_index, hop_limit, traffic_class, ah_port;
    std::uint16_t given_dlid;  // as the program set it
};

// QueuePair.type of the two sides of DC, for which programs ask as IB_UVERBS_QPT_DRIVER. A DCI is
// connected to one DCT after the other: each request names it.
inline constexpr std::uint32_t kDciType = 0xd0, kDctType = 0xd1;

struct alignas(128) QueuePair {
    ObjectHead head;
    std::uint32_t number, type;  // type: enum ib_uverbs_qp_type, or one of those above
    std::uint32_t alias_of;      // an XRC target opened by number: the original QP, or kNone
    std::uint32_t pd, send_cq, recv_cq, srq;
    std::uint32_t xrcd, xrcd_handle;  // XRC targets: the domain, and the handle that names it
    std::uint32_t uidx, signal_all, create_flags;
    std::uint32_t uar_page, uuar;  // uuar: number in the context (static), else index in the page
    std::uint32_t blueflame;       // its uUAR takes BlueFlame
    std::uint32_t blueflame_use;   // how the driver uses BlueFlame: engine/doorbell_count.h
    std::uint32_t sq_count, rq_count, rq_shift, sq_offset;
    std::uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline;
    std::uint32_t scatter_recv, scatter_send;  // data bytes that fit the CQE: 0, 32 or 64
    std::uint64_t user_handle;
    std::uint64_t access_key;  // DCT: what a request must know
    QueueMemory buffer, record;

    // Written by the owner's modify commands, and by a peer that finds a responder error (only ever
    // to ERR).
    alignas(64) std::atomic<std::uint32_t> state;  // enum ibv_qp_state
    std::atomic<std::uint32_t> attention;          // a peer changed the state: the owner must look
    std::atomic<std::uint32_t> references;         // XRC target: the QP itself and its aliases
    std::atomic<std::uint32_t> multicast_groups;   // that it is attached to; written by the owner
    QpAttributes attr;                             // written by the owner, while no WQE runs

    // The peer writes the responder's part, and the owner writes the requester's. They lie 128
    // bytes apart because processors fetch cache lines in pairs.
    // Responder: the rq_ fields are written under receive_lock, the others by the one connected
    // requester. A DCT has many at a time: of the others it uses only the counters, which may then
    // miss some.
    alignas(128) SharedLock receive_lock;
    std::uint32_t rq_consumer;     // free-running
    std::uint32_t rq_posted_seen;  // last value read from the owner's record, perhaps outdated
    std::atomic<std::uint64_t> in_flight;  // a receive WQE taken but not completed: see receive.h
    std::atomic<std::uint32_t> in_flight_srq;  // the SRQ of that WQE; 0: the QP's own queue
    // The QP is in ERR, and IBV_EVENT_QP_LAST_WQE_REACHED is delayed until the message that is
    // being delivered is complete.
    std::atomic<std::uint32_t> last_receive_owed;
    std::uint32_t responder_psn;
    std::atomic<std::uint32_t> async_events_sent;
    Counters receive;

    // Requester: written by the thread that runs the send queue (one at a time).
    alignas(128) RelaxedHint<std::uint32_t> sq_consumer;
    std::uint32_t requester_psn;
    Counters send;
};

struct alignas(64) XrcDomain {
    ObjectHead head;              // process and context are unused
    std::uint32_t of_device;      // which of the fabric's
    std::uint64_t device, inode;  // of the file that names it; 0 without a file
    std::atomic<std::uint32_t> references;
};

struct alignas(64) XrcdHandle {
    ObjectHead head;
    std::uint32_t domain;
    std::atomic<std::uint32_t> users;
};

enum class UarKind : std::uint32_t { kBlueFlame = 0, kNonCached = 1, kStatic = 2, kAllocWc = 3 };

struct alignas(64) UarPage {
    ObjectHead head;
    std::uint32_t kind;            // UarKind
    std::uint32_t extended_index;  // kAllocWc: its index in the context's mmap offset
    std::atomic<std::uint32_t> mapped;
    std::atomic<std::uint32_t> users[kUuarsPerUar];       // number of QPs on each uUAR
    std::atomic<std::uint64_t> last_write[kUuarsPerUar];  // trait `shared-uuar`: register_check.cc
};

// A table of objects. cursor, where the search for a free item begins, is written under lock; so is
// high.
template <class T, std::uint32_t N>
struct Table {
    using value_type = T;
    static constexpr std::uint32_t kSize = N;
    SharedLock lock;
    std::uint32_t cursor;
    std::atomic<std::uint32_t> high;  // no item at or above this index was ever used
    std::atomic<std::uint32_t> in_use;
    T items[N];
    T& operator[](std::uint32_t i) noexcept { return items[i]; }
    const T& operator[](std::uint32_t i) const noexcept { return items[i]; }
};

// An address of a port, as it is in GIDs: one of its slots in the GID table (port.h).
struct PortAddress {
    std::atomic<std::uint64_t> high, low;  // host byte order
    std::atomic<std::uint32_t> is_used;
};
inline constexpr unsigned kPortAddresses = 4;

// What can change of a port while programs use it (port_change.h). Whoever changes it holds the
// lock of the fabric's directory.
struct alignas(64) PortRecord {
    // How often its link went down or came up: it is down while this is odd.
    std::atomic<std::uint32_t> link_changes;
    std::atomic<std::uint32_t> gid_changes;  // entries of the GID table that came or went
    PortAddress addresses[kPortAddresses];
};

struct Segment {
    std::atomic<std::uint64_t> magic;
    std::uint32_t version;
    std::uint32_t bytes_low;  // low half of sizeof(Segment), to refuse another build's layout
    std::uint64_t created_ns;
    std::uint64_t clock_factor;  // see clock.h
    std::uint64_t node_guid;     // of the first device: see guid.h; host byte order
    // st_dev and st_ino of /proc/self/ns/pid: the PID namespace in which the pids here are valid
    std::uint64_t pid_namespace_device, pid_namespace_inode;
    std::uint32_t light_epochs;    // see epoch.h
    std::uint32_t uar_policy;      // the first process's; each context has its own
    std::uint32_t port_kind;       // PortKind (port.h), as the first process's options say
    std::uint32_t port_address;    // of the first port: IPv4, host byte order
    std::uint32_t devices, ports;  // how many devices, and ports of each
    // Not 0 while a link is down, and perhaps for a moment longer.
    std::atomic<std::uint32_t> has_link_down;
    std::atomic<std::uint32_t> port_changes;  // grows after each change of a port
    PortRecord port_records[kMaxFabricPorts];
    SharedLock process_lock;     // guards the slots of the process table, and reclaiming
    SharedLock atomics_lock;     // guards 64-bit atomics on memory that is not shared
    SharedLock connection_lock;  // guards cm_*, and the queues of events of their channels
    std::atomic<std::uint32_t> processes_high;
    // Multicast GIDs that were made for rdma_cm. Under connection_lock.
    std::uint32_t cm_assigned_groups;
    Process processes[kMaxProcesses];
    Table<Context, kMaxContexts> contexts;
    Table<ProtectionDomain, kMaxPds> pds;
    Table<Channel, kMaxChannels> channels;
    Table<XrcDomain, kMaxXrcds> xrcds;
    Table<XrcdHandle, kMaxXrcdHandles> xrcd_handles;
    Table<UarPage, kMaxUarPages> uars;
    Table<CompletionQueue, kMaxCqs> cqs;
    Table<SharedReceiveQueue, kMaxSrqs> srqs;
    Table<QueuePair, kMaxQps> qps;
    Table<DeviceMemory, kMemicPages> dms;
    Table<MemoryRegion, kMaxMrs> mrs;
    Table<MemoryWindow, kMaxMws> mws;
    Table<Mkey, kMaxMkeys> mkeys;
    MulticastGroups multicast;
    Table<CmId, kMaxCmIds> cm_ids;
    Table<CmGroup, kMaxCmGroups> cm_groups;
    Table<CmEvent, kMaxCmEvents> cm_events;
};
static_assert(std::is_standard_layout_v<ObjectHead> && sizeof(ObjectHead) == 16,
              "the head is the same in every table");
static_assert((kMaxProcesses & (kMaxProcesses - 1)) == 0, "a lock's word splits by a power of two");
static_assert(kFirstPd < kMaxPds && kFirstMr < kMaxMrs && kFirstCq < kMaxCqs);
static_assert(kFirstQp < kMaxQps && kFirstSrq < kMaxSrqs && kFirstUar < kMaxUarPages);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "it works between processes");

}  // namespace softhca::device

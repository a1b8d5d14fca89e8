// SPDX-License-Identifier: BSD-2-Clause
#include "protocol/transport/process.h"

#include <rdma/fabric.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>

#include "heddle/detail/assert.h"
#include "heddle/error.h"
#include "heddle/post/mlx5_objects.h"
#include "protocol/reuse/post_costs.h"
#include "protocol/shm/host.h"
#include "protocol/wireup/connector_report.h"
#include "verbs/memlock.h"

namespace heddle::protocol {
namespace {

class VerbsRegion final : public Region {
public:
    VerbsRegion(Domain::Body& domain, void* address, std::size_t bytes, std::uint64_t access)
        : domain_(domain) {
        // Verbs knows no region of nothing: a byte of our own stands for it.
        static std::byte nothing{};
        key_.address = reinterpret_cast<std::uintptr_t>(bytes != 0 ? address : &nothing);
        key_.bytes = std::max<std::size_t>(bytes, 1);
        // What is sent from it may be read by its receiver (RGET); peers do nothing else that was
        // not asked for. No access at all means local use, messages included.
        const bool read_by_receivers = domain.process->options.rendezvous != Rendezvous::kPut &&
                                       (access == 0 || access & FI_SEND);
        const int readable =
            read_by_receivers || access & FI_REMOTE_READ ? IBV_ACCESS_REMOTE_READ : 0;
        const int writable = access & FI_REMOTE_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0;
        // The program may poll memory that peers write to, and count on a later write to follow an
        // earlier one. All else that is done with registered memory ends with a completion.
        const int ordering = writable == 0 ? domain.process->optional_access() : 0;
        const int paging = domain.process->paging_access();
        key_.access = IBV_ACCESS_LOCAL_WRITE | readable | writable | ordering | paging;
        held_ = domain.kept_regions.take(key_);
        const auto reg = [&](int verbs_access) {
            held_.region.reset(domain.cache->reg_mr(key_.address, key_.bytes, verbs_access));
        };
        if (!held_.region) reg(key_.access);
        if (!held_.region && errno == ENOMEM && held_.witness != nullptr) {
            // The region that would say whether it can be kept takes the room itself.
            held_.witness.reset();
            reg(key_.access);
        }
        // Read-only memory can be read by peers all the same.
        if (!held_.region && errno != ENOMEM) {
            key_.access =
                readable | paging;  // one that is kept must not be taken for a writable one
            reg(key_.access);
        }
        if (!held_.region)
            throw VerbsError("registering " + std::to_string(bytes) + " bytes", errno,
                             verbs::memlock_hint(errno));
        domain_.regions.add(held_.region->rkey,
                            {reinterpret_cast<std::uintptr_t>(address), bytes, access});
        domain_.process->count_registration(1);
    }
    ~VerbsRegion() override {
        domain_.regions.remove(held_.region->rkey);
        domain_.process->count_registration(-1);
        domain_.kept_regions.give(key_, std::move(held_));
    }
    std::uint32_t local_key() const noexcept override { return held_.region->lkey; }
    std::uint32_t key() const noexcept override { return held_.region->rkey; }
    bool is_writable() const noexcept override { return key_.access & IBV_ACCESS_LOCAL_WRITE; }

private:
    Domain::Body& domain_;
    KeptRegions::Key key_;
    KeptRegions::Held held_;
};

// The category of a process's endpoints there. nullopt: ThreadResourceFactory chooses.
std::optional<Category> category_on(const DeviceInfo& device, std::optional<Category> wanted) {
    if (device.thread_domains) return wanted;
    return made_on(device, wanted.value_or(Category::k2xDynamic));
}

bool uses_xrc(Transport wanted, const DeviceInfo& device) {
    if (wanted == Transport::kXrc && !device.xrc)
        throw VerbsError("FI_HEDDLE_TRANSPORT=xrc on " + device.name, EOPNOTSUPP,
                         "the device has no XRC; auto uses RC there");
    if (wanted == Transport::kDc && !device.mlx5)
        throw VerbsError("FI_HEDDLE_TRANSPORT=dc on " + device.name, EOPNOTSUPP,
                         "it needs an mlx5 device; auto uses XRC or RC");
    return wanted == Transport::kXrc || (wanted == Transport::kAuto && device.xrc);
}

std::uint32_t queue_pairs_of(const Channel& channel, bool by_dc) noexcept {
    if (!by_dc) return channel.connections();
    return 1 + (channel.connections() != 0 ? kDcInitiators : 0);
}

std::mutex processes_mutex;
// By port, and what it is a rail beside; under processes_mutex. Never destroyed: programs close
// domains from exit handlers.
auto& processes = *new std::map<std::string, std::weak_ptr<Process>>;

}  // namespace

std::shared_ptr<Process> Process::get(const Options& options) {
    const std::lock_guard guard(processes_mutex);
    const std::string name = port_name(heddle::device(options.device));
    std::weak_ptr<Process>& known = processes[name + '\n' + options.rails.beside];
    std::shared_ptr<Process> process = known.lock();
    if (!process) known = process = std::make_shared<Process>(options);
    HEDDLE_ASSERT(port_name(process->device) == name, "an open device is found by its name");
    return process;
}

Process::Process(const Options& wanted)
    : options(wanted),
      device(heddle::device(wanted.device)),
      thread_resources(port_name(device), category_on(device, wanted.endpoints),
                       uses_xrc(wanted.transport, device)),
      direct_pays_(wanted.post != PostPath::kAuto ||
                   PostCosts::load(PostCosts::file(device)).value_or(PostCosts{}).direct_pays()),
      monitor_(std::make_shared<memory::AddressMonitor>()) {
    if (options.registration.on_demand_paging && !device.on_demand_paging)
        tell_user(options.complain, "FI_HEDDLE_ODP: " + port_name(device) +
                                        " has no on-demand paging for all operations; memory is "
                                        "pinned");
    if (options.rings.peers != 0 && !kSeesWritesInOrder)
        tell_user(options.complain,
                  "FI_HEDDLE_RINGS: there are none, as this processor may see the "
                  "end of a written message before its beginning");
}

bool Process::direct() const {
    if (options.post == PostPath::kVerbs) return false;
    if (options.transport == Transport::kDc) {
        if (options.post == PostPath::kDirect)
            throw VerbsError("FI_HEDDLE_POST=direct with FI_HEDDLE_TRANSPORT=dc", EOPNOTSUPP,
                             "auto takes libmlx5 with DC");
        return false;
    }
    if (options.post == PostPath::kDirect && !device.mlx5)
        throw VerbsError("FI_HEDDLE_POST=direct on " + device.name, ENODEV,
                         "it needs an mlx5 device; verbs works on all");
    // libmlx5 posts to some QPs, too, under a lock that nobody else can take. Without thread
    // domains these would have the uUARs of QPs that are posted to directly: see
    // endpoint::OwnRegister.
    if (options.post == PostPath::kDirect && !device.thread_domains)
        throw VerbsError("FI_HEDDLE_POST=direct on " + device.name, EOPNOTSUPP,
                         "the device has no thread domains; auto takes libibverbs there");
    const bool signs = post::detail::signs_entries();
    if (options.post == PostPath::kDirect && signs)
        throw VerbsError("FI_HEDDLE_POST=direct with MLX5_QP_SIGNATURE", EOPNOTSUPP,
                         "unset that variable; auto takes libibverbs with it");
    return device.mlx5 && device.thread_domains && direct_pays_ && !signs;
}

Connector& Process::connector(const std::shared_ptr<endpoint::SharedContext>& context) {
    const std::lock_guard guard(mutex_);
    if (!connector_) {
        Connector::Options connecting;
        connecting.give_up_ms = options.timeouts.connect_ms;
        connecting.complain = options.complain;
        connecting.inform = options.inform;
        connecting.ack_timeout = options.timeouts.ack;
        connecting.retries = options.timeouts.retries;
        connecting.rnr_timer = options.timeouts.rnr;
        connecting.host = options.shm.on ? host_number() : 0;
        connector_context_ = context;
        if (needs_own_register()) connector_register_.emplace(*context);
        ibv_pd* const pd = connector_register_ ? connector_register_->pd() : context->pd.get();
        connector_ =
            std::make_unique<Connector>(context->context.get(), pd, context->port, connecting);
    }
    return *connector_;
}

std::shared_ptr<Channel> Process::channel(const std::shared_ptr<endpoint::SharedContext>& context) {
    const std::lock_guard guard(mutex_);
    if (thread_resources.one_for_all())
        if (std::shared_ptr<Channel> common = common_.lock()) return common;
    auto channel = std::make_shared<Channel>(thread_resources.allocate(context), options, direct(),
                                             ++last_channel_);
    if (thread_resources.one_for_all()) common_ = channel;
    std::erase_if(channels_, [](const auto& known) { return known.expired(); });
    channels_.push_back(channel);
    return channel;
}

std::shared_ptr<memory::RegistrationCache> Process::cache(const endpoint::SharedContext& context) {
    const std::lock_guard guard(mutex_);
    auto& known = caches_[context.index];
    std::shared_ptr<memory::RegistrationCache> cache = known.lock();
    if (!cache) {
        std::size_t most = options.mr_cache_bytes;
        rlimit limit{};
        if (paging_access() == 0 && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
            limit.rlim_cur / 2 < most) {
            if (!held_to_memlock_)
                held_to_memlock_ = verbs::is_held_to_memlock(context.pd.get(), limit.rlim_cur);
            if (*held_to_memlock_) most = limit.rlim_cur / 2;
        }
        // One cache of the process tells it, for all of them.
        const auto tell = [complain = options.complain](const std::string& why) {
            static std::atomic_flag said;
            if (!said.test_and_set())
                tell_user(complain,
                          "no memory stays registered, so that large messages are slow: " + why);
        };
        // Users of the cache take memory for filled after a completion alone: that of a read, of a
        // receive, or of a FIN, which is a SEND that follows the peer's write.
        cache = std::make_shared<memory::RegistrationCache>(monitor_, context.pd.get(), most, tell,
                                                            optional_access() | paging_access());
        known = cache;
    }
    return cache;
}

const ReuseCosts& Process::reuse_costs(endpoint::SharedContext& context) noexcept {
    std::call_once(costs_once_, [&] {
        try {
            const std::filesystem::path file = ReuseCosts::file(device);
            if (const auto known = ReuseCosts::load(file)) {
                costs_ = *known;
                return;
            }
            std::optional<endpoint::OwnRegister> own;
            if (needs_own_register()) own.emplace(context);
            costs_ = ReuseCosts::measure(context.context.get(), own ? own->pd() : context.pd.get(),
                                         std::max<std::size_t>(options.eager_bytes, 8192));
            if (!file.empty()) costs_.save(file);
        } catch (const std::exception&) {  // then all is copied
            costs_ = {};
        }
    });
    return costs_;
}

memory::CacheCounts Process::cache_counts() const {
    memory::CacheCounts sum;
    const std::lock_guard guard(mutex_);
    for (const auto& [context, known] : caches_)
        if (const auto cache = known.lock()) sum += cache->counts();
    return sum;
}

std::uint16_t Process::new_endpoint() {
    const std::lock_guard guard(mutex_);
    // A number comes back as late as possible: peers may still have something for its last owner.
    for (std::size_t tried = 0; tried < numbers_.size(); ++tried) {
        const std::size_t number = next_number_++ % numbers_.size();
        if (numbers_[number]) continue;
        numbers_[number] = true;
        return static_cast<std::uint16_t>(number);
    }
    throw VerbsError("endpoint " + std::to_string(numbers_.size() + 1) + " of the process", ENOSPC,
                     std::to_string(numbers_.size()) + " are possible");
}

void Process::release_endpoint(std::uint16_t number) {
    const std::lock_guard guard(mutex_);
    HEDDLE_ASSERT(numbers_[number], "the number of an endpoint was given back twice");
    numbers_[number] = false;
}

Usage Process::usage() const {
    Usage usage = thread_resources.usage();
    const std::lock_guard guard(mutex_);
    usage.mrs = static_cast<std::uint32_t>(registrations_.load());
    const bool by_dc = options.transport == Transport::kDc;
    for (const auto& known : channels_)
        if (const auto channel = known.lock()) {
            ++usage.cqs;
            usage.mrs += 2;
            usage.qps += queue_pairs_of(*channel, by_dc);
        }
    if (connector_) {  // its UD QP, and the targets that peers asked for
        ++usage.cqs;
        usage.qps += 1;
        if (!by_dc) usage.qps += static_cast<std::uint32_t>(connector_->counts().targets);
    }
    return usage;
}

Domain::Domain(const Options& options) : body_(std::make_unique<Body>(options)) {}
Domain::~Domain() = default;
const Options& Domain::options() const noexcept { return body_->process->options; }
const DeviceInfo& Domain::device() const noexcept { return body_->process->device; }
Category Domain::category() const noexcept {
    return body_->process->thread_resources.category().value_or(Category::k2xDynamic);
}
std::recursive_mutex* Domain::lock() const noexcept {
    return body_->process->thread_resources.one_for_all() ? &body_->process->everything : nullptr;
}
std::unique_ptr<Region> Domain::register_memory(void* address, std::size_t bytes,
                                                std::uint64_t access) {
    return std::make_unique<VerbsRegion>(*body_, address, bytes, access);
}
void Domain::give_up_held() noexcept { body_->give_up_held(); }
Usage Domain::usage() const { return body_->process->usage(); }
memory::CacheCounts Domain::cache_counts() const { return body_->process->cache_counts(); }

}  // namespace heddle::protocol

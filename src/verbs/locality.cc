// SPDX-License-Identifier: BSD-2-Clause
// Orders processors by their distance to a device: see heddle/locality.h.
#include "heddle/locality.h"

#include <hwloc.h>
#include <hwloc/distances.h>
#include <hwloc/linux.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <type_traits>
#include <utility>

#include "heddle/detail/assert.h"
#include "heddle/error.h"

namespace heddle {
namespace {

struct Destroy {
    void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
    void operator()(hwloc_bitmap_t set) const noexcept { hwloc_bitmap_free(set); }
};
using Topology = std::unique_ptr<std::remove_pointer_t<hwloc_topology_t>, Destroy>;
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, Destroy>;

Topology look_at_machine() {
    hwloc_topology_t fresh = nullptr;
    if (hwloc_topology_init(&fresh) != 0) throw VerbsError("starting hwloc", errno);
    Topology topology(fresh);
    if (hwloc_topology_load(fresh) != 0)
        throw VerbsError("reading the machine's topology by hwloc", errno);
    return topology;
}

// Returns the affinity of the calling thread, within the cpuset of its control group.
Bitmap allowed(hwloc_topology_t topology) {
    Bitmap set(hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(topology)));
    const Bitmap bound(hwloc_bitmap_alloc());
    if (hwloc_get_cpubind(topology, bound.get(), HWLOC_CPUBIND_THREAD) == 0 &&
        hwloc_bitmap_intersects(bound.get(), set.get()))
        hwloc_bitmap_and(set.get(), set.get(), bound.get());
    return set;
}

// Returns the processors near to the device. Empty: it is equally near to all, or unknown.
Bitmap local_to(hwloc_topology_t topology, const DeviceInfo& device) {
    Bitmap set(hwloc_bitmap_alloc());
    if (device.numa_node >= 0) {
        const hwloc_obj_t node =
            hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(device.numa_node));
        if (node != nullptr) hwloc_bitmap_copy(set.get(), node->cpuset);
        return set;
    }
    const std::string path = "/sys/class/infiniband/" + device.name + "/device/local_cpus";
    if (hwloc_linux_read_path_as_cpumask(path.c_str(), set.get()) != 0)
        hwloc_bitmap_zero(set.get());
    return set;
}

// Returns the only NUMA node that has these processors; -1 if there are several.
int node_of(hwloc_topology_t topology, hwloc_const_bitmap_t processors) {
    if (hwloc_bitmap_iszero(processors)) return -1;
    const Bitmap nodes(hwloc_bitmap_alloc());
    hwloc_cpuset_to_nodeset(topology, processors, nodes.get());
    return hwloc_bitmap_weight(nodes.get()) == 1 ? hwloc_bitmap_first(nodes.get()) : -1;
}

// Returns the smallest latency between a node of `from` and a node of `to`; 1 if the firmware says
// nothing of them.
unsigned latency(hwloc_topology_t topology, hwloc_const_bitmap_t from, hwloc_const_bitmap_t to) {
    unsigned count = 1;
    hwloc_distances_s* table = nullptr;
    if (hwloc_distances_get_by_name(topology, "NUMALatency", &count, &table, 0) != 0 || count == 0)
        return 1;
    hwloc_uint64_t least = UINT_MAX;
    for (unsigned i = 0; i < table->nbobjs; ++i)
        for (unsigned j = 0; j < table->nbobjs; ++j)
            if (hwloc_bitmap_intersects(table->objs[i]->cpuset, from) != 0 &&
                hwloc_bitmap_intersects(table->objs[j]->cpuset, to) != 0)
                least = std::min(least, table->values[i * table->nbobjs + j]);
    hwloc_distances_release(topology, table);
    return least == UINT_MAX ? 1 : std::max(1u, static_cast<unsigned>(least));
}

std::size_t count(const std::vector<Processor>& all, bool near_only) noexcept {
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [&](const Processor& processor) {
            return processor.first_of_core && (processor.near || !near_only);
        }));
}

}  // namespace

std::size_t Locality::cores() const noexcept { return count(processors, false); }
std::size_t Locality::near_cores() const noexcept { return count(processors, true); }

Locality locality_of(const DeviceInfo& device) {
    const Topology topology = look_at_machine();
    const Bitmap usable = allowed(topology.get());
    const Bitmap local = local_to(topology.get(), device);
    Locality locality;
    locality.numa_node =
        device.numa_node >= 0 ? device.numa_node : node_of(topology.get(), local.get());
    const Bitmap seen(hwloc_bitmap_alloc());  // cores of which a processor is in the list
    for (int number = hwloc_bitmap_first(usable.get()); number >= 0;
         number = hwloc_bitmap_next(usable.get(), number)) {
        const auto os_index = static_cast<unsigned>(number);
        const hwloc_obj_t unit = hwloc_get_pu_obj_by_os_index(topology.get(), os_index);
        if (unit == nullptr) continue;  // offline
        const hwloc_obj_t core =
            hwloc_get_ancestor_obj_by_type(topology.get(), HWLOC_OBJ_CORE, unit);
        const unsigned id = core != nullptr ? core->logical_index : unit->logical_index;
        Processor processor;
        processor.number = number;
        processor.near = hwloc_bitmap_isset(local.get(), os_index) != 0;
        processor.first_of_core = hwloc_bitmap_isset(seen.get(), id) == 0;
        hwloc_bitmap_set(seen.get(), id);
        locality.processors.push_back(processor);
    }
    HEDDLE_ASSERT(static_cast<int>(locality.cores()) == hwloc_bitmap_weight(seen.get()));
    std::stable_sort(locality.processors.begin(), locality.processors.end(),
                     [](const Processor& a, const Processor& b) {
                         return std::pair(!a.first_of_core, !a.near) <
                                std::pair(!b.first_of_core, !b.near);
                     });
    HEDDLE_ASSERT(locality.processors.empty() || locality.processors.front().first_of_core);
    return locality;
}

std::vector<unsigned> distances_to(const std::vector<DeviceInfo>& devices) {
    const Topology topology = look_at_machine();
    const Bitmap usable = allowed(topology.get());
    std::vector<unsigned> distances;
    for (const DeviceInfo& device : devices) {
        const Bitmap local = local_to(topology.get(), device);
        const bool is_near = hwloc_bitmap_iszero(local.get()) != 0 ||
                             hwloc_bitmap_intersects(local.get(), usable.get()) != 0;
        distances.push_back(is_near ? 0 : latency(topology.get(), usable.get(), local.get()));
    }
    return distances;
}

}  // namespace heddle

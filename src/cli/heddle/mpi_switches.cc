// SPDX-License-Identifier: BSD-2-Clause
// Tried with PyPI's MPICH 5.0.2, Open MPI 5.0.11 and Intel MPI 2021.18.
#include "cli/heddle/mpi_switches.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "cli/common/program.h"
#include "heddle/detail/assert.h"

namespace heddle::cli {
namespace {

// PyPI's Intel MPI finds its own libfabric only if told where it is; elsewhere a script does that.
// Empty if `program` does not belong to such a tree.
std::string intel_libraries(const std::string& program) {
    std::error_code error;
    const auto real = std::filesystem::canonical(program, error);
    if (error) return {};
    const auto libraries = real.parent_path().parent_path() / "lib";
    for (const char* name : {"libfabric.so.1", "libmpi.so.12", "libmpifort.so.12"})
        if (!std::filesystem::exists(libraries / name, error)) return {};
    return libraries.string();
}

}  // namespace

std::vector<Setting> mpi_settings(const MpiRequest& request) {
    HEDDLE_ASSERT(request.threads != 0, "a thread calls MPI");
    std::vector<Setting> all;
    const auto wanted = [&](Mpi mpi) { return request.mpi == Mpi::kAuto || request.mpi == mpi; };
    if (wanted(Mpi::kMpich)) {
        all.push_back({"MPIR_CVAR_CH4_NETMOD", "ofi"});  // else UCX
        if (request.within_node) all.push_back({"MPIR_CVAR_NOLOCAL", "1"});
        if (request.threads > 1)
            all.push_back({"MPIR_CVAR_CH4_NUM_VCIS", std::to_string(request.threads), true});
    }
    if (wanted(Mpi::kOpenMpi)) {
        all.push_back(
            {"OMPI_MCA_pml", "cm"});  // where there is an mlx5 device, pml/ucx ranks higher
        all.push_back({"OMPI_MCA_mtl", "ofi"});
        // One-sided: not past libfabric by UCX, nor by shared memory if that is not wanted.
        all.push_back({"OMPI_MCA_osc", request.within_node ? "^ucx,sm" : "^ucx"});
        all.push_back({"OMPI_MCA_btl", request.within_node ? "ofi,self" : "^uct"});
    }
    if (wanted(Mpi::kIntel)) {
        all.push_back({"I_MPI_OFI_PROVIDER", "heddle"});
        all.push_back({"I_MPI_FABRICS", request.within_node ? "ofi" : "shm:ofi"});
        if (request.threads > 1) all.push_back({"I_MPI_THREAD_SPLIT", "1", true});
        const std::string libraries = intel_libraries(request.program);
        if (!libraries.empty())
            all.push_back(
                {"LD_LIBRARY_PATH",
                 libraries + (request.library_path.empty() ? "" : ":") + request.library_path,
                 true});
    }
    return all;
}

std::vector<Setting> yield_settings(const std::string& folder) {
    const std::string path = folder + "/" + kYieldLibrary;
    if (::access(path.c_str(), R_OK) != 0 || path.find_first_of(": $") != std::string::npos)
        return {};
    const char* before = std::getenv("LD_PRELOAD");
    const std::string others = cli_common::preloaded_without(before ? before : "", {kYieldLibrary});
    return {{"LD_PRELOAD", path + (others.empty() ? "" : ":") + others, true}};
}

std::vector<Setting> more_ranks_than_processors() {
    return {{"OMPI_MCA_rmaps_base_oversubscribe", "1"},                    // 4
            {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"}};  // 5
}

}  // namespace heddle::cli

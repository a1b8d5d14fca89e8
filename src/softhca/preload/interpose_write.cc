// SPDX-License-Identifier: BSD-2-Clause
// Interposed write: the commands of rdma_cm.
#include <unistd.h>

#include "softhca/preload/interpose.h"
#include "softhca/preload/next.h"
#include "softhca/rdmacm/rdmacm.h"

namespace softhca::preload {

// libc's own function, because write() is a cancellation point.
SOFTHCA_INTERPOSE(write, ssize_t, interpose_write, (int fd, const void* buffer, std::size_t size));
ssize_t interpose_write(int fd, const void* buffer, std::size_t size) {
    if (rdmacm::owns(fd)) [[unlikely]]
        return rdmacm::write(fd, buffer, size);
    return next<ssize_t(int, const void*, std::size_t)>(Next::kWrite)(fd, buffer, size);
}
SOFTHCA_ALSO(__write, write, interpose_write);

}  // namespace softhca::preload

// SPDX-License-Identifier: BSD-2-Clause
#include "windows.h"

#include <stdlib.h>
#include <string.h>

const char* const kWindowNames[kWindowKinds] = {"allocated", "created", "dynamic"};

struct window window_make(enum window_kind kind, size_t size) {
    struct window w = {kind, MPI_WIN_NULL, NULL, calloc((size_t)g_ranks, sizeof(MPI_Aint))};
    switch (kind) {
        case kAllocated:
            MPI_Win_allocate((MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.base, &w.win);
            break;
        case kCreated:
            w.base = buffer_make(size, 0);
            MPI_Win_create(w.base, (MPI_Aint)size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
            break;
        default: {
            MPI_Aint address = 0;
            w.base = buffer_make(size, 0);
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &w.win);
            if (size > 0) MPI_Win_attach(w.win, w.base, (MPI_Aint)size);
            MPI_Get_address(w.base, &address);
            MPI_Allgather(&address, 1, MPI_AINT, w.places, 1, MPI_AINT, MPI_COMM_WORLD);
        }
    }
    if (size > 0) memset(w.base, 0xee, size);
    MPI_Barrier(MPI_COMM_WORLD);
    return w;
}

void window_free(struct window* w) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (w->kind == kDynamic) MPI_Win_detach(w->win, w->base);
    MPI_Win_free(&w->win);
    if (w->kind != kAllocated) buffer_check_guards(w->base, "window");
    if (w->kind != kAllocated) buffer_free(w->base);
    free(w->places);
}

MPI_Aint place_of(const struct window* w, int target, size_t byte) {
    return w->places[target] + (MPI_Aint)byte;
}

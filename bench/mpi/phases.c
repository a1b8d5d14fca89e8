// SPDX-License-Identifier: BSD-2-Clause
// How long a program is in MPI: a library that is preloaded into the processes of a job (phases.py
// does it) and stands before MPI's functions, those of C by MPI's profiling interface, those of
// Fortran by theirs. At MPI_Finalize rank 0 writes the mean over all ranks as a line of JSON to
// $MPI_PHASES: seconds in functions that send, in all that communicate, and from MPI_Init to
// MPI_Finalize. Only the outermost call counts, as some MPIs' Fortran calls their C. Threads other
// than the one that calls MPI_Init are not counted.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kSend, kOther, kKinds };

static __thread int t_depth = -1;  // of calls; -1: not a thread that is counted
static double g_seconds[kKinds];
static double g_began;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

static double enter(void) { return t_depth >= 0 && t_depth++ == 0 ? now() : 0; }
static void leave(int kind, double begin) {
    if (t_depth > 0 && --t_depth == 0) g_seconds[kind] += now() - begin;
}

static void begin_all(void) {
    t_depth = 0;
    g_began = now();
}

static void write_all(void) {
    double mine[] = {g_seconds[kSend], g_seconds[kSend] + g_seconds[kOther], now() - g_began},
           sum[3];
    int rank, ranks;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    PMPI_Reduce(mine, sum, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    const char* path = getenv("MPI_PHASES");
    if (rank != 0 || path == NULL) return;
    FILE* file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        return;
    }
    fprintf(file, "{\"ranks\": %d, \"send_s\": %.9f, \"communication_s\": %.9f, \"run_s\": %.9f}\n",
            ranks, sum[0] / ranks, sum[1] / ranks, sum[2] / ranks);
    fclose(file);
}

#define TIMED(kind, name, parameters, arguments)  \
    int MPI_##name parameters {                   \
        const double begin = enter();             \
        const int result = PMPI_##name arguments; \
        leave(kind, begin);                       \
        return result;                            \
    }

#define TO_ONE (const void* b, int n, MPI_Datatype t, int rank, int tag, MPI_Comm c)
#define BEGUN_TO_ONE \
    (const void* b, int n, MPI_Datatype t, int rank, int tag, MPI_Comm c, MPI_Request* r)
TIMED(kSend, Send, TO_ONE, (b, n, t, rank, tag, c))
TIMED(kSend, Ssend, TO_ONE, (b, n, t, rank, tag, c))
TIMED(kSend, Rsend, TO_ONE, (b, n, t, rank, tag, c))
TIMED(kSend, Bsend, TO_ONE, (b, n, t, rank, tag, c))
TIMED(kSend, Isend, BEGUN_TO_ONE, (b, n, t, rank, tag, c, r))
TIMED(kSend, Issend, BEGUN_TO_ONE, (b, n, t, rank, tag, c, r))
TIMED(kSend, Irsend, BEGUN_TO_ONE, (b, n, t, rank, tag, c, r))
TIMED(kSend, Ibsend, BEGUN_TO_ONE, (b, n, t, rank, tag, c, r))
TIMED(kSend, Start, (MPI_Request * r), (r))
TIMED(kSend, Startall, (int n, MPI_Request r[]), (n, r))
TIMED(kSend, Put,
      (const void* b, int n, MPI_Datatype t, int rank, MPI_Aint at, int m, MPI_Datatype u,
       MPI_Win w),
      (b, n, t, rank, at, m, u, w))
TIMED(kOther, Get,
      (void* b, int n, MPI_Datatype t, int rank, MPI_Aint at, int m, MPI_Datatype u, MPI_Win w),
      (b, n, t, rank, at, m, u, w))
TIMED(kOther, Win_fence, (int a, MPI_Win w), (a, w))
TIMED(kOther, Recv, (void* b, int n, MPI_Datatype t, int rank, int tag, MPI_Comm c, MPI_Status* s),
      (b, n, t, rank, tag, c, s))
TIMED(kOther, Irecv,
      (void* b, int n, MPI_Datatype t, int rank, int tag, MPI_Comm c, MPI_Request* r),
      (b, n, t, rank, tag, c, r))
TIMED(kOther, Sendrecv,
      (const void* b, int n, MPI_Datatype t, int to, int tag, void* in, int m, MPI_Datatype u,
       int from, int its, MPI_Comm c, MPI_Status* s),
      (b, n, t, to, tag, in, m, u, from, its, c, s))
TIMED(kOther, Probe, (int rank, int tag, MPI_Comm c, MPI_Status* s), (rank, tag, c, s))
TIMED(kOther, Iprobe, (int rank, int tag, MPI_Comm c, int* f, MPI_Status* s), (rank, tag, c, f, s))
TIMED(kOther, Wait, (MPI_Request * r, MPI_Status* s), (r, s))
TIMED(kOther, Waitall, (int n, MPI_Request r[], MPI_Status s[]), (n, r, s))
TIMED(kOther, Waitany, (int n, MPI_Request r[], int* i, MPI_Status* s), (n, r, i, s))
TIMED(kOther, Waitsome, (int n, MPI_Request r[], int* m, int i[], MPI_Status s[]), (n, r, m, i, s))
TIMED(kOther, Test, (MPI_Request * r, int* f, MPI_Status* s), (r, f, s))
TIMED(kOther, Testall, (int n, MPI_Request r[], int* f, MPI_Status s[]), (n, r, f, s))
TIMED(kOther, Testany, (int n, MPI_Request r[], int* i, int* f, MPI_Status* s), (n, r, i, f, s))
TIMED(kOther, Barrier, (MPI_Comm c), (c))
TIMED(kOther, Bcast, (void* b, int n, MPI_Datatype t, int root, MPI_Comm c), (b, n, t, root, c))
TIMED(kOther, Reduce,
      (const void* b, void* in, int n, MPI_Datatype t, MPI_Op o, int root, MPI_Comm c),
      (b, in, n, t, o, root, c))
TIMED(kOther, Allreduce, (const void* b, void* in, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c),
      (b, in, n, t, o, c))
TIMED(kOther, Scan, (const void* b, void* in, int n, MPI_Datatype t, MPI_Op o, MPI_Comm c),
      (b, in, n, t, o, c))

#define GATHERED (const void* b, int n, MPI_Datatype t, void* in, int m, MPI_Datatype u, MPI_Comm c)
#define ROOTED \
    (const void* b, int n, MPI_Datatype t, void* in, int m, MPI_Datatype u, int root, MPI_Comm c)
TIMED(kOther, Allgather, GATHERED, (b, n, t, in, m, u, c))
TIMED(kOther, Alltoall, GATHERED, (b, n, t, in, m, u, c))
TIMED(kOther, Gather, ROOTED, (b, n, t, in, m, u, root, c))
TIMED(kOther, Scatter, ROOTED, (b, n, t, in, m, u, root, c))
TIMED(kOther, Allgatherv,
      (const void* b, int n, MPI_Datatype t, void* in, const int m[], const int at[],
       MPI_Datatype u, MPI_Comm c),
      (b, n, t, in, m, at, u, c))
TIMED(kOther, Alltoallv,
      (const void* b, const int n[], const int from[], MPI_Datatype t, void* in, const int m[],
       const int at[], MPI_Datatype u, MPI_Comm c),
      (b, n, from, t, in, m, at, u, c))
TIMED(kOther, Gatherv,
      (const void* b, int n, MPI_Datatype t, void* in, const int m[], const int at[],
       MPI_Datatype u, int root, MPI_Comm c),
      (b, n, t, in, m, at, u, root, c))
TIMED(kOther, Scatterv,
      (const void* b, const int n[], const int from[], MPI_Datatype t, void* in, int m,
       MPI_Datatype u, int root, MPI_Comm c),
      (b, n, from, t, in, m, u, root, c))

int MPI_Init(int* argc, char*** argv) {
    const int result = PMPI_Init(argc, argv);
    begin_all();
    return result;
}
int MPI_Init_thread(int* argc, char*** argv, int wanted, int* given) {
    const int result = PMPI_Init_thread(argc, argv, wanted, given);
    begin_all();
    return result;
}
int MPI_Finalize(void) {
    if (t_depth == 0) write_all();
    t_depth = -1;
    return PMPI_Finalize();
}

// Fortran's: all arguments are addresses. MPIs without Fortran do not have those behind them, which
// are therefore looked up at the first call only.
typedef void* P;
#define FORTRAN(kind, name, parameters, arguments) \
    extern void pmpi_##name##_ parameters;         \
    void mpi_##name##_ parameters;                 \
    void mpi_##name##_ parameters {                \
        const double begin = enter();              \
        pmpi_##name##_ arguments;                  \
        leave(kind, begin);                        \
    }
FORTRAN(kSend, send, (P b, P n, P t, P rank, P tag, P c, P e), (b, n, t, rank, tag, c, e))
FORTRAN(kSend, isend, (P b, P n, P t, P rank, P tag, P c, P r, P e), (b, n, t, rank, tag, c, r, e))
FORTRAN(kOther, recv, (P b, P n, P t, P rank, P tag, P c, P s, P e), (b, n, t, rank, tag, c, s, e))
FORTRAN(kOther, irecv, (P b, P n, P t, P rank, P tag, P c, P r, P e), (b, n, t, rank, tag, c, r, e))
FORTRAN(kOther, wait, (P r, P s, P e), (r, s, e))
FORTRAN(kOther, waitall, (P n, P r, P s, P e), (n, r, s, e))
FORTRAN(kOther, barrier, (P c, P e), (c, e))
FORTRAN(kOther, bcast, (P b, P n, P t, P root, P c, P e), (b, n, t, root, c, e))
FORTRAN(kOther, reduce, (P b, P in, P n, P t, P o, P root, P c, P e), (b, in, n, t, o, root, c, e))
FORTRAN(kOther, allreduce, (P b, P in, P n, P t, P o, P c, P e), (b, in, n, t, o, c, e))
FORTRAN(kOther, alltoall, (P b, P n, P t, P in, P m, P u, P c, P e), (b, n, t, in, m, u, c, e))

extern void pmpi_init_(P e);
extern void pmpi_init_thread_(P wanted, P given, P e);
extern void pmpi_finalize_(P e);
void mpi_init_(P e);
void mpi_init_thread_(P wanted, P given, P e);
void mpi_finalize_(P e);
void mpi_init_(P e) {
    pmpi_init_(e);
    begin_all();
}
void mpi_init_thread_(P wanted, P given, P e) {
    pmpi_init_thread_(wanted, given, e);
    begin_all();
}
void mpi_finalize_(P e) {
    if (t_depth == 0) write_all();
    t_depth = -1;
    pmpi_finalize_(e);
}

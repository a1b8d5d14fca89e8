// SPDX-License-Identifier: BSD-2-Clause
// multigrid [N [REPETITIONS]]: Poisson's equation in N x N x N points (32) for each rank, by
// hypre's BoomerAMG, set up and solved 3 times. The cubes of the ranks are one beside the other. An
// algebraic multigrid talks to more and more ranks with ever smaller messages as its levels get
// coarser. The residual is what hypre says and what is computed from its solution; status 1 if it
// is not small. Needs hypre's headers and library (Debian: libhypre-dev, which is for Debian's Open
// MPI):
//     mpicc.openmpi -I/usr/include/hypre multigrid.c -lHYPRE -lm
#include <HYPRE.h>
#include <HYPRE_IJ_mv.h>
#include <HYPRE_parcsr_ls.h>
#include <HYPRE_parcsr_mv.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMostIterations = 50, kMostOfARow = 7 };
static const double kTolerance = 1e-8;

static int g_rank, g_ranks;

// A system of equations, with the rows of a rank from `first` to `last`.
struct problem {
    int n;
    HYPRE_BigInt first, last;
    HYPRE_IJMatrix matrix;
    HYPRE_IJVector right, solution;
    HYPRE_ParCSRMatrix a;
    HYPRE_ParVector b, x;
};

static void must(HYPRE_Int error, const char* what) {
    if (error == 0) return;
    fprintf(stderr, "multigrid: rank %d: %s: hypre's error %d\n", g_rank, what, (int)error);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

// The row of point (x, y, z) of all ranks' points, of which a cube of each rank has x to itself; -1
// beyond the edge, where the solution is 0.
static HYPRE_BigInt row_of(int n, int x, int y, int z) {
    if (x < 0 || x >= n * g_ranks || y < 0 || y >= n || z < 0 || z >= n) return -1;
    return (HYPRE_BigInt)(x / n) * n * n * n + ((HYPRE_BigInt)z * n + y) * n + x % n;
}

static void set_row(struct problem* p, int x, int y, int z) {
    static const int around[][3] = {{1, 0, 0},  {-1, 0, 0}, {0, 1, 0},
                                    {0, -1, 0}, {0, 0, 1},  {0, 0, -1}};
    const HYPRE_BigInt row = row_of(p->n, x, y, z);
    HYPRE_BigInt columns[kMostOfARow] = {row};
    double values[kMostOfARow] = {6};
    HYPRE_Int count = 1;
    for (int i = 0; i < kMostOfARow - 1; ++i) {
        const int* d = around[i];
        const HYPRE_BigInt other = row_of(p->n, x + d[0], y + d[1], z + d[2]);
        if (other < 0) continue;
        columns[count] = other;
        values[count++] = -1;
    }
    must(HYPRE_IJMatrixSetValues(p->matrix, 1, &count, &row, columns, values), "a row");
    const double right = 1 + (x * 7 + y * 11 + z * 13) % 17 / 16.0, zero = 0;
    must(HYPRE_IJVectorSetValues(p->right, 1, &row, &right), "a right hand side");
    must(HYPRE_IJVectorSetValues(p->solution, 1, &row, &zero), "a first guess");
}

static struct problem make_problem(int n) {
    const HYPRE_BigInt rows = (HYPRE_BigInt)n * n * n;
    struct problem p = {.n = n, .first = g_rank * rows, .last = (g_rank + 1) * rows - 1};
    HYPRE_IJMatrixCreate(MPI_COMM_WORLD, p.first, p.last, p.first, p.last, &p.matrix);
    HYPRE_IJMatrixSetObjectType(p.matrix, HYPRE_PARCSR);
    must(HYPRE_IJMatrixInitialize(p.matrix), "a matrix");
    HYPRE_IJVector* vectors[] = {&p.right, &p.solution};
    for (int i = 0; i < 2; ++i) {
        HYPRE_IJVectorCreate(MPI_COMM_WORLD, p.first, p.last, vectors[i]);
        HYPRE_IJVectorSetObjectType(*vectors[i], HYPRE_PARCSR);
        must(HYPRE_IJVectorInitialize(*vectors[i]), "a vector");
    }
    for (int z = 0; z < n; ++z)
        for (int y = 0; y < n; ++y)
            for (int x = 0; x < n; ++x)
                set_row(&p, g_rank * n + x, y, z);
    must(HYPRE_IJMatrixAssemble(p.matrix), "assembling the matrix");
    must(HYPRE_IJVectorAssemble(p.right), "assembling the right hand side");
    must(HYPRE_IJVectorAssemble(p.solution), "assembling the first guess");
    HYPRE_IJMatrixGetObject(p.matrix, (void**)&p.a);
    HYPRE_IJVectorGetObject(p.right, (void**)&p.b);
    HYPRE_IJVectorGetObject(p.solution, (void**)&p.x);
    return p;
}

static void free_problem(struct problem* p) {
    HYPRE_IJMatrixDestroy(p->matrix);
    HYPRE_IJVectorDestroy(p->right);
    HYPRE_IJVectorDestroy(p->solution);
}

// |b - A x| / |b|, without the solver. The right hand side is no more afterwards.
static double residual_of(struct problem* p) {
    double before, after;
    HYPRE_ParVectorInnerProd(p->b, p->b, &before);
    HYPRE_ParCSRMatrixMatvec(-1, p->a, p->x, 1, p->b);
    HYPRE_ParVectorInnerProd(p->b, p->b, &after);
    return sqrt(after / before);
}

// Sets up and solves; whether it has converged.
static int solve(struct problem* p, int number) {
    HYPRE_Solver solver;
    HYPRE_BoomerAMGCreate(&solver);
    HYPRE_BoomerAMGSetTol(solver, kTolerance);
    HYPRE_BoomerAMGSetMaxIter(solver, kMostIterations);
    HYPRE_BoomerAMGSetStrongThreshold(solver, 0.5);  // what its manual has for three dimensions
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    must(HYPRE_BoomerAMGSetup(solver, p->a, p->b, p->x), "set-up");
    const double middle = MPI_Wtime();
    HYPRE_BoomerAMGSolve(solver, p->a, p->b, p->x);
    const double end = MPI_Wtime();
    HYPRE_ClearAllErrors();  // "did not converge" is one: looked at below
    HYPRE_Int iterations;
    double said;
    HYPRE_BoomerAMGGetNumIterations(solver, &iterations);
    HYPRE_BoomerAMGGetFinalRelativeResidualNorm(solver, &said);
    HYPRE_BoomerAMGDestroy(solver);
    const double found = residual_of(p);
    const int converged = said <= kTolerance && fabs(found - said) <= 0.01 * kTolerance;
    if (g_rank == 0)
        printf(
            "multigrid: run %d: %d iterations, residual %.6e, computed %.6e, set-up %.3f s, "
            "solution %.3f s%s\n",
            number, (int)iterations, said, found, middle - begin, end - middle,
            converged ? "" : ": NOT CONVERGED");
    return converged;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    const int n = argc > 1 ? atoi(argv[1]) : 32, repetitions = argc > 2 ? atoi(argv[2]) : 3;
    if (n < 2 || n > 200 || repetitions < 1) {
        if (g_rank == 0)
            fprintf(stderr, "multigrid: needs 2 to 200 points a side, and a repetition\n");
        MPI_Finalize();
        return 2;
    }
    must(HYPRE_Init(), "hypre");
    const double begin = MPI_Wtime();
    int wrong = 0;
    for (int i = 1; i <= repetitions; ++i) {
        struct problem p = make_problem(n);
        wrong += !solve(&p, i);
        free_problem(&p);
    }
    if (g_rank == 0)
        printf("multigrid: %d ranks with %d^3 points, %.3f s: %s\n", g_ranks, n,
               MPI_Wtime() - begin, wrong ? "WRONG" : "correct");
    HYPRE_Finalize();
    MPI_Finalize();
    return wrong != 0;
}

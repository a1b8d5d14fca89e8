// SPDX-License-Identifier: BSD-2-Clause
// lattice [EXTENT [SOLVES]]: systems (mass^2 - D^2) x = b by conjugate gradients, where D is the
// difference operator of staggered fermions on a 4-dimensional lattice of EXTENT^4 sites (6). In
// the manner of MILC: each product gathers the surfaces of neighbours in up to eight directions, by
// MPI_Isend from buffers that live for one gather; two sums over all ranks an iteration. The
// solution is known without messages, and each solve's answer (50 solves) is compared with it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lattice_field.h"

static const double kMass = 1.0, kSmall = 1e-10, kMostDifference = 1e-7;
enum { kMostIterations = 1000 };

static double dot(const struct lattice* a, const struct vector* f, const struct vector* g) {
    double value = 0;
    for (int site = 0; site < a->sites; ++site)
        for (int i = 0; i < kReals; ++i)
            value += f[site].v[i] * g[site].v[i];
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_SUM, a->grid);
    return value;
}

// f += factor * g
static void add(const struct lattice* a, struct vector* f, double factor, const struct vector* g) {
    for (int site = 0; site < a->sites; ++site)
        for (int i = 0; i < kReals; ++i)
            f[site].v[i] += factor * g[site].v[i];
}

// f = g + factor * f
static void add_to(const struct lattice* a, struct vector* f, double factor,
                   const struct vector* g) {
    for (int site = 0; site < a->sites; ++site)
        for (int i = 0; i < kReals; ++i)
            f[site].v[i] = g[site].v[i] + factor * f[site].v[i];
}

struct fields {
    struct vector *x, *b, *r, *p, *product, *half, *known;
};

// x of the system with b; how many iterations it took.
static int solve(struct lattice* a, struct fields* f) {
    const size_t bytes = (size_t)a->sites * sizeof(struct vector);
    memset(f->x, 0, bytes);
    memcpy(f->r, f->b, bytes);
    memcpy(f->p, f->b, bytes);
    double rho = dot(a, f->r, f->r);
    const double enough = kSmall * kSmall * rho;
    int iterations = 0;
    while (rho > enough && iterations < kMostIterations) {
        difference(a, f->p, f->half);
        difference(a, f->half, f->product);
        add_to(a, f->product, -1, f->p);  // product = p - D D p
        add(a, f->product, kMass * kMass - 1, f->p);
        const double alpha = rho / dot(a, f->p, f->product), before = rho;
        add(a, f->x, alpha, f->p);
        add(a, f->r, -alpha, f->product);
        rho = dot(a, f->r, f->r);
        add_to(a, f->p, rho / before, f->r);
        ++iterations;
    }
    return iterations;
}

static double largest_error(const struct lattice* a, const struct vector* f,
                            const struct vector* known) {
    double worst = 0;
    for (int site = 0; site < a->sites; ++site)
        for (int i = 0; i < kReals; ++i) {
            const double off = fabs(f[site].v[i] - known[site].v[i]);
            if (!(off <= worst)) worst = off;  // also what is no number
        }
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_DOUBLE, MPI_MAX, a->grid);
    return worst;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int extent = argc > 1 ? atoi(argv[1]) : 6, solves = argc > 2 ? atoi(argv[2]) : 50;
    const int extents[kDimensions] = {extent, extent, extent, extent};
    const char* refused = solves < 1 ? "needs a solve" : lattice_refusal(extents, ranks);
    if (refused != NULL) {
        if (rank == 0)
            fprintf(stderr, "lattice: %s (%d^4 sites, %d ranks)\n", refused, extent, ranks);
        MPI_Finalize();
        return 2;
    }
    struct lattice a = make_lattice(extents, ranks);
    struct fields f;
    struct vector** all[] = {&f.x, &f.b, &f.r, &f.p, &f.product, &f.half, &f.known};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        *all[i] = allocate((size_t)a.sites, sizeof(struct vector));
    double seconds = 0, worst = 0;
    int iterations = 0;
    for (int i = 0; i < solves; ++i) {
        if (i < 3) {  // later ones are solved again, with the same answers
            known_field(&a, i, f.known);
            known_product(&a, i, kMass, f.b);
        }
        MPI_Barrier(a.grid);
        const double begin = MPI_Wtime();
        iterations += solve(&a, &f);
        seconds += MPI_Wtime() - begin;
        const double off = largest_error(&a, f.x, f.known);
        if (!(off <= worst)) worst = off;
    }
    const int wrong = !(worst <= kMostDifference);
    if (rank == 0)
        printf(
            "lattice: %d^4 sites on %d x %d x %d x %d ranks, %d solves, %d iterations, largest "
            "error %.2g\nlattice: %.3f s: %s\n",
            extent, a.ranks[0], a.ranks[1], a.ranks[2], a.ranks[3], solves, iterations, worst,
            seconds, wrong ? "WRONG" : "correct");
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i)
        free(*all[i]);
    free_lattice(&a);
    MPI_Finalize();
    return wrong;
}

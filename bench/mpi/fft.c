// SPDX-License-Identifier: BSD-2-Clause
// fft [N [ITERATIONS]]: discrete Fourier transforms of N x N x N complex numbers (64), forward and
// back, ITERATIONS times (10). Both numbers of points and ranks are powers of two. A rank has slabs
// of planes: it transforms its planes in two directions, all ranks exchange blocks by MPI_Alltoall,
// and it transforms the third one. So each transform is one exchange of all data, as in NAS FT.
//
// Two transforms are checked at each point. Before: that of some plane waves, which is known, as
// each wave has one coefficient. After: numbers that look random, which all the transforms there
// and back must have left as they were.
#include <complex.h>
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef double complex number;

static const double kMostDifference = 1e-11;  // of values of about 1
static const double kTwoPi = 6.283185307179586476925;

static int g_rank, g_ranks;
static int g_n, g_planes;     // in each direction; of a rank
static number* g_roots;       // exp(-2 pi i k / n), k < n / 2
static number* g_line;        // one line, together
static number *g_out, *g_in;  // blocks for all ranks, and of all ranks

static size_t points_here(void) { return (size_t)g_n * (size_t)g_n * (size_t)g_planes; }

// The operator of C asks for NaN each time.
static number product(number a, number b) {
    return CMPLX(creal(a) * creal(b) - cimag(a) * cimag(b),
                 creal(a) * cimag(b) + cimag(a) * creal(b));
}

static void* room(size_t bytes) {
    void* const memory = malloc(bytes);
    if (memory == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
    return memory;
}

// Radix 2, in place, of g_line. Not divided by n.
static void transform_line(int backward) {
    for (int i = 1, j = 0; i < g_n; ++i) {  // bits reversed
        int bit = g_n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            const number t = g_line[i];
            g_line[i] = g_line[j];
            g_line[j] = t;
        }
    }
    for (int half = 1; half < g_n; half *= 2)
        for (int begin = 0; begin < g_n; begin += 2 * half)
            for (int k = 0; k < half; ++k) {
                const number root = g_roots[k * (g_n / 2 / half)];
                number* const a = &g_line[begin + k];
                const number b = product(a[half], backward ? conj(root) : root);
                a[half] = *a - b;
                *a += b;
            }
}

static void transform_lines(number* first, size_t stride, int backward) {
    for (int i = 0; i < g_n; ++i)
        g_line[i] = first[(size_t)i * stride];
    transform_line(backward);
    for (int i = 0; i < g_n; ++i)
        first[(size_t)i * stride] = g_line[i];
}

// Both directions within this rank's planes: values[plane][row][column].
static void transform_planes(number* values, int backward) {
    const size_t n = (size_t)g_n;
    for (size_t plane = 0; plane < (size_t)g_planes; ++plane) {
        number* const p = values + plane * n * n;
        for (size_t i = 0; i < n; ++i)
            transform_lines(p + i * n, 1, backward);
        for (size_t i = 0; i < n; ++i)
            transform_lines(p + i, n, backward);
    }
}

static void exchange(void) {
    const int doubles = 2 * g_planes * g_planes * g_n;
    MPI_Alltoall(g_out, doubles, MPI_DOUBLE, g_in, doubles, MPI_DOUBLE, MPI_COMM_WORLD);
}

// Point `row, column` of plane `plane` of what rank `rank` has or gets, within the blocks.
static size_t at(int rank, int plane, int row, int column) {
    const size_t block = (size_t)rank * (size_t)g_planes + (size_t)plane;
    return (block * (size_t)g_planes + (size_t)row) * (size_t)g_n + (size_t)column;
}

// values[z of this rank][y][x] -> coefficients[y of this rank][z][x].
static void forward(number* values, number* coefficients) {
    transform_planes(values, 0);
    const size_t n = (size_t)g_n;
    for (int rank = 0; rank < g_ranks; ++rank)
        for (int plane = 0; plane < g_planes; ++plane)
            for (int row = 0; row < g_planes; ++row)
                for (int x = 0; x < g_n; ++x)
                    g_out[at(rank, plane, row, x)] =
                        values[((size_t)plane * n + (size_t)(rank * g_planes + row)) * n +
                               (size_t)x];
    exchange();
    for (int rank = 0; rank < g_ranks; ++rank)
        for (int plane = 0; plane < g_planes; ++plane)
            for (int row = 0; row < g_planes; ++row)
                for (int x = 0; x < g_n; ++x)
                    coefficients[((size_t)row * n + (size_t)(rank * g_planes + plane)) * n +
                                 (size_t)x] = g_in[at(rank, plane, row, x)];
    for (size_t row = 0; row < (size_t)g_planes; ++row)
        for (size_t x = 0; x < n; ++x)
            transform_lines(coefficients + row * n * n + x, n, 0);
}

// The inverse of forward(), with its factor.
static void backward(number* coefficients, number* values) {
    const size_t n = (size_t)g_n;
    for (size_t row = 0; row < (size_t)g_planes; ++row)
        for (size_t x = 0; x < n; ++x)
            transform_lines(coefficients + row * n * n + x, n, 1);
    for (int rank = 0; rank < g_ranks; ++rank)
        for (int plane = 0; plane < g_planes; ++plane)
            for (int row = 0; row < g_planes; ++row)
                for (int x = 0; x < g_n; ++x)
                    g_out[at(rank, plane, row, x)] =
                        coefficients[((size_t)row * n + (size_t)(rank * g_planes + plane)) * n +
                                     (size_t)x];
    exchange();
    for (int rank = 0; rank < g_ranks; ++rank)
        for (int plane = 0; plane < g_planes; ++plane)
            for (int row = 0; row < g_planes; ++row)
                for (int x = 0; x < g_n; ++x)
                    values[((size_t)plane * n + (size_t)(rank * g_planes + row)) * n + (size_t)x] =
                        g_in[at(rank, plane, row, x)];
    transform_planes(values, 1);
    const double factor = 1.0 / (double)n / (double)n / (double)n;
    for (size_t i = 0; i < points_here(); ++i)
        values[i] *= factor;
}

// Waves, each by its numbers in z, y and x (modulo n), and its coefficient.
static const struct wave {
    int z, y, x;
    double re, im;
} kWaves[] = {{0, 0, 0, 0.5, 0}, {1, 2, 3, 1, -2}, {5, 0, -1, -0.25, 0.75}, {-2, 7, 4, 0, 3}};
enum { kWaveCount = sizeof kWaves / sizeof *kWaves };

static int modulo(int i) { return ((i % g_n) + g_n) % g_n; }

static number value_of_waves(int z, int y, int x) {
    number sum = 0;
    for (int w = 0; w < kWaveCount; ++w) {
        const struct wave* const v = &kWaves[w];
        const int phase = modulo(modulo(v->z * z) + modulo(v->y * y) + modulo(v->x * x));
        const double angle = kTwoPi * phase / g_n;
        sum += (v->re + v->im * I) * (cos(angle) + sin(angle) * I);
    }
    return sum;
}

static number coefficient_of_waves(int z, int y, int x) {
    number sum = 0;
    for (int w = 0; w < kWaveCount; ++w)
        if (modulo(kWaves[w].z) == z && modulo(kWaves[w].y) == y && modulo(kWaves[w].x) == x)
            sum += kWaves[w].re + kWaves[w].im * I;
    return sum * g_n * g_n * g_n;
}

// A number that belongs to the point and looks random, between -1 and 1.
static double scattered(uint64_t i) {
    i += 0x9e3779b97f4a7c15u;
    i = (i ^ (i >> 30)) * 0xbf58476d1ce4e5b9u;
    i = (i ^ (i >> 27)) * 0x94d049bb133111ebu;
    return (double)((i ^ (i >> 31)) >> 11) * 0x1p-52 - 1;
}

static number value_at(size_t i) {
    const uint64_t point = (uint64_t)g_rank * points_here() + i;
    return scattered(2 * point) + scattered(2 * point + 1) * I;
}

static double largest_of_all(double mine) {
    double largest;
    MPI_Allreduce(&mine, &largest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return largest;
}

// How far a transform of the waves is from their coefficients.
static double error_of_waves(number* values, number* coefficients) {
    const size_t n = (size_t)g_n;
    for (int plane = 0; plane < g_planes; ++plane)
        for (int y = 0; y < g_n; ++y)
            for (int x = 0; x < g_n; ++x)
                values[((size_t)plane * n + (size_t)y) * n + (size_t)x] =
                    value_of_waves(g_rank * g_planes + plane, y, x);
    forward(values, coefficients);
    double most = 0;
    for (int row = 0; row < g_planes; ++row)
        for (int z = 0; z < g_n; ++z)
            for (int x = 0; x < g_n; ++x) {
                const number is = coefficients[((size_t)row * n + (size_t)z) * n + (size_t)x];
                const number want = coefficient_of_waves(z, g_rank * g_planes + row, x);
                most = fmax(most, cabs(is - want) / (double)(n * n * n));
            }
    return largest_of_all(most);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &g_ranks);
    g_n = argc > 1 ? atoi(argv[1]) : 64;
    const int iterations = argc > 2 ? atoi(argv[2]) : 10;
    if (g_n < 8 || g_n > 1024 || (g_n & (g_n - 1)) != 0 || g_n % g_ranks != 0 || iterations < 1) {
        if (g_rank == 0)
            fprintf(stderr,
                    "fft [N [ITERATIONS]]: N is a power of two from 8 to 1024, and the "
                    "ranks divide it\n");
        MPI_Finalize();
        return 2;
    }
    g_planes = g_n / g_ranks;
    const size_t bytes = points_here() * sizeof(number);
    number *const values = room(bytes), *const coefficients = room(bytes);
    g_out = room(bytes);
    g_in = room(bytes);
    g_line = room((size_t)g_n * sizeof *g_line);
    g_roots = room((size_t)g_n / 2 * sizeof *g_roots);
    for (int k = 0; k < g_n / 2; ++k)
        g_roots[k] = cos(kTwoPi * k / g_n) - sin(kTwoPi * k / g_n) * I;

    const double of_waves = error_of_waves(values, coefficients);
    for (size_t i = 0; i < points_here(); ++i)
        values[i] = value_at(i);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    for (int i = 0; i < iterations; ++i) {
        forward(values, coefficients);
        backward(coefficients, values);
    }
    const double seconds = largest_of_all(MPI_Wtime() - begin);
    double mine = 0;
    for (size_t i = 0; i < points_here(); ++i)
        mine = fmax(mine, cabs(values[i] - value_at(i)));
    const double of_numbers = largest_of_all(mine);
    const int right = of_waves < kMostDifference && of_numbers < kMostDifference;
    if (g_rank == 0)
        printf(
            "fft: %d x %d x %d, %d there and back, %.4f s: %s (%.1e from known waves, %.1e after "
            "all)\n",
            g_n, g_n, g_n, iterations, seconds, right ? "correct" : "WRONG", of_waves, of_numbers);
    free(values);
    free(coefficients);
    free(g_out);
    free(g_in);
    free(g_line);
    free(g_roots);
    MPI_Finalize();
    return right ? 0 : 1;
}

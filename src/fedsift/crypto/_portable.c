/* The kernel's arithmetic in plain C, for every processor: the same rows in and out as `_montgomery.c` and `_ring.c`.
 *
 * Modular products: rows of limbs of 52 bits, product scanning. A column of a product is a sum of at most 2 * MAX_LIMBS
 * terms below 2^104, which 128 bits hold, so carries are passed on once a column only. The steps do not depend on the
 * values. One such product takes as long as GMP's; but Python's lock is free here, so that all cores work.
 *
 * Ring products: numbers of 64 bits as two halves. Compilers find the processor's own instruction for 32 x 32 bits
 * (SSE2, NEON); the cross terms are summed apart and shifted once.
 */
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && defined(__SIZEOF_INT128__)
#define EXPORT __attribute__((visibility("default")))
#define MAX_LIMBS 96
#define LIMB 52
#define MASK ((1ULL << LIMB) - 1)

typedef unsigned __int128 wide;

/* out = a * b / 2^(52 limbs) mod n, below 2n; out may be a or b */
static inline __attribute__((always_inline)) void multiply(
    uint64_t *out, const uint64_t *a, const uint64_t *b, const uint64_t *n, uint64_t inverse, int limbs) {
    uint64_t m[MAX_LIMBS], result[MAX_LIMBS];
    wide carry = 0;
    for (int i = 0; i < limbs; i++) {
        wide one = carry, two = 0;
        for (int j = 0; j < i; j++) {
            one += (wide)a[j] * b[i - j];
            two += (wide)m[j] * n[i - j];
        }
        one += two + (wide)a[i] * b[0];
        m[i] = (uint64_t)one * inverse & MASK;
        carry = (one + (wide)m[i] * n[0]) >> LIMB;
    }
    for (int i = limbs; i < 2 * limbs; i++) {
        wide one = carry, two = 0;
        for (int j = i - limbs + 1; j < limbs; j++) {
            one += (wide)a[j] * b[i - j];
            two += (wide)m[j] * n[i - j];
        }
        one += two;
        result[i - limbs] = (uint64_t)one & MASK;
        carry = one >> LIMB;
    }
    memcpy(out, result, (size_t)limbs * sizeof *out);
}

EXPORT void fedsift_portable_products(const uint64_t *a, const uint64_t *b, int64_t count, int64_t count_b,
                                      const uint64_t *n, uint64_t inverse, uint64_t *out, int limbs) {
    for (int64_t i = 0; i < count; i++)
        multiply(out + i * limbs, a + i * limbs, b + (count_b == 1 ? 0 : i * limbs), n, inverse, limbs);
}

EXPORT void fedsift_portable_squares(const uint64_t *values, int64_t count, int64_t times, const uint64_t *n,
                                     uint64_t inverse, uint64_t *out, int limbs) {
    for (int64_t i = 0; i < count; i++) {
        uint64_t *x = out + i * limbs;
        memcpy(x, values + i * limbs, (size_t)limbs * sizeof *x);
        for (int64_t step = 0; step < times; step++) multiply(x, x, x, n, inverse, limbs);
    }
}

/* Fixed windows of four bits; every entry of the table is read each time, so that none is known by its address. */
EXPORT void fedsift_portable_powers(const uint64_t *values, int64_t count, const uint8_t *exponents, int64_t size,
                                    const uint64_t *one, const uint64_t *n, uint64_t inverse, uint64_t *out,
                                    int limbs) {
    uint64_t table[16][MAX_LIMBS], next[MAX_LIMBS];
    for (int64_t i = 0; i < count; i++) {
        uint64_t *x = out + i * limbs;
        memcpy(table[0], one, (size_t)limbs * sizeof *x);
        memcpy(table[1], values + i * limbs, (size_t)limbs * sizeof *x);
        for (int d = 2; d < 16; d++) multiply(table[d], table[d - 1], table[1], n, inverse, limbs);
        memcpy(x, one, (size_t)limbs * sizeof *x);
        for (int64_t digit = 0; digit < 2 * size; digit++) {
            const int byte = exponents[i * size + digit / 2];
            const uint64_t place = (uint64_t)(digit % 2 ? byte & 15 : byte >> 4);
            for (int step = 0; step < 4; step++) multiply(x, x, x, n, inverse, limbs);
            memset(next, 0, (size_t)limbs * sizeof *x);
            for (uint64_t d = 0; d < 16; d++) {
                const uint64_t taken = 0 - (uint64_t)(d == place);
                for (int j = 0; j < limbs; j++) next[j] |= table[d][j] & taken;
            }
            multiply(x, x, next, n, inverse, limbs);
        }
    }
}

EXPORT void fedsift_portable_segments(const uint64_t *values, const int64_t *order, const int64_t *bounds,
                                      int64_t first, int64_t last, const uint64_t *one, const uint64_t *n,
                                      uint64_t inverse, uint64_t *out, int limbs) {
    for (int64_t s = first; s < last; s++) {
        uint64_t *x = out + s * limbs;
        const uint64_t *start = bounds[s] < bounds[s + 1] ? values + order[bounds[s]] * limbs : one;
        memcpy(x, start, (size_t)limbs * sizeof *x);
        for (int64_t i = bounds[s] + 1; i < bounds[s + 1]; i++)
            multiply(x, x, values + order[i] * limbs, n, inverse, limbs);
    }
}

#define ROWS 256
#define TILE 16

static void tile(const uint64_t *left, const uint32_t *low, const uint32_t *high, int64_t rows, int64_t a,
                 int width, uint64_t *out) {
    uint64_t straight[TILE] = {0}, crossed[TILE] = {0};
    for (int64_t i = 0; i < rows; i++) {
        const uint64_t x = left[i * a];
        const uint32_t x0 = (uint32_t)x, x1 = (uint32_t)(x >> 32);
        for (int j = 0; j < TILE; j++) {
            straight[j] += (uint64_t)x0 * low[i * TILE + j];
            crossed[j] += (uint64_t)x0 * high[i * TILE + j] + (uint64_t)x1 * low[i * TILE + j];
        }
    }
    for (int j = 0; j < width; j++) out[j] += straight[j] + (crossed[j] << 32);
}

/* out (a x b) += left' right, as fedsift_ring_product */
EXPORT void fedsift_portable_ring_product(const uint64_t *left, const uint64_t *right, int64_t n, int64_t a, int64_t b,
                                          uint64_t *out) {
    uint32_t low[ROWS * TILE], high[ROWS * TILE];
    for (int64_t first = 0; first < n; first += ROWS) {
        const int64_t rows = n - first < ROWS ? n - first : ROWS;
        for (int64_t d = 0; d < b; d += TILE) {
            const int width = (int)(b - d < TILE ? b - d : TILE);
            memset(low, 0, sizeof low);
            memset(high, 0, sizeof high);
            for (int64_t i = 0; i < rows; i++)
                for (int j = 0; j < width; j++) {
                    low[i * TILE + j] = (uint32_t)right[(first + i) * b + d + j];
                    high[i * TILE + j] = (uint32_t)(right[(first + i) * b + d + j] >> 32);
                }
            for (int64_t c = 0; c < a; c++) tile(left + first * a + c, low, high, rows, a, width, out + c * b + d);
        }
    }
}

EXPORT int fedsift_portable(void) { return 1; }
#else
int fedsift_portable(void) { return 0; }
#endif

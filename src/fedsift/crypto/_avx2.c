/* The kernel's arithmetic with AVX2, four products side by side: the same rows in and out as `_montgomery.c`.
 *
 * Limbs of 52 bits are cut into two of 26: a product of two such has 52 bits, and a limb of the running sum takes at
 * most 4 * MAX_HALVES of them before its carries are passed on, which 64 bits hold. Two limbs of one factor in a pass,
 * as there. The steps do not depend on the values.
 */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#define LANES 4
#define MAX_LIMBS 96
#define MAX_HALVES (2 * MAX_LIMBS)
#define HALF 26
#define EXPORT __attribute__((visibility("default"), target("avx2")))
#define INLINE static inline __attribute__((always_inline, target("avx2")))
#define TIMES _mm256_mul_epu32
#define PLUS _mm256_add_epi64
/* as in _montgomery.c: what keys of 2048 bits take */
#define BY_SIZE(CALL)     \
    if (limbs == 40)      \
        CALL(40);         \
    else if (limbs == 28) \
        CALL(28);         \
    else if (limbs == 80) \
        CALL(80);         \
    else                  \
        CALL(limbs)

typedef union {
    __m256i half[MAX_HALVES];
    uint64_t word[MAX_HALVES * LANES];
} Lanes;

typedef struct {
    Lanes n;
    __m256i inverse; /* -1 / n mod 2^26 */
} Modulus;

__attribute__((visibility("default"))) int fedsift_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0;
}

/* out = a * b / 2^(52 limbs) mod n, in every lane; out may be a or b */
INLINE void multiply(Lanes *out, const Lanes *a, const Lanes *b, const Modulus *mod, int halves) {
    const __m256i zero = _mm256_setzero_si256(), mask = _mm256_set1_epi64x((1LL << HALF) - 1);
    const Lanes *n = &mod->n;
    __m256i t[MAX_HALVES];
    for (int j = 0; j < halves; j++) t[j] = zero;
    for (int i = 0; i < halves; i += 2) {
        const __m256i x0 = a->half[i], x1 = a->half[i + 1];
        __m256i b0 = b->half[0], n0 = n->half[0], b1 = b->half[1], n1 = n->half[1];
        __m256i s = PLUS(t[0], TIMES(x0, b0));
        const __m256i m0 = _mm256_and_si256(TIMES(s, mod->inverse), mask);
        s = PLUS(t[1], _mm256_srli_epi64(PLUS(s, TIMES(m0, n0)), HALF));
        s = PLUS(PLUS(s, TIMES(x0, b1)), PLUS(TIMES(m0, n1), TIMES(x1, b0)));
        const __m256i m1 = _mm256_and_si256(TIMES(s, mod->inverse), mask);
        t[2] = PLUS(t[2], _mm256_srli_epi64(PLUS(s, TIMES(m1, n0)), HALF));
        b0 = b1, n0 = n1;
#pragma GCC unroll 4
        for (int j = 2; j < halves; j++) {
            const __m256i b2 = b->half[j], n2 = n->half[j];
            const __m256i one = PLUS(TIMES(x0, b2), TIMES(m0, n2)), two = PLUS(TIMES(x1, b0), TIMES(m1, n0));
            t[j - 2] = PLUS(t[j], PLUS(one, two));
            b0 = b2, n0 = n2;
        }
        t[halves - 2] = PLUS(TIMES(x1, b0), TIMES(m1, n0));
        t[halves - 1] = zero;
    }
    __m256i carry = zero;
    for (int j = 0; j < halves; j++) {
        const __m256i s = PLUS(t[j], carry);
        out->half[j] = _mm256_and_si256(s, mask);
        carry = _mm256_srli_epi64(s, HALF);
    }
}

INLINE void get(Lanes *lanes, int lane, const uint64_t *row, int limbs) {
    uint64_t *to = lanes->word + lane;
    for (int j = 0; j < limbs; j++) {
        to[2 * j * LANES] = row[j] & ((1ULL << HALF) - 1);
        to[(2 * j + 1) * LANES] = row[j] >> HALF;
    }
}

INLINE void put(uint64_t *row, const Lanes *lanes, int lane, int limbs) {
    const uint64_t *from = lanes->word + lane;
    for (int j = 0; j < limbs; j++) row[j] = from[2 * j * LANES] | from[(2 * j + 1) * LANES] << HALF;
}

INLINE void read_modulus(Modulus *mod, const uint64_t *n, uint64_t inverse, int limbs) {
    memset(mod, 0, sizeof *mod);
    for (int lane = 0; lane < LANES; lane++) get(&mod->n, lane, n, limbs);
    mod->inverse = _mm256_set1_epi64x((long long)(inverse & ((1ULL << HALF) - 1)));
}

/* rows start .. start + 3; where fewer are left, the first again */
INLINE void following(Lanes *lanes, const uint64_t *values, int64_t start, int64_t count, int limbs) {
    for (int lane = 0; lane < LANES; lane++)
        get(lanes, lane, values + (start + lane < count ? start + lane : start) * limbs, limbs);
}

INLINE void write(uint64_t *out, const Lanes *lanes, int64_t start, int64_t count, int limbs) {
    for (int lane = 0; lane < LANES && start + lane < count; lane++) put(out + (start + lane) * limbs, lanes, lane, limbs);
}

INLINE void products(const uint64_t *a, const uint64_t *b, int64_t count, int64_t count_b, const Modulus *mod,
                     uint64_t *out, int limbs) {
    Lanes x, y;
    memset(&y, 0, sizeof y);
    for (int64_t start = 0; start < count; start += LANES) {
        following(&x, a, start, count, limbs);
        following(&y, b, count_b == 1 ? 0 : start, count_b, limbs);
        multiply(&x, &x, &y, mod, 2 * limbs);
        write(out, &x, start, count, limbs);
    }
}

EXPORT void fedsift_avx2_products(const uint64_t *a, const uint64_t *b, int64_t count, int64_t count_b,
                                  const uint64_t *n, uint64_t inverse, uint64_t *out, int limbs) {
    Modulus mod;
    read_modulus(&mod, n, inverse, limbs);
#define CALL(SIZE) products(a, b, count, count_b, &mod, out, SIZE)
    BY_SIZE(CALL);
#undef CALL
}

INLINE void squares(const uint64_t *values, int64_t count, int64_t times, const Modulus *mod, uint64_t *out, int limbs) {
    Lanes x;
    for (int64_t start = 0; start < count; start += LANES) {
        following(&x, values, start, count, limbs);
        for (int64_t step = 0; step < times; step++) multiply(&x, &x, &x, mod, 2 * limbs);
        write(out, &x, start, count, limbs);
    }
}

EXPORT void fedsift_avx2_squares(const uint64_t *values, int64_t count, int64_t times, const uint64_t *n,
                                 uint64_t inverse, uint64_t *out, int limbs) {
    Modulus mod;
    read_modulus(&mod, n, inverse, limbs);
#define CALL(SIZE) squares(values, count, times, &mod, out, SIZE)
    BY_SIZE(CALL);
#undef CALL
}

/* Fixed windows of four bits: the steps do not depend on the exponents, of `size` bytes each, the highest first. */
INLINE void powers(const uint64_t *values, int64_t count, const uint8_t *exponents, int64_t size, const uint64_t *one,
                   const Modulus *mod, uint64_t *out, int limbs) {
    Lanes table[16], x, next;
    for (int64_t start = 0; start < count; start += LANES) {
        for (int lane = 0; lane < LANES; lane++) get(&table[0], lane, one, limbs);
        following(&table[1], values, start, count, limbs);
        for (int d = 2; d < 16; d++) multiply(&table[d], &table[d - 1], &table[1], mod, 2 * limbs);
        x = table[0];
        for (int64_t digit = 0; digit < 2 * size; digit++) {
            for (int step = 0; step < 4; step++) multiply(&x, &x, &x, mod, 2 * limbs);
            long long place[LANES];
            for (int lane = 0; lane < LANES; lane++) {
                const int64_t row = start + lane < count ? start + lane : start;
                const int byte = exponents[row * size + digit / 2];
                place[lane] = (digit % 2 ? byte & 15 : byte >> 4) * MAX_HALVES * LANES + lane;
            }
            const __m256i places = _mm256_loadu_si256((const __m256i *)place);
            for (int j = 0; j < 2 * limbs; j++)
                next.half[j] = _mm256_i64gather_epi64((const long long *)table + j * LANES, places, 8);
            multiply(&x, &x, &next, mod, 2 * limbs);
        }
        write(out, &x, start, count, limbs);
    }
}

EXPORT void fedsift_avx2_powers(const uint64_t *values, int64_t count, const uint8_t *exponents, int64_t size,
                                const uint64_t *one, const uint64_t *n, uint64_t inverse, uint64_t *out, int limbs) {
    Modulus mod;
    read_modulus(&mod, n, inverse, limbs);
#define CALL(SIZE) powers(values, count, exponents, size, one, &mod, out, SIZE)
    BY_SIZE(CALL);
#undef CALL
}

/* A lane takes a segment, multiplies its rows one after the other, writes the product and takes the next segment. */
INLINE void segments(const uint64_t *values, const int64_t *order, const int64_t *bounds, int64_t first, int64_t last,
                     const uint64_t *one, const Modulus *mod, uint64_t *out, int limbs) {
    Lanes sum, next;
    int64_t place[LANES], end[LANES], segment[LANES];
    memset(&sum, 0, sizeof sum);
    memset(&next, 0, sizeof next);
    for (int lane = 0; lane < LANES; lane++) place[lane] = end[lane] = 0, segment[lane] = -1;
    for (;;) {
        int busy = 0;
        for (int lane = 0; lane < LANES; lane++) {
            while (place[lane] == end[lane]) {
                if (segment[lane] >= 0) put(out + segment[lane] * limbs, &sum, lane, limbs);
                segment[lane] = first < last ? first++ : -1;
                if (segment[lane] < 0) break;
                place[lane] = bounds[segment[lane]];
                end[lane] = bounds[segment[lane] + 1];
                get(&sum, lane, place[lane] < end[lane] ? values + order[place[lane]++] * limbs : one, limbs);
            }
            if (segment[lane] < 0) continue; /* an idle lane multiplies in vain */
            busy = 1;
            get(&next, lane, values + order[place[lane]++] * limbs, limbs);
        }
        if (!busy) return;
        multiply(&sum, &sum, &next, mod, 2 * limbs);
    }
}

EXPORT void fedsift_avx2_segments(const uint64_t *values, const int64_t *order, const int64_t *bounds, int64_t first,
                                  int64_t last, const uint64_t *one, const uint64_t *n, uint64_t inverse,
                                  uint64_t *out, int limbs) {
    Modulus mod;
    read_modulus(&mod, n, inverse, limbs);
#define CALL(SIZE) segments(values, order, bounds, first, last, one, &mod, out, SIZE)
    BY_SIZE(CALL);
#undef CALL
}

#define ROWS 256
#define WIDE 16

/* One column of left, sixteen of right (zeros beyond its own): low and high halves apart, cross terms shifted once. */
__attribute__((target("avx2"))) static void tile(const uint64_t *left, const __m256i *right, int64_t rows, int64_t a,
                                                 int width, uint64_t *out) {
    __m256i straight[4], crossed[4];
    uint64_t part[LANES], cross[LANES];
    for (int j = 0; j < 4; j++) straight[j] = crossed[j] = _mm256_setzero_si256();
    for (int64_t i = 0; i < rows; i++) {
        const __m256i x = _mm256_set1_epi64x((long long)left[i * a]), high = _mm256_srli_epi64(x, 32);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const __m256i y = right[i * 4 + j];
            straight[j] = PLUS(straight[j], TIMES(x, y));
            crossed[j] = PLUS(crossed[j], PLUS(TIMES(high, y), TIMES(x, _mm256_srli_epi64(y, 32))));
        }
    }
    for (int j = 0; j < 4; j++) {
        _mm256_storeu_si256((__m256i *)part, straight[j]);
        _mm256_storeu_si256((__m256i *)cross, crossed[j]);
        for (int k = 0; k < LANES && LANES * j + k < width; k++) out[LANES * j + k] += part[k] + (cross[k] << 32);
    }
}

/* out (a x b) += left' right, as fedsift_ring_product */
EXPORT void fedsift_avx2_ring_product(const uint64_t *left, const uint64_t *right, int64_t n, int64_t a, int64_t b,
                                      uint64_t *out) {
    __m256i block[ROWS * 4];
    for (int64_t first = 0; first < n; first += ROWS) {
        const int64_t rows = n - first < ROWS ? n - first : ROWS;
        for (int64_t d = 0; d < b; d += WIDE) {
            const int width = (int)(b - d < WIDE ? b - d : WIDE);
            memset(block, 0, sizeof block);
            for (int64_t i = 0; i < rows; i++)
                memcpy((uint64_t *)block + i * WIDE, right + (first + i) * b + d, (size_t)width * sizeof *right);
            for (int64_t c = 0; c < a; c++) tile(left + first * a + c, block, rows, a, width, out + c * b + d);
        }
    }
}
#else
int fedsift_avx2(void) { return 0; }
#endif

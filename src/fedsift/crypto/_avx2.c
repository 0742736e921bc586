/* The kernel's arithmetic with AVX2 and FMA, four products side by side: the same rows in and out as `_montgomery.c`.
 *
 * AVX2 multiplies integers of 32 bits only, so limbs of 52 bits are kept as floating-point numbers, and a product of two
 * is taken apart by two fused multiply-and-adds (as Emmart, Zheng and Weems did on graphics processors). Rounded towards
 * zero, a b + 2^104 has the high half of a b in its last 52 bits; that taken off, a b - high + 2^52 has the low half
 * there, exactly. The bits of both are added as integers, and what their exponents add is known. A limb of the running
 * sum takes at most 4 * MAX_LIMBS halves before its carries are passed on, which 64 bits hold. Two limbs of one factor
 * in a pass, as there. The steps do not depend on the values: all are whole numbers, none so small that a processor
 * would be slower with it.
 */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#define LANES 4
#define MAX_LIMBS 96
#define LIMB 52
#define TARGET target("avx2,fma")
#define EXPORT __attribute__((visibility("default"), TARGET))
#define INLINE static inline __attribute__((always_inline, TARGET))
#define CALLED static __attribute__((noinline, TARGET))
#define TIMES _mm256_mul_epu32
#define PLUS _mm256_add_epi64
#define BITS _mm256_castpd_si256
#define NUMBER _mm256_castsi256_pd
#define TWO_52 0x1p52
#define TWO_104 0x1p104
#define EXPONENT_52 ((1023LL + 52) << 52) /* the bits of 2^52, and of 2^104 */
#define EXPONENT_104 ((1023LL + 104) << 52)
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
    __m256d limb[MAX_LIMBS];
    double word[MAX_LIMBS * LANES];
} Lanes;

typedef struct {
    Lanes n;
    __m256d inverse; /* -1 / n mod 2^52 */
} Modulus;

__attribute__((visibility("default"))) int fedsift_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* a whole number below 2^52 from the low bits of an integer, and back */
INLINE __m256d number(__m256i low) {
    const __m256i mask = _mm256_set1_epi64x((1LL << LIMB) - 1), exponent = _mm256_set1_epi64x(EXPONENT_52);
    return _mm256_sub_pd(NUMBER(_mm256_or_si256(_mm256_and_si256(low, mask), exponent)), _mm256_set1_pd(TWO_52));
}

/* 2^104 + 2^52 times the high half of a b, and 2^52 + its low half; the bits of each minus those of the power of two
 * are the half */
INLINE __m256d above(__m256d a, __m256d b) { return _mm256_fmadd_pd(a, b, _mm256_set1_pd(TWO_104)); }
INLINE __m256d below(__m256d a, __m256d b, __m256d high) {
    return _mm256_fmadd_pd(a, b, _mm256_sub_pd(_mm256_set1_pd(TWO_104 + TWO_52), high));
}

/* the factor of n that makes the low bits of s zero */
INLINE __m256d factor(__m256i s, const Modulus *mod) {
    const __m256d low = number(s), high = above(low, mod->inverse);
    return _mm256_sub_pd(below(low, mod->inverse, high), _mm256_set1_pd(TWO_52));
}

/* sum += the low half of a b; high += the high half: both with the bits of a power of two */
#define ADD(sum, high, a, b)                             \
    do {                                                 \
        const __m256d top_ = above(a, b);                \
        high = PLUS(high, BITS(top_));                   \
        sum = PLUS(sum, BITS(below(a, b, top_)));        \
    } while (0)

/* Rounding is the thread's: as it was again, afterwards. What computes is called, so that nothing is moved out of it. */
#define ROUNDED(CALL)                                           \
    do {                                                        \
        const unsigned before = _mm_getcsr();                   \
        _mm_setcsr(before | _MM_ROUND_TOWARD_ZERO);             \
        CALL;                                                   \
        _mm_setcsr(before);                                     \
    } while (0)

/* out = a * b / 2^(52 limbs) mod n, in every lane; out may be a or b; the number of limbs is even. Numbers are rounded
 * towards zero. */
INLINE void multiply(Lanes *out, const Lanes *a, const Lanes *b, const Modulus *mod, int limbs) {
    /* what the exponents of halves add is taken off beforehand: of a low half here, or of four and four high ones */
    const __m256i low_off = _mm256_set1_epi64x((long long)(0ULL - EXPONENT_52)),
                  highs_off = _mm256_set1_epi64x((long long)(0ULL - 2ULL * EXPONENT_104)),
                  all_off = _mm256_set1_epi64x((long long)(0ULL - 4ULL * EXPONENT_104 - 4ULL * EXPONENT_52)),
                  lows_on = _mm256_set1_epi64x((long long)(2ULL * EXPONENT_52)),
                  lows_off = _mm256_set1_epi64x((long long)(0ULL - 3ULL * EXPONENT_52));
    const Lanes *n = &mod->n;
    __m256i t[MAX_LIMBS];
    for (int j = 0; j < limbs; j++) t[j] = _mm256_setzero_si256();
    for (int i = 0; i < limbs; i += 2) {
        const __m256d x0 = a->limb[i], x1 = a->limb[i + 1];
        __m256d b1 = b->limb[1], n1 = n->limb[1];
        const __m256d b0 = b->limb[0], n0 = n->limb[0];
        /* place 0: x0 b0 + m0 n0, whose low bits are zero */
        __m256i high = highs_off, s = PLUS(t[0], low_off);
        ADD(s, high, x0, b0);
        const __m256d m0 = factor(s, mod);
        s = PLUS(s, low_off);
        ADD(s, high, m0, n0);
        /* place 1: x0 b1 + m0 n1 + x1 b0 + m1 n0, likewise */
        __m256i next = all_off;
        s = PLUS(PLUS(t[1], high), PLUS(_mm256_srli_epi64(s, LIMB), lows_off));
        ADD(s, next, x0, b1);
        ADD(s, next, m0, n1);
        ADD(s, next, x1, b0);
        const __m256d m1 = factor(s, mod);
        s = PLUS(s, low_off);
        ADD(s, next, m1, n0);
        high = PLUS(next, _mm256_srli_epi64(s, LIMB));
#pragma GCC unroll 4
        for (int j = 2; j < limbs; j++) {
            const __m256d b2 = b->limb[j], n2 = n->limb[j];
            s = PLUS(t[j], high);
            high = all_off;
            ADD(s, high, x0, b2);
            ADD(s, high, m0, n2);
            ADD(s, high, x1, b1);
            ADD(s, high, m1, n1);
            t[j - 2] = s;
            b1 = b2, n1 = n2;
        }
        /* the place above: x1 and m1 times the last limbs */
        s = PLUS(high, lows_on);
        high = highs_off;
        ADD(s, high, x1, b1);
        ADD(s, high, m1, n1);
        t[limbs - 2] = s;
        t[limbs - 1] = high;
    }
    __m256i carry = _mm256_setzero_si256();
    for (int j = 0; j < limbs; j++) {
        const __m256i s = PLUS(t[j], carry);
        out->limb[j] = number(s);
        carry = _mm256_srli_epi64(s, LIMB);
    }
}

INLINE void get(Lanes *lanes, int lane, const uint64_t *row, int limbs) {
    for (int j = 0; j < limbs; j++) lanes->word[j * LANES + lane] = (double)(int64_t)row[j];
}

INLINE void put(uint64_t *row, const Lanes *lanes, int lane, int limbs) {
    for (int j = 0; j < limbs; j++) row[j] = (uint64_t)(int64_t)lanes->word[j * LANES + lane];
}

INLINE void read_modulus(Modulus *mod, const uint64_t *n, uint64_t inverse, int limbs) {
    memset(mod, 0, sizeof *mod);
    for (int lane = 0; lane < LANES; lane++) get(&mod->n, lane, n, limbs);
    mod->inverse = _mm256_set1_pd((double)(int64_t)(inverse & ((1ULL << LIMB) - 1)));
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
        multiply(&x, &x, &y, mod, limbs);
        write(out, &x, start, count, limbs);
    }
}

CALLED void all_products(const uint64_t *a, const uint64_t *b, int64_t count, int64_t count_b,
                                  const uint64_t *n, uint64_t inverse, uint64_t *out, int limbs) {
    Modulus mod;
    read_modulus(&mod, n, inverse, limbs);
#define CALL(SIZE) products(a, b, count, count_b, &mod, out, SIZE)
    BY_SIZE(CALL);
#undef CALL
}

EXPORT void fedsift_avx2_products(const uint64_t *a, const uint64_t *b, int64_t count, int64_t count_b, const uint64_t *n, uint64_t inverse, uint64_t *out, int limbs) {
    ROUNDED(all_products(a, b, count, count_b, n, inverse, out, limbs));
}

INLINE void squares(const uint64_t *values, int64_t count, int64_t times, const Modulus *mod, uint64_t *out, int limbs) {
    Lanes x;
    for (int64_t start = 0; start < count; start += LANES) {
        following(&x, values, start, count, limbs);
        for (int64_t step = 0; step < times; step++) multiply(&x, &x, &x, mod, limbs);
        write(out, &x, start, count, limbs);
    }
}

CALLED void all_squares(const uint64_t *values, int64_t count, int64_t times, const uint64_t *n,
                                 uint64_t inverse, uint64_t *out, int limbs) {
    Modulus mod;
    read_modulus(&mod, n, inverse, limbs);
#define CALL(SIZE) squares(values, count, times, &mod, out, SIZE)
    BY_SIZE(CALL);
#undef CALL
}

EXPORT void fedsift_avx2_squares(const uint64_t *values, int64_t count, int64_t times, const uint64_t *n, uint64_t inverse, uint64_t *out, int limbs) {
    ROUNDED(all_squares(values, count, times, n, inverse, out, limbs));
}

/* Fixed windows of four bits: the steps do not depend on the exponents, of `size` bytes each, the highest first. */
INLINE void powers(const uint64_t *values, int64_t count, const uint8_t *exponents, int64_t size, const uint64_t *one,
                   const Modulus *mod, uint64_t *out, int limbs) {
    Lanes table[16], x, next;
    for (int64_t start = 0; start < count; start += LANES) {
        for (int lane = 0; lane < LANES; lane++) get(&table[0], lane, one, limbs);
        following(&table[1], values, start, count, limbs);
        for (int d = 2; d < 16; d++) multiply(&table[d], &table[d - 1], &table[1], mod, limbs);
        x = table[0];
        for (int64_t digit = 0; digit < 2 * size; digit++) {
            for (int step = 0; step < 4; step++) multiply(&x, &x, &x, mod, limbs);
            long long place[LANES];
            for (int lane = 0; lane < LANES; lane++) {
                const int64_t row = start + lane < count ? start + lane : start;
                const int byte = exponents[row * size + digit / 2];
                place[lane] = (digit % 2 ? byte & 15 : byte >> 4) * MAX_LIMBS * LANES + lane;
            }
            const __m256i places = _mm256_loadu_si256((const __m256i *)place);
            for (int j = 0; j < limbs; j++)
                next.limb[j] = _mm256_i64gather_pd((const double *)table + j * LANES, places, 8);
            multiply(&x, &x, &next, mod, limbs);
        }
        write(out, &x, start, count, limbs);
    }
}

CALLED void all_powers(const uint64_t *values, int64_t count, const uint8_t *exponents, int64_t size,
                                const uint64_t *one, const uint64_t *n, uint64_t inverse, uint64_t *out, int limbs) {
    Modulus mod;
    read_modulus(&mod, n, inverse, limbs);
#define CALL(SIZE) powers(values, count, exponents, size, one, &mod, out, SIZE)
    BY_SIZE(CALL);
#undef CALL
}

EXPORT void fedsift_avx2_powers(const uint64_t *values, int64_t count, const uint8_t *exponents, int64_t size, const uint64_t *one, const uint64_t *n, uint64_t inverse, uint64_t *out, int limbs) {
    ROUNDED(all_powers(values, count, exponents, size, one, n, inverse, out, limbs));
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
        multiply(&sum, &sum, &next, mod, limbs);
    }
}

CALLED void all_segments(const uint64_t *values, const int64_t *order, const int64_t *bounds, int64_t first,
                                  int64_t last, const uint64_t *one, const uint64_t *n, uint64_t inverse,
                                  uint64_t *out, int limbs) {
    Modulus mod;
    read_modulus(&mod, n, inverse, limbs);
#define CALL(SIZE) segments(values, order, bounds, first, last, one, &mod, out, SIZE)
    BY_SIZE(CALL);
#undef CALL
}

EXPORT void fedsift_avx2_segments(const uint64_t *values, const int64_t *order, const int64_t *bounds, int64_t first, int64_t last, const uint64_t *one, const uint64_t *n, uint64_t inverse, uint64_t *out, int limbs) {
    ROUNDED(all_segments(values, order, bounds, first, last, one, n, inverse, out, limbs));
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

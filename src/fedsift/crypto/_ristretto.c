/* ristretto255, eight points at a time: the field in the lanes of AVX-512's 52-bit multiply-and-add.
 *
 * A field element has five limbs of 51 bits, a vector each. Where points are doubled and added the products of one step
 * fill each other's gaps; sixteen lanes would double the code, which then outgrows the processor's instruction caches.
 * A root is a single chain of squares that wait for each other: two run side by side. The group law is in
 * `_ristretto.h`.
 */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#define LANES 8
#define TARGET target("avx512f,avx512dq,avx512ifma")
#define EXPORT __attribute__((visibility("default"), TARGET))
#define INLINE static inline __attribute__((always_inline, TARGET))
#define CALLED static __attribute__((noinline, TARGET))
#define NAMED(name) fedsift_ristretto_##name
#define V __m512i
#define PLUS _mm512_add_epi64
#define LOW _mm512_madd52lo_epu64
#define HIGH _mm512_madd52hi_epu64
/* loops over limbs are written out, so that limbs stay in registers */
#define EACH(i, from, to) _Pragma("GCC unroll 10") for (int i = from; i < to; i++)
#define EVERY(i) EACH(i, 0, 5)
#define MASK51 ((1LL << 51) - 1)

typedef struct {
    V l[5];
} Field;

typedef __mmask8 Mask; /* a bit a lane */

INLINE V all(uint64_t value) { return _mm512_set1_epi64((long long)value); }

INLINE Field constant(const uint64_t *limbs) {
    Field f;
    EVERY(i) f.l[i] = all(limbs[i]);
    return f;
}

INLINE Field small(uint64_t value) {
    Field f;
    EVERY(i) f.l[i] = all(i ? 0 : value);
    return f;
}

/* limbs below 2^63 become limbs below 2^51 + 2^17 */
INLINE Field carried(Field f) {
    const V mask = all(MASK51);
    V c[5];
    EACH(i, 0, 5) c[i] = _mm512_srli_epi64(f.l[i], 51), f.l[i] = _mm512_and_si512(f.l[i], mask);
    f.l[0] = LOW(f.l[0], c[4], all(19));
    EACH(i, 1, 5) f.l[i] = PLUS(f.l[i], c[i - 1]);
    return f;
}

INLINE Field raw_sum(Field a, Field b) {
    EVERY(i) a.l[i] = PLUS(a.l[i], b.l[i]);
    return a;
}

/* 1,024 times the prime is added first: nothing goes below zero where limbs of b are below 2^60.9 */
INLINE Field raw_difference(Field a, Field b) {
    EVERY(i)
    a.l[i] = _mm512_sub_epi64(PLUS(a.l[i], all(i ? (1ULL << 61) - 1024 : (1ULL << 61) - 19 * 1024)), b.l[i]);
    return a;
}

/* The low half of a product of limbs has the weight of its place k, 2^(51 k), the high half twice the weight of the next.
 * Places 5 to 9 are summed first; as 2^255 = 19, nineteen times what stands there begins the sums of places 0 to 4:
 * 19 u = 2 (9 u) + u. High halves come first, so that doubling them and adding low halves takes no step of its own.
 * Limbs below 2^51 + 2^17 give u below 2^55 and results below 2^59.4. */
#define HIGHS(sum, k) EACH(i, 0, 5) EACH(j, 0, 5) if (i + j + 1 == (k)) sum = HIGH(sum, a.l[i], b.l[j])
#define LOWS(sum, k) EACH(i, 0, 5) EACH(j, 0, 5) if (i + j == (k)) sum = LOW(sum, a.l[i], b.l[j])

INLINE Field raw_product(Field a, Field b) {
    Field f;
    V u[5];
    EACH(k, 0, 5) {
        V sum = _mm512_setzero_si512();
        HIGHS(sum, k + 5);
        sum = PLUS(sum, sum);
        LOWS(sum, k + 5);
        u[k] = sum;
    }
    EACH(k, 0, 5) {
        V sum = PLUS(_mm512_slli_epi64(u[k], 3), u[k]);
        HIGHS(sum, k);
        sum = PLUS(PLUS(sum, sum), u[k]);
        LOWS(sum, k);
        f.l[k] = sum;
    }
    return f;
}

/* Cross products count twice: their high halves four times, their low halves as often as the high halves of squares.
 * 19 u = 4 (4 u) + 2 u + u. */
#define CROSS_HIGHS(sum, k) EACH(i, 0, 5) EACH(j, i + 1, 5) if (i + j + 1 == (k)) sum = HIGH(sum, a.l[i], a.l[j])
#define CROSS_LOWS(sum, k) EACH(i, 0, 5) EACH(j, i + 1, 5) if (i + j == (k)) sum = LOW(sum, a.l[i], a.l[j])
#define SQUARE_HIGH(sum, k) EACH(i, 0, 5) if (2 * i + 1 == (k)) sum = HIGH(sum, a.l[i], a.l[i])
#define SQUARE_LOW(sum, k) EACH(i, 0, 5) if (2 * i == (k)) sum = LOW(sum, a.l[i], a.l[i])

INLINE Field raw_square(Field a) {
    Field f;
    V u[5];
    EACH(k, 0, 5) {
        V sum = _mm512_setzero_si512();
        CROSS_HIGHS(sum, k + 5);
        sum = PLUS(sum, sum);
        CROSS_LOWS(sum, k + 5);
        SQUARE_HIGH(sum, k + 5);
        sum = PLUS(sum, sum);
        SQUARE_LOW(sum, k + 5);
        u[k] = sum;
    }
    EACH(k, 0, 5) {
        V sum = _mm512_slli_epi64(u[k], 2);
        CROSS_HIGHS(sum, k);
        sum = PLUS(PLUS(sum, sum), u[k]);
        CROSS_LOWS(sum, k);
        SQUARE_HIGH(sum, k);
        sum = PLUS(PLUS(sum, sum), u[k]);
        SQUARE_LOW(sum, k);
        f.l[k] = sum;
    }
    return f;
}

INLINE Field chosen(Mask second, Field a, Field b) {
    EVERY(i) a.l[i] = _mm512_mask_blend_epi64(second, a.l[i], b.l[i]);
    return a;
}

/* the one representative below the prime */
CALLED Field canonical(Field a) {
    const V mask = all(MASK51);
    a = carried(carried(a));
    V over = _mm512_srli_epi64(PLUS(a.l[0], all(19)), 51);
    EACH(i, 1, 5) over = _mm512_srli_epi64(PLUS(a.l[i], over), 51);
    V carry = LOW(_mm512_setzero_si512(), over, all(19));
    EACH(i, 0, 5) {
        const V sum = PLUS(a.l[i], carry);
        a.l[i] = _mm512_and_si512(sum, mask);
        carry = _mm512_srli_epi64(sum, 51);
    }
    return a;
}

/* where a canonical number is zero, or odd */
INLINE Mask all_zero(Field a) {
    V any = a.l[0];
    EACH(i, 1, 5) any = _mm512_or_si512(any, a.l[i]);
    return _mm512_testn_epi64_mask(any, any);
}

INLINE Mask odd(Field a) { return _mm512_test_epi64_mask(a.l[0], all(1)); }

INLINE V digits_of_lanes(const int8_t *digits) {
    return _mm512_cvtepi8_epi64(_mm_loadl_epi64((const __m128i *)digits));
}

INLINE Mask digit_is(const int8_t *digits, int value) {
    return _mm512_cmpeq_epi64_mask(digits_of_lanes(digits), _mm512_set1_epi64(value));
}

INLINE Mask digit_below_zero(const int8_t *digits) {
    return _mm512_cmplt_epi64_mask(digits_of_lanes(digits), _mm512_setzero_si512());
}

INLINE Field from_lanes(uint64_t (*limb)[LANES]) {
    Field f;
    EVERY(i) f.l[i] = _mm512_loadu_si512(limb[i]);
    return f;
}

INLINE void to_lanes(uint64_t (*limb)[LANES], Field f) { EVERY(i) _mm512_storeu_si512(limb[i], f.l[i]); }

#include "_ristretto.h"
#endif

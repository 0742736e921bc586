/* Products modulo an odd number of about 2,000 bits, eight at a time: what sums of ciphertexts are made of.
 *
 * A number is a row of limbs of 52 bits, the least first, in Montgomery's form: the row holds x * 2^(52 limbs) mod n.
 * Rows are below 2n and the caller leaves two bits free at the top, so that no product needs a last subtraction
 * (Walter 1999). Eight products run side by side, one in each lane of AVX-512's 52-bit multiply-and-add; the steps
 * do not depend on the values. Compiled where a C compiler is found; `montgomery.py` calls it, or GMP where it is
 * missing or the processor lacks the instructions. Tried and not faster: portable C (GMP is better), fetching rows
 * ahead, and squares that compute each cross product once (more memory traffic).
 */
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>

#define LANES 8
#define MAX_LIMBS 96
/* The compiler unrolls for the numbers of limbs that keys of 2048 bits take: n and p^2 of Okamoto-Uchiyama, n^2 of
 * Paillier (p^2 there has the limbs of n here). */
#define BY_SIZE(CALL)     \
    if (limbs == 40)      \
        CALL(40);         \
    else if (limbs == 28) \
        CALL(28);         \
    else if (limbs == 80) \
        CALL(80);         \
    else                  \
        CALL(limbs)
#define EXPORT __attribute__((visibility("default"), target("avx512f,avx512dq,avx512ifma")))
#define INLINE static inline __attribute__((always_inline, target("avx512f,avx512dq,avx512ifma")))
#define LOW _mm512_madd52lo_epu64
#define HIGH _mm512_madd52hi_epu64
#define PLUS _mm512_add_epi64

typedef union {
    __m512i limb[MAX_LIMBS];
    uint64_t word[MAX_LIMBS * LANES];
} Lanes;

typedef struct {
    Lanes n;
    __m512i inverse; /* -1 / n mod 2^52 */
} Modulus;

__attribute__((visibility("default"))) int fedsift_supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512ifma");
}

/* out = a * b / 2^(52 limbs) mod n, in every lane; out may be a or b; the number of limbs is even.
 * Two limbs of a in a pass: each limb of b, n and the sum is then read once for eight multiplications. A limb of the
 * sum takes at most 4 * MAX_LIMBS terms below 2^52 before its carries are passed on: it does not overflow. */
INLINE void multiply(Lanes *out, const Lanes *a, const Lanes *b, const Modulus *mod, int limbs) {
    const __m512i zero = _mm512_setzero_si512(), mask = _mm512_set1_epi64((1LL << 52) - 1);
    const Lanes *n = &mod->n;
    __m512i t[MAX_LIMBS];
    for (int j = 0; j < limbs; j++) t[j] = zero;
    for (int i = 0; i < limbs; i += 2) {
        const __m512i x0 = a->limb[i], x1 = a->limb[i + 1];
        __m512i b0 = b->limb[0], n0 = n->limb[0], b1 = b->limb[1], n1 = n->limb[1];
        __m512i s = LOW(t[0], x0, b0);
        const __m512i m0 = LOW(zero, s, mod->inverse);
        s = PLUS(t[1], _mm512_srli_epi64(LOW(s, m0, n0), 52));
        s = LOW(HIGH(s, x0, b0), x0, b1);
        s = LOW(LOW(HIGH(s, m0, n0), m0, n1), x1, b0);
        const __m512i m1 = LOW(zero, s, mod->inverse);
        __m512i carry = _mm512_srli_epi64(LOW(s, m1, n0), 52);
#pragma GCC unroll 8
        for (int j = 2; j < limbs; j++) {
            const __m512i b2 = b->limb[j], n2 = n->limb[j];
            __m512i one = PLUS(t[j], carry), two = zero;
            carry = zero;
            one = LOW(HIGH(one, x0, b1), x0, b2);
            two = LOW(HIGH(two, m0, n1), m0, n2);
            one = LOW(HIGH(one, x1, b0), x1, b1);
            two = LOW(HIGH(two, m1, n0), m1, n1);
            t[j - 2] = PLUS(one, two);
            b0 = b1, b1 = b2, n0 = n1, n1 = n2;
        }
        s = LOW(HIGH(HIGH(HIGH(carry, x0, b1), m0, n1), x1, b0), x1, b1);
        t[limbs - 2] = LOW(HIGH(s, m1, n0), m1, n1);
        t[limbs - 1] = HIGH(HIGH(zero, x1, b1), m1, n1);
    }
    __m512i carry = zero;
    for (int j = 0; j < limbs; j++) {
        const __m512i s = PLUS(t[j], carry);
        out->limb[j] = _mm512_and_si512(s, mask);
        carry = _mm512_srli_epi64(s, 52);
    }
}

INLINE void read_modulus(Modulus *mod, const uint64_t *n, uint64_t inverse, int limbs) {
    for (int j = 0; j < limbs; j++) mod->n.limb[j] = _mm512_set1_epi64((long long)n[j]);
    mod->inverse = _mm512_set1_epi64((long long)inverse);
}

/* each lane its own row */
INLINE void gather(Lanes *out, const uint64_t *values, const int64_t *rows, int limbs) {
    const __m512i places = _mm512_mullo_epi64(_mm512_loadu_si512(rows), _mm512_set1_epi64(limbs));
    for (int j = 0; j < limbs; j++) out->limb[j] = _mm512_i64gather_epi64(places, values + j, 8);
}

INLINE void put(uint64_t *values, int64_t row, const Lanes *lanes, int lane, int limbs) {
    const uint64_t *from = lanes->word + lane;
    for (int j = 0; j < limbs; j++) values[row * limbs + j] = from[j * LANES];
}

INLINE void get(Lanes *lanes, int lane, const uint64_t *values, int64_t row, int limbs) {
    uint64_t *to = lanes->word + lane;
    for (int j = 0; j < limbs; j++) to[j * LANES] = values[row * limbs + j];
}

/* rows start .. start + 7; where fewer are left, the first again */
INLINE void following(int64_t *rows, int64_t start, int64_t count) {
    for (int lane = 0; lane < LANES; lane++) rows[lane] = start + lane < count ? start + lane : start;
}

INLINE void products(const uint64_t *a, const uint64_t *b, int64_t count, int64_t count_b, const Modulus *mod,
                     uint64_t *out, int limbs) {
    Lanes x, y;
    int64_t rows[LANES], same[LANES] = {0};
    for (int64_t start = 0; start < count; start += LANES) {
        following(rows, start, count);
        gather(&x, a, rows, limbs);
        gather(&y, b, count_b == 1 ? same : rows, limbs);
        multiply(&x, &x, &y, mod, limbs);
        for (int lane = 0; lane < LANES && start + lane < count; lane++) put(out, start + lane, &x, lane, limbs);
    }
}

/* out[i] = a[i] * b[i]; b may be a single row (count_b is 1) */
EXPORT void fedsift_products(const uint64_t *a, const uint64_t *b, int64_t count, int64_t count_b, const uint64_t *n,
                             uint64_t inverse, uint64_t *out, int limbs) {
    Modulus mod;
    read_modulus(&mod, n, inverse, limbs);
#define CALL(SIZE) products(a, b, count, count_b, &mod, out, SIZE)
    BY_SIZE(CALL);
#undef CALL
}

INLINE void squares(const uint64_t *values, int64_t count, int64_t times, const Modulus *mod, uint64_t *out, int limbs) {
    Lanes x;
    int64_t rows[LANES];
    for (int64_t start = 0; start < count; start += LANES) {
        following(rows, start, count);
        gather(&x, values, rows, limbs);
        for (int64_t step = 0; step < times; step++) multiply(&x, &x, &x, mod, limbs);
        for (int lane = 0; lane < LANES && start + lane < count; lane++) put(out, start + lane, &x, lane, limbs);
    }
}

/* out[i] = values[i] ^ (2 ^ times) */
EXPORT void fedsift_squares(const uint64_t *values, int64_t count, int64_t times, const uint64_t *n, uint64_t inverse,
                            uint64_t *out, int limbs) {
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
    int64_t rows[LANES], place[LANES];
    for (int64_t start = 0; start < count; start += LANES) {
        following(rows, start, count);
        for (int j = 0; j < limbs; j++) table[0].limb[j] = _mm512_set1_epi64((long long)one[j]);
        gather(&table[1], values, rows, limbs);
        for (int d = 2; d < 16; d++) multiply(&table[d], &table[d - 1], &table[1], mod, limbs);
        x = table[0];
        for (int64_t digit = 0; digit < 2 * size; digit++) {
            for (int step = 0; step < 4; step++) multiply(&x, &x, &x, mod, limbs);
            for (int lane = 0; lane < LANES; lane++) {
                const int byte = exponents[rows[lane] * size + digit / 2];
                place[lane] = (digit % 2 ? byte & 15 : byte >> 4) * MAX_LIMBS * LANES + lane;
            }
            const __m512i places = _mm512_loadu_si512(place);
            for (int j = 0; j < limbs; j++)
                next.limb[j] = _mm512_i64gather_epi64(places, (const long long *)table + j * LANES, 8);
            multiply(&x, &x, &next, mod, limbs);
        }
        for (int lane = 0; lane < LANES && start + lane < count; lane++) put(out, start + lane, &x, lane, limbs);
    }
}

/* out[i] = values[i] ^ exponents[i] */
EXPORT void fedsift_powers(const uint64_t *values, int64_t count, const uint8_t *exponents, int64_t size,
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
    int64_t place[LANES], end[LANES], segment[LANES], rows[LANES];
    memset(&sum, 0, sizeof sum);
    for (int lane = 0; lane < LANES; lane++) place[lane] = end[lane] = 0, segment[lane] = -1;
    for (;;) {
        int busy = 0;
        for (int lane = 0; lane < LANES; lane++) {
            while (place[lane] == end[lane]) {
                if (segment[lane] >= 0) put(out, segment[lane], &sum, lane, limbs);
                segment[lane] = first < last ? first++ : -1;
                if (segment[lane] < 0) break;
                place[lane] = bounds[segment[lane]];
                end[lane] = bounds[segment[lane] + 1];
                if (place[lane] < end[lane])
                    get(&sum, lane, values, order[place[lane]++], limbs);
                else
                    get(&sum, lane, one, 0, limbs);
            }
            busy |= segment[lane] >= 0;
            rows[lane] = segment[lane] >= 0 ? order[place[lane]++] : 0; /* an idle lane multiplies in vain */
        }
        if (!busy) return;
        gather(&next, values, rows, limbs);
        multiply(&sum, &sum, &next, mod, limbs);
    }
}

/* out[s] = product of values[order[i]] for i from bounds[s] to bounds[s + 1] - 1, for the segments first .. last - 1;
 * `one` is the number one, the product of an empty segment. */
EXPORT void fedsift_segments(const uint64_t *values, const int64_t *order, const int64_t *bounds, int64_t first,
                             int64_t last, const uint64_t *one, const uint64_t *n, uint64_t inverse, uint64_t *out,
                             int limbs) {
    Modulus mod;
    read_modulus(&mod, n, inverse, limbs);
#define CALL(SIZE) segments(values, order, bounds, first, last, one, &mod, out, SIZE)
    BY_SIZE(CALL);
#undef CALL
}
#else
int fedsift_supported(void) { return 0; }
#endif

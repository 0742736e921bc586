/* ristretto255 in plain C, for every processor: one point at a time, limbs of 51 bits, products of 128 bits.
 *
 * The group law is that of `_ristretto.h`, so the numbers are those of AVX-512 to the bit. Four lanes of AVX2 would be
 * no faster: its 32-bit products need a hundred steps for what twenty-five 64-bit ones do here.
 */
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && defined(__SIZEOF_INT128__)
#define LANES 1
#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define CALLED static __attribute__((noinline))
#define NAMED(name) fedsift_portable_ristretto_##name
#define MASK51 ((1ULL << 51) - 1)
#define EACH(i) for (int i = 0; i < 5; i++)

typedef unsigned __int128 wide;

typedef struct {
    uint64_t l[5];
} Field;

typedef uint8_t Mask; /* 0 or 1 in its lowest bit */

INLINE Field constant(const uint64_t *limbs) {
    Field f;
    EACH(i) f.l[i] = limbs[i];
    return f;
}

INLINE Field small(uint64_t value) {
    const Field f = {{value, 0, 0, 0, 0}};
    return f;
}

/* limbs below 2^63 become limbs below 2^51 + 2^17 */
INLINE Field carried(Field f) {
    uint64_t c[5];
    EACH(i) c[i] = f.l[i] >> 51, f.l[i] &= MASK51;
    f.l[0] += 19 * c[4];
    for (int i = 1; i < 5; i++) f.l[i] += c[i - 1];
    return f;
}

INLINE Field raw_sum(Field a, Field b) {
    EACH(i) a.l[i] += b.l[i];
    return a;
}

/* 1,024 times the prime is added first: nothing goes below zero */
INLINE Field raw_difference(Field a, Field b) {
    EACH(i) a.l[i] += (i ? (1ULL << 61) - 1024 : (1ULL << 61) - 19 * 1024) - b.l[i];
    return a;
}

INLINE Field from_wide(wide *z) {
    Field f;
    for (int i = 0; i < 4; i++) z[i + 1] += (uint64_t)(z[i] >> 51), f.l[i] = (uint64_t)z[i] & MASK51;
    f.l[4] = (uint64_t)z[4] & MASK51;
    f.l[0] += 19 * (uint64_t)(z[4] >> 51);
    return f;
}

INLINE Field raw_product(Field a, Field b) {
    const uint64_t b1 = 19 * b.l[1], b2 = 19 * b.l[2], b3 = 19 * b.l[3], b4 = 19 * b.l[4];
    const uint64_t a0 = a.l[0], a1 = a.l[1], a2 = a.l[2], a3 = a.l[3], a4 = a.l[4];
    wide z[5] = {(wide)a0 * b.l[0] + (wide)a1 * b4 + (wide)a2 * b3 + (wide)a3 * b2 + (wide)a4 * b1,
                 (wide)a0 * b.l[1] + (wide)a1 * b.l[0] + (wide)a2 * b4 + (wide)a3 * b3 + (wide)a4 * b2,
                 (wide)a0 * b.l[2] + (wide)a1 * b.l[1] + (wide)a2 * b.l[0] + (wide)a3 * b4 + (wide)a4 * b3,
                 (wide)a0 * b.l[3] + (wide)a1 * b.l[2] + (wide)a2 * b.l[1] + (wide)a3 * b.l[0] + (wide)a4 * b4,
                 (wide)a0 * b.l[4] + (wide)a1 * b.l[3] + (wide)a2 * b.l[2] + (wide)a3 * b.l[1] + (wide)a4 * b.l[0]};
    return from_wide(z);
}

INLINE Field raw_square(Field a) {
    const uint64_t a0 = a.l[0], a1 = a.l[1], a2 = a.l[2], a3 = a.l[3], a4 = a.l[4];
    const uint64_t d0 = 2 * a0, d1 = 2 * a1, d2 = 2 * a2, t3 = 19 * a3, t4 = 19 * a4;
    wide z[5] = {(wide)a0 * a0 + (wide)d1 * t4 + (wide)d2 * t3, (wide)d0 * a1 + (wide)d2 * t4 + (wide)a3 * t3,
                 (wide)d0 * a2 + (wide)a1 * a1 + (wide)(2 * a3) * t4, (wide)d0 * a3 + (wide)d1 * a2 + (wide)a4 * t4,
                 (wide)d0 * a4 + (wide)d1 * a3 + (wide)a2 * a2};
    return from_wide(z);
}

INLINE Field chosen(Mask second, Field a, Field b) {
    const uint64_t mask = 0 - (uint64_t)(second & 1);
    EACH(i) a.l[i] ^= mask & (a.l[i] ^ b.l[i]);
    return a;
}

/* the one representative below the prime */
CALLED Field canonical(Field a) {
    a = carried(carried(a));
    uint64_t over = (a.l[0] + 19) >> 51;
    for (int i = 1; i < 5; i++) over = (a.l[i] + over) >> 51;
    uint64_t carry = 19 * over;
    EACH(i) {
        const uint64_t sum = a.l[i] + carry;
        a.l[i] = sum & MASK51;
        carry = sum >> 51;
    }
    return a;
}

/* where a canonical number is zero, or odd */
INLINE Mask all_zero(Field a) {
    const uint64_t any = a.l[0] | a.l[1] | a.l[2] | a.l[3] | a.l[4];
    return (Mask)((any - 1) >> 63);
}

INLINE Mask odd(Field a) { return (Mask)(a.l[0] & 1); }

INLINE Mask digit_is(const int8_t *digits, int value) {
    return (Mask)(((uint32_t)((uint8_t)digits[0] ^ (uint8_t)value) - 1) >> 31);
}

INLINE Mask digit_below_zero(const int8_t *digits) { return (Mask)((uint8_t)digits[0] >> 7); }

INLINE Field from_lanes(uint64_t (*limb)[LANES]) {
    Field f;
    EACH(i) f.l[i] = limb[i][0];
    return f;
}

INLINE void to_lanes(uint64_t (*limb)[LANES], Field f) { EACH(i) limb[i][0] = f.l[i]; }

#include "_ristretto.h"
#endif

/* ristretto255 (RFC 9496), eight points at a time: scalar multiplication and the map from 64 uniform bytes.
 *
 * One point in each lane of AVX-512's 52-bit multiply-and-add. A field element has five limbs of 51 bits; every sum and
 * difference is carried at once, so that limbs stay below 2^52, which is all that a multiplication reads. Points are in
 * extended Edwards coordinates. Neither steps nor memory addresses depend on points or scalars: digits of a scalar
 * select from their table by masks over all entries. Compared with libsodium, bit for bit, in tests/test_oprf.py.
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
#define V __m512i
#define PLUS _mm512_add_epi64
#define SHIFTED(x, bits) _mm512_slli_epi64(x, bits)
#define LOW _mm512_madd52lo_epu64
#define HIGH _mm512_madd52hi_epu64
/* loops over limbs are written out, so that limbs stay in registers */
#define EACH(i, from, to) _Pragma("GCC unroll 10") for (int i = from; i < to; i++)
#define MASK51 ((1LL << 51) - 1)

typedef struct {
    V l[5];
} Field;

typedef struct {
    Field x, y, z, t; /* x / z, y / z, and t = x y / z */
} Point;

typedef struct {
    Field plus, minus, z, t; /* y + x, y - x, 2 z, 2 d t */
} Cached;

static const uint64_t TWO_D[5] = {1859910466990425, 932731440258426, 1072319116312658, 1815898335770999, 633789495995903};
static const uint64_t ED_D[5] = {929955233495203, 466365720129213, 1662059464998953, 2033849074728123, 1442794654840575};
static const uint64_t SQRT_M1[5] = {1718705420411056, 234908883556509, 2233514472574048, 2117202627021982, 765476049583133};
static const uint64_t SQRT_AD_MINUS_ONE[5] = {2241493124984347, 425987919032274, 2207028919301688, 1220490630685848,
                                              974799131293748};
static const uint64_t INVSQRT_A_MINUS_D[5] = {278908739862762, 821645201101625, 8113234426968, 1777959178193151,
                                              2118520810568447};
static const uint64_t ONE_MINUS_D_SQ[5] = {1136626929484150, 1998550399581263, 496427632559748, 118527312129759,
                                           45110755273534};
static const uint64_t D_MINUS_ONE_SQ[5] = {1507062230895904, 1572317787530805, 683053064812840, 317374165784489,
                                           1572899562415810};

INLINE V all(uint64_t value) { return _mm512_set1_epi64((long long)value); }

INLINE Field constant(const uint64_t *limbs) {
    Field f;
    EACH(i, 0, 5) f.l[i] = all(limbs[i]);
    return f;
}

INLINE Field small(uint64_t value) {
    Field f;
    EACH(i, 0, 5) f.l[i] = all(i ? 0 : value);
    return f;
}

INLINE V times19(V x) { return PLUS(PLUS(SHIFTED(x, 4), SHIFTED(x, 1)), x); }

/* limbs below 2^63 become limbs below 2^51 + 2^17 */
INLINE Field carried(Field f) {
    const V mask = all(MASK51);
    V c[5];
    EACH(i, 0, 5) c[i] = _mm512_srli_epi64(f.l[i], 51), f.l[i] = _mm512_and_si512(f.l[i], mask);
    f.l[0] = PLUS(f.l[0], times19(c[4]));
    EACH(i, 1, 5) f.l[i] = PLUS(f.l[i], c[i - 1]);
    return f;
}

INLINE Field add(Field a, Field b) {
    EACH(i, 0, 5) a.l[i] = PLUS(a.l[i], b.l[i]);
    return carried(a);
}

/* four times the prime is added first: nothing goes below zero */
INLINE Field subtract(Field a, Field b) {
    EACH(i, 0, 5)
        a.l[i] = _mm512_sub_epi64(PLUS(a.l[i], all(i ? (1ULL << 53) - 4 : (1ULL << 53) - 76)), b.l[i]);
    return carried(a);
}

INLINE Field negated(Field a) { return subtract(small(0), a); }

/* z[k] of weight 2^(51 k): low halves and twice the high halves, which lie 52 bits higher; 2^255 = 19 */
INLINE Field folded(const V *low, const V *high) {
    V z[10];
    Field f;
    EACH(k, 0, 10) z[k] = PLUS(low[k], SHIFTED(high[k], 1));
    EACH(k, 0, 5) f.l[k] = PLUS(z[k], times19(z[k + 5]));
    return carried(f);
}

/* `times` and `square` are put in place where points are added and doubled; elsewhere they are called */
INLINE Field times(Field a, Field b) {
    V low[10], high[10];
    EACH(k, 0, 10) low[k] = high[k] = _mm512_setzero_si512();
    EACH(i, 0, 5)
        EACH(j, 0, 5) {
            low[i + j] = LOW(low[i + j], a.l[i], b.l[j]);
            high[i + j + 1] = HIGH(high[i + j + 1], a.l[i], b.l[j]);
        }
    return folded(low, high);
}

CALLED Field multiply(Field a, Field b) { return times(a, b); }

INLINE Field square(Field a) {
    V low[10], high[10];
    EACH(k, 0, 10) low[k] = high[k] = _mm512_setzero_si512();
    EACH(i, 0, 5)
        EACH(j, i + 1, 5) {
            low[i + j] = LOW(low[i + j], a.l[i], a.l[j]);
            high[i + j + 1] = HIGH(high[i + j + 1], a.l[i], a.l[j]);
        }
    EACH(k, 0, 10) low[k] = SHIFTED(low[k], 1), high[k] = SHIFTED(high[k], 1);
    EACH(i, 0, 5) {
        low[2 * i] = LOW(low[2 * i], a.l[i], a.l[i]);
        high[2 * i + 1] = HIGH(high[2 * i + 1], a.l[i], a.l[i]);
    }
    return folded(low, high);
}

CALLED Field squared(Field a) { return square(a); }

CALLED Field squared_often(Field a, int often) {
    for (int i = 0; i < often; i++) a = square(a);
    return a;
}

INLINE Field chosen(__mmask8 second, Field a, Field b) {
    EACH(i, 0, 5) a.l[i] = _mm512_mask_blend_epi64(second, a.l[i], b.l[i]);
    return a;
}

/* the one representative below the prime */
CALLED Field canonical(Field a) {
    const V mask = all(MASK51);
    a = carried(carried(a));
    V over = _mm512_srli_epi64(PLUS(a.l[0], all(19)), 51);
    EACH(i, 1, 5) over = _mm512_srli_epi64(PLUS(a.l[i], over), 51);
    V carry = times19(over);
    EACH(i, 0, 5) {
        const V sum = PLUS(a.l[i], carry);
        a.l[i] = _mm512_and_si512(sum, mask);
        carry = _mm512_srli_epi64(sum, 51);
    }
    return a;
}

INLINE __mmask8 is_zero(Field a) {
    a = canonical(a);
    V any = a.l[0];
    EACH(i, 1, 5) any = _mm512_or_si512(any, a.l[i]);
    return _mm512_testn_epi64_mask(any, any);
}

INLINE __mmask8 is_negative(Field a) { return _mm512_test_epi64_mask(canonical(a).l[0], all(1)); }

INLINE Field absolute(Field a) { return chosen(is_negative(a), a, negated(a)); }

/* a ^ ((p - 5) / 8) = a ^ (2^252 - 3) */
CALLED Field root_power(Field a) {
    const Field a2 = squared(a), a9 = multiply(a, squared_often(a2, 2)), a11 = multiply(a9, a2);
    const Field b5 = multiply(squared(a11), a9); /* 2^5 - 1 */
    const Field b10 = multiply(squared_often(b5, 5), b5);
    const Field b20 = multiply(squared_often(b10, 10), b10);
    const Field b40 = multiply(squared_often(b20, 20), b20);
    const Field b50 = multiply(squared_often(b40, 10), b10);
    const Field b100 = multiply(squared_often(b50, 50), b50);
    const Field b200 = multiply(squared_often(b100, 100), b100);
    const Field b250 = multiply(squared_often(b200, 50), b50);
    return multiply(squared_often(b250, 2), a);
}

/* SQRT_RATIO_M1 of RFC 9496: the root of u / v, or of sqrt(-1) u / v; returns where u / v was a square */
CALLED __mmask8 root_of_ratio(Field *root, Field u, Field v) {
    const Field i = constant(SQRT_M1), v3 = multiply(squared(v), v), v7 = multiply(squared(v3), v);
    Field r = multiply(multiply(u, v3), root_power(multiply(u, v7)));
    const Field check = multiply(v, squared(r)), minus = negated(u);
    const __mmask8 correct = is_zero(subtract(check, u)), flipped = is_zero(subtract(check, minus));
    const __mmask8 flipped_i = is_zero(subtract(check, multiply(minus, i)));
    r = chosen(flipped | flipped_i, r, multiply(r, i));
    *root = absolute(r);
    return correct | flipped;
}

INLINE uint64_t word(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, 8);
    return value;
}

/* 32 bytes a lane, the highest bit left out; `step` bytes from one lane's to the next's */
INLINE Field read_field(const uint8_t *bytes, const int64_t *rows, int64_t step) {
    uint64_t limb[5][LANES];
    Field f;
    for (int lane = 0; lane < LANES; lane++) {
        const uint8_t *from = bytes + rows[lane] * step;
        limb[0][lane] = word(from) & MASK51;
        limb[1][lane] = word(from + 6) >> 3 & MASK51;
        limb[2][lane] = word(from + 12) >> 6 & MASK51;
        limb[3][lane] = word(from + 19) >> 1 & MASK51;
        limb[4][lane] = word(from + 24) >> 12 & MASK51;
    }
    EACH(i, 0, 5) f.l[i] = _mm512_loadu_si512(limb[i]);
    return f;
}

INLINE void write_field(uint8_t (*out)[32], Field a) {
    uint64_t limb[5][LANES];
    a = canonical(a);
    EACH(i, 0, 5) _mm512_storeu_si512(limb[i], a.l[i]);
    for (int lane = 0; lane < LANES; lane++) {
        const uint64_t words[4] = {
            limb[0][lane] | limb[1][lane] << 51, limb[1][lane] >> 13 | limb[2][lane] << 38,
            limb[2][lane] >> 26 | limb[3][lane] << 25, limb[3][lane] >> 39 | limb[4][lane] << 12};
        memcpy(out[lane], words, 32);
    }
}

/* returns where the bytes are the encoding of a point */
CALLED __mmask8 decode(Point *p, const uint8_t *bytes, const int64_t *rows) {
    const Field s = read_field(bytes, rows, 32), one = small(1), ss = squared(s);
    const Field u1 = subtract(one, ss), u2 = add(one, ss), u2_squared = squared(u2);
    const Field v = subtract(negated(multiply(constant(ED_D), squared(u1))), u2_squared);
    Field root;
    __mmask8 valid = root_of_ratio(&root, one, multiply(v, u2_squared));
    const Field den_x = multiply(root, u2), den_y = multiply(multiply(root, den_x), v);
    p->x = absolute(multiply(add(s, s), den_x));
    p->y = multiply(u1, den_y);
    p->z = one;
    p->t = multiply(p->x, p->y);
    valid &= ~is_negative(p->t) & ~is_zero(p->y) & ~is_negative(s);
    uint8_t again[LANES][32];
    write_field(again, s);
    for (int lane = 0; lane < LANES; lane++)
        if (memcmp(again[lane], bytes + rows[lane] * 32, 32)) valid &= (__mmask8) ~(1 << lane);
    return valid;
}

CALLED void encode(uint8_t (*out)[32], const Point *p) {
    const Field i = constant(SQRT_M1);
    const Field u1 = multiply(add(p->z, p->y), subtract(p->z, p->y)), u2 = multiply(p->x, p->y);
    Field root;
    root_of_ratio(&root, small(1), multiply(u1, squared(u2)));
    const Field den1 = multiply(root, u1), den2 = multiply(root, u2), z_inv = multiply(multiply(den1, den2), p->t);
    const __mmask8 rotate = is_negative(multiply(p->t, z_inv));
    const Field x = chosen(rotate, p->x, multiply(p->y, i));
    Field y = chosen(rotate, p->y, multiply(p->x, i));
    const Field den_inv = chosen(rotate, den2, multiply(den1, constant(INVSQRT_A_MINUS_D)));
    y = chosen(is_negative(multiply(x, z_inv)), y, negated(y));
    write_field(out, absolute(multiply(den_inv, subtract(p->z, y))));
}

INLINE Point completed(Field e, Field f, Field g, Field h) {
    const Point p = {times(e, f), times(g, h), times(f, g), times(e, h)};
    return p;
}

CALLED void doubled(Point *p) {
    const Field a = square(p->x), b = square(p->y), zz = square(p->z), h = add(a, b);
    const Field e = subtract(h, square(add(p->x, p->y))), g = subtract(a, b), f = add(add(zz, zz), g);
    *p = completed(e, f, g, h);
}

INLINE Cached cache(const Point *p) {
    const Cached c = {add(p->y, p->x), subtract(p->y, p->x), add(p->z, p->z), multiply(p->t, constant(TWO_D))};
    return c;
}

CALLED void added(Point *p, const Cached *q) {
    const Field a = times(subtract(p->y, p->x), q->minus), b = times(add(p->y, p->x), q->plus);
    const Field c = times(p->t, q->t), d = times(p->z, q->z);
    *p = completed(subtract(b, a), subtract(d, c), add(d, c), add(b, a));
}

/* MAP of RFC 9496 */
CALLED Point mapped(Field t) {
    const Field one = small(1), d = constant(ED_D), r = multiply(constant(SQRT_M1), squared(t));
    const Field u = multiply(add(r, one), constant(ONE_MINUS_D_SQ));
    const Field v = multiply(subtract(negated(one), multiply(r, d)), add(r, d));
    Field s;
    const __mmask8 not_square = (__mmask8)~root_of_ratio(&s, u, v);
    s = chosen(not_square, s, negated(absolute(multiply(s, t))));
    const Field c = chosen(not_square, negated(one), r);
    const Field n = subtract(multiply(multiply(c, subtract(r, one)), constant(D_MINUS_ONE_SQ)), v);
    const Field w0 = multiply(add(s, s), v), w1 = multiply(n, constant(SQRT_AD_MINUS_ONE)), ss = squared(s);
    const Field w2 = subtract(one, ss), w3 = add(one, ss);
    const Point p = {multiply(w0, w3), multiply(w2, w1), multiply(w1, w3), multiply(w0, w2)};
    return p;
}

/* 64 digits from -8 to 8 of a scalar below 2^255, the lowest first */
INLINE void split(int8_t *digits, const uint8_t *scalar) {
    int carry = 0;
    for (int i = 0; i < 64; i++) {
        const int digit = (scalar[i / 2] >> (i % 2 * 4) & 15) + carry;
        carry = (digit + 8) >> 4;
        digits[i] = (int8_t)(digit - carry * 16);
    }
}

CALLED void scaled(Point *p, const int8_t (*digits)[64]) {
    Cached table[8];
    Point multiple = *p;
    for (int k = 0; k < 8; k++) {
        table[k] = cache(&multiple);
        if (k < 7) added(&multiple, &table[0]);
    }
    const Point zero = {small(0), small(1), small(1), small(0)};
    *p = zero;
    for (int i = 63; i >= 0; i--) {
        if (i < 63)
            for (int k = 0; k < 4; k++) doubled(p);
        int64_t here[LANES];
        for (int lane = 0; lane < LANES; lane++) here[lane] = digits[lane][i];
        const V digit = _mm512_loadu_si512(here), size = _mm512_abs_epi64(digit);
        Cached q = cache(&zero);
        for (int k = 0; k < 8; k++) {
            const __mmask8 hit = _mm512_cmpeq_epi64_mask(size, all(k + 1));
            q.plus = chosen(hit, q.plus, table[k].plus);
            q.minus = chosen(hit, q.minus, table[k].minus);
            q.z = chosen(hit, q.z, table[k].z);
            q.t = chosen(hit, q.t, table[k].t);
        }
        const __mmask8 below = _mm512_cmplt_epi64_mask(digit, _mm512_setzero_si512());
        const Field plus = q.plus;
        q.plus = chosen(below, q.plus, q.minus);
        q.minus = chosen(below, q.minus, plus);
        q.t = chosen(below, q.t, negated(q.t));
        added(p, &q);
    }
}

/* rows start .. start + 7; where fewer are left, the first again */
INLINE void following(int64_t *rows, int64_t start, int64_t count) {
    for (int lane = 0; lane < LANES; lane++) rows[lane] = start + lane < count ? start + lane : start;
}

INLINE void store(uint8_t *out, uint8_t (*from)[32], int64_t start, int64_t count) {
    for (int lane = 0; lane < LANES && start + lane < count; lane++) memcpy(out + (start + lane) * 32, from[lane], 32);
}

/* out[i] = scalars[i] * points[i]; a single scalar serves all where `step` is 0 (else 32). Returns the number of the
 * first point that is no valid encoding or is the identity, or -1. */
EXPORT int64_t fedsift_ristretto_scale(const uint8_t *points, int64_t count, const uint8_t *scalars, int64_t step,
                                       uint8_t *out) {
    static const uint8_t identity[32];
    for (int64_t start = 0; start < count; start += LANES) {
        int64_t rows[LANES];
        int8_t digits[LANES][64];
        uint8_t encoded[LANES][32];
        Point p;
        following(rows, start, count);
        const __mmask8 valid = decode(&p, points, rows);
        for (int lane = 0; lane < LANES; lane++) {
            if (!(valid >> lane & 1) || !memcmp(points + rows[lane] * 32, identity, 32)) return rows[lane];
            split(digits[lane], scalars + rows[lane] * step);
        }
        scaled(&p, (const int8_t(*)[64])digits);
        encode(encoded, &p);
        store(out, encoded, start, count);
    }
    return -1;
}

/* out[i] = the group element of 64 uniform bytes */
EXPORT void fedsift_ristretto_map(const uint8_t *uniform, int64_t count, uint8_t *out) {
    for (int64_t start = 0; start < count; start += LANES) {
        int64_t rows[LANES];
        uint8_t encoded[LANES][32];
        following(rows, start, count);
        Point p = mapped(read_field(uniform, rows, 64));
        const Point q = mapped(read_field(uniform + 32, rows, 64));
        const Cached other = cache(&q);
        added(&p, &other);
        encode(encoded, &p);
        store(out, encoded, start, count);
    }
}
#endif

/* The group law of ristretto255 (RFC 9496), for any field arithmetic: LANES points at a time.
 *
 * The file that includes it brings `Field` (a number modulo 2^255 - 19 in each lane, limbs of 51 bits), `Mask` (a yes or
 * no a lane) and what computes with them: `_ristretto.c` (AVX-512, eight lanes), `_ristretto_portable.c` (any
 * processor, one). A `carried` field has limbs below 2^51 + 2^17, which is all that a product reads; `raw` sums of
 * products have larger ones and are carried once, after they were added up.
 *
 * Points are in extended Edwards coordinates. Neither steps nor memory addresses depend on points or scalars: digits of
 * a scalar select from their table by masks over all entries. A point that is a multiple is encoded in a batch: half of
 * the multiple is computed, and twice a point can be encoded with an inversion in place of a root (Hamburg, as used by
 * the authors of ristretto), which a batch shares. Compared with libsodium, bit for bit, in tests/test_oprf.py.
 */
#define BATCH 32 /* groups of lanes that share two inversions */
#define BOTH(k) for (int k = 0; k < 2; k++)

typedef struct {
    Field x, y, z, t; /* x / z, y / z, and t = x y / z */
} Point;

typedef struct {
    Field of[2]; /* where a step waits for the one before, a second number is computed beside the first */
} Pair;

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
static const uint8_t ORDER[32] = {0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7,
                                  0xa2, 0xde, 0xf9, 0xde, 0x14, 0,    0,    0,    0,    0,    0,
                                  0,    0,    0,    0,    0,    0,    0,    0,    0,    0x10};

/* --- the field, from raw sums and products --- */

INLINE Field add(Field a, Field b) { return carried(raw_sum(a, b)); }
INLINE Field subtract(Field a, Field b) { return carried(raw_difference(a, b)); }
INLINE Field negated(Field a) { return subtract(small(0), a); }
INLINE Field times(Field a, Field b) { return carried(raw_product(a, b)); }

/* `times` is put in place where points are added and doubled; elsewhere these are called */
CALLED Field multiply(Field a, Field b) { return times(a, b); }
CALLED Field squared(Field a) { return carried(raw_square(a)); }
INLINE Mask is_zero(Field a) { return all_zero(canonical(a)); }
INLINE Mask is_negative(Field a) { return odd(canonical(a)); }
INLINE Field absolute(Field a) { return chosen(is_negative(a), a, negated(a)); }

CALLED Pair multiply_both(Pair a, Pair b) {
    BOTH(k) a.of[k] = times(a.of[k], b.of[k]);
    return a;
}

CALLED Pair squared_often(Pair a, int often) {
    for (int i = 0; i < often; i++) a.of[0] = carried(raw_square(a.of[0])), a.of[1] = carried(raw_square(a.of[1]));
    return a;
}

/* a ^ (2^250 - 1); a11 becomes a ^ 11 */
CALLED Pair long_power(Pair a, Pair *a11) {
    const Pair a2 = squared_often(a, 1), a9 = multiply_both(a, squared_often(a2, 2));
    *a11 = multiply_both(a9, a2);
    const Pair b5 = multiply_both(squared_often(*a11, 1), a9); /* 2^5 - 1 */
    const Pair b10 = multiply_both(squared_often(b5, 5), b5);
    const Pair b20 = multiply_both(squared_often(b10, 10), b10);
    const Pair b40 = multiply_both(squared_often(b20, 20), b20);
    const Pair b50 = multiply_both(squared_often(b40, 10), b10);
    const Pair b100 = multiply_both(squared_often(b50, 50), b50);
    const Pair b200 = multiply_both(squared_often(b100, 100), b100);
    return multiply_both(squared_often(b200, 50), b50);
}

/* a ^ ((p - 5) / 8) = a ^ (2^252 - 3) */
CALLED Pair root_power(Pair a) {
    Pair a11;
    const Pair power = long_power(a, &a11);
    return multiply_both(squared_often(power, 2), a);
}

/* 1 / a = a ^ (2^255 - 21) */
CALLED Pair inverted(Pair a) {
    Pair a11;
    const Pair power = long_power(a, &a11);
    return multiply_both(squared_often(power, 5), a11);
}

/* SQRT_RATIO_M1 of RFC 9496: the roots of u / v, or of sqrt(-1) u / v; `square` says where u / v was a square */
CALLED void root_of_ratio(Pair *root, Mask *square, const Pair *u, const Pair *v) {
    const Field i = constant(SQRT_M1);
    Pair v3, inside;
    BOTH(k) {
        v3.of[k] = multiply(squared(v->of[k]), v->of[k]);
        inside.of[k] = multiply(u->of[k], multiply(squared(v3.of[k]), v->of[k]));
    }
    const Pair power = root_power(inside);
    BOTH(k) {
        Field r = multiply(multiply(u->of[k], v3.of[k]), power.of[k]);
        const Field check = multiply(v->of[k], squared(r)), minus = negated(u->of[k]);
        const Mask correct = is_zero(subtract(check, u->of[k])), flipped = is_zero(subtract(check, minus));
        const Mask flipped_i = is_zero(subtract(check, multiply(minus, i)));
        r = chosen(flipped | flipped_i, r, multiply(r, i));
        root->of[k] = absolute(r);
        square[k] = correct | flipped;
    }
}

/* --- bytes --- */

static inline uint64_t word(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, 8);
    return value;
}

/* 32 bytes a lane, the highest bit left out; `step` bytes from one lane's to the next's */
INLINE Field read_field(const uint8_t *bytes, const int64_t *rows, int64_t step) {
    uint64_t limb[5][LANES];
    for (int lane = 0; lane < LANES; lane++) {
        const uint8_t *from = bytes + rows[lane] * step;
        limb[0][lane] = word(from) & MASK51;
        limb[1][lane] = word(from + 6) >> 3 & MASK51;
        limb[2][lane] = word(from + 12) >> 6 & MASK51;
        limb[3][lane] = word(from + 19) >> 1 & MASK51;
        limb[4][lane] = word(from + 24) >> 12 & MASK51;
    }
    return from_lanes(limb);
}

INLINE void write_field(uint8_t (*out)[32], Field a) {
    uint64_t limb[5][LANES];
    to_lanes(limb, canonical(a));
    for (int lane = 0; lane < LANES; lane++) {
        const uint64_t words[4] = {
            limb[0][lane] | limb[1][lane] << 51, limb[1][lane] >> 13 | limb[2][lane] << 38,
            limb[2][lane] >> 26 | limb[3][lane] << 25, limb[3][lane] >> 39 | limb[4][lane] << 12};
        memcpy(out[lane], words, 32);
    }
}

/* two groups of lanes: their points, and where the bytes are the encoding of one */
CALLED void decode(Point *points, Mask *valid, const uint8_t *bytes, const int64_t *rows) {
    const Field one = small(1);
    Pair s, u1, u2, v, inside, root;
    BOTH(k) {
        s.of[k] = read_field(bytes, rows + k * LANES, 32);
        const Field ss = squared(s.of[k]);
        u1.of[k] = subtract(one, ss);
        u2.of[k] = add(one, ss);
        const Field u2_squared = squared(u2.of[k]);
        v.of[k] = subtract(negated(multiply(constant(ED_D), squared(u1.of[k]))), u2_squared);
        inside.of[k] = multiply(v.of[k], u2_squared);
    }
    const Pair ones = {{one, one}};
    root_of_ratio(&root, valid, &ones, &inside);
    BOTH(k) {
        Point *p = points + k;
        const Field den_x = multiply(root.of[k], u2.of[k]);
        const Field den_y = multiply(multiply(root.of[k], den_x), v.of[k]);
        p->x = absolute(multiply(add(s.of[k], s.of[k]), den_x));
        p->y = multiply(u1.of[k], den_y);
        p->z = one;
        p->t = multiply(p->x, p->y);
        valid[k] &= (Mask)~is_negative(p->t) & (Mask)~is_zero(p->y) & (Mask)~is_negative(s.of[k]);
        uint8_t again[LANES][32];
        write_field(again, s.of[k]);
        for (int lane = 0; lane < LANES; lane++)
            if (memcmp(again[lane], bytes + rows[k * LANES + lane] * 32, 32)) valid[k] &= (Mask) ~(1 << lane);
    }
}

CALLED void encode(uint8_t (*out)[LANES][32], const Point *points) {
    const Field i = constant(SQRT_M1), one = small(1);
    Pair u1, u2, inside, root;
    Mask square[2];
    BOTH(k) {
        const Point *p = points + k;
        u1.of[k] = multiply(add(p->z, p->y), subtract(p->z, p->y));
        u2.of[k] = multiply(p->x, p->y);
        inside.of[k] = multiply(u1.of[k], squared(u2.of[k]));
    }
    const Pair ones = {{one, one}};
    root_of_ratio(&root, square, &ones, &inside);
    BOTH(k) {
        const Point *p = points + k;
        const Field den1 = multiply(root.of[k], u1.of[k]), den2 = multiply(root.of[k], u2.of[k]);
        const Field z_inv = multiply(multiply(den1, den2), p->t);
        const Mask rotate = is_negative(multiply(p->t, z_inv));
        const Field x = chosen(rotate, p->x, multiply(p->y, i));
        Field y = chosen(rotate, p->y, multiply(p->x, i));
        const Field den_inv = chosen(rotate, den2, multiply(den1, constant(INVSQRT_A_MINUS_D)));
        y = chosen(is_negative(multiply(x, z_inv)), y, negated(y));
        write_field(out[k], absolute(multiply(den_inv, subtract(p->z, y))));
    }
}

/* Twice a point (e f : g h : f g : e h), before its encoding is known. */
typedef struct {
    Field e, f, g, h, eg, fh;
} Twice;

CALLED Twice twice(const Point *p) {
    Twice w;
    const Field xx = squared(p->x), yy = squared(p->y), zz = squared(p->z);
    const Field dtt = multiply(constant(ED_D), squared(p->t));
    w.e = multiply(p->x, add(p->y, p->y));
    w.f = add(zz, dtt);
    w.g = add(yy, xx);
    w.h = subtract(zz, dtt);
    w.eg = multiply(w.e, w.g);
    w.fh = multiply(w.f, w.h);
    return w;
}

/* The encoding of twice a point, where `inverse` is 1 / (e f g h). */
CALLED void encode_twice(uint8_t (*out)[32], const Twice *w, Field inverse) {
    const Field i = constant(SQRT_M1), z_inv = multiply(w->eg, inverse), t_inv = multiply(w->fh, inverse);
    const Mask rotate = is_negative(multiply(w->eg, z_inv));
    const Field e = chosen(rotate, w->e, w->g), h = chosen(rotate, w->h, multiply(w->f, i));
    const Field factor = chosen(rotate, constant(INVSQRT_A_MINUS_D), i);
    Field g = chosen(rotate, w->g, negated(w->e));
    g = chosen(is_negative(multiply(multiply(h, e), z_inv)), g, negated(g));
    write_field(out, absolute(multiply(subtract(h, g), multiply(factor, multiply(g, t_inv)))));
}

/* `count` groups of lanes: their encodings with two inversions for all; a product of zero (the identity) stands apart */
CALLED void encode_batch(uint8_t (*out)[LANES][32], const Twice *all_of, int count) {
    Field before[BATCH], factor[BATCH];
    Pair product = {{small(1), small(1)}};
    for (int k = 0; k < count; k++) {
        const Field own = multiply(all_of[k].eg, all_of[k].fh);
        factor[k] = chosen(is_zero(own), own, small(1));
        before[k] = product.of[k % 2];
        product.of[k % 2] = multiply(before[k], factor[k]);
    }
    Pair inverse = inverted(product);
    for (int k = count - 1; k >= 0; k--) {
        encode_twice(out[k], &all_of[k], multiply(inverse.of[k % 2], before[k]));
        inverse.of[k % 2] = multiply(inverse.of[k % 2], factor[k]);
    }
}

/* --- points --- */

/* (e f : g h : f g : e h), in place */
INLINE void complete(Point *p, const Field *e, const Field *f, const Field *g, const Field *h, int with_t) {
    p->x = times(*e, *f);
    p->y = times(*g, *h);
    p->z = times(*f, *g);
    if (with_t) p->t = times(*e, *h);
}

/* t is left out where no addition follows, which alone reads it */
INLINE void doubled(Point *p, int with_t) {
    const Field a = raw_square(p->x), b = raw_square(p->y), zz = raw_square(p->z), s = raw_square(add(p->x, p->y));
    const Field sum = raw_sum(a, b), g = raw_difference(a, b);
    const Field e = carried(raw_difference(sum, s)), f = carried(raw_sum(raw_sum(zz, zz), g));
    const Field least = carried(g), h = carried(sum);
    complete(p, &e, &f, &least, &h, with_t);
}

CALLED void doubled_often(Point *p, int often) {
    for (int i = 1; i <= often; i++) doubled(p, i == often);
}

INLINE Cached cache(const Point *p) {
    const Cached c = {add(p->y, p->x), subtract(p->y, p->x), add(p->z, p->z), multiply(p->t, constant(TWO_D))};
    return c;
}

CALLED void added(Point *p, const Cached *q, int with_t) {
    const Field a = raw_product(subtract(p->y, p->x), q->minus), b = raw_product(add(p->y, p->x), q->plus);
    const Field c = raw_product(p->t, q->t), d = raw_product(p->z, q->z);
    const Field e = carried(raw_difference(b, a)), f = carried(raw_difference(d, c));
    const Field g = carried(raw_sum(d, c)), h = carried(raw_sum(b, a));
    complete(p, &e, &f, &g, &h, with_t);
}

/* MAP of RFC 9496, for two groups of lanes */
CALLED void mapped(Point *points, const Pair *t) {
    const Field one = small(1), d = constant(ED_D);
    Pair r, u, v, root;
    Mask square[2];
    BOTH(k) {
        r.of[k] = multiply(constant(SQRT_M1), squared(t->of[k]));
        u.of[k] = multiply(add(r.of[k], one), constant(ONE_MINUS_D_SQ));
        v.of[k] = multiply(subtract(negated(one), multiply(r.of[k], d)), add(r.of[k], d));
    }
    root_of_ratio(&root, square, &u, &v);
    BOTH(k) {
        const Mask not_square = (Mask)~square[k];
        const Field s = chosen(not_square, root.of[k], negated(absolute(multiply(root.of[k], t->of[k]))));
        const Field c = chosen(not_square, negated(one), r.of[k]);
        const Field n =
            subtract(multiply(multiply(c, subtract(r.of[k], one)), constant(D_MINUS_ONE_SQ)), v.of[k]);
        const Field w0 = multiply(add(s, s), v.of[k]), w1 = multiply(n, constant(SQRT_AD_MINUS_ONE)), ss = squared(s);
        const Field w2 = subtract(one, ss), w3 = add(one, ss);
        const Point p = {multiply(w0, w3), multiply(w2, w1), multiply(w1, w3), multiply(w0, w2)};
        points[k] = p;
    }
}

CALLED void hashed(Point *p, const uint8_t *uniform, const int64_t *rows) {
    const Pair t = {{read_field(uniform, rows, 64), read_field(uniform + 32, rows, 64)}};
    Point both[2];
    mapped(both, &t);
    const Cached other = cache(&both[1]);
    *p = both[0];
    added(p, &other, 1);
}

/* Half of a scalar below 2^255 modulo the order, as 64 digits from -8 to 8, the lowest first. */
INLINE void split_half(int8_t (*digits)[LANES], int lane, const uint8_t *scalar) {
    const unsigned odd_mask = 0u - (scalar[0] & 1u);
    uint8_t half[33];
    unsigned sum = 0;
    int carry = 0;
    for (int i = 0; i < 32; i++) sum = scalar[i] + (ORDER[i] & odd_mask) + (sum >> 8), half[i] = (uint8_t)sum;
    half[32] = (uint8_t)(sum >> 8);
    for (int i = 0; i < 32; i++) half[i] = (uint8_t)(half[i] >> 1 | half[i + 1] << 7);
    for (int i = 0; i < 64; i++) {
        const int digit = (half[i / 2] >> (i % 2 * 4) & 15) + carry;
        carry = (digit + 8) >> 4;
        digits[i][lane] = (int8_t)(digit - carry * 16);
    }
}

CALLED void scaled(Point *p, const int8_t (*digits)[LANES]) {
    Cached table[8];
    Point multiple = *p;
    for (int k = 0; k < 8; k++) {
        table[k] = cache(&multiple);
        if (k < 7) added(&multiple, &table[0], 1);
    }
    const Point zero = {small(0), small(1), small(1), small(0)};
    const Cached nothing = cache(&zero);
    *p = zero;
    for (int i = 63; i >= 0; i--) {
        if (i < 63) doubled_often(p, 4);
        Mask hit[8];
        Cached q = nothing;
        for (int k = 0; k < 8; k++) hit[k] = digit_is(digits[i], k + 1) | digit_is(digits[i], -k - 1);
        for (int k = 0; k < 8; k++) q.plus = chosen(hit[k], q.plus, table[k].plus); /* one stays in registers */
        for (int k = 0; k < 8; k++) q.minus = chosen(hit[k], q.minus, table[k].minus);
        for (int k = 0; k < 8; k++) q.z = chosen(hit[k], q.z, table[k].z);
        for (int k = 0; k < 8; k++) q.t = chosen(hit[k], q.t, table[k].t);
        const Mask below = digit_below_zero(digits[i]);
        const Field plus = q.plus;
        q.plus = chosen(below, q.plus, q.minus);
        q.minus = chosen(below, q.minus, plus);
        q.t = chosen(below, q.t, negated(q.t));
        added(p, &q, i == 0);
    }
}

/* rows start .. start + most - 1; where fewer are left, the first again */
INLINE void following(int64_t *rows, int most, int64_t start, int64_t count) {
    for (int lane = 0; lane < most; lane++) rows[lane] = start + lane < count ? start + lane : start;
}

INLINE void store(uint8_t *out, uint8_t (*from)[32], int64_t start, int64_t count) {
    for (int lane = 0; lane < LANES && start + lane < count; lane++) memcpy(out + (start + lane) * 32, from[lane], 32);
}

/* From `points` (32 bytes each), or from uniform bytes (64 each) where `hash` is set: out[i] = scalars[i] * point i; a
 * single scalar serves all where `step` is 0 (else 32). Returns the number of the first point that is no valid encoding
 * or is the identity, or -1. */
INLINE int64_t multiples(const uint8_t *given, int hash, int64_t count, const uint8_t *scalars, int64_t step,
                         uint8_t *out) {
    static const uint8_t identity[32];
    int8_t digits[64][LANES];
    if (!step)
        for (int lane = 0; lane < LANES; lane++) split_half(digits, lane, scalars);
    for (int64_t first = 0; first < count; first += BATCH * LANES) {
        Twice halves[BATCH];
        uint8_t encoded[BATCH][LANES][32];
        int groups = 0;
        for (int64_t start = first; start < count && groups < BATCH; start += 2 * LANES) {
            int64_t rows[2 * LANES];
            Point points[2];
            Mask valid[2];
            following(rows, 2 * LANES, start, count);
            if (!hash) decode(points, valid, given, rows);
            for (int at = 0; !hash && at < 2 * LANES; at++)
                if (!(valid[at / LANES] >> at % LANES & 1) || !memcmp(given + rows[at] * 32, identity, 32))
                    return rows[at];
            for (int k = 0; k < 2 && start + k * LANES < count; k++) {
                if (hash) hashed(points + k, given, rows + k * LANES);
                for (int lane = 0; step && lane < LANES; lane++)
                    split_half(digits, lane, scalars + rows[k * LANES + lane] * step);
                scaled(points + k, (const int8_t(*)[LANES])digits);
                halves[groups++] = twice(points + k);
            }
        }
        encode_batch(encoded, halves, groups);
        for (int k = 0; k < groups; k++) store(out, encoded[k], first + k * LANES, count);
    }
    return -1;
}

EXPORT int64_t NAMED(scale)(const uint8_t *points, int64_t count, const uint8_t *scalars, int64_t step, uint8_t *out) {
    return multiples(points, 0, count, scalars, step, out);
}

/* out[i] = scalars[i] * the group element of 64 uniform bytes */
EXPORT void NAMED(map_scale)(const uint8_t *uniform, int64_t count, const uint8_t *scalars, int64_t step, uint8_t *out) {
    multiples(uniform, 1, count, scalars, step, out);
}

/* out[i] = the group element of 64 uniform bytes */
EXPORT void NAMED(map)(const uint8_t *uniform, int64_t count, uint8_t *out) {
    for (int64_t start = 0; start < count; start += 2 * LANES) {
        int64_t rows[2 * LANES];
        uint8_t encoded[2][LANES][32];
        Point points[2];
        following(rows, 2 * LANES, start, count);
        BOTH(k) hashed(points + k, uniform, rows + k * LANES);
        encode(encoded, points);
        BOTH(k) store(out, encoded[k], start + k * LANES, count);
    }
}

/* Matrix products modulo 2^64: out (a x b) = left' right, with left (n x a) and right (n x b) row by row.

   Rows are taken in blocks that stay in the cache; a tile of 8 x 8 results stays in registers. Unsigned 64-bit numbers
   wrap as the ring does, so nothing can overflow and the order of sums does not matter. Time depends on the sizes alone.
*/

#include <stdint.h>

#ifdef __GNUC__
#define EXPORTED __attribute__((visibility("default")))
#else
#define EXPORTED
#endif

#define ROWS 256

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define WITH_AVX512 __attribute__((target("avx512f,avx512dq")))

/* One tile: columns c..c+lanes of left, columns d..d+wide of right. */
WITH_AVX512 static void tile(const uint64_t *left, const uint64_t *right, int64_t rows, int64_t a, int64_t b,
                             int lanes, int wide, uint64_t *out) {
    __mmask8 mask = (__mmask8)((1u << lanes) - 1);
    __m512i sums[8];
    for (int j = 0; j < 8; j++) sums[j] = _mm512_setzero_si512();
    if (wide == 8) {
        for (int64_t i = 0; i < rows; i++) {
            __m512i x = _mm512_maskz_loadu_epi64(mask, left + i * a);
            for (int j = 0; j < 8; j++)
                sums[j] = _mm512_add_epi64(
                    sums[j], _mm512_mullo_epi64(x, _mm512_set1_epi64((long long)right[i * b + j])));
        }
    } else {
        for (int64_t i = 0; i < rows; i++) {
            __m512i x = _mm512_maskz_loadu_epi64(mask, left + i * a);
            for (int j = 0; j < wide; j++)
                sums[j] = _mm512_add_epi64(
                    sums[j], _mm512_mullo_epi64(x, _mm512_set1_epi64((long long)right[i * b + j])));
        }
    }
    for (int j = 0; j < wide; j++) {
        uint64_t part[8];
        _mm512_storeu_si512(part, sums[j]);
        for (int c = 0; c < lanes; c++) out[c * b + j] += part[c];
    }
}

/* out must be zero (or what is to be added to). */
EXPORTED void fedsift_ring_product(const uint64_t *left, const uint64_t *right, int64_t n, int64_t a, int64_t b,
                                   uint64_t *out) {
    for (int64_t first = 0; first < n; first += ROWS) {
        int64_t rows = n - first < ROWS ? n - first : ROWS;
        for (int64_t c = 0; c < a; c += 8)
            for (int64_t d = 0; d < b; d += 8)
                tile(left + first * a + c, right + first * b + d, rows, a, b, (int)(a - c < 8 ? a - c : 8),
                     (int)(b - d < 8 ? b - d : 8), out + c * b + d);
    }
}
#else
EXPORTED void fedsift_ring_product(const uint64_t *left, const uint64_t *right, int64_t n, int64_t a, int64_t b,
                                   uint64_t *out) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < a; c++)
            for (int64_t d = 0; d < b; d++) out[c * b + d] += left[i * a + c] * right[i * b + d];
}
#endif

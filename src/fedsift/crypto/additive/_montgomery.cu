/* Products of large numbers modulo an odd number, one a thread: the device's side of cuda.py.
 *
 * A number is a row of LIMBS words of 32 bits in Montgomery's form, below twice the modulus, of which four times must
 * fit into a row: then a product of two such numbers is one again without a comparison. One factor and the running
 * result lie in registers, the other factor is read word by word, the modulus lies in constant memory, where the
 * multiplier reads it at no cost. Compiled at run time by NVRTC; LIMBS is given then.
 *
 * The same file compiles as C (tests/device_double.py): the carry flag is a variable there and threads are a loop, so
 * that the arithmetic and every index are tested on machines without such a device.
 */

#ifdef __CUDACC__
typedef unsigned int word;
typedef unsigned char byte;
typedef long long place;
#define KERNEL extern "C" __global__ void
#define INSIDE static __device__ __forceinline__ void
#define CONSTANT extern "C" __constant__
#define THREAD ((place)blockIdx.x * blockDim.x + threadIdx.x)
/* volatile: nothing may come between two steps of a chain, the flag would be lost */
#define MULTIPLY_LOW(d, a, b, c) asm volatile("mad.lo.cc.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c))
#define CARRY_LOW(d, a, b, c) asm volatile("madc.lo.cc.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c))
#define MULTIPLY_HIGH(d, a, b, c) asm volatile("mad.hi.cc.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c))
#define CARRY_HIGH(d, a, b, c) asm volatile("madc.hi.cc.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c))
#define CARRY(d, a) asm volatile("addc.u32 %0, %1, 0;" : "=r"(d) : "r"(a))
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#else
#include <stdint.h>
typedef uint32_t word;
typedef uint8_t byte;
typedef int64_t place;
#define KERNEL __attribute__((visibility("default"))) void
#define INSIDE static void
#define CONSTANT __attribute__((visibility("default")))
__attribute__((visibility("default"))) place fedsift_thread;
#define THREAD fedsift_thread
static uint64_t wide, flag;
#define MULTIPLY_LOW(d, a, b, c) (wide = (uint64_t)(word)((a) * (b)) + (c), flag = wide >> 32, d = (word)wide)
#define CARRY_LOW(d, a, b, c) (wide = (uint64_t)(word)((a) * (b)) + (c) + flag, flag = wide >> 32, d = (word)wide)
#define HIGH(a, b) ((uint64_t)(a) * (b) >> 32)
#define MULTIPLY_HIGH(d, a, b, c) (wide = HIGH(a, b) + (c), flag = wide >> 32, d = (word)wide)
#define CARRY_HIGH(d, a, b, c) (wide = HIGH(a, b) + (c) + flag, flag = wide >> 32, d = (word)wide)
#define CARRY(d, a) (d = (word)((a) + flag), flag = 0)
#define UNROLL
#define ROLLED
#endif

CONSTANT word modulus[LIMBS];
CONSTANT word one[LIMBS]; /* in Montgomery's form */
CONSTANT word inverse[1]; /* of -modulus, modulo 2^32 */

INSIDE fetch(word *row, const word *from) {
  UNROLL for (int j = 0; j < LIMBS; j++) row[j] = from[j];
}

INSIDE store(word *to, const word *row) {
  UNROLL for (int j = 0; j < LIMBS; j++) to[j] = row[j];
}

/* a = a b / 2^(32 LIMBS): word by word of b, the lowest word of the running sum cleared and dropped each time */
INSIDE multiply(word *a, const word *b) {
  word t[LIMBS + 1];
  UNROLL for (int j = 0; j <= LIMBS; j++) t[j] = 0;
  ROLLED for (int i = 0; i < LIMBS; i++) {
    word x = b[i], m;
    MULTIPLY_LOW(t[0], a[0], x, t[0]);
    UNROLL for (int j = 1; j < LIMBS; j++) CARRY_LOW(t[j], a[j], x, t[j]);
    CARRY(t[LIMBS], t[LIMBS]);
    MULTIPLY_HIGH(t[1], a[0], x, t[1]);
    UNROLL for (int j = 1; j < LIMBS; j++) CARRY_HIGH(t[j + 1], a[j], x, t[j + 1]);
    m = t[0] * inverse[0];
    MULTIPLY_LOW(t[0], modulus[0], m, t[0]);
    UNROLL for (int j = 1; j < LIMBS; j++) CARRY_LOW(t[j - 1], modulus[j], m, t[j]);
    CARRY(t[LIMBS - 1], t[LIMBS]);
    MULTIPLY_HIGH(t[0], modulus[0], m, t[0]);
    UNROLL for (int j = 1; j < LIMBS; j++) CARRY_HIGH(t[j], modulus[j], m, t[j]);
    t[LIMBS] = 0; /* the sum is below 4 moduli again */
  }
  UNROLL for (int j = 0; j < LIMBS; j++) a[j] = t[j];
}

/* number by number; one factor may be a single one. b may be any row, a is below two moduli */
KERNEL products(const word *a, place firsts, const word *b, place others, word *out, place count) {
  place i = THREAD;
  if (i >= count) return;
  word row[LIMBS];
  fetch(row, a + (firsts == 1 ? 0 : i * LIMBS));
  multiply(row, b + (others == 1 ? 0 : i * LIMBS));
  store(out + i * LIMBS, row);
}

KERNEL squares(const word *a, place times, word *out, place count) {
  place i = THREAD;
  if (i >= count) return;
  word row[LIMBS];
  fetch(row, a + i * LIMBS);
  store(out + i * LIMBS, row);
  ROLLED for (place step = 0; step < times; step++) {
    multiply(row, out + i * LIMBS);
    store(out + i * LIMBS, row);
  }
}

/* for each segment of order the product of the values there */
KERNEL segments(const word *values, const int *order, const place *bounds, word *out, place count) {
  place i = THREAD;
  if (i >= count) return;
  word row[LIMBS];
  place at = bounds[i], end = bounds[i + 1];
  fetch(row, at < end ? values + (place)order[at] * LIMBS : one);
  ROLLED for (at++; at < end; at++) multiply(row, values + (place)order[at] * LIMBS);
  store(out + i * LIMBS, row);
}

/* powers of one base by its table of all digits: base ** (d << 8 i) at place i << 8 | d; zero digits multiply too */
KERNEL table_powers(const word *table, const byte *digits, place width, word *out, place count) {
  place i = THREAD;
  if (i >= count) return;
  word row[LIMBS];
  fetch(row, one);
  ROLLED for (place k = 0; k < width; k++) multiply(row, table + (k << 8 | digits[i * width + k]) * LIMBS);
  store(out + i * LIMBS, row);
}

/* each number to its own power, digits of four bits, highest first, by a table of its sixteen first powers */
KERNEL powers(const word *a, const byte *digits, place width, word *table, word *out, place count) {
  place i = THREAD;
  if (i >= count) return;
  word row[LIMBS];
  word *first = table + i * 16 * LIMBS, *result = out + i * LIMBS;
  fetch(row, one);
  ROLLED for (int power = 0; power < 16; power++) {
    store(first + power * LIMBS, row);
    multiply(row, a + i * LIMBS);
  }
  fetch(row, one);
  ROLLED for (place k = 0; k < 2 * width; k++) {
    ROLLED for (int twice = 0; twice < 4; twice++) {
      store(result, row);
      multiply(row, result);
    }
    byte digit = digits[i * width + (k >> 1)];
    multiply(row, first + (k & 1 ? digit & 15 : digit >> 4) * LIMBS);
  }
  store(result, row);
}

/* Rows by group, a counting sort of many columns at once: how many rows of a stretch lie in each group ... */
KERNEL tally(const byte *codes, place rows, place stretch, place stretches, const int *starts, int *counts, place count) {
  place i = THREAD;
  if (i >= count) return;
  place column = i / stretches, part = i % stretches;
  place at = part * stretch, end = at + stretch < rows ? at + stretch : rows;
  for (; at < end; at++) counts[(starts[column] + codes[column * rows + at]) * stretches + part]++;
}

/* ... and each row to the next free place of its group, which places holds */
KERNEL scatter(
    const byte *codes, place rows, place stretch, place stretches, const int *starts, place *places, int *order,
    place count) {
  place i = THREAD;
  if (i >= count) return;
  place column = i / stretches, part = i % stretches;
  place at = part * stretch, end = at + stretch < rows ? at + stretch : rows;
  for (; at < end; at++) order[places[(starts[column] + codes[column * rows + at]) * stretches + part]++] = (int)at;
}

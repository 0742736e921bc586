/* Calls one function of the kernel with what comes on stdin, for tests that run it under emulation: the number of the
 * function, how many arguments, and each as its kind (0: a number, 1: bytes), eight bytes (the number, or how many
 * bytes) and the bytes. Back go the result and all bytes as they are then. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int64_t (*Function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t);
extern int64_t fedsift_portable_products(), fedsift_portable_squares(), fedsift_portable_powers(),
    fedsift_portable_segments(), fedsift_portable_ring_product(), fedsift_portable_ristretto_map_scale(),
    fedsift_portable_ristretto_scale(), fedsift_sha512();

static const Function FUNCTIONS[] = {
    (Function)fedsift_portable_products,  (Function)fedsift_portable_squares,
    (Function)fedsift_portable_powers,    (Function)fedsift_portable_segments,
    (Function)fedsift_portable_ring_product, (Function)fedsift_portable_ristretto_map_scale,
    (Function)fedsift_portable_ristretto_scale, (Function)fedsift_sha512};

static void take(void *into, size_t size) {
    if (size && fread(into, 1, size, stdin) != size) exit(2);
}

int main(void) {
    uint8_t function, count, kind[10];
    int64_t size[10], a[10] = {0};
    take(&function, 1);
    take(&count, 1);
    if (function >= sizeof FUNCTIONS / sizeof *FUNCTIONS || count > 10) return 2;
    for (int i = 0; i < count; i++) {
        take(&kind[i], 1);
        take(&size[i], 8);
        a[i] = kind[i] ? (int64_t)(intptr_t)calloc((size_t)size[i] + 8, 1) : size[i];
        if (kind[i]) take((void *)(intptr_t)a[i], (size_t)size[i]);
    }
    const int64_t result = FUNCTIONS[function](a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
    fwrite(&result, 8, 1, stdout);
    for (int i = 0; i < count; i++)
        if (kind[i]) fwrite((void *)(intptr_t)a[i], 1, (size_t)size[i], stdout);
    return 0;
}

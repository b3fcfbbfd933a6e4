/* What compiled kernels need of numba's run time: memory for the small arrays that they make, and nothing else.
 *
 * The layout is that of numba's MemInfo (numba/core/runtime/nrt.cpp), since the kernels read `data` themselves.
 * tools/kernel_library links this in; tests compare the result with the interpreted kernels. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

struct memory {
    size_t references;
    void *destructor;
    void *destructor_info;
    void *data;
    size_t size;
    void *allocator;
};

void *NRT_Allocate(size_t size) { return malloc(size); }

void NRT_Free(void *pointer) { free(pointer); }

void *NRT_MemInfo_alloc_aligned(size_t size, unsigned align) {
    struct memory *found = malloc(sizeof(struct memory) + size + align);
    if (found == NULL) return NULL;
    size_t start = (size_t)(found + 1);
    *found = (struct memory){.references = 1, .size = size};
    found->data = (void *)((start + align - 1) / align * align);
    return found;
}

void *NRT_MemInfo_alloc(size_t size) { return NRT_MemInfo_alloc_aligned(size, sizeof(void *)); }

void NRT_incref(struct memory *counted) {
    if (counted != NULL) __atomic_fetch_add(&counted->references, 1, __ATOMIC_RELAXED);
}

void NRT_decref(struct memory *counted) {
    if (counted != NULL && __atomic_sub_fetch(&counted->references, 1, __ATOMIC_ACQ_REL) == 0) free(counted);
}

/* Every function by which numba would raise a Python exception is this one. Kernels raise nothing, except where there
 * is no memory left: going on would be deciding on garbage. */
void windlass_kernel_failed(void) {
    fputs("windlass: a compiled kernel has failed (out of memory?)\n", stderr);
    abort();
}

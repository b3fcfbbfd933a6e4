/* As much of libcuda as tools/gpu/vector_add.c calls, on the processor: for tests of how a container finds the driver. */
#include <stdlib.h>
#include <string.h>

typedef unsigned long long pointer;

int cuInit(unsigned flags) { return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "Pretended GPU", size); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 42; return 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { *context = context; return 0; }
int cuModuleLoadData(void **module, const void *image) { *module = module; return 0; }
int cuModuleGetFunction(void **function, void *module, const char *name) { *function = function; return 0; }
int cuMemAlloc_v2(pointer *where, size_t size) { *where = (pointer)malloc(size); return 0; }
int cuMemcpyHtoD_v2(pointer to, const void *from, size_t size) { memcpy((void *)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, pointer from, size_t size) { memcpy(to, (void *)from, size); return 0; }
int cuCtxSynchronize(void) { return 0; }

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    unsigned *xs = *(unsigned **)arguments[0], *ys = *(unsigned **)arguments[1], count = *(unsigned *)arguments[2];
    for (unsigned at = 0; at < count; at++) ys[at] += xs[at];
    return 0;
}

/* A vector addition through CUDA's driver API alone. It needs nothing at compile time: libcuda.so.1 is opened at run
   time, as every framework does it, so this is what a container sees of the driver that a CDI spec brings.
   Prints one line: right or wrong, the device, its multiprocessors. More by arguments:
     seconds N     adds again and again for so long, and says how often; the first line comes after the first sum
     allocate MIB  says whether so much memory can be had at once, before it adds
     stray         writes where nothing is, which the driver reports as Xid 31, and fails */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT (1 << 16)

static const char PTX[] =
    ".version 6.4\n.target sm_50\n.address_size 64\n"
    ".visible .entry add(.param .u64 xs, .param .u64 ys, .param .u32 n)\n{\n"
    "  .reg .pred %p;\n  .reg .b32 %r<8>;\n  .reg .b64 %d<6>;\n"
    "  ld.param.u64 %d1, [xs];\n  ld.param.u64 %d2, [ys];\n  ld.param.u32 %r1, [n];\n"
    "  mov.u32 %r2, %ctaid.x;\n  mov.u32 %r3, %ntid.x;\n  mov.u32 %r4, %tid.x;\n"
    "  mad.lo.u32 %r5, %r2, %r3, %r4;\n  setp.ge.u32 %p, %r5, %r1;\n  @%p bra DONE;\n"
    "  cvta.to.global.u64 %d1, %d1;\n  cvta.to.global.u64 %d2, %d2;\n"
    "  mul.wide.u32 %d3, %r5, 4;\n  add.u64 %d4, %d1, %d3;\n  add.u64 %d5, %d2, %d3;\n"
    "  ld.global.u32 %r6, [%d4];\n  ld.global.u32 %r7, [%d5];\n  add.u32 %r7, %r6, %r7;\n"
    "  st.global.u32 [%d5], %r7;\nDONE:\n  ret;\n}\n";

typedef unsigned long long pointer;
static void *library;

static void *symbol(const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        printf("wrong: libcuda has no %s\n", name);
        exit(1);
    }
    return found;
}

static void check(const char *what, int error) {
    if (error) {
        printf("wrong: %s failed with CUDA error %d\n", what, error);
        exit(1);
    }
}

#define CALL(name, types, ...) check(#name, ((int(*) types)symbol(#name))(__VA_ARGS__))

static unsigned *host;
static pointer xs, ys;
static void *function;

static void launch(pointer from, pointer to) {
    unsigned count = COUNT;
    void *arguments[] = {&from, &to, &count};
    CALL(cuLaunchKernel,
         (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
         function, COUNT / 256, 1, 1, 256, 1, 1, 0, NULL, arguments, NULL);
    CALL(cuCtxSynchronize, (void));
}

static void add(void) {
    unsigned count = COUNT, wrong = 0;
    for (unsigned at = 0; at < count; at++) host[at] = 3 * at;
    CALL(cuMemcpyHtoD_v2, (pointer, const void *, size_t), xs, host, 4 * COUNT);
    for (unsigned at = 0; at < count; at++) host[at] = 7 * at + 1;
    CALL(cuMemcpyHtoD_v2, (pointer, const void *, size_t), ys, host, 4 * COUNT);
    launch(xs, ys);
    CALL(cuMemcpyDtoH_v2, (void *, pointer, size_t), host, ys, 4 * COUNT);
    for (unsigned at = 0; at < count; at++) wrong += host[at] != 10 * at + 1;
    if (wrong) {
        printf("wrong: %u of %u sums\n", wrong, count);
        exit(1);
    }
}

static void allocate(size_t mib) {
    pointer much;
    int error = ((int (*)(pointer *, size_t))symbol("cuMemAlloc_v2"))(&much, mib << 20);
    printf(error ? "refused: %zu MiB with CUDA error %d\n" : "granted: %zu MiB\n", mib, error);
    if (!error) CALL(cuMemFree_v2, (pointer), much);
}

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "";
    long number = count > 2 ? atol(words[2]) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("wrong: %s\n", dlerror());
        return 1;
    }
    int device, multiprocessors;
    char name[128] = "";
    void *context, *module;
    host = malloc(4 * COUNT);
    CALL(cuInit, (unsigned), 0);
    CALL(cuDeviceGet, (int *, int), &device, 0);
    CALL(cuDeviceGetName, (char *, int, int), name, sizeof name, device);
    CALL(cuDeviceGetAttribute, (int *, int, int), &multiprocessors, 16, device);
    CALL(cuCtxCreate_v2, (void **, unsigned, int), &context, 0, device);
    CALL(cuModuleLoadData, (void **, const void *), &module, PTX);
    CALL(cuModuleGetFunction, (void **, void *, const char *), &function, module, "add");
    CALL(cuMemAlloc_v2, (pointer *, size_t), &xs, 4 * COUNT);
    CALL(cuMemAlloc_v2, (pointer *, size_t), &ys, 4 * COUNT);
    if (!strcmp(what, "allocate")) allocate(number);
    if (!strcmp(what, "stray")) launch(0x10, 0x10);
    add();
    printf("right: %u sums on %s with %d multiprocessors\n", COUNT, name, multiprocessors);
    if (!strcmp(what, "seconds")) {
        long rounds = 1;
        for (time_t end = time(NULL) + number; time(NULL) < end; rounds++) add();
        printf("right: %ld rounds\n", rounds);
    }
    return 0;
}

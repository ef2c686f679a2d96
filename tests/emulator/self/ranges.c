/* What a profiler sees of calls on the emulated device: this program is its own tool, which NVTX
 * finds by the name of a function pointer. Last line: N passed, N failed. */
#include "lierne/collective.h"
#include "lierne/cuda.h"
#include "node_ranks.h"

#include <cuda_runtime_api.h>
#include <string.h>

static bool says_without(void) {
    char summary[256] = "";
    check(lierne_cuda_get_summary(summary, sizeof summary) == LIERNE_OK, "the summary");
    return strstr(summary, ", built without NVTX") != NULL;
}

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

enum { MOST = 64, COUNT = 64 };

static char names[MOST][64];
static int domains, begun, open_now, most_open;

static nvtxDomainHandle_t create_domain(const char *name) {
    check(strcmp(name, "lierne") == 0 && ++domains == 1, "the domain, once");
    return (nvtxDomainHandle_t)names;
}

static nvtxRangeId_t begin_range(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *range) {
    check(domain == (nvtxDomainHandle_t)names && begun < MOST, "a range");
    strncpy(names[begun], range->message.ascii, sizeof names[0] - 1);
    open_now++;
    most_open = most_open > open_now ? most_open : open_now;
    return (nvtxRangeId_t)++begun;
}

static void end_range(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
    (void)domain;
    open_now -= range > 0 && range <= (nvtxRangeId_t)begun;
}

static int attach(NvtxGetExportTableFunc_t get_table) {
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) {
        return 0;
    }
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
    *table[NVTX_CBID_CORE2_DomainRangeStartEx] = (NvtxFunctionPointer)begin_range;
    *table[NVTX_CBID_CORE2_DomainRangeEnd] = (NvtxFunctionPointer)end_range;
    return 1;
}

/* This reduction has two stages, also on one rank. */
static void see_calls(void) {
    static const char *const expected[] = {"forward 0 of plan 1: begin",
                                           "forward 0 of plan 1: stage 0 of 2",
                                           "forward 0 of plan 1: stage 1 of 2",
                                           "forward 0 of plan 1: end",
                                           "adjoint 0 of plan 1: begin"};
    const lierne_all_reduce_spec spec = {.size = sizeof spec,
                                         .count = COUNT,
                                         .dtype = LIERNE_DTYPE_F32,
                                         .algorithm = LIERNE_COLLECTIVE_ALGORITHM_TWO_SHOT};
    lierne_context *context = open_rank("ranges", 0, 1, NULL);
    lierne_plan *plan = NULL;
    cudaStream_t stream;
    float *data = NULL;
    InitializeInjectionNvtx2_fnptr = attach;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
              cudaMalloc((void **)&data, 2 * COUNT * sizeof *data) == cudaSuccess &&
              cudaMemset(data, 0, 2 * COUNT * sizeof *data) == cudaSuccess &&
              lierne_context_use_cuda(context) == LIERNE_OK &&
              lierne_plan_create_all_reduce(&plan, context, &spec) == LIERNE_OK,
          "a plan");
    check(!says_without() && begun == 0, "only calls have ranges");
    check(lierne_plan_forward(plan, data + COUNT, data, stream) == LIERNE_OK &&
              lierne_plan_adjoint(plan, data + COUNT, data, stream) == LIERNE_OK,
          "calls");
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        check(strcmp(names[i], expected[i]) == 0, names[i]);
    }
    check(open_now == 0, "ranges are ended");
    check(most_open == 2, "one stage at a time, within the begin");
    check(cudaStreamSynchronize(stream) == cudaSuccess, "the calls of a stream");
    lierne_plan_destroy(plan);
    check(lierne_context_use_cuda(context) == LIERNE_OK, "again");
    lierne_context_destroy(context);
    cudaFree(data);
    cudaStreamDestroy(stream);
}
#else
static void see_calls(void) {
    check(says_without(), "there are no headers of NVTX");
}
#endif

int main(void) {
    see_calls();
    return print_checks();
}

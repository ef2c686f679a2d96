/* Asking the runtime, not the loader: a process may have several drivers' libraries on its path,
 * and the runtime knows which one it uses. Each function is asked for as it was in the version that
 * the table says. */
#include "backend/cuda/cuda_driver.h"

#include <cuda_runtime_api.h>

#define VERSION 11030 /* has all of them */

#if CUDART_VERSION < 12000 /* its errors say all */
static cudaError_t find_function(const char *name, void **function) {
    return cudaGetDriverEntryPoint(name, function, cudaEnableDefault);
}
#else
static cudaError_t find_function(const char *name, void **function) {
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, function, VERSION, cudaEnableDefault, &result);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, function, cudaEnableDefault, &result);
#endif
    return error == cudaSuccess && result != cudaDriverEntryPointSuccess ? cudaErrorNotSupported
                                                                         : error;
}
#endif

static lierne_status load_one(const char *name, void **function) {
    cudaError_t error = find_function(name, function);
    if (error == cudaSuccess && *function) {
        return LIERNE_OK;
    }
    cudaGetLastError(); /* others must not find it again */
    return LIERNE_FAIL(LIERNE_ERR_UNSUPPORTED,
                       "CUDA's driver has no %s, which is in versions from %d.%d on", name,
                       VERSION / 1000, VERSION % 1000 / 10);
}

lierne_status lierne_cuda_driver_load(lierne_cuda_driver *driver) {
#define LOAD(name) LIERNE_TRY(load_one(#name, (void **)&driver->name));
    LIERNE_CUDA_DRIVER_FUNCTIONS(LOAD)
#undef LOAD
    return LIERNE_OK;
}

/* deepmd-kit's border op in a program without Python, as LAMMPS has it: the library is loaded, a
 * number of the program's is bound to a context of the node's two ranks, and the operators are
 * called through PyTorch's dispatcher. tests/python/torch_deepmd.py writes features and a gradient
 * to standard input and reads the filled features and the adjoint from standard output. Usage:
 * deepmd LIBRARY RANK NAME */
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "lierne/node.h"
#include "lierne/torch.h"

static const int NLOCAL = 3, NGHOST = 5, WIDTH = 3;
static const int64_t NUMBER = 0x7ffff00dull << 16; /* as wide as an MPI_Comm of Open MPI */

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition,                     \
                    lierne_last_error());                                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static torch::jit::Stack call(const char *name, const at::Tensor &tensor, int rank) {
    static int first[] = {0, 2}, second[] = {3, 1, 1};
    auto lists = at::tensor({(int64_t)(intptr_t)first, (int64_t)(intptr_t)second}, at::kLong);
    auto peers = at::full({2}, 1 - rank, at::kInt), counts = at::tensor({2, 3}, at::kInt);
    torch::jit::Stack stack{lists,
                            peers,
                            peers,
                            counts,
                            counts,
                            tensor,
                            at::full({1}, NUMBER, at::kLong),
                            at::full({}, NLOCAL, at::kInt),
                            at::full({}, NGHOST, at::kInt)};
    c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
    return stack;
}

int main(int argc, char **argv) {
    REQUIRE(argc == 4);
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    REQUIRE(library);
    auto bind = reinterpret_cast<decltype(&lierne_torch_bind)>(dlsym(library, "lierne_torch_bind"));
    REQUIRE(bind && !dlsym(RTLD_DEFAULT, "Py_Initialize"));
    int rank = atoi(argv[2]);
    lierne_node_spec spec{};
    spec.size = sizeof spec, spec.rank = rank, spec.world = 2, spec.name = argv[3];
    lierne_context *context;
    REQUIRE(!lierne_context_create_node(&context, &spec));
    REQUIRE(bind(0, context) == LIERNE_ERR_INVALID && bind(NUMBER, nullptr) == LIERNE_OK);
    REQUIRE(!bind(NUMBER, context) && !bind(NUMBER, context));
    REQUIRE(bind(NUMBER, reinterpret_cast<lierne_context *>(&spec)) == LIERNE_ERR_INVALID);
    at::Tensor both = at::empty({2, NLOCAL + NGHOST, WIDTH}, at::kDouble);
    REQUIRE(fread(both.data_ptr(), 1, both.nbytes(), stdin) == both.nbytes());
    auto filled = call("deepmd::border_op", both[0], rank)[0].toTensorVector()[0];
    REQUIRE(filled.data_ptr() == both.data_ptr());
    auto adjoint = call("deepmd_export::border_op_backward", both[1], rank)[0].toTensor();
    fwrite(filled.const_data_ptr(), 1, filled.nbytes(), stdout);
    fwrite(adjoint.const_data_ptr(), 1, adjoint.nbytes(), stdout);
    REQUIRE(!bind(NUMBER, nullptr) && !lierne_context_destroy(context));
}

# Open MPI rejects root and more ranks than cores without these settings (from version 5 on, PRTE's for the
# latter); both are normal in a container.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
export OMPI_MCA_rmaps_base_oversubscribe := 1
export PRTE_MCA_rmaps_default_mapping_policy := :oversubscribe
export OMPI_MCA_btl_base_warn_component_unused := 0

# The test programs. A program is a C file with a main, built at its own path: tests/mpi/train.c becomes
# build/tests/mpi/train. All other files of its folder are parts: programs take what they call from an
# archive of them. A new file needs no line here.
mains    := $(shell grep -l '^int main\>' /dev/null $(wildcard tests/*.c tests/*/*.c tests/*/*/*.c))
programs  = $(patsubst %.c,$(B)/%,$(filter $(wildcard $(1)),$(mains)))
parts     = $(call obj,$(filter-out $(mains),$(call files,$(1))))

# Parts of every program: neither MPI nor CUDA, nor Criterion, which is for unit tests alone.
PARTS    := $(B)/tests/parts.a
UNIT_OBJ := $(call obj,$(sort $(wildcard tests/unit/test_*.c) \
	$(shell grep -l '<criterion/' /dev/null $(wildcard tests/unit/*.c))))
$(PARTS): $(filter-out $(UNIT_OBJ),$(call parts,$(foreach folder,$(addprefix tests/, \
	support unit golden hang),$(folder)/*.c)))
	$(ARCHIVE)
# tests/support/streams.c puts a stream into calls that have none.
STREAM_WRAPS := $(call wraps,plan_forward plan_adjoint plan_forward_begin plan_adjoint_begin request_end plan_reduce)

CRITERION := $(shell pkg-config --libs criterion 2>/dev/null || echo -lcriterion)
$(B)/unit: $(UNIT_OBJ) $(PARTS) $(LIB)
	$(LINK)
$(B)/unit: private LIBS := $(CRITERION)
$(B)/golden: $(B)/tests/golden/runner.o $(PARTS) $(LIB)
	$(LINK)

IPC_TESTS := $(call programs,tests/ipc/*.c)
PLAIN    := $(IPC_TESTS) $(call programs,tests/*.c tests/node/*.c tests/hang/*.c tests/launched/*.c)
$(PLAIN): %: %.o $(PARTS) $(LIB)
	$(LINK)
$(B)/unit $(B)/golden $(IPC_TESTS): private WRAPS := $(STREAM_WRAPS)
docs/errors.md: $(B)/tests/errors_md
	$(Q)$< > $@

# The command with faults.
WRONG    := $(B)/tests/cli/wrong
$(WRONG): $(WRONG).o $(call obj,$(TOOL_SRC)) $(LIB)
	$(LINK)
$(WRONG): private WRAPS := $(call wraps,plan_forward_begin plan_adjoint_begin request_end)

# Under mpirun; timeout brings a clock of its own.
MPI_TESTS := $(if $(HAVE_MPI),$(call programs,tests/mpi/*.c))
MPI_PARTS := $(B)/tests/mpi/parts.a
$(MPI_PARTS): $(call parts,tests/mpi/*.c)
	$(ARCHIVE)
$(MPI_TESTS): %: %.o $(MPI_PARTS) $(PARTS) $(MPILIB) $(LIB)
	$(LINK)
$(MPI_TESTS): private COMPILER := $(MPICC)
$(MPI_TESTS): private WRAPS := $(STREAM_WRAPS)
$(B)/tests/mpi/timeout: private WRAPS += $(call wraps,now)
mpi-tests: $(MPI_TESTS)

# Those that also run without MPI, on ranks of a node, with what tests/launched/mpi.h has of it.
LAUNCHED := $(addprefix $(B)/tests/launched/,golden sparse halos redistribute shared_output members update \
	segments samples packed_bridge layers general inflight steps known_answer migration)
LAUNCHED_PARTS := $(B)/launched/parts.a
$(LAUNCHED_PARTS): $(patsubst %,$(B)/launched/tests/%.o,launched/mpi $(addprefix mpi/,common rows graphs crystal))
	$(ARCHIVE)
$(LAUNCHED): $(B)/tests/launched/%: $(B)/launched/tests/mpi/%.o $(LAUNCHED_PARTS) $(PARTS) $(LIB)
	$(LINK)
$(LAUNCHED): private WRAPS := $(STREAM_WRAPS)

# Over a fake NCCL.
NCCL_TESTS := $(if $(NCCL_SRC),$(call programs,tests/nccl/*.c))
$(B)/tests/nccl/parts.a: $(call parts,tests/nccl/*.c)
	$(ARCHIVE)
$(NCCL_TESTS): %: %.o $(call obj,$(NCCL_SRC)) $(B)/tests/nccl/parts.a $(PARTS) $(LIB)
	$(LINK)
$(NCCL_TESTS): private WRAPS := $(call wraps,nccl_load)
$(B)/tests/nccl/golden: private WRAPS += $(call wraps,plan_forward plan_adjoint)

# On a device: programs of their own, and those of launched and mpi.
GPU_TESTS := $(if $(CUDA_SRC),$(call programs,tests/gpu/*.c tests/gpu/ranks/*.c))
GPU_LAUNCHED_NAMES := golden sparse halos general members update layers inflight known_answer
GPU_LAUNCHED := $(if $(CUDA_SRC),$(addprefix $(B)/tests/gpu/launched/,$(GPU_LAUNCHED_NAMES)))
GPU_MPI  := $(if $(CUDA_SRC),$(if $(HAVE_MPI),$(addprefix $(B)/tests/gpu/mpi/,golden sparse general update)))
GPU_LIBS := $(CUDART) -ldl -lrt
GPU_STATIC := $(B)/tests/gpu/launched/cuda.o $(call obj,$(CUDA_SRC) $(NCCL_SRC)) $(KERNELS)
$(B)/tests/gpu/ranks/parts.a: $(call parts,tests/gpu/ranks/*.c)
	$(ARCHIVE)
GPU_RANKS := $(filter $(B)/tests/gpu/ranks/%,$(GPU_TESTS))
$(filter-out $(GPU_RANKS),$(GPU_TESTS)): %: %.o $(PARTS) $(CUDASO) $(NCCLSO) $(SO)
	$(LINK)
$(GPU_RANKS): %: %.o $(B)/tests/gpu/ranks/parts.a $(CUDASO) $(NCCLSO) $(SO)
	$(LINK)
$(GPU_LAUNCHED): $(B)/tests/gpu/launched/%: $(B)/launched/tests/mpi/%.o $(GPU_STATIC) $(LAUNCHED_PARTS) $(PARTS) $(LIB)
	$(LINK)
$(GPU_MPI): $(B)/tests/gpu/mpi/%: $(B)/tests/mpi/%.o $(GPU_STATIC) $(MPI_PARTS) $(PARTS) $(MPILIB) $(LIB)
	$(LINK)
$(GPU_TESTS) $(GPU_LAUNCHED) $(GPU_MPI): private LIBS := $(GPU_LIBS) -Wl,-rpath,'$$ORIGIN/../..:$$ORIGIN/../../..'
# Their reference to liblierne_nccl is weak, for which a linker may leave the library out.
$(GPU_RANKS): private WRAPS := -Wl,--no-as-needed
$(GPU_LAUNCHED): private WRAPS := $(STREAM_WRAPS)
$(GPU_MPI): private COMPILER := $(MPICC)
$(GPU_MPI): private WRAPS := $(STREAM_WRAPS)

include tests/emulator/emulator.mk

# Benchmarks; those of tests/bench/gpu need a device to measure anything, and none to be built.
PETSC    := $(if $(HAVE_MPI),$(shell pkg-config --libs PETSc 2>/dev/null))
PETSC_INC := $(if $(PETSC),-DHAVE_PETSC $(patsubst -I%,-isystem %,$(shell pkg-config --cflags PETSc)))
MPI_BENCH := $(if $(HAVE_MPI),$(addprefix $(B)/tests/bench/,bridge collective sparse dense samples weights))
SELF_BENCH := $(addprefix $(B)/tests/bench/,planning sets memory recorder partition delta shrink)
GPU_BENCH := $(if $(NCCL_SRC),$(call programs,tests/bench/gpu/*.c))
$(B)/tests/bench/parts.a: $(call parts,tests/bench/*.c)
	$(ARCHIVE)
$(MPI_BENCH): %: %.o $(B)/tests/bench/parts.a $(MPI_PARTS) $(PARTS) $(MPILIB) $(LIB)
	$(LINK)
$(MPI_BENCH): private COMPILER := $(MPICC)
$(MPI_BENCH): private LIBS := $(PETSC)
$(addprefix $(B)/tests/bench/,sparse_petsc.o dense_petsc.o): MORE_CPPFLAGS += $(PETSC_INC)
$(SELF_BENCH): %: %.o $(PARTS) $(LIB)
	$(LINK)
$(B)/tests/bench/gpu/parts.a: $(call parts,tests/bench/gpu/*.c) $(B)/tests/bench/gpu/product.cu.o
	$(ARCHIVE)
$(GPU_BENCH): %: %.o $(B)/tests/bench/gpu/parts.a $(CUDASO) $(NCCLSO) $(SO)
	$(LINK)
$(GPU_BENCH): private LIBS := $(GPU_LIBS) -Wl,-rpath,'$$ORIGIN/../../..'

NEED_MPI := $(shell grep -l lierne/mpi.h examples/*.c)
EXAMPLES := $(patsubst %.c,$(B)/%,$(filter-out $(if $(HAVE_MPI),,$(NEED_MPI)),$(call files,examples/*.c)))
$(EXAMPLES): %: %.o $(MPILIB) $(LIB)
	$(LINK)

TESTS    := $(B)/unit $(B)/golden $(PLAIN) $(WRONG) $(MPI_TESTS) $(LAUNCHED) $(NCCL_TESTS) $(GPU_TESTS) \
	$(GPU_LAUNCHED) $(GPU_MPI) $(EMULATED_PROGRAMS) $(EMULATED_KERNELS) $(EMULATED_PYTHON) $(MPI_BENCH) \
	$(SELF_BENCH) $(GPU_BENCH) $(EXAMPLES)
TEST_OBJ := $(call obj,$(call files,tests/unit/*.c tests/golden/*.c)) $(EMULATED_GPU:=.o) \
	$(addsuffix .o,$(PLAIN) $(MPI_TESTS) $(LAUNCHED:$(B)/tests/launched/%=$(B)/launched/tests/mpi/%) $(EXAMPLES))
announce-tests:
	$(call announce,libraries$(comma) command and tests,$(ALL_OBJ) $(TEST_OBJ))
tests: announce-tests all $(TESTS)

# Only these may name mpi.h, and the headers of CUDA and NCCL.
$(B)/tests/%.o: MORE_CPPFLAGS += -Itests -Itests/support
$(B)/launched/%.o: MORE_CPPFLAGS += -Itests/launched -Itests -Itests/support
MPI_COMPILER := $(if $(HAVE_MPI),$(MPICC),$(CC))
$(addprefix $(B)/,tests/mpi/%.o tests/bench/%.o examples/%.o): COMPILER := $(MPI_COMPILER)
$(EXAMPLES): private COMPILER := $(MPI_COMPILER)
$(addprefix $(B)/tests/,gpu/%.o nccl/%.o bench/gpu/%.o): MORE_CPPFLAGS += $(CUDA_DIR:%=-isystem %/include)
$(addprefix $(B)/tests/,nccl/%.o gpu/%.o bench/gpu/%.o): MORE_CPPFLAGS += $(NCCL_INC:%=-isystem %)
$(B)/tests/bench/%.o: MORE_CFLAGS += $(FAST)
$(B)/launched/%.o: %.c $(B)/flags.c
	$(COMPILE)

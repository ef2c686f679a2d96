# The device programs over an emulated device, which is CUDA's runtime and driver: built in build/emulated,
# where there is no CUDA, too. It comes first where the loader looks.
EMULATED := $(B)/emulated
EMULATOR := $(EMULATED)/libcuda.so.1
emulated  = $(patsubst %.c,$(EMULATED)/%.o,$(1))
EMULATOR_OBJ := $(call emulated,$(filter-out %/addresses.c %/kernels.c,$(call files,tests/emulator/*.c)))
EMULATED_CUDA := $(call emulated,$(call files,src/backend/cuda/cuda_*.c) tests/emulator/addresses.c)
EMULATED_GPU := $(patsubst $(B)/%,$(EMULATED)/%,$(call programs,tests/gpu/*.c tests/gpu/ranks/*.c))
EMULATED_LAUNCHED := $(addprefix $(EMULATED)/tests/gpu/launched/,$(GPU_LAUNCHED_NAMES))
EMULATED_MPI := $(addprefix $(EMULATED)/tests/gpu/mpi/,$(if $(HAVE_MPI),golden sparse general update))
EMULATED_OWN := $(addprefix $(EMULATED)/tests/emulator/,counts fences ranges ranks runs segments vmm)
EMULATED_PROGRAMS := $(EMULATED)/tests/emulator/known $(EMULATED_OWN) $(EMULATED_GPU) $(EMULATED_LAUNCHED) \
	$(EMULATED_MPI)

$(EMULATOR): $(EMULATOR_OBJ) $(EMULATED)/tests/emulator/kernels.o
	$(Q)$(CC) $(CFLAGS) $(OWN_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-z,defs -o $@ $^ -ldl
$(EMULATED)/tests/emulator/known: $(EMULATED)/tests/emulator/self/self.o $(EMULATOR)
	$(LINK)
$(EMULATED_OWN): $(EMULATED)/tests/emulator/%: $(EMULATED)/tests/emulator/self/%.o $(EMULATED_CUDA) \
	$(PARTS) $(LIB) $(EMULATOR)
	$(LINK)
$(EMULATED)/tests/gpu/ranks/parts.a: $(call emulated,$(filter-out $(mains),$(call files,tests/gpu/ranks/*.c)))
	$(ARCHIVE)
EMULATED_RANKS := $(filter $(EMULATED)/tests/gpu/ranks/%,$(EMULATED_GPU))
$(filter-out $(EMULATED_RANKS),$(EMULATED_GPU)): %: %.o $(EMULATED_CUDA) $(PARTS) $(LIB) $(EMULATOR)
	$(LINK)
$(EMULATED_RANKS): %: %.o $(EMULATED_CUDA) $(EMULATED)/tests/gpu/ranks/parts.a $(LIB) $(EMULATOR)
	$(LINK)
$(EMULATED_LAUNCHED): $(EMULATED)/tests/gpu/launched/%: $(B)/launched/tests/mpi/%.o \
	$(EMULATED)/tests/gpu/launched/cuda.o $(EMULATED_CUDA) $(LAUNCHED_PARTS) $(PARTS) $(LIB) $(EMULATOR)
	$(LINK)
$(EMULATED_MPI): $(EMULATED)/tests/gpu/mpi/%: $(B)/tests/mpi/%.o $(EMULATED)/tests/gpu/launched/cuda.o \
	$(EMULATED_CUDA) $(MPI_PARTS) $(PARTS) $(MPILIB) $(LIB) $(EMULATOR)
	$(LINK)
$(EMULATED_MPI): private COMPILER := $(MPICC)
$(EMULATED_MPI): private WRAPS := $(STREAM_WRAPS)
# For Python, which loads it in place of liblierne_cuda.
EMULATED_PYTHON := $(EMULATED)/for_python.so
$(EMULATED_PYTHON): $(EMULATED_CUDA) $(SO) $(EMULATOR)
	$(Q)$(CC) $(CFLAGS) $(OWN_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-rpath,$(abspath $(EMULATED)) -o $@ \
		$(filter %.o,$^) $(SO) $(EMULATOR)
$(EMULATED_PROGRAMS): private LIBS := $(EMULATOR) -Wl,--disable-new-dtags -Wl,-rpath,$(abspath $(EMULATED))
$(EMULATED)/tests/emulator/vmm: private WRAPS := $(call wraps,cuda_driver_load)
$(EMULATED_LAUNCHED): private WRAPS := $(STREAM_WRAPS)

# What nvcc writes is not ours to judge; no contraction, as in the kernels.
TRANSLATED := -O1 -g0 -w -ffp-contract=off -fno-strict-aliasing -fvisibility=default
$(EMULATOR_OBJ): MORE_CFLAGS += -fvisibility=default
$(EMULATED)/tests/emulator/kernels.o: MORE_CFLAGS += $(TRANSLATED)
$(EMULATED)/tests/emulator/kernels.o: MORE_CPPFLAGS += -DKERNELS='"sm_100.inc"'
# Kernels in place of those: translated afresh for each device, where there is nvcc, and known ones.
EMULATED_KERNELS := $(patsubst %,$(EMULATED)/%.so,known $(filter sm_80 sm_90 sm_100,$(CUDA_SM)))
$(EMULATED)/%.so: $(EMULATED)/%.inc tests/emulator/kernels.c $(wildcard tests/emulator/*.h)
	$(Q)$(CC) $(CFLAGS) $(OWN_CFLAGS) $(TRANSLATED) -shared -I. -DKERNELS='"$<"' -o $@ tests/emulator/kernels.c
$(EMULATED)/known.inc: tests/emulator/self/known.ptx tests/emulator/ptx2c.py
	$(Q)mkdir -p $(@D) && $(PYTHON) tests/emulator/ptx2c.py $< >$@
$(EMULATED)/sm_%.inc: $(wildcard kernels/*.cu src/backend/cuda/*.h src/runtime/memory/*.h) tests/emulator/ptx2c.py
	$(Q)mkdir -p $(@D) && for kernels in launch flags changes; do \
		$(NVCC) -std=c++17 -O3 -fmad=false -arch=compute_$* -ptx \
		-Iinclude -Isrc -o $(@D)/$$kernels.$*.ptx kernels/$$kernels.cu || exit 1; done
	$(Q)$(PYTHON) tests/emulator/ptx2c.py $(@D)/launch.$*.ptx $(@D)/flags.$*.ptx $(@D)/changes.$*.ptx >$@

# Headers of NVTX come with CUDA.
$(EMULATED)/src/backend/cuda/cuda_ranges.o $(EMULATED)/tests/emulator/self/ranges.o: \
	MORE_CPPFLAGS += $(CUDA_DIR:%=-isystem %/include)
$(EMULATED)/%.o: MORE_CPPFLAGS += -Itests/emulator/include -Itests -Itests/support -Itests/emulator
$(EMULATED)/%.o: %.c $(B)/flags.c
	$(COMPILE)

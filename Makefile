# lierne: one Makefile, not recursive. "make" or "make help" lists the targets.
#
# Variables: DEPS=0 forbids installing packages; V=1 shows commands; GOLDEN_DIR=path for golden;
# SECONDS=60 for fuzz; BENCH_ARGS="quick", or words that titles must contain ("8 ranks"), after "--csv" as CSV, for bench; LINKS_ARGS="400 OUT.csv" for bench-links;
# MODEL_ARGS=long for model; RUNPATH= for libraries without one; PYTHON for python and wheel; CC, CFLAGS, MPICC, MPIRUN as usual; PREFIX, DESTDIR, bindir, libdir,
# includedir, mandir for install.

CC      ?= gcc
MPICC   ?= mpicc
MPIRUN  ?= mpirun
CFLAGS  ?= -O2 -g
WARN    := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes
override CFLAGS += -std=c11 -D_GNU_SOURCE -fvisibility=hidden -fPIC -pthread $(WARN)
CPPFLAGS += -Iinclude -Isrc
B       := build
# Below this folder it is relative, whoever gives it: dependency files name objects by one name only.
override B := $(patsubst $(CURDIR)/%,%,$(abspath $(B)))
DEPS    ?= 1
comma   := ,
GOLDEN_DIR ?= tests/golden
SECONDS ?= 60
Q       := $(if $(V),,@)

PREFIX       ?= /usr/local
bindir       ?= $(PREFIX)/bin
libdir       ?= $(PREFIX)/lib
includedir   ?= $(PREFIX)/include
datarootdir  ?= $(PREFIX)/share
mandir       ?= $(datarootdir)/man
pkgconfigdir ?= $(libdir)/pkgconfig
cmakedir     ?= $(libdir)/cmake/lierne
pkgdatadir   ?= $(datarootdir)/lierne
bashcompdir  ?= $(datarootdir)/bash-completion/completions
zshcompdir   ?= $(datarootdir)/zsh/site-functions

# Open MPI rejects root and more ranks than cores without these settings; both are normal in a
# container.
export OMPI_ALLOW_RUN_AS_ROOT := 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM := 1
export OMPI_MCA_rmaps_base_oversubscribe := 1
export OMPI_MCA_btl_base_warn_component_unused := 0

# What is there; nothing of it is required. CUDA: nvcc below CUDA_HOME, on the path, in the default
# place or where pkg-config says; NCCL's header below NCCL_HOME, in the toolkit or in Python's wheel.
HAVE_MPI := $(shell command -v $(MPICC) >/dev/null 2>&1 && echo yes)
NVCC     := $(shell sh tests/find_cuda.sh nvcc)
NCCL_INC := $(if $(NVCC),$(shell sh tests/find_cuda.sh nccl "$(NVCC)"))
PETSC    := $(if $(HAVE_MPI),$(shell pkg-config --libs PETSc 2>/dev/null))
PETSC_INC := $(if $(PETSC),-DHAVE_PETSC $(patsubst -I%,-isystem %,$(shell pkg-config --cflags PETSc)))
CJSON    := $(shell pkg-config --libs libcjson 2>/dev/null || echo -lcjson)
CJSON_INC := $(shell pkg-config --cflags libcjson 2>/dev/null)
CRITERION := $(shell pkg-config --libs criterion 2>/dev/null || echo -lcriterion)
CPPFLAGS += $(CJSON_INC)

# In the order in which they depend on each other; tests/cli/test_includes.sh has the same.
MODULES := base json grid layout route $(addprefix runtime/,control recorder memory transport context execute group) \
	$(addprefix backend/,self sim shm oob node) plan $(addprefix plan/,redistribute bridge megatron sparse halo collective) diagnose step config
# Windows and pointers of devices, and group calls, need no header of CUDA or NCCL.
LIB_SRC := $(foreach module,$(MODULES),$(sort $(wildcard src/$(module)/*.c))) src/backend/back_ends.c \
	$(sort $(wildcard src/backend/cuda/ipc_*.c)) src/backend/cuda/device_pointer.c src/backend/nccl/group_calls.c
MPI_SRC := $(sort $(wildcard src/backend/mpi/*.c))
# Devices: those of the list that the compiler knows, and PTX of the last one for later ones.
CUDA_DIR := $(patsubst %/bin/nvcc,%,$(NVCC))
CUDART   := $(firstword $(wildcard $(CUDA_DIR)/lib64/libcudart_static.a $(CUDA_DIR)/lib/libcudart_static.a))
CUDA_ARCHS ?= 80 90 100
CUDA_KNOWN := $(if $(NVCC),$(filter $(patsubst %,sm_%,$(CUDA_ARCHS)),$(shell $(NVCC) --list-gpu-code)))
CUDA_CODE := $(foreach sm,$(CUDA_KNOWN),-gencode arch=$(sm:sm_%=compute_%)$(comma)code=$(sm)) \
	$(foreach sm,$(lastword $(CUDA_KNOWN)),-gencode arch=$(sm:sm_%=compute_%)$(comma)code=$(sm:sm_%=compute_%))
CUDA_SRC := $(if $(NVCC),$(sort $(wildcard src/backend/cuda/cuda_*.c)))
KERNELS := $(if $(NVCC),$(patsubst %.cu,$(B)/%.cu.o,$(sort $(wildcard kernels/*.cu))))
NCCL_SRC := $(if $(NCCL_INC),$(sort $(wildcard src/backend/nccl/nccl_*.c)))
GPU_TESTS := $(if $(CUDA_SRC),$(patsubst %.c,$(B)/%,$(sort $(wildcard tests/gpu/*.c))))
# Programs of LAUNCHED on a GPU.
GPU_LAUNCHED := $(if $(CUDA_SRC),$(addprefix $(B)/tests/gpu/launched/,golden bridge sparse halos general members update layers \
	inflight known_answer))
# Programs of several processes on GPUs, and those of MPI_TESTS whose MPI may read device memory.
GPU_RANKS := $(if $(CUDA_SRC),$(addprefix $(B)/tests/gpu/ranks/,captures hang))
GPU_MPI := $(if $(CUDA_SRC),$(if $(HAVE_MPI),$(addprefix $(B)/tests/gpu/mpi/,golden sparse general update)))
RUN_SRC := $(sort $(wildcard src/tool/mpi/*.c))
TOOL_SRC := $(sort $(wildcard src/tool/*.c src/tool/import/*.c src/tool/run/*.c src/tool/draw/*.c))
UNIT_SRC := $(sort $(wildcard tests/unit/*.c))
GOLD_SRC := $(sort $(wildcard tests/golden/*.c))
# The bridge's model, its plans, and what both need.
MODEL    := $(patsubst %,$(B)/tests/%.o,mesh numbers bridge_model bridge_plan)
# Parts that several programs under mpirun share.
MPI_PARTS := $(patsubst %,tests/mpi/%.c,common contexts model rows swaps graphs crystal state)
MPI_TESTS := $(patsubst tests/mpi/%.c,$(B)/tests/mpi/%,$(filter-out $(MPI_PARTS),$(sort $(wildcard tests/mpi/*.c))))
# Those that also run without MPI, on ranks of a node; what they share is an archive.
LAUNCHED := $(addprefix $(B)/tests/launched/,golden bridge sparse halos redistribute shared_output members update layers general \
	inflight steps known_answer)
IPC_TESTS := $(patsubst tests/ipc/%.c,$(B)/tests/ipc_%,$(sort $(wildcard tests/ipc/*.c)))
CASE_PARTS := $(patsubst %,$(B)/tests/unit/%_case.o,bridge random redistribute set) \
	$(patsubst %,$(B)/tests/%.o,route_executor transports connected streams staging tasks capture ipc) $(MODEL) \
	$(patsubst %,$(B)/tests/golden/%.o,row_case star_forest graph_a2a graph_case graph_invalid halo halo_bricks \
	halo_case halo_invalid json windows world)
LAUNCHED_PARTS := $(patsubst %,$(B)/launched/tests/%.o,launched/mpi $(addprefix mpi/,common rows swaps graphs crystal)) $(CASE_PARTS)
BENCH    := $(addprefix $(B)/tests/bench/,planning sets memory recorder $(if $(HAVE_MPI),bridge collective sparse))
# Needs a device to measure anything, and none to be built.
GPU_BENCH := $(if $(NCCL_SRC),$(addprefix $(B)/tests/bench/gpu/,gpu processes reshard))
NEED_MPI := $(shell grep -l lierne/mpi.h examples/*.c 2>/dev/null)
EXAMPLES := $(patsubst examples/%.c,$(B)/examples/%,$(filter-out $(if $(HAVE_MPI),,$(NEED_MPI)),$(sort $(wildcard examples/*.c))))
obj = $(patsubst %.c,$(B)/%.o,$(1))

LIB     := $(B)/liblierne.a
MPILIB  := $(B)/liblierne_mpi.a
TOOL    := $(B)/lierne
RUN     := $(if $(HAVE_MPI),$(B)/lierne-run)
# The headers have the version. Before 1.0 every soname is .so.0; symbol versions tell them apart.
VERSION := $(shell sed -n 's/.*LIERNE_VERSION_STRING "\(.*\)"/\1/p' include/lierne/status.h)
SOMAJOR := $(firstword $(subst ., ,$(VERSION)))
CUDALIBS := $(if $(CUDA_SRC),$(B)/liblierne_cuda.so.$(VERSION)) $(if $(NCCL_SRC),$(B)/liblierne_nccl.so.$(VERSION))
SHARED  := $(patsubst %.a,%.so.$(VERSION),$(LIB) $(if $(HAVE_MPI),$(MPILIB))) $(CUDALIBS)
LINK     = $(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(CJSON) -lm
MPILINK  = $(MPICC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(CJSON) -lm

.DEFAULT_GOAL := help
# That of the tests, where it was made (tests/venv.sh).
PYTHON  ?= $(or $(wildcard $(B)/venv/bin/python),python3)
.PHONY: abi bench-gpu bench-links deb pictures site python wheel check-torch check-long scale model mpi-tests all demo check golden bench sanitize fuzz mutants format clean help deps tests install uninstall
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

deps: ## install what is missing (Debian, Ubuntu); DEPS=0 only names it
	@DEPS=$(DEPS) B=$(B) sh tests/deps.sh

all: $(LIB) $(TOOL) $(if $(HAVE_MPI),$(MPILIB) $(RUN)) $(SHARED) ## build the libraries and the command
	@echo "built liblierne$(if $(HAVE_MPI),$(comma) liblierne_mpi)$(if $(CUDA_SRC),$(comma) liblierne_cuda)$(if $(NCCL_SRC),$(comma) liblierne_nccl) and the command; CUDA: $(or $(NVCC),not found)$(comma) not needed"

demo: ## install what is missing, build, run a published configuration on 8 ranks
	@DEPS=$(DEPS) B=$(B) sh tests/deps.sh demo
	@$(MAKE) --no-print-directory -s all
	@sh tests/demo.sh $(B)

check: deps ## install what is missing, build and run all tests
	@$(MAKE) --no-print-directory -s tests
	@bash tests/check.sh $(B)

mpi-tests: $(MPI_TESTS)

tests: all $(B)/unit $(B)/golden $(B)/tests/errors_md $(B)/tests/jobs $(B)/tests/refusals $(B)/tests/hangs_sim $(IPC_TESTS) $(B)/tests/launch $(LAUNCHED) $(if $(HAVE_MPI),$(MPI_TESTS)) $(EMULATED_PROGRAMS) $(EMULATED_KERNELS) $(EXAMPLES) $(BENCH) $(GPU_BENCH) $(GPU_TESTS) $(GPU_LAUNCHED) $(GPU_RANKS) $(GPU_MPI) $(if $(CUDA_SRC),$(B)/tests/vmm $(B)/tests/fences) $(if $(NCCL_SRC),$(B)/tests/nccl_ranks $(B)/tests/nccl_replays $(B)/tests/nccl_windows)

python: all ## put the Python package together in build/python (needs cffi)
	@PYTHON=$(PYTHON) sh src/python/stage.sh $(B)

wheel: python ## build the Python wheel in build/dist (needs pip; setuptools 70.1, or PyPI)
	@PYTHON=$(PYTHON) sh src/python/wheel.sh $(B)

check-torch: all ## install PyTorch in build/venv and run the tests of lierne.torch (2 GB, minutes)
	@DEPS=$(DEPS) B=$(B) sh tests/deps.sh ensurepip
	@sh tests/venv.sh $(B) torch
	@bash tests/cli/test_torch.sh $(B)

abi: ## write the baseline of the ABI, tests/abi.txt, which check compares with
	@$(PYTHON) tests/cli/abi.py include tests/abi.txt write

site: ## build the documentation as a site in build/site/html (installs mkdocs)
	@DEPS=$(DEPS) B=$(B) sh tests/deps.sh mkdocs
	@sh docs/site.sh $(B)/site

deb: ## build Debian packages in build/deb and check them with lintian (installs what that needs)
	@DEPS=$(DEPS) B=$(B) sh tests/deps.sh deb
	@bash debian/build.sh $(B)/deb

check-long: tests ## what takes too long for check: all random cases on streams, all device programs on the emulated device, 10,000 rounds of collectives, 1,200 hangs (20 minutes)
	@bash tests/cli/test_transports.sh $(B) long
	@bash tests/cli/test_emulator.sh $(B) long
	@$(B)/tests/hangs_sim 0 1000
	@for n in 4 8; do for p in golden bridge; do \
	LIERNE_TEST_EXECUTOR=ipc $(B)/tests/launch $$n $(B)/tests/launched/$$p || exit 1; done; done
	$(if $(HAVE_MPI),@for n in 2 4 8; do $(MPIRUN) -n $$n $(B)/tests/mpi/windows 10000 || exit 1; done)
	$(if $(HAVE_MPI),@$(MPIRUN) -n 4 $(B)/tests/mpi/hangs 0 100 && LIERNE_TRANSPORTS=mpi $(MPIRUN) -n 4 $(B)/tests/mpi/hangs 100 100)

model: ## check protocols in all interleavings, with Spin (3 minutes)
	@DEPS=$(DEPS) B=$(B) sh tests/deps.sh spin
	@bash tests/model/barrier.sh $(MODEL_ARGS)
	@bash tests/model/bell.sh
	@bash tests/model/group_calls.sh

golden: $(B)/golden ## run every golden file of GOLDEN_DIR=path
	@$(B)/golden $(GOLDEN_DIR)

sanitize: tests ## run the tests under the sanitizers and valgrind
	@bash tests/sanitize.sh $(B)

fuzz: ## fuzz configurations and plans for SECONDS=60, with libFuzzer if installed
	@bash tests/fuzz.sh $(B) $(SECONDS)

mutants: tests ## break the code, one mutation at a time: some test must fail each time
	@bash tests/mutants.sh $(B)

pictures: $(TOOL) ## draw the pictures of the documents again
	@sh docs/pictures/make.sh $(B) docs/pictures
	@$(PYTHON) tests/bench/ratios.py docs/performance svg >docs/pictures/ratios.svg

bench: all $(BENCH) ## time lierne beside MPI by hand (minutes; docs/performance.md)
	@bash tests/bench/run.sh $(B) $(BENCH_ARGS)

bench-gpu: all $(GPU_BENCH) $(B)/tests/launch ## time kernels, bridges between ranks and NCCL on this machine's GPUs (docs/gpu.md)
	@$(if $(GPU_BENCH),bash tests/bench/gpu/run.sh $(B),echo "nothing was measured: there is no nvcc or no nccl.h (docs/gpu.md)")

bench-links: all ## bridges between network namespaces joined by slow links: measured, counted, predicted (root; minutes)
	@bash tests/bench/links.sh $(B) $(LINKS_ARGS)

scale: $(B)/tests/bench/planning $(B)/tests/bench/sets $(B)/lierne ## time and memory of plans, reports and simulations, 64 to 131,072 ranks; of a set of 70,000 tensors
	@$<
	@$(B)/tests/bench/sets
	@python3 tests/bench/scale.py $(B)/lierne

format: ## format the sources with clang-format
	clang-format -i $$(git ls-files '*.c' '*.h')

# Everything that install puts anywhere; uninstall removes the same names.
PC      := lierne.pc $(if $(HAVE_MPI),lierne_mpi.pc) $(if $(CUDA_SRC),lierne_cuda.pc) $(if $(NCCL_SRC),lierne_nccl.pc)
CMAKE   := lierne-config.cmake lierne-config-version.cmake
LINKS    = $(foreach so,$(notdir $(SHARED)),$(so:.$(VERSION)=.$(SOMAJOR)) $(so:.$(VERSION)=))
HEADERS := $(filter-out $(if $(HAVE_MPI),,include/lierne/mpi.h) $(if $(CUDA_SRC),,include/lierne/cuda.h) \
	$(if $(NCCL_SRC),,include/lierne/nccl.h),$(wildcard include/lierne/*.h))
INSTALLED = $(addprefix $(bindir)/,$(notdir $(TOOL) $(RUN))) \
	$(addprefix $(libdir)/,$(notdir $(LIB) $(if $(HAVE_MPI),$(MPILIB)) $(SHARED)) $(LINKS)) \
	$(addprefix $(pkgconfigdir)/,$(PC)) $(addprefix $(cmakedir)/,$(CMAKE)) \
	$(includedir)/lierne.h $(addprefix $(includedir)/lierne/,$(notdir $(HEADERS))) \
	$(addprefix $(pkgdatadir)/grids/,$(notdir $(wildcard grids/*.json))) \
	$(pkgdatadir)/grid.schema.json $(mandir)/man1/lierne.1 $(bashcompdir)/lierne $(zshcompdir)/_lierne
# A folder below PREFIX is written relative to it, so that an installed tree may be moved.
relative = $(patsubst $(PREFIX)/%,$${prefix}/%,$(1))

install: all ## install below PREFIX (/usr/local); DESTDIR, libdir, ... as usual
	install -d $(sort $(dir $(addprefix $(DESTDIR),$(INSTALLED))))
	install -m 755 $(TOOL) $(RUN) $(DESTDIR)$(bindir)
	install -m 644 $(LIB) $(if $(HAVE_MPI),$(MPILIB)) $(SHARED) $(DESTDIR)$(libdir)
	$(foreach so,$(notdir $(SHARED)),ln -sf $(so) $(DESTDIR)$(libdir)/$(so:.$(VERSION)=.$(SOMAJOR)) && \
	ln -sf $(so:.$(VERSION)=.$(SOMAJOR)) $(DESTDIR)$(libdir)/$(so:.$(VERSION)=) &&) :
	install -m 644 include/lierne.h $(DESTDIR)$(includedir)
	install -m 644 $(HEADERS) $(DESTDIR)$(includedir)/lierne
	install -m 644 grids/*.json $(DESTDIR)$(pkgdatadir)/grids
	sed -i 's|"../docs/grid.schema.json"|"../grid.schema.json"|' $(DESTDIR)$(pkgdatadir)/grids/*.json
	install -m 644 docs/grid.schema.json $(DESTDIR)$(pkgdatadir)
	install -m 644 docs/lierne.1 $(DESTDIR)$(mandir)/man1
	$(TOOL) completion bash >$(DESTDIR)$(bashcompdir)/lierne
	$(TOOL) completion zsh >$(DESTDIR)$(zshcompdir)/_lierne
	$(foreach pc,$(PC),sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(call relative,$(libdir))|' \
	-e 's|@INCLUDEDIR@|$(call relative,$(includedir))|' -e 's|@VERSION@|$(VERSION)|' \
	-e 's|@CJSON@|$(strip $(CJSON))|' src/$(pc).in >$(DESTDIR)$(pkgconfigdir)/$(pc) &&) :
	$(foreach file,$(CMAKE),sed -e 's|@VERSION@|$(VERSION)|' -e 's|@SOMAJOR@|$(SOMAJOR)|' \
	-e "s|@INCLUDE@|$$(realpath -m --relative-to='$(cmakedir)' '$(includedir)')|" \
	src/$(file).in >$(DESTDIR)$(cmakedir)/$(file) &&) :

uninstall: ## remove what install put there (same PREFIX, DESTDIR, ...)
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	-rmdir $(addprefix $(DESTDIR),$(cmakedir) $(includedir)/lierne $(pkgdatadir)/grids $(pkgdatadir))

clean: ## remove what was built
	rm -rf $(B)

$(LIB): $(call obj,$(LIB_SRC))
	$(Q)rm -f $@ && ar rcs $@ $^
$(MPILIB): $(call obj,$(MPI_SRC))
	$(Q)rm -f $@ && ar rcs $@ $^
# Functions without LIERNE_API are hidden; src/*.map gives what remains a version.
$(B)/liblierne.so.$(VERSION): $(call obj,$(LIB_SRC)) src/liblierne.map
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(SOFLAGS) -o $@ $(filter %.o,$^) $(CJSON) -lm
	$(Q)$(SOLINKS)
$(B)/liblierne_mpi.so.$(VERSION): $(call obj,$(MPI_SRC)) $(B)/liblierne.so.$(VERSION) src/liblierne_mpi.map
	$(Q)$(MPICC) $(CFLAGS) $(LDFLAGS) $(SOFLAGS) -o $@ $(filter %.o,$^) $(B)/liblierne.so.$(VERSION)
	$(Q)$(SOLINKS)
# CUDA's runtime is in the library, and hidden: it loads the driver when it is first called, so that
# the library loads without one. NCCL is looked up at run time.
$(B)/liblierne_cuda.so.$(VERSION): $(call obj,$(CUDA_SRC)) $(KERNELS) $(B)/liblierne.so.$(VERSION) src/liblierne_cuda.map
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(SOFLAGS) -o $@ $(filter %.o,$^) $(B)/liblierne.so.$(VERSION) $(CUDART) -ldl -lrt
	$(Q)$(SOLINKS)
$(B)/liblierne_nccl.so.$(VERSION): $(call obj,$(NCCL_SRC)) $(B)/liblierne_cuda.so.$(VERSION) $(B)/liblierne.so.$(VERSION) src/liblierne_nccl.map
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $(SOFLAGS) -o $@ $(filter %.o,$^) $(filter %.so.$(VERSION),$^)
	$(Q)$(SOLINKS)
# The names that the linker and the loader look for: programs run from the build folder.
SOLINKS = ln -sf $(@F) $(@:.$(VERSION)=.$(SOMAJOR)) && ln -sf $(@F:.$(VERSION)=.$(SOMAJOR)) $(@:.$(VERSION)=)
# The kernels' arithmetic on the host, and a device that is played.
TASKS := $(B)/tests/tasks.o $(B)/tests/capture.o
STREAMS := $(patsubst %,$(B)/tests/%.o,streams staging ipc) $(TASKS)
# A library finds the others beside it, in the build folder and where installed; with RUNPATH= where the
# loader looks anyway, which is what distributions want.
RUNPATH ?= $$ORIGIN
# Nothing may stay undefined; clang's sanitizers are in the program only.
SOFLAGS = -shared $(if $(RUNPATH),-Wl$(comma)--enable-new-dtags -Wl$(comma)-rpath$(comma)'$(RUNPATH)') -Wl,-soname,$(notdir $(@:.$(VERSION)=.$(SOMAJOR))) -Wl,--version-script=$(filter %.map,$^) \
	$(if $(findstring -fsanitize,$(CFLAGS)),,-Wl$(comma)-z$(comma)defs)
$(TOOL): $(call obj,$(TOOL_SRC)) $(LIB)
	$(Q)$(LINK)
$(B)/lierne-run: $(call obj,$(RUN_SRC)) $(filter-out %/tool/main.o,$(call obj,$(TOOL_SRC))) $(MPILIB) $(LIB)
	$(Q)$(MPILINK)
$(B)/unit: $(call obj,$(UNIT_SRC)) $(MODEL) $(B)/tests/rank_threads.o $(B)/tests/oob_ranks.o $(B)/tests/route_executor.o $(B)/tests/transports.o $(B)/tests/connected.o $(STREAMS) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(CRITERION)
$(B)/golden: $(call obj,$(GOLD_SRC)) $(MODEL) $(B)/tests/rank_threads.o $(B)/tests/route_executor.o $(B)/tests/transports.o $(B)/tests/connected.o $(STREAMS) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(LINK)
# tests/streams.c puts a stream into calls that have none.
$(B)/unit $(B)/golden $(B)/tests/mpi/general $(LAUNCHED) $(GPU_LAUNCHED) $(GPU_MPI) $(B)/emulated/tests/gpu/launched/% $(IPC_TESTS) $(B)/tests/vmm: LDFLAGS += $(patsubst %,-Wl$(comma)--wrap=lierne_%,plan_forward plan_adjoint \
	plan_forward_begin plan_adjoint_begin request_end plan_reduce)
$(B)/launched/parts.a: $(LAUNCHED_PARTS)
	$(Q)rm -f $@ && ar rcs $@ $^
$(B)/tests/launched/%: $(B)/launched/tests/mpi/%.o $(B)/launched/parts.a $(LIB)
	@mkdir -p $(@D)
	$(Q)$(LINK)
$(B)/tests/launch: $(B)/tests/launched/launch.o
	$(Q)$(LINK)
$(B)/tests/jobs $(B)/tests/refusals: $(B)/tests/%: $(B)/tests/node/%.o $(LIB)
	$(Q)$(LINK)
# Windows over a device that is played.
$(B)/tests/ipc_%: $(B)/tests/ipc/%.o $(patsubst %,$(B)/tests/%.o,node_ranks device_streams) $(STREAMS) $(LIB)
	$(Q)$(LINK)
# The same by descriptors, over a driver of CUDA that is played.
$(B)/tests/vmm: $(patsubst %,$(B)/tests/%.o,vmm node_ranks) $(STREAMS) $(B)/src/backend/cuda/cuda_vmm.o $(LIB)
	$(Q)$(LINK)
# Streams of CUDA, over a runtime that is played.
$(B)/tests/fences: $(patsubst %,$(B)/tests/%.o,fences node_ranks) $(B)/src/backend/cuda/cuda_stream.o $(LIB)
	$(Q)$(LINK)
$(B)/tests/hangs_sim: $(B)/tests/hang/sim.o $(B)/tests/hang/case.o $(LIB)
	$(Q)$(LINK)
$(B)/tests/errors_md: $(B)/tests/errors_md.o
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^
docs/errors.md: $(B)/tests/errors_md
	$(Q)$< > $@
$(B)/tests/mpi/% $(GPU_MPI): LDFLAGS += -Wl,--wrap=lierne_context_create_mpi
$(B)/tests/mpi/%: $(B)/tests/mpi/%.o $(B)/tests/mpi/common.o $(B)/tests/mpi/contexts.o $(MODEL) $(MPILIB) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(MPILINK)
$(B)/tests/mpi/train: $(B)/tests/mpi/model.o
$(addprefix $(B)/tests/mpi/,sparse halos update rejections): $(patsubst %,$(B)/tests/mpi/%.o,rows swaps graphs)
$(B)/tests/mpi/layers: $(B)/tests/mpi/crystal.o
$(addprefix $(B)/tests/mpi/,soak groups): $(B)/tests/mpi/state.o
$(B)/tests/mpi/hangs: $(B)/tests/hang/case.o
# It brings a clock of its own.
$(B)/tests/mpi/timeout: LDFLAGS += -Wl,--wrap=lierne_now
$(B)/tests/mpi/general: $(B)/tests/unit/bridge_case.o $(B)/tests/unit/random_case.o $(B)/tests/route_executor.o $(B)/tests/transports.o $(STREAMS)
$(B)/tests/mpi/redistribute $(B)/tests/mpi/members: $(B)/tests/unit/redistribute_case.o
$(B)/tests/mpi/redistribute: $(B)/tests/unit/set_case.o
$(B)/tests/mpi/collective: $(B)/tests/unit/collective_case.o $(B)/tests/unit/collective_faults.o
$(B)/tests/mpi/device: $(TASKS) $(B)/tests/ipc.o
$(B)/tests/mpi/golden: $(patsubst %,$(B)/tests/golden/%.o,row_case star_forest graph_a2a graph_case \
	graph_invalid halo halo_bricks halo_case halo_invalid json windows world) \
	$(B)/tests/route_executor.o
$(B)/tests/bench/bridge: $(patsubst %,$(B)/tests/bench/%.o,bridge measure tables workload lierne by_hand) \
	$(B)/tests/mpi/common.o $(MODEL) $(MPILIB) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(MPILINK)
$(B)/tests/bench/collective: $(patsubst %,$(B)/tests/bench/%.o,collective collective_methods measure tables) \
	$(B)/tests/mpi/common.o $(MODEL) $(MPILIB) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(MPILINK)
$(B)/tests/bench/sparse: $(patsubst %,$(B)/tests/bench/sparse%.o,_star_forest _space _lierne _by_hand _gather _petsc) \
	$(patsubst %,$(B)/tests/bench/%.o,sparse measure tables) $(B)/tests/mpi/common.o $(MODEL) $(MPILIB) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(MPILINK) $(PETSC)
$(B)/tests/bench/sparse_petsc.o: CPPFLAGS += $(PETSC_INC)
$(addprefix $(B)/tests/bench/,planning sets memory recorder): $(B)/tests/bench/%: $(B)/tests/bench/%.o $(LIB)
	@mkdir -p $(@D)
	$(Q)$(LINK)
$(B)/examples/%: $(B)/examples/%.o $(if $(HAVE_MPI),$(MPILIB)) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(if $(HAVE_MPI),$(MPILINK),$(LINK))

$(B)/tests/gpu/%: $(B)/tests/gpu/%.o $(filter %cuda.so.$(VERSION),$(CUDALIBS)) $(B)/liblierne.so.$(VERSION)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.so.$(VERSION),$^) -Wl,-rpath,'$$ORIGIN/../..' $(CUDART) -ldl -lrt -lm
$(B)/tests/gpu/launched/%: $(B)/launched/tests/mpi/%.o $(B)/tests/gpu/launched/cuda.o $(B)/launched/parts.a $(call obj,$(CUDA_SRC) $(NCCL_SRC)) $(KERNELS) $(LIB)
	@mkdir -p $(@D)
	$(Q)$(LINK) $(CUDART) -ldl -lrt
$(GPU_RANKS): $(B)/tests/gpu/ranks/%: $(B)/tests/gpu/ranks/%.o $(B)/tests/gpu/ranks/common.o $(CUDALIBS) $(B)/liblierne.so.$(VERSION)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.so.$(VERSION),$^) -Wl,-rpath,'$$ORIGIN/../../..' $(CUDART) -ldl -lrt -lm
$(B)/tests/gpu/mpi/parts.a: $(patsubst %.c,$(B)/%.o,$(MPI_PARTS)) $(CASE_PARTS)
	@mkdir -p $(@D)
	$(Q)rm -f $@ && ar rcs $@ $^
$(GPU_MPI): $(B)/tests/gpu/mpi/%: $(B)/tests/mpi/%.o $(B)/tests/gpu/launched/cuda.o $(B)/tests/gpu/mpi/parts.a $(call obj,$(CUDA_SRC) $(NCCL_SRC)) $(KERNELS) $(MPILIB) $(LIB)
	$(Q)$(MPILINK) $(CUDART) -ldl -lrt

$(B)/tests/gpu/threads: $(B)/tests/node_ranks.o

GPU_BENCH_OBJ := $(patsubst %,$(B)/tests/bench/gpu/%.o,gpu ranks peers plans device processes reshard)
$(B)/tests/bench/gpu/gpu: $(patsubst %,$(B)/tests/bench/gpu/%.o,ranks peers) $(B)/tests/bench/gpu/product.cu.o
$(GPU_BENCH): $(B)/tests/bench/gpu/%: $(patsubst %,$(B)/tests/bench/gpu/%.o,% plans device) $(filter %cuda.so.$(VERSION) %nccl.so.$(VERSION),$(CUDALIBS)) $(B)/liblierne.so.$(VERSION)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.so.$(VERSION),$^) -Wl,-rpath,'$$ORIGIN/../../..' $(CUDART) -ldl -lrt -lm

# The device programs over an emulated device (tests/emulator), which is CUDA's runtime and driver: built
# where there is no CUDA, too. It comes first where the loader looks.
EMULATED := $(B)/emulated
EMULATOR := $(EMULATED)/libcuda.so.1
EMULATOR_SRC := $(filter-out tests/emulator/addresses.c tests/emulator/kernels.c,$(wildcard tests/emulator/*.c))
EMULATED_CUDA := $(patsubst %.c,$(EMULATED)/%.o,$(sort $(wildcard src/backend/cuda/cuda_*.c)) tests/emulator/addresses.c)
EMULATED_PROGRAMS := $(EMULATED)/tests/emulator/known $(addprefix $(EMULATED)/tests/gpu/,memory replays threads virtual ranks/captures ranks/hang \
	$(addprefix launched/,golden bridge sparse halos general members update layers inflight known_answer))
EMULATED_LINK = $(LINK) $(EMULATOR) -Wl,--disable-new-dtags -Wl,-rpath,$(abspath $(EMULATED))
$(EMULATOR): $(patsubst %.c,$(EMULATED)/%.o,$(EMULATOR_SRC)) $(EMULATED)/tests/emulator/kernels.o
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-soname,$(@F) -Wl,-z,defs -o $@ $^ -ldl
$(patsubst %.c,$(EMULATED)/%.o,$(EMULATOR_SRC)): CFLAGS += -fvisibility=default
# What nvcc writes is not ours to judge; no contraction, as in the kernels.
TRANSLATED := -O1 -g0 -w -ffp-contract=off -fno-strict-aliasing -fvisibility=default
$(EMULATED)/tests/emulator/kernels.o: CFLAGS += $(TRANSLATED)
$(EMULATED)/tests/emulator/kernels.o: CPPFLAGS += -DKERNELS='"sm_100.inc"'
# Kernels in place of those: translated afresh for each device, where there is nvcc, and known ones.
EMULATED_KERNELS := $(patsubst %,$(EMULATED)/%.so,known $(filter sm_80 sm_90 sm_100,$(CUDA_KNOWN)))
$(EMULATED)/%.so: $(EMULATED)/%.inc tests/emulator/kernels.c $(wildcard tests/emulator/*.h)
	$(Q)$(CC) $(CFLAGS) $(TRANSLATED) -shared -I. -DKERNELS='"$<"' -o $@ tests/emulator/kernels.c
$(EMULATED)/known.inc: tests/emulator/self/known.ptx tests/emulator/ptx2c.py
	@mkdir -p $(@D)
	$(Q)$(PYTHON) tests/emulator/ptx2c.py $< >$@
$(EMULATED)/sm_%.inc: $(wildcard kernels/*.cu src/backend/cuda/*.h src/runtime/memory/*.h) tests/emulator/ptx2c.py
	@mkdir -p $(@D)
	$(Q)for kernels in launch flags; do $(NVCC) -std=c++17 -O3 -fmad=false -arch=compute_$* -ptx -Iinclude -Isrc -o $(@D)/$$kernels.$*.ptx kernels/$$kernels.cu || exit 1; done
	$(Q)$(PYTHON) tests/emulator/ptx2c.py $(@D)/launch.$*.ptx $(@D)/flags.$*.ptx >$@
$(EMULATED)/tests/emulator/known: $(EMULATED)/tests/emulator/self/self.o $(EMULATOR)
	$(Q)$(EMULATED_LINK)
$(EMULATED)/tests/gpu/launched/%: $(B)/launched/tests/mpi/%.o $(EMULATED)/tests/gpu/launched/cuda.o $(B)/launched/parts.a $(EMULATED_CUDA) $(LIB) $(EMULATOR)
	@mkdir -p $(@D)
	$(Q)$(EMULATED_LINK)
$(EMULATED)/tests/gpu/ranks/%: $(EMULATED)/tests/gpu/ranks/%.o $(EMULATED)/tests/gpu/ranks/common.o $(EMULATED_CUDA) $(LIB) $(EMULATOR)
	$(Q)$(EMULATED_LINK)
$(EMULATED)/tests/gpu/threads: $(B)/tests/node_ranks.o
$(EMULATED)/tests/gpu/%: $(EMULATED)/tests/gpu/%.o $(EMULATED_CUDA) $(LIB) $(EMULATOR)
	$(Q)$(EMULATED_LINK)
$(EMULATED)/%.o: CPPFLAGS += -Itests/emulator/include -Itests
$(EMULATED)/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

# The NCCL transport over a NCCL that is played.
$(B)/tests/nccl_ranks $(B)/tests/nccl_replays $(B)/tests/nccl_windows: $(B)/tests/nccl_%: $(B)/tests/nccl/%.o $(B)/tests/nccl/fake.o $(B)/tests/nccl/fake_windows.o $(B)/tests/nccl/cuda.o $(B)/tests/node_ranks.o $(TASKS) $(call obj,$(NCCL_SRC)) $(LIB)
	$(Q)$(LINK) -Wl,--wrap=lierne_nccl_load
$(B)/tests/nccl_replays $(B)/tests/ipc_replays: $(B)/tests/replay_case.o

# Only these may name CUDA's and NCCL's headers, which are not ours to judge. No contraction: the
# bits are those of the host.
$(call obj,$(CUDA_SRC)) $(B)/tests/vmm.o $(B)/tests/fences.o $(patsubst %,%.o,$(GPU_TESTS)) $(B)/tests/gpu/launched/cuda.o $(patsubst %,$(B)/tests/gpu/ranks/%.o,common captures hang): CPPFLAGS += -isystem $(CUDA_DIR)/include
$(B)/tests/nccl/%.o $(B)/tests/gpu/%.o $(B)/tests/mpi/contexts.o: CPPFLAGS += -Itests
$(call obj,$(NCCL_SRC)) $(patsubst %,$(B)/tests/nccl/%.o,ranks replays windows fake fake_windows cuda) $(GPU_BENCH_OBJ): CPPFLAGS += -isystem $(NCCL_INC) -isystem $(CUDA_DIR)/include
NVCCFLAGS ?= -O3
$(KERNELS) $(B)/tests/bench/gpu/product.cu.o: $(B)/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(Q)$(NVCC) -std=c++17 $(NVCCFLAGS) -fmad=false -Werror all-warnings -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics $(CUDA_CODE) -Iinclude -Isrc -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

# Copies and sums are where the time goes, and by hand likewise.
$(B)/src/runtime/memory/%.o $(B)/src/diagnose/%.o $(B)/tests/bench/%.o: CFLAGS += -O3

# Only these may name mpi.h.
$(B)/src/backend/mpi/%.o $(B)/src/tool/mpi/%.o $(B)/tests/mpi/%.o $(B)/tests/bench/%.o $(B)/examples/%.o: override CC := $(if $(HAVE_MPI),$(MPICC),$(CC))
$(B)/tests/unit/%.o $(B)/tests/golden/%.o $(B)/tests/ipc/%.o $(B)/tests/mpi/%.o $(B)/tests/hang/%.o $(B)/tests/launched/%.o $(B)/tests/bench/%.o $(B)/tests/fuzz/%.o: CPPFLAGS += -Itests

$(B)/launched/%.o: CPPFLAGS += -Itests/launched -Itests
$(B)/launched/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<
$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) $(CPPFLAGS) -MMD -MP -c -o $@ $<

-include $(shell find $(B) -name '*.d' 2>/dev/null)
.SECONDARY:

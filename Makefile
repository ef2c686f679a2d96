# lierne: one Makefile, not recursive; src/install.mk installs, tests/tests.mk has tests. "make" lists targets.
#
# Variables: DEPS=0 forbids installing packages; V=1 shows commands; B=folder for what is built; T=NAME for t;
# GOLDEN_DIR=path for golden; SECONDS=60 for fuzz; BENCH_ARGS="quick", or words that titles must contain
# ("8 ranks"), after "--csv" as CSV, for bench; LINKS_ARGS="400 OUT.csv" for bench-links; MODEL_ARGS=long for
# model; RUNPATH= for libraries without one; CUDA=0, MPI=0 to build, test and install without, NCCL_HOME=none;
# HARDEN=0 (src/flags.mk); PYTHON for python and wheel; CC, CFLAGS, CPPFLAGS, LDFLAGS, MPICC, MPIRUN as usual:
# what lierne itself needs is added to them; PREFIX, DESTDIR, bindir, libdir, includedir, mandir for install.

CC      ?= gcc
MPICC   ?= $(if $(shell command -v mpicc_abi),mpicc_abi,mpicc)
MPIRUN  ?= mpirun
CFLAGS  ?= -O2 -g
B       := build
# Below this folder it is relative, whoever gives it: dependency files name objects by one name only.
override B := $(patsubst $(CURDIR)/%,%,$(abspath $(B)))
DEPS    ?= 1
GOLDEN_DIR ?= tests/golden
SECONDS ?= 60
Q       := $(if $(V),,@)
comma   := ,
# A library finds the others beside it, in the build folder and where installed; with RUNPATH= where the
# loader looks anyway, which is what distributions want.
RUNPATH ?= $$ORIGIN

# The compiler of Open MPI and MPICH is the one that was asked for.
ifneq ($(origin CC),default)
export OMPI_CC := $(CC)
export MPICH_CC := $(CC)
endif

# Also what these call, and tests, which run make again, has it.
ifeq ($(CUDA),0)
override export CUDA_HOME := none
endif
ifeq ($(MPI),0)
override export MPICC := none
override export MPIRUN := none
endif

# What is there; nothing of it is required. CUDA: nvcc below CUDA_HOME, on the path, in the default
# place or where pkg-config says; NCCL's header below NCCL_HOME, in the toolkit or in Python's wheel.
# Variables of the command line reach no $(shell ...) by themselves.
find_cuda = $(shell CUDA_HOME='$(CUDA_HOME)' NCCL_HOME='$(NCCL_HOME)' sh tests/find_cuda.sh $(1))
HAVE_MPI := $(shell command -v $(MPICC) >/dev/null 2>&1 && echo yes)
NVCC     := $(call find_cuda,nvcc)
NCCL_INC := $(if $(NVCC),$(call find_cuda,nccl "$(NVCC)"))
CUDA_DIR := $(patsubst %/bin/nvcc,%,$(NVCC))
CUDART   := $(firstword $(wildcard $(CUDA_DIR)/lib64/libcudart_static.a $(CUDA_DIR)/lib/libcudart_static.a))
CJSON    := $(shell pkg-config --libs libcjson 2>/dev/null || echo -lcjson)
# Devices: those of the list that the compiler knows, and PTX of the last one for later ones.
CUDA_ARCHS ?= 80 90 100
CUDA_SM   := $(if $(NVCC),$(filter $(CUDA_ARCHS:%=sm_%),$(shell $(NVCC) --list-gpu-code)))
CUDA_CODE := $(foreach sm,$(CUDA_SM),-gencode arch=$(sm:sm_%=compute_%)$(comma)code=$(sm)) \
	$(foreach ptx,$(patsubst sm_%,compute_%,$(lastword $(CUDA_SM))),-gencode arch=$(ptx)$(comma)code=$(ptx))
NVCCFLAGS ?= -O3

# In the order in which they depend on each other; tests/cli/test_includes.sh has the same.
MODULES := base json grid layout route \
	$(addprefix runtime/,control recorder memory transport context execute group window) \
	$(addprefix backend/,self sim shm oob node) plan \
	$(addprefix plan/,redistribute bridge megatron sparse halo collective samples) diagnose step config
files = $(sort $(wildcard $(1)))
obj   = $(patsubst %.c,$(B)/%.o,$(1))
# Windows and pointers of devices, and group calls, need no header of CUDA or NCCL.
LIB_SRC  := $(foreach module,$(MODULES),$(call files,src/$(module)/*.c)) src/backend/back_ends.c \
	$(call files,src/backend/cuda/ipc_*.c) src/backend/cuda/device_pointer.c src/backend/nccl/group_calls.c
MPI_SRC  := $(if $(HAVE_MPI),$(call files,src/backend/mpi/*.c))
CUDA_SRC := $(if $(NVCC),$(call files,src/backend/cuda/cuda_*.c))
NCCL_SRC := $(if $(NCCL_INC),$(call files,src/backend/nccl/nccl_*.c))
KERNELS  := $(if $(NVCC),$(patsubst %.cu,$(B)/%.cu.o,$(call files,kernels/*.cu)))
TOOL_SRC := $(call files,src/tool/*.c src/tool/import/*.c src/tool/run/*.c src/tool/draw/*.c)
RUN_SRC  := $(if $(HAVE_MPI),$(call files,src/tool/mpi/*.c))

LIB     := $(B)/liblierne.a
MPILIB  := $(if $(HAVE_MPI),$(B)/liblierne_mpi.a)
TOOL    := $(B)/lierne
RUN     := $(if $(HAVE_MPI),$(B)/lierne-run)
# The headers have the version. Before 1.0 every soname is .so.0; symbol versions tell them apart.
VERSION := $(shell sed -n 's/.*LIERNE_VERSION_STRING "\(.*\)"/\1/p' include/lierne/status.h)
SOMAJOR := $(firstword $(subst ., ,$(VERSION)))
SO      := $(B)/liblierne.so.$(VERSION)
CUDASO  := $(if $(CUDA_SRC),$(B)/liblierne_cuda.so.$(VERSION))
NCCLSO  := $(if $(NCCL_SRC),$(B)/liblierne_nccl.so.$(VERSION))
SHARED  := $(SO) $(MPILIB:.a=.so.$(VERSION)) $(CUDASO) $(NCCLSO)
# What an earlier make left and this one is to go without is removed: tests and packages take what they find.
MADE     = $(RUN) $(MPILIB) $(foreach so,$(SHARED),$(so) $(so:.$(VERSION)=.$(SOMAJOR)) $(so:.$(VERSION)=))
MAKEABLE = $(wildcard $(addprefix $(B)/,lierne-run liblierne_mpi.* liblierne_cuda.* liblierne_nccl.*))

include src/flags.mk

# COMPILER, MORE_CPPFLAGS, WRAPS and LIBS are set by folder; FAST is for loops over rows, unless CFLAGS debug.
OWN_CFLAGS := -std=c11 -D_GNU_SOURCE -fvisibility=hidden -fPIC -pthread \
	-Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes
OWN_CPPFLAGS := -Iinclude -Isrc $(shell pkg-config --cflags libcjson 2>/dev/null)
FAST     := $(if $(filter -O0 -O1 -Og,$(CFLAGS)),,-O3)
COMPILER = $(CC)
COMPILE  = $(Q)mkdir -p $(@D) && $(COMPILER) $(CFLAGS) $(OWN_CFLAGS) $(HARDENED) $(MORE_CFLAGS) $(ANYWHERE) $(WERROR) \
	$(CPPFLAGS) $(OWN_CPPFLAGS) $(MORE_CPPFLAGS) -MMD -MP -c -o $@ $<
LINK     = $(Q)mkdir -p $(@D) && $(COMPILER) $(CFLAGS) $(OWN_CFLAGS) $(PIE) $(RELRO) $(LDFLAGS) $(WRAPS) \
	-o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
	$(filter %.so.$(VERSION),$^) $(LIBS) $(CJSON) -lm
wraps    = $(foreach function,$(1),-Wl$(comma)--wrap=lierne_$(function))
# Each archive anew: a source that is gone is gone from it.
ARCHIVE  = $(Q)mkdir -p $(@D) && rm -f $@ && ar rcsD $@ $(filter %.o,$^)
# Functions without LIERNE_API are hidden; src/*.map gives what remains a version. Nothing may stay
# undefined; clang's sanitizers are in the program only. The links are the names that the linker and the
# loader look for: programs run from the build folder.
MAKE_SO  = $(Q)$(COMPILER) $(CFLAGS) $(OWN_CFLAGS) $(RELRO) $(LDFLAGS) -shared \
	$(if $(RUNPATH),-Wl$(comma)--enable-new-dtags -Wl$(comma)-rpath$(comma)'$(RUNPATH)') \
	-Wl,-soname,$(notdir $(@:.$(VERSION)=.$(SOMAJOR))) -Wl,--version-script=$(filter %.map,$^) \
	$(if $(findstring -fsanitize,$(CFLAGS)),,-Wl$(comma)-z$(comma)defs) \
	-o $@ $(filter %.o,$^) $(filter %.so.$(VERSION),$^) $(LIBS) && \
	ln -sf $(@F) $(@:.$(VERSION)=.$(SOMAJOR)) && ln -sf $(@F:.$(VERSION)=.$(SOMAJOR)) $(@:.$(VERSION)=)

.DEFAULT_GOAL := help
# That of the tests, where it was made (tests/venv.sh).
PYTHON  ?= $(or $(wildcard $(B)/venv/bin/python),python3)
# As many jobs as cores, where nobody asked for another number.
JOBS     = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))
DEPS_SH  = @DEPS=$(DEPS) B=$(B) MPI=$(MPI) sh tests/deps.sh
# announce NAME,OBJECTS: what a first build compiles.
missing  = $(words $(filter-out $(wildcard $(1)),$(1)))
announce = @command -v $(firstword $(CC)) >/dev/null || \
	{ echo "no compiler $(firstword $(CC)): make deps installs one" >&2 && exit 1; }; \
	[ $(call missing,$(2)) = 0 ] || { echo "building $(1) in $(B): $(call missing,$(2)) files to compile"; \
	printf '\#include <%s>\n' cjson/cJSON.h xxhash.h | $(CC) $(CPPFLAGS) $(OWN_CPPFLAGS) -E -xc - >/dev/null 2>&1 || \
	{ echo "no cjson/cJSON.h or xxhash.h: make deps installs them (libcjson-dev, libxxhash-dev)" >&2 && exit 1; }; }
.PHONY: abi all announce-all announce-tests bench bench-gpu bench-links check check-fast check-install check-long \
	check-torch clean deb demo deps format fuzz golden help hooks install manylinux model mutants pictures prove python \
	release sanitize scale sdist site t tests torch uninstall wheel always
.DELETE_ON_ERROR:
.SECONDARY:

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile src/install.mk | expand -t 18

deps: ## install what is missing (Debian, Ubuntu); DEPS=0 only names it
	$(DEPS_SH)

ALL_OBJ := $(call obj,$(LIB_SRC) $(MPI_SRC) $(CUDA_SRC) $(NCCL_SRC) $(TOOL_SRC) $(RUN_SRC)) $(KERNELS)
announce-all:
	$(if $(filter tests,$(MAKECMDGOALS)),,$(call announce,libraries and command,$(ALL_OBJ)))
all: announce-all $(LIB) $(TOOL) $(MPILIB) $(RUN) $(SHARED) ## build the libraries and the command
	@rm -f $(filter-out $(MADE),$(MAKEABLE))
	@echo "built $(patsubst lib%.so.$(VERSION),lib%$(comma),$(notdir $(SHARED))) and the command;" \
		"CUDA: $(or $(NVCC),not found)$(comma) not needed"

demo: ## install what is missing, build, run a published configuration on 8 ranks
	$(DEPS_SH) demo
	@$(MAKE) $(JOBS) --no-print-directory -s all
	@sh tests/demo.sh $(B)

check: deps ## install what is missing, build and run all tests
	@MAKE="$(MAKE) $(JOBS)" bash tests/check.sh $(B)

check-fast: ## build with gcc and clang without a warning; format, words, includes, unit tests, golden files
	@MAKE="$(MAKE) $(JOBS)" bash tests/check.sh $(B) fast

t: ## run one test: make t T=bridge/all_pairs, or golden/FILE, mpi/NAME, cli/NAME, ... (docs/testing.md)
	@MAKE="$(MAKE) $(JOBS)" bash tests/one.sh $(B) $(T)

hooks: ## check commits before they are made: format and words of staged files, the subject
	git config core.hooksPath .githooks

python: python-needs all ## put the Python package together in build/python (needs cffi)
	@PYTHON=$(PYTHON) sh src/python/stage.sh $(B)

wheel: python ## build the Python wheel in build/dist (needs cffi, pip; setuptools 77, or PyPI)
	@PYTHON=$(PYTHON) sh src/python/wheel.sh $(B)

sdist: ## pack the Python source distribution in build/dist (needs the package build)
	@mkdir -p $(B) && PYTHON=$(PYTHON) sh src/python/sdist.sh $(B)

check-torch: ## install PyTorch in build/venv and run the tests of lierne.torch (2 GB, minutes)
	$(DEPS_SH) ensurepip
	@$(MAKE) $(JOBS) --no-print-directory -s all
	@sh tests/venv.sh $(B) torch && bash tests/cli/test_torch.sh $(B)

torch: all ## build liblierne_torch, deepmd-kit's operators without Python (PYTHON: one with PyTorch)
	@PYTHON=$(PYTHON) sh src/torch/build.sh $(B)

abi: ## write the baseline of the ABI, tests/abi.txt, which check compares with
	@$(PYTHON) tests/cli/abi.py include tests/abi.txt write

release: ## pack the sources of a version in build/release, with changes, ABI and checksums
	@PYTHON=$(PYTHON) bash src/release.sh $(B)

site: ## build the documentation as a site in build/site/html (installs mkdocs)
	$(DEPS_SH) mkdocs
	@sh docs/site.sh $(B)/site

deb: ## build Debian packages in build/deb and check them with lintian (installs what that needs)
	$(DEPS_SH) deb
	@bash debian/build.sh $(B)/deb

check-long: tests ## what takes too long for check: all random cases on streams, 1,200 hangs (20 minutes)
	@MPIRUN="$(if $(HAVE_MPI),$(MPIRUN))" bash tests/long.sh $(B)

check-install: tests ## packages, parts and builds as users make them, each anew (needs PyPI; 15 minutes)
	@bash tests/check_install.sh $(B)

model: ## check protocols in all interleavings, with Spin (8 minutes)
	$(DEPS_SH) spin
	@for m in barrier bell group_calls shrink; do bash tests/model/$$m.sh $(MODEL_ARGS) || exit; done
prove: ## prove arithmetic for all inputs up to a bound, with CBMC if installed (5 minutes)
	@bash tests/proofs/prove.sh

golden: $(B)/golden ## run every golden file of GOLDEN_DIR=path
	@$(B)/golden $(GOLDEN_DIR)

sanitize: tests ## run the tests under the sanitizers and valgrind
	@bash tests/sanitize.sh $(B)

fuzz: ## fuzz all readers of texts, files and messages for SECONDS=60, with libFuzzer if installed
	@bash tests/fuzz.sh $(B) $(SECONDS)

mutants: tests ## break the code, one mutation at a time: some test must fail each time
	@bash tests/mutants.sh $(B)

pictures: $(TOOL) ## draw the pictures of the documents again
	@sh docs/pictures/make.sh $(B) docs/pictures
	@$(PYTHON) tests/bench/ratios.py docs/performance svg >docs/pictures/ratios.svg

bench: tests ## time lierne beside MPI by hand (minutes; docs/performance.md)
	@bash tests/bench/run.sh $(B) $(BENCH_ARGS)

bench-gpu: tests ## time kernels, bridges between ranks and NCCL on this machine's GPUs (docs/gpu.md)
	@$(if $(NCCL_SRC),bash tests/bench/gpu/run.sh $(B),echo "nothing was measured: no nvcc or no nccl.h (docs/gpu.md)")

bench-links: all ## bridges between network namespaces joined by slow links, measured and predicted (root; minutes)
	@bash tests/bench/links.sh $(B) $(LINKS_ARGS)

scale: tests ## time and memory of plans, reports and simulations, 64 to 131,072 ranks, and of 70,000 tensors
	@$(B)/tests/bench/planning
	@$(B)/tests/bench/sets
	@python3 tests/bench/scale.py $(B)/lierne

format: ## format the sources with clang-format
	clang-format -i $$(git ls-files '*.c' '*.cpp' '*.h')

clean: ## remove what was built
	rm -rf $(B)

$(LIB): $(call obj,$(LIB_SRC))
	$(ARCHIVE)
$(B)/liblierne_mpi.a: $(call obj,$(MPI_SRC))
	$(ARCHIVE)
$(SO): $(call obj,$(LIB_SRC)) src/liblierne.map
	$(MAKE_SO)
$(SO): private LIBS := $(CJSON) -lm
$(B)/liblierne_mpi.so.$(VERSION): $(call obj,$(MPI_SRC)) $(SO) src/liblierne_mpi.map
	$(MAKE_SO)
$(B)/liblierne_mpi.so.$(VERSION): private COMPILER := $(MPICC)
# CUDA's runtime is in the library, and hidden: it loads the driver when it is first called, so that
# the library loads without one. NCCL is looked up at run time.
$(CUDASO): $(call obj,$(CUDA_SRC)) $(KERNELS) $(SO) src/liblierne_cuda.map
	$(MAKE_SO)
$(CUDASO): private LIBS := $(CUDART) -ldl -lrt
$(NCCLSO): $(call obj,$(NCCL_SRC)) $(CUDASO) $(SO) src/liblierne_nccl.map
	$(MAKE_SO)
$(TOOL): $(call obj,$(TOOL_SRC)) $(LIB)
	$(LINK)
# Libraries of a moved tree or of a wheel are beside bin/.
$(TOOL): private LIBS := $(RUNPATH:%=-Wl$(comma)--enable-new-dtags -Wl$(comma)-rpath$(comma)'%/../lib')
$(B)/lierne-run: $(call obj,$(RUN_SRC)) $(filter-out %/tool/main.o,$(call obj,$(TOOL_SRC))) $(MPILIB) $(LIB)
	$(LINK)
$(B)/lierne-run: private COMPILER := $(MPICC)

include src/install.mk tests/tests.mk

# Only these may name mpi.h, and the headers of CUDA and NCCL, which are not ours to judge.
$(addprefix $(B)/,src/backend/mpi/%.o src/tool/mpi/%.o): COMPILER = $(MPICC)
$(addprefix $(B)/src/backend/,cuda/%.o nccl/%.o): MORE_CPPFLAGS += $(patsubst %,-isystem %/include,$(CUDA_DIR))
$(B)/src/backend/nccl/%.o: MORE_CPPFLAGS += $(NCCL_INC:%=-isystem %)
$(addprefix $(B)/src/,diagnose/%.o plan/redistribute/changes.o plan/sparse/%.o runtime/memory/%.o): \
	MORE_CFLAGS += $(FAST)

# What depends on flags or on a compiler is compiled again when these change: a file has them.
version = $(shell $(1) --version 2>/dev/null | head -n 1)
FLAGS_c = $(CC) $(call version,$(CC)) $(MPICC) $(CFLAGS) $(OWN_CFLAGS) $(HARDENED) $(FAST) $(CPPFLAGS) $(OWN_CPPFLAGS) \
	$(LDFLAGS) $(RUNPATH) $(CJSON)
FLAGS_cu = $(NVCC) $(call version,$(NVCC)) $(NVCCFLAGS) $(CUDA_CODE) $(NCCL_INC)
$(call obj,$(CUDA_SRC) $(NCCL_SRC)): $(B)/flags.cu
$(B)/flags.%: always
	@mkdir -p $(@D) && printf '%s\n' '$(subst ','\'',$(FLAGS_$*))' >$@.new && \
		if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(B)/%.o: %.c $(B)/flags.c
	$(COMPILE)
# No contraction: the bits are those of the host. Files that are kept have names that the next build has, too.
$(B)/%.cu.o: %.cu $(B)/flags.cu
	$(Q)mkdir -p $(@:.o=.keep) && $(NVCC) --keep --keep-dir $(@:.o=.keep) -std=c++17 $(NVCCFLAGS) -fmad=false \
		-Werror all-warnings -Xcompiler $(ANYWHERE) -Xcompiler \
		-Wall,-Wextra,-fPIC,-fvisibility=hidden,-fno-exceptions,-fno-threadsafe-statics \
		$(CUDA_CODE) -Iinclude -Isrc -MMD -MP -MF $(@:.o=.d) -c -o $@ $< && rm -r $(@:.o=.keep)

-include $(shell find $(B) -name '*.d' 2>/dev/null)

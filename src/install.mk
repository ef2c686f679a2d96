# make install and make uninstall, with the usual variables; and wheels.
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

# Everything that install puts anywhere; uninstall removes the same names.
PC      := $(patsubst lib%.so.$(VERSION),%.pc,$(notdir $(SHARED)))
CMAKE   := lierne-config.cmake lierne-config-version.cmake
LINKS    = $(foreach so,$(notdir $(SHARED)),$(so:.$(VERSION)=.$(SOMAJOR)) $(so:.$(VERSION)=))
TORCHSO := $(wildcard $(B)/liblierne_torch.so)
HEADERS := $(filter-out $(if $(HAVE_MPI),,%/mpi.h) $(if $(CUDA_SRC),,%/cuda.h) $(if $(NCCL_SRC),,%/nccl.h) \
	$(if $(TORCHSO),,%/torch.h),$(wildcard include/lierne/*.h))
INSTALLED = $(addprefix $(bindir)/,$(notdir $(TOOL) $(RUN))) \
	$(addprefix $(libdir)/,$(notdir $(LIB) $(MPILIB) $(SHARED) $(TORCHSO)) $(LINKS)) \
	$(addprefix $(pkgconfigdir)/,$(PC)) $(addprefix $(cmakedir)/,$(CMAKE)) \
	$(includedir)/lierne.h $(addprefix $(includedir)/lierne/,$(notdir $(HEADERS))) \
	$(addprefix $(pkgdatadir)/grids/,$(notdir $(wildcard grids/*.json))) \
	$(pkgdatadir)/grid.schema.json $(mandir)/man1/lierne.1 $(bashcompdir)/lierne $(zshcompdir)/_lierne
# A folder below PREFIX is written relative to it, so that an installed tree may be moved.
relative = $(patsubst $(PREFIX)/%,$${prefix}/%,$(1))

install: all ## install below PREFIX (/usr/local); DESTDIR, libdir, ... as usual
	install -d $(sort $(dir $(addprefix $(DESTDIR),$(INSTALLED))))
	install -m 755 $(TOOL) $(RUN) $(DESTDIR)$(bindir)
	install -m 644 $(LIB) $(MPILIB) $(SHARED) $(TORCHSO) $(DESTDIR)$(libdir)
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
	-e 's|@CJSON@|$(strip $(CJSON))|' -e "s|@INCLUDE@|$$(realpath -m --relative-to='$(cmakedir)' '$(includedir)')|" \
	src/$(file).in >$(DESTDIR)$(cmakedir)/$(file) &&) :
	@$(if $(DESTDIR),:,echo "installed below $(PREFIX); if tools do not look there: export \
	PATH=$(bindir):\$$PATH PKG_CONFIG_PATH=$(pkgconfigdir) LD_LIBRARY_PATH=$(libdir), or run ldconfig" | tr -s '\t ' ' ')

uninstall: ## remove what install put there (same PREFIX, DESTDIR, ...)
	rm -f $(addprefix $(DESTDIR),$(INSTALLED))
	-rmdir $(addprefix $(DESTDIR),$(cmakedir) $(includedir)/lierne $(pkgdatadir)/grids $(pkgdatadir))

.PHONY: python-needs
python-needs: # before all: a missing module is named before minutes of compiling
	@PYTHON=$(PYTHON) sh src/python/needs.sh $(or $(filter wheel,$(MAKECMDGOALS)),python)

manylinux: ## build a wheel for any Linux of glibc 2.28 and later, in build/manylinux/dist (needs PyPI)
	@PYTHON=$(PYTHON) sh src/python/manylinux.sh $(B)

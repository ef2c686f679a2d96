# What every object and program gets beside CFLAGS: hardening, and the same bits from every folder.

# Hardened, unless HARDEN=0 or CFLAGS have a sanitizer; glibc's checks need a compiler that optimizes.
HARDEN  ?= 1
MACHINE := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
BRANCHES_x86_64  := -fcf-protection
BRANCHES_aarch64 := -mbranch-protection=standard
HARDENED := $(if $(filter 0,$(HARDEN))$(findstring -fsanitize,$(CFLAGS)),,-fstack-protector-strong \
	-fstack-clash-protection $(BRANCHES_$(MACHINE)) $(if $(findstring FORTIFY_SOURCE,$(CFLAGS) $(CPPFLAGS)),,$(if \
	$(filter -O1 -O2 -O3 -Os,$(CFLAGS)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)))
PIE      := $(if $(HARDENED),-pie)
RELRO    := $(if $(HARDENED),-Wl$(comma)-z$(comma)relro$(comma)-z$(comma)now)
# Built in another folder, the bits are the same: no path of this one enters them.
ANYWHERE := -ffile-prefix-map="$$PWD"=.

#!/usr/bin/env bash
# Words that mean nothing to a reader who knows MPI, NCCL, PetscSF, DTensor and Megatron-LM do not come
# back. EVERYWHERE has those that have no other meaning here; PUBLIC those that code may use in another
# sense (a letter of an option, a lane of SIMD), but no header and no document; CHANGELOG.md lists former
# names. Also within identifiers.
set -u
. "$(dirname "$0")/../verdict.sh"

EVERYWHERE='parcel|wire|cargo|shelf|shelve|shelves|heir|ballot|tally|tallies|settle|settled|summand|meeting'
EVERYWHERE+='|seat|adder|needer|orphan|consult|vote|supplier|played'
PUBLIC='letter|lane|told|in vain'

found() { # found WORDS PATH...: where one of them stands
    local words=$1
    shift
    grep -rnEi --include=*.{c,h,cu,md,py,in,yml,1,json} "(^|[^[:alpha:]])($words)s?([^[:alpha:]]|$)" "$@"
}
bad=$(found "$EVERYWHERE" src include kernels docs examples ./*.md)
[ -z "$bad" ]
verdict $? "words that docs/glossary.md has others for: $bad"
bad=$(found "$PUBLIC" include docs examples README.md CONTRIBUTING.md)
[ -z "$bad" ]
verdict $? "words that docs/glossary.md has others for: $bad"
printf 'int seats_of;\n/* The ballot. */\n"wired", Oversettled\n' >"$work/stale.c"
[ "$(found "$EVERYWHERE" "$work" | wc -l)" = 2 ]
verdict $? "words are found, also within identifiers, and only whole ones"

conflicts() { # conflicts PATH...: the marks of a merge that was not finished
    grep -rnE --include=*.{c,h,cu,md,py,sh,txt,json,mk,in,yml} '^(<{7}|>{7}) ' "$@"
}
bad=$(conflicts src include kernels docs examples tests grids ./*.md)
[ -z "$bad" ]
verdict $? "a conflict that nobody has resolved: $bad"
printf '%s\n' '<<<<''<<< HEAD' >"$work/conflict.md"
[ -n "$(conflicts "$work")" ]
verdict $? "a conflict is found"
verdicts

#!/usr/bin/env bash
# The hooks that make hooks installs: which subjects and which staged files they reject. In a repository of its
# own. $1: the build folder, which is not used.
set -u
. "$(dirname "$0")/../verdict.sh"
cd "$(dirname "$0")/../.." || exit 2
unset MAKEFLAGS MAKELEVEL MFLAGS
unset "${!GIT_@}" # of a hook that runs this
export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b

# mkdir, not git clone: the files as they are here, whether committed or not.
mkdir "$work/repository"
cp -R --parents .githooks .clang-format Makefile {src,tests,tests/*}/*.mk tests/{verdict,find_cuda}.sh \
    tests/cli/test_words.sh "$work/repository" 2>/dev/null
cd "$work/repository" && git init -q . && make -s hooks CUDA_HOME=none >"$work/out" 2>&1 &&
    [ "$(git config core.hooksPath)" = .githooks ]
verdict $? "make hooks installs them: $(cat "$work/out")"

commits() { # commits MESSAGE: whether it may be committed
    git commit -q --allow-empty -m "$1" >"$work/out" 2>&1
}
for subject in "shm: free the segment last" "plan/halo: pass ghosts on" "tests, docs: name each file" \
    "api: LIERNE_ERR_INVALID where a spec is too small" "README: show two commands" "cuda: embed kernels" \
    "fixup! shm: free the segment last" "a: $(printf 'b%.0s' {1..69})"; do
    commits "$subject"
    verdict $? "accepted: $subject: $(cat "$work/out")"
done
commits $'shm: free it\n\nSubjects say what, bodies why.'
verdict $? "accepted: a body: $(cat "$work/out")"
for subject in x "free the segment last" "shm: Free the segment last" "shm: frees the segment last" \
    "shm: freed the segment" "shm: freeing the segment" "shm: free the segment." "shm:free the segment" "shm: " \
    "Merge branch 'a'" "a: $(printf 'b%.0s' {1..70})" $'shm: free it\nat once'; do
    commits "$subject"
    [ $? != 0 ] && grep -q '^commit-msg: ' "$work/out"
    verdict $? "rejected: $subject: $(cat "$work/out")"
done

stages() { # stages FILE LINE: a commit of such a file
    mkdir -p "$(dirname "$1")"
    printf '%s\n' "$2" >"$1"
    git add "$1"
    git commit -q -m "a: add $1" >"$work/out" 2>&1
}
stages src/good.c 'int good;'
verdict $? "a file as it should be: $(cat "$work/out")"
stages src/word.c 'int ballot;'
[ $? != 0 ] && grep -q 'src/word.c:1:int ballot;' "$work/out"
verdict $? "a word that means nothing to others: $(cat "$work/out")"
git rm -q -f --cached src/word.c
if clang-format --version 2>/dev/null | grep -q 'version 14\.'; then
    stages src/bad.c 'int  bad ;'
    [ $? != 0 ] && grep -q 'src/bad.c is not formatted: make format' "$work/out"
    verdict $? "a file that is not formatted: $(cat "$work/out")"
    printf 'int bad;\n' >src/bad.c
    git commit -q -m "a: add bad" >"$work/out" 2>&1
    [ $? != 0 ]
    verdict $? "what counts is staged, not in the folder: $(cat "$work/out")"
    git add src/bad.c && git commit -q -m "a: add bad" >"$work/out" 2>&1
    verdict $? "the same file, formatted: $(cat "$work/out")"
else
    echo "no clang-format 14: formatting was left out"
fi
verdicts

#!/usr/bin/env bash
# What the command prints for people: long lists have a beginning and a count, messages to one peer are
# one line, a terminal gets colours and lines of its width and nothing else does; shells complete every
# option that is parsed. $1: the build folder.
set -u
. "$(dirname "$0")/../verdict.sh"
build=${1:?usage: test_terminal.sh BUILD}
cd "$(dirname "$0")/../.." || exit 2
lierne=$build/lierne
file=grids/encoder-llm-8.json

same() { # same NAME EXPECTED ACTUAL
    [ "$2" = "$3" ]
    verdict $? "$1: '$3', must be '$2'"
}

# --- long lists ---------------------------------------------------------------------------------

large=(--src tp1,dp512 --dst tp64,dp8 --tensor b512,h8 --routing direct)
"$lierne" plan "${large[@]}" >"$work/some" 2>/dev/null
"$lierne" plan "${large[@]}" --all >"$work/all" 2>/dev/null
same "ranks, without --all" 0 "$(grep -cE '^ +[0-9]+ +[0-9]+ .*\|' "$work/some")"
same "ranks, --all" 512 "$(grep -cE '^ +[0-9]+ +[0-9]+ .*\|' "$work/all")"
same "a group" 1 "$("$lierne" plan "${large[@]}" --rank 0 2>/dev/null | grep -cF '[0,1,2,3,4,5,6,7]... 56 more (--all)')"
same "nothing left out, --all" 0 "$(grep -cF 'more (--all)' "$work/all")"
same "the rest" "$(sed -n '/^One /,/^$/p' "$work/all")" "$(sed -n '/^One /,/^$/p' "$work/some")"

# Every piece of a route is in --all, and a line of the short form says how many it left out.
route=(plan grids/internvl2.5-78b-sft-32.json --bridge vit_to_llm --rank 0)
"$lierne" "${route[@]}" --format json 2>/dev/null >"$work/json"
"$lierne" "${route[@]}" --all 2>/dev/null | sed -n '/^forward route/,$p' >"$work/all"
same "elements sent" "$(grep -o '"sends":\[[^]]*' "$work/json" | wc -l | sed 's/^0$/none/;s/^[1-9].*/some/')" some
awk '/ route of/ { delete seen } /^stage/ { delete seen } /^  (send|receive)/ { if (seen[$1 $3]++) { print; bad = 1 } }
    END { exit bad }' "$work/all"
verdict $? "a peer has one line per stage"
grep -qE '^  send to [0-9]+, [0-9]+ elements in [2-9][0-9]* messages: ' "$work/all"
verdict $? "messages are merged: $(head -n 5 "$work/all")"
if command -v python3 >/dev/null; then
    python3 - "$work/json" "$work/all" <<'PY'
import json, re, sys
routes = json.load(open(sys.argv[1]))["route"]
lines = open(sys.argv[2]).read().split("adjoint route")
for text, route in zip(lines, (routes["forward"], routes["adjoint"])):
    size = {"bf16": 2, "f32": 4}[route["dtype"]]
    for word, key in (("send to", "sends"), ("receive from", "recvs")):
        shown = sum(int(n) for n in re.findall(rf"^  {word} \d+, (\d+) elements", text, re.M))
        assert shown == sum(m["bytes"] for s in route["stages"] for m in s[key]) // size, (word, shown)
PY
    verdict $? "merged messages have the elements of all"
fi
"$lierne" plan grids/kimi-k2.5-vl-512.json --bridge vision_to_llm --rank 0 2>/dev/null >"$work/some"
"$lierne" plan grids/kimi-k2.5-vl-512.json --bridge vision_to_llm --rank 0 --all 2>/dev/null >"$work/all"
pieces() { sed -n '/^forward route/,/^adjoint route/p' "$1" | grep -oE '(in|out|scratch)\[' | wc -l; }
left_out=$(sed -n '/^forward route/,/^adjoint route/p' "$work/some" | grep -oE '[0-9]+ more \(--all\)' | awk '{ n += $1 } END { print n + 0 }')
[ "$left_out" -gt 0 ]
verdict $? "pieces of a message are left out"
same "pieces" "$(pieces "$work/all")" "$(($(pieces "$work/some") + left_out))"

# --- terminals ----------------------------------------------------------------------------------

if command -v python3 >/dev/null; then
    on() { # on COLUMNS ARGUMENT...
        TERM=xterm python3 tests/cli/terminal.py "$1" "$lierne" "${@:2}" | sed 's/\r[^\r]*\x1b\[K//g'
    }
    escape=$(printf '\033')
    for command in "check $file" "plan $file -b vision_to_llm" "simulate $file -b vision_to_llm" \
        "plan grids/bad/warning-misaligned-dp-ranks.json -b vision_to_llm" \
        "run $file -b vision_to_llm --launch 8 -n 1 --minbytes 64K" "check grids/bad/size-zero.json"; do
        "$lierne" $command >"$work/plain" 2>&1
        grep -q "$escape" "$work/plain"
        verdict $((1 - $?)) "$command: colours in a file"
        on 96 $command >"$work/painted"
        grep -q "$escape\[1" "$work/painted"
        verdict $? "$command: no colour on a terminal"
        NO_COLOR=1 on 96 $command >"$work/unpainted"
        grep -q "$escape" "$work/unpainted"
        verdict $((1 - $?)) "$command: colours with NO_COLOR"
    done
    if [ -x "$build/lierne-run" ]; then # mpirun gives its ranks a terminal
        TERM=xterm mpirun --oversubscribe --allow-run-as-root -n 2 "$lierne" run --src tp2,dp1 --dst tp1,dp2 --tensor b2,h8 -n 1 >"$work/ranks" 2>&1
        verdict $? "run under mpirun: $(cat "$work/ranks")"
        grep -q "$escape" "$work/ranks"
        verdict $((1 - $?)) "run under mpirun: colours in a file"
    fi
    on 60 plan --src tp1,dp64 --dst tp2,dp32 --tensor b64,h8 --all | sed "s/$escape\[[0-9;]*m//g" | sed -n '/^gather groups/,/^$/p' >"$work/narrow"
    [ "$(awk '{ if (length > n) n = length } END { print n }' "$work/narrow")" -le 61 ] && [ "$(wc -l <"$work/narrow")" -gt 4 ]
    verdict $? "lines of 60 columns: $(cat "$work/narrow")"
    on 40 plan --src tp1,dp64 --dst tp2,dp32 --tensor b64,h8 --all | sed "s/$escape\[[0-9;]*m//g" | sed -n '/^gather groups/,/^$/p' >"$work/narrow"
    [ "$(awk '{ if (length > n) n = length } END { print n }' "$work/narrow")" -le 41 ] && [ "$(wc -l <"$work/narrow")" -gt 4 ]
    verdict $? "lines of 40 columns: $(cat "$work/narrow")"
    TERM=xterm python3 tests/cli/terminal.py 96 "$lierne" simulate $file -b vision_to_llm | grep -F "$escape[K"$'\r'"$escape[K" >"$work/erased"
    verdict $? "what a terminal shows of progress is erased"
    on 200 plan --src tp1,dp64 --dst tp2,dp32 --tensor b64,h8 --all | sed "s/$escape\[[0-9;]*m//g" | sed -n '/^gather groups/,/^$/p' >"$work/wide"
    [ "$(awk '{ if (length > n) n = length } END { print n }' "$work/wide")" -gt 120 ]
    verdict $? "lines of 200 columns: $(cat "$work/wide")"
fi

# --- completion ---------------------------------------------------------------------------------

# lierne help
same "help" "$("$lierne" --help)" "$("$lierne" help)"
for command in $("$lierne" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    same "help $command" "$("$lierne" "$command" --help)" "$("$lierne" help "$command")"
done
"$lierne" help nothing >/dev/null 2>"$work/err"
same "help of no command" "2 1" "$? $(grep -c "there is no command 'nothing', only check" "$work/err")"
"$lierne" help plan run >/dev/null 2>"$work/err"
same "help of two commands" "2 1" "$? $(grep -c "2 commands given, must be at most 1" "$work/err")"

"$lierne" completion bash >"$work/completion"
verdict $? "completion bash"
bash -n "$work/completion"
verdict $? "completion: bash reads it"
complete_words() { # complete_words WORD...: what bash offers for the last word
    bash -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lierne 2>/dev/null; printf "%s\n" "${COMPREPLY[@]}"' "$work/completion" "$@"
}
same "commands" "$("$lierne" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | sort | xargs) --help --version" \
    "$(complete_words lierne "" | grep -v -- -- | sort | xargs) $(complete_words lierne -- | xargs)"
for command in $("$lierne" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    same "options of $command" "$("$lierne" $command --help | grep -oE -- '--[a-z][a-z-]*' | grep -vx -e --help | sort -u | xargs)" \
        "$(complete_words lierne "$command" -- | sed 's/=$//' | grep -vx -e --help | sort -u | xargs)"
done
same "formats of check" "text json sarif github junit" "$(complete_words lierne check --format = "" | xargs)"
same "formats of run" "json" "$(complete_words lierne run $file --format = j | xargs)"
same "formats of draw" "svg dot text" "$(complete_words lierne draw mesh $file --format "" | xargs)"
same "commands of help" "plan place" "$(complete_words lierne help pl | xargs)"
same "pictures" "matrix mesh" "$(complete_words lierne draw m | sort | xargs)"
same "files" "grids/encoder-llm-8.json" "$(complete_words lierne plan grids/enc | xargs)"
"$lierne" completion zsh >"$work/_lierne"
verdict $? "completion zsh"
for option in --minbytes= --adjoint --isolate= --world-size=; do
    grep -qF -- "'$option" "$work/_lierne"
    verdict $? "completion zsh: $option"
done
same "completion zsh: commands" "$("$lierne" --help | sed -n "/^Commands:/,/^\$/{s/'/'\\\\''/g;s/^  \([a-z]*\)  *\(.*\)/        '\1:\2'/p}")" \
    "$(sed -n '/^    commands=/,/)$/s/^\( *.*\x27\))*$/\1/p' "$work/_lierne")"
bash -n "$work/_lierne" # what zsh's text has of quotes and brackets, bash reads the same way
verdict $? "completion zsh: quotes and brackets"
if command -v zsh >/dev/null; then
    zsh_words() { # zsh_words WORD...: what the function hands to zsh's own for the last word
        zsh -f -c '_describe() { print -rl -- $commands }; _arguments() { print -rl -- "$@" }
            compadd() { print -rl -- $first }; file=$1; shift; words=("$@"); CURRENT=$#; . $file' zsh "$work/_lierne" "$@"
    }
    same "zsh: commands" "$("$lierne" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\)  *\(.*\)/\1:\2/p')" "$(zsh_words lierne "")"
    for command in $("$lierne" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
        same "zsh: options of $command" "$(complete_words lierne "$command" -- | sort | xargs)" \
            "$(zsh_words lierne "$command" -- | grep -oE '^--[a-z][a-z-]*=?' | sort | xargs)"
    done
    same "zsh: pictures" "mesh ranks matrix rows stages timeline" "$(zsh_words lierne draw "" | xargs)"
fi
"$lierne" completion fish >/dev/null 2>"$work/err"
same "another shell" 2 $?
verdicts

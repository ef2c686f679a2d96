#!/bin/sh
# Makes the pictures of the documents: make.sh BUILD FOLDER. "make pictures" makes them here, and
# tests/cli/test_draw.sh makes them again and compares.
set -eu
build=${1:?usage: make.sh BUILD FOLDER}
folder=${2:?usage: make.sh BUILD FOLDER}

draw() { # draw NAME ARGUMENT...
    name=$1
    shift
    "$build/lierne" draw "$@" >"$folder/$name.svg"
}

bridge="grids/encoder-llm-8.json --bridge vision_to_llm"
large="--src tp2,dp512 --dst tp4,cp2,dp128 --tensor b512,h4096 --routing direct"
draw mesh-8 mesh $bridge
draw ranks-8 ranks $bridge
draw matrix-8 matrix $bridge
draw rows-8 rows $bridge
draw rows-8-adjoint rows $bridge --adjoint
draw stages-8-adjoint stages $bridge --algorithm collective --adjoint
draw packed-8 rows grids/qwen2.5-vl-7b-packed-8.json --bridge images_to_tokens
draw stages-8-peers stages grids/qwen2.5-vl-7b-packed-8.json --bridge images_to_tokens --max-peers 4
draw windows-4 rows grids/diffusion-2x2.json --bridge two_steps --rank 0
draw mesh-1024 mesh grids/llama3-405b-1024.json
draw ranks-1024 ranks $large 2>/dev/null
draw matrix-1024 matrix $large 2>/dev/null
draw rows-1024 rows $large 2>/dev/null
draw stages-17 stages grids/qwen3.5-vl-27b-mimo-17.json --bridge images_to_language --routing balanced 2>/dev/null
"$build/lierne" balance --format=svg - >"$folder/loads-16.svg" <<'END'
{"ranks": 16, "formula": {"lengths": "bimodal", "items": 320, "seed": 9}}
END
# Rank 0 of examples/09_schedule, as its trace has it, before and after isolation.
draw step-recorded timeline docs/pictures/step-recorded.json --until 87
draw step-isolated timeline docs/pictures/step-isolated.json --until 87
# The adjoint of that bridge by Megatron-LM's algorithm on 8 processes of a machine with 2 cores: one call
# of `lierne run --launch 8 --algorithm collective --trace`, its times from 0 on.
draw messages-8 timeline docs/pictures/messages-8.json

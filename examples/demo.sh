#!/usr/bin/env bash
# Run both example trainings under torchrun and print what rankscope saw of each.
# Usage: examples/demo.sh BIN, the folder that holds the environment's python and rankscope; runs are left in
# ./rankscope-runs, a new folder each time.
set -euo pipefail
bin=$1
examples=$(dirname "$0")
export OMP_NUM_THREADS=1 # four ranks on a laptop: one thread each
unset RANKSCOPE RANKSCOPE_DIR # the demo is observed, and its runs are told apart by their ids

for name in ddp fsdp2; do
    run=demo-$name-$(date -u +%Y%m%dT%H%M%SZ)-$$
    printf '\n== %s: torchrun --nproc-per-node=4 %s/train_%s.py\n' "$run" "$examples" "$name"
    RANKSCOPE_RUN_ID=$run "$bin/python" -m torch.distributed.run --standalone --nproc-per-node=4 \
        "$examples/train_$name.py"
    printf '\n== rankscope report %s\n' "$run"
    "$bin/rankscope" report "$run"
done

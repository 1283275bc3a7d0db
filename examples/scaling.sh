#!/usr/bin/env bash
# A small real scaling series: the DDP example on 1, 2 and 4 gloo ranks, twice each (REPEATS="a b"), strong (32 sequences
# a step in all) and weak (8 on each rank), and what rankscope makes of it. On a machine of few cores the curve bends, and
# it says why.
# Usage: examples/scaling.sh BIN [FOLDER], the folder with the environment's python and rankscope, and one for the runs.
set -euo pipefail
bin=$1
runs=${2:-rankscope-runs/scaling-$(date -u +%Y%m%dT%H%M%SZ)}
steps=${STEPS:-60}
read -ra repeats <<<"${REPEATS:-a b}"
examples=$(dirname "$0")
export OMP_NUM_THREADS=1
unset RANKSCOPE RANKSCOPE_RUN_ID

train() { # folder, ranks, batch of a rank
    echo "== $1: $2 ranks, $3 sequences each"
    RANKSCOPE_DIR=$runs/$1 "$bin/python" -m torch.distributed.run --standalone --nproc-per-node="$2" \
        "$examples/train_ddp.py" --steps "$steps" --batch-per-rank "$3" >/dev/null 2>&1
}

for repeat in "${repeats[@]}"; do
    for ranks in 1 2 4; do
        train "strong-$ranks$repeat" $ranks $((32 / ranks))
        train "weak-$ranks$repeat" $ranks 8
    done
done
for mode in strong weak; do
    printf '\n== rankscope scale %s/%s-* --at 8\n' "$runs" "$mode"
    "$bin/rankscope" scale "$runs/$mode"-* --at 8
done
if ((${#repeats[@]} > 1)); then
    printf '== rankscope compare: a repeat of the same\n'
    "$bin/rankscope" compare "$runs/weak-2${repeats[0]}" "$runs/weak-2${repeats[-1]}"
fi
printf '\n== rankscope diff: two sizes of the strong series\n'
"$bin/rankscope" diff "$runs/strong-1${repeats[0]}" "$runs/strong-4${repeats[0]}"
printf '== rankscope efficiency\n'
"$bin/rankscope" efficiency "$runs/weak-4${repeats[0]}"
if ((${#repeats[@]} > 1)); then
    printf '== rankscope check --baseline: the second run of a size against the first\n'
    "$bin/rankscope" check "$runs/weak-4${repeats[-1]}" --baseline "$runs/weak-4${repeats[0]}" --policy "$examples/policies/no-regression.toml" || true
fi

#!/usr/bin/env bash
# Fuzzes: builds all targets once, runs them, prints what each did. See docs/fuzzing.md.
#
#   fuzz/run.sh [--seconds N] [--jobs N] [--minimise] [--sanitizer address] [--seed N] [--binaries DIR] [TARGET…]
#
# --seconds N     for each target; 60. 0: the corpus alone
# --jobs N        so many targets at a time; 1
# --minimise      afterwards, keeps of each corpus only what covers something that the rest does not
# --sanitizer S   address or none; none. With one, a nightly toolchain is needed
# --seed N        of libFuzzer's choices, so that a run can be repeated; random
# --binaries DIR  nothing is built, they are taken from there
# TARGET…         names; all
#
# What is found stays in fuzz/corpus/ and fuzz/artifacts/. Exit code 1 when something broke.
set -euo pipefail
cd "$(dirname "$0")"

seconds=60 jobs=1 minimise="" sanitizer=none seed="" binaries="" targets=()
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=$2; shift ;;
        --jobs) jobs=$2; shift ;;
        --minimise) minimise=yes ;;
        --sanitizer) sanitizer=$2; shift ;;
        --seed) seed=$2; shift ;;
        --binaries) binaries=$2; shift ;;
        -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
        -*) echo "unknown option $1; see --help" >&2; exit 2 ;;
        *) targets+=("$1") ;;
    esac
    shift
done
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(sed -n 's/^    ("\([a-z_]*\)", .*/\1/p' src/lib.rs)

# libFuzzer's instrumentation, as cargo-fuzz asks for it: it needs no nightly toolchain, sanitizers do. All crates get it
# but build scripts, which is why the triple is named.
build() {
    local triple flags toolchain=() built
    triple=$(rustc -vV | sed -n 's/^host: //p')
    flags="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing"
    built=${CARGO_TARGET_DIR:-../target}/fuzz
    if [ "$sanitizer" != none ]; then
        # Figures and their buckets live as long as the process.
        export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=0}
        toolchain=(+nightly)
        flags="$flags -Zsanitizer=$sanitizer"
        built=$built-$sanitizer
    fi
    RUSTFLAGS="$flags ${RUSTFLAGS:-}" cargo "${toolchain[@]}" build --release --quiet --bins \
        --target "$triple" --target-dir "$built"
    binaries=$built/$triple/release
}
[ -n "$binaries" ] || build

# The server's threads have 2 MiB of stack.
ulimit -s 2048

dictionary() {
    case $1 in
        label_selector | field_selector) echo selectors ;;
        json_patch | merge_patch | strategic_patch) echo patches ;;
        body | stored_object | scalars | tree) echo objects ;;
        request | connection) echo http ;;
    esac
}

fuzz() {
    local target=$1 log=logs/$1 dict
    mkdir -p "corpus/$target" artifacts logs
    dict=$(dictionary "$target")
    local options=(-artifact_prefix="artifacts/$target-" -print_final_stats=1 -timeout=25 -rss_limit_mb=3072
        -malloc_limit_mb=512 -verbosity=1 ${seed:+-seed=$seed} ${dict:+-dict=dictionaries/$dict.dict})
    if [ "$seconds" = 0 ]; then options+=(-runs=0); else options+=(-max_total_time="$seconds"); fi
    local binary=$binaries/$target failed="" begun ended
    begun=$(date +%s)
    "$binary" "${options[@]}" "corpus/$target" "seeds/$target" >"$log" 2>&1 || failed=yes
    ended=$(date +%s)
    if [ -n "$minimise" ] && [ -z "$failed" ]; then
        rm -rf "corpus/$target.min" && mkdir "corpus/$target.min"
        "$binary" -merge=1 -rss_limit_mb=3072 "corpus/$target.min" "seeds/$target" "corpus/$target" >>"$log" 2>&1 &&
            rm -rf "corpus/$target" && mv "corpus/$target.min" "corpus/$target"
    fi
    local last executions cov features
    last=$(grep -a ' cov: ' "$log" | tail -1 || true)
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
    [ -n "$executions" ] || executions=$(sed -n 's/^#\([0-9]*\).*/\1/p' <<<"$last")
    cov=$(sed -n 's/.* cov: \([0-9]*\).*/\1/p' <<<"$last")
    features=$(sed -n 's/.* ft: \([0-9]*\).*/\1/p' <<<"$last")
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$target" "$((ended - begun))" "${executions:-0}" "${cov:-0}" "${features:-0}" \
        "$(find "corpus/$target" -type f | wc -l)" "${failed:+BROKE: see fuzz/$log}" | tee -a logs/runs.tsv |
        awk -F'\t' '{ printf "%-16s %7s s %12s runs %7s edges %8s features %6s kept  %s\n", $1, $2, $3, $4, $5, $6, $7 }'
    [ -z "$failed" ]
}

broke=0
running=0
for target in "${targets[@]}"; do
    fuzz "$target" &
    running=$((running + 1))
    if [ "$running" -ge "$jobs" ]; then
        wait -n || broke=1
        running=$((running - 1))
    fi
done
while [ "$running" -gt 0 ]; do
    wait -n || broke=1
    running=$((running - 1))
done
exit "$broke"

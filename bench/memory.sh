#!/usr/bin/env bash
# Memory and start times of the release binary: an empty server, then one with OBJECTS Pods (default 100,000) that were
# seeded through the API with synced writes. Prints one Markdown table.
#
#   bench/memory.sh [OBJECTS]
#
# Environment: FLATKUBE (the binary; default: builds target/release/flatkube), BENCH_DIR (where the data goes; a real disk,
# default: target/bench-memory).
set -euo pipefail
cd "$(dirname "$0")/.."
objects=${1:-100000}
if [ -z "${FLATKUBE:-}" ]; then
  cargo build --release --quiet --bin flatkube
  FLATKUBE=target/release/flatkube
fi
dir=${BENCH_DIR:-target/bench-memory}
rm -rf "$dir"
mkdir -p "$dir"
server=
cleanup() {
  if [ -n "$server" ]; then kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; fi
  rm -rf "$dir"
}
trap cleanup EXIT

now_ms() { echo $(($(date +%s%N) / 1000000)); }
row() { printf '| %s | %s |\n' "$1" "$2"; }

# Starts the server; sets `server`, `url` and `ready_ms` (from exec to the first answered request).
start() {
  local data=$1 begun
  : > "$dir/out"
  begun=$(now_ms)
  "$FLATKUBE" server --data-dir "$data" --bind 127.0.0.1:0 --http-bind "127.0.0.1:0" \
    --token-auth-file "$dir/tokens.csv" > "$dir/out" 2> "$dir/err" &
  server=$!
  until grep -q ' ready in ' "$dir/out"; do
    kill -0 "$server" 2>/dev/null || { cat "$dir/err" >&2; exit 1; }
    sleep 0.002
  done
  url=$(grep -o 'http://[0-9.:]*' "$dir/out" | head -1)
  curl -sf -o /dev/null "$url/readyz"
  ready_ms=$(($(now_ms) - begun))
}
stop() { kill "$server"; wait "$server" 2>/dev/null || true; server=; }
ask() { curl -sf -H 'Authorization: Bearer bench' "$@"; }

# Kilobytes of a line of smaps_rollup.
smaps() { awk -v field="$1:" '$1 == field { print $2 }' "/proc/$server/smaps_rollup"; }
mib() { awk -v kib="$1" 'BEGIN { printf "%.1f MiB", kib / 1024 }'; }
memory() {
  row "$1: private anonymous" "$(mib "$(smaps Anonymous)")"
  row "$1: PSS" "$(mib "$(smaps Pss)")"
  row "$1: RSS" "$(mib "$(smaps Rss)")"
}
# A figure of /metrics, summed over its labels.
metric() { ask "$url/metrics" | awk -v name="$1" '{ split($1, part, "{") } part[1] == name { sum += $2 } END { print sum + 0 }'; }
# Waits until nothing is left in a delta.
shelved() {
  for _ in $(seq 600); do
    [ "$(metric flatkube_delta_entries)" = 0 ] && return
    sleep 0.2
  done
  echo "not shelved after two minutes" >&2
  exit 1
}
seconds() { awk -v ms="$1" 'BEGIN { printf "%.2f s", ms / 1000 }'; }

echo 'bench,bench,1,system:masters' > "$dir/tokens.csv"
echo "| figure | value |"
echo "| --- | --: |"
row "binary" "$(mib $(($(stat -c %s "$FLATKUBE") / 1024)))"

start "$dir/empty"
row "empty: first start to first answer (makes keys)" "$ready_ms ms"
stop
best=999999
for attempt in 1 2 3 4 5; do
  start "$dir/empty"
  if [ "$ready_ms" -lt "$best" ]; then best=$ready_ms; fi
  if [ "$attempt" -lt 5 ]; then stop; fi
done
row "empty: start to first answer (best of 5)" "$best ms"
sleep 1
memory "empty"
stop

start "$dir/full"
begun=$(now_ms)
"$FLATKUBE" seed --objects "$objects" --writers 32 --kubeconfig "$dir/full/admin.kubeconfig" > "$dir/seed"
row "seeding $objects Pods, 32 writers, synced" "$(seconds $(($(now_ms) - begun)))"
memory "after seeding"
shelved
sleep 3
memory "after shelving"
row "data directory" "$(du -sh "$dir/full" | cut -f1)"
for _ in 1 2 3; do ask -o /dev/null "$url/api/v1/pods"; done
memory "after three full lists"
stop

table='Accept: application/json;as=Table;v=v1;g=meta.k8s.io'
begun=$(now_ms)
start "$dir/full"
row "restart with $objects Pods: ready" "$ready_ms ms"
ask -o /dev/null -H "$table" "$url/api/v1/pods?limit=500"
row "restart: first Table page (from exec)" "$(($(now_ms) - begun)) ms"
ask -o /dev/null "$url/api/v1/pods"
row "restart: first full list (from exec)" "$(seconds $(($(now_ms) - begun)))"
memory "restarted, after that"
stop

#!/usr/bin/env bash
# The memory runbook in one command: the release binary in a cgroup of its own, 1 CPU and 128 MiB, over a fresh copy of a
# prepared data directory of 100,000 Pods; idle, loaded by 8 clients, shelved, and loaded three times more. Prints one
# Markdown table and a verdict, and exits with 1 when the verdict is bad. How to read it: docs/performance.md.
#
#   bench/measure-baseline.sh [--objects N] [--clients N] [--requests N] [--watches N] [--cycles N] [--memory MIB]
#                             [--cpus N] [--json FILE] [--served-only]
#
#   --json FILE      also writes the figures, and memory by kind every 100 ms (for `bench_report`)
#   --served-only    judges only that everything was served, not how much memory it took (for small machines in CI)
#
# Environment: FLATKUBE and BENCH_CLIENT (binaries; default: built with the profile BENCH_PROFILE, `release`), BENCH_DIR (where
# data goes, a real disk; default: target/bench), FLATKUBE_CGROUP_ROOT (see footprint.sh).
# Needs bash 5, curl, awk; for the limits root or a delegated cgroup.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/footprint.sh
. bench/footprint.sh

objects=100000 clients=8 requests=2000 watches=1000 cycles=3 memory_mib=128 cpus=1 json='' served_only=false
while [ $# -gt 0 ]; do
  case $1 in
    --objects) objects=$2; shift ;;
    --clients) clients=$2; shift ;;
    --requests) requests=$2; shift ;;
    --watches) watches=$2; shift ;;
    --cycles) cycles=$2; shift ;;
    --memory) memory_mib=$2; shift ;;
    --cpus) cpus=$2; shift ;;
    --json) json=$2; shift ;;
    --served-only) served_only=true ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

# What equal load cycles may differ by: the larger of these.
tolerance_bytes=$((1 << 20))
tolerance_percent=5
# How long free pages may take to go back to the kernel, and all that ends with a request to end.
settle_s=2
# Private bytes of an idle watch over TLS that are not to be passed.
watch_bytes_max=$((48 << 10))

profile=${BENCH_PROFILE:-release}
built=${CARGO_TARGET_DIR:-target}/$profile
[ "$profile" != dev ] || built=${CARGO_TARGET_DIR:-target}/debug
if [ -z "${FLATKUBE:-}" ]; then
  cargo build --quiet --profile "$profile" --bin flatkube
  FLATKUBE=$built/flatkube
fi
if [ -z "${BENCH_CLIENT:-}" ]; then
  cargo build --quiet --profile "$profile" --example bench_client
  BENCH_CLIENT=$built/examples/bench_client
fi

base=${BENCH_DIR:-target/bench}
prepared=$base/prepared-$objects
work=$base/run.$$
mkdir -p "$work"
server='' sampler='' watcher=''
# shellcheck disable=SC2317 # called by a trap
cleanup() {
  for process in $watcher $sampler $server; do kill "$process" 2> /dev/null || true; done
  for process in $watcher $sampler $server; do wait "$process" 2> /dev/null || true; done
  [ -z "$cgroup_dir" ] || cgroup_remove
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

say() { printf '    %4d s  %s\n' "$SECONDS" "$*" >&2; }
fail() { printf 'measure-baseline: %s\n' "$*" >&2; [ ! -s "$work/err" ] || tail -5 "$work/err" >&2; exit 1; }

token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
echo "$token,bench,bench,system:masters" > "$work/tokens.csv"

# Starts the server on a data directory, in the cgroup when there is one; sets `server`, `http`, `https` and `ready_ms`:
# from before exec to the line that says it is ready and a first answer.
start() {
  local data=$1 begun line
  rm -f "$work/out"
  mkfifo "$work/out"
  begun=$(now_us)
  (cgroup_enter; exec "$FLATKUBE" server --data-dir "$data" --bind 127.0.0.1:0 --http-bind 127.0.0.1:0 \
    --token-auth-file "$work/tokens.csv" > "$work/out" 2> "$work/err") &
  server=$!
  exec {out}< "$work/out"
  while read -r -t 60 -u "$out" line && [[ $line != *" ready in "* ]]; do :; done
  [[ ${line:-} == *" ready in "* ]] || fail "the server does not start"
  [[ $line =~ (https://[0-9.:]+).*(http://[0-9.:]+) ]] || fail "no addresses in: $line"
  https=${BASH_REMATCH[1]} http=${BASH_REMATCH[2]%[.,]}
  local address=${http#http://}
  http_status "${address%:*}" "${address#*:}" /readyz || fail "/readyz does not answer"
  ready_ms=$((($(now_us) - begun) / 1000))
  exec_us=$begun
}

stop() {
  kill "$server"
  wait "$server" 2> /dev/null || true
  server=
  exec {out}<&-
}

metrics() { curl -sf -H "Authorization: Bearer $token" "$http/metrics"; }
# A figure of /metrics, summed over its labels; "-" where it is missing.
metric() { metrics | awk -v name="$1" '{ split($1, part, "{") } part[1] == name { sum += $2; found = 1 }
  END { if (found) printf "%.0f", sum; else printf "-" }'; }

# Waits until nothing is left in a delta.
shelved() {
  for _ in $(seq 600); do
    [ "$(metric flatkube_delta_entries)" != 0 ] || return 0
    sleep 0.2
  done
  metrics | grep "^flatkube_delta_entries" >&2
  fail "not shelved after two minutes"
}

client() { "$BENCH_CLIENT" --server "$https" --pki "$work/data/pki" "$@"; }
# A number out of one line of JSON.
number() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
whole() { printf '%.0f' "$1"; }
load() {
  client load --clients "$clients" --requests "$requests" > "$work/load.json" || fail "the load failed"
  cat "$work/load.json" >> "$work/loads.jsonl"
}

# Samples memory every 100 ms into a file; reads files alone and starts no process, so it hardly disturbs.
echo - > "$work/phase"
echo 0 > "$work/pid"
sample() {
  local begun key value private file_pages phase_name
  begun=$(now_ms)
  exec {never}<> <(:)
  while read -r phase_name < "$work/phase" || true; do
    private=- file_pages=-
    { while read -r key value _; do
        case $key in RssAnon:) private=$((value * 1024)) ;; RssFile:) file_pages=$((value * 1024)) ;; esac
      done < "/proc/$(< "$work/pid")/status"; } 2> /dev/null || true
    { cgroup_read; } 2> /dev/null || true
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(($(now_ms) - begun))" "$phase_name" "$private" "$file_pages" \
      "$charge" "$anon" "$file" >> "$work/samples.tsv"
    read -r -t 0.1 -u "$never" || true
  done
}

# phase NAME: what samples are filed under from now on.
phase() { echo "$1" > "$work/next" && mv "$work/next" "$work/phase"; echo "${server:-0}" > "$work/pid"; say "$1"; }

# Every figure of a phase is a line "phase TAB figure TAB value"; the table is made of them in the end.
names=()
record() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >> "$work/figures.tsv"; }
figures() {
  local name=$1 page
  names+=("$name")
  # Before anything is asked over HTTP.
  process_read "$server"
  process_cost "$server"
  cgroup_read
  record "$name" private "$private"
  record "$name" pss "$pss"
  record "$name" rss "$rss"
  record "$name" charge "$charge"
  record "$name" peak "$peak"
  record "$name" anon "$anon"
  record "$name" file "$file"
  record "$name" kernel "$kernel"
  record "$name" oom_kills "$oom_kills"
  record "$name" minor_faults "$minor_faults"
  record "$name" major_faults "$major_faults"
  record "$name" cpu_ms "$cpu_ms"
  page=$(metrics)
  for figure in live retained; do
    record "$name" "$figure" "$(awk -v name="flatkube_allocator_${figure}_bytes" '$1 == name { value = $2 }
      END { printf "%s", value == "" ? "-" : sprintf("%.0f", value) }' <<< "$page")"
  done
  record "$name" disk "$(disk_bytes "$work/data")"
}
figure() { awk -F'\t' -v name="$1" -v figure="$2" '$1 == name && $2 == figure { print $3 }' "$work/figures.tsv"; }

# Seeds the prepared directory, unless the same binary has done it before.
prepare() {
  local key begun
  key="$objects $(cksum < "$FLATKUBE")"
  [ "$(cat "$prepared/key" 2> /dev/null)" != "$key" ] || return 0
  say "seeding $objects Pods into $prepared, once"
  rm -rf "$prepared"
  mkdir -p "$prepared"
  start "$prepared/data"
  phase seeding
  sample &
  sampler=$!
  begun=$(now_ms)
  "$FLATKUBE" seed --objects "$objects" --writers 32 --kubeconfig "$prepared/data/admin.kubeconfig" > "$work/seed" 2>&1 \
    || { cat "$work/seed" >&2; fail "seeding failed"; }
  echo "seed_ms $(($(now_ms) - begun))" > "$prepared/seeding"
  process_cost "$server"
  echo "seed_cpu_ms $cpu_ms" >> "$prepared/seeding"
  shelved
  sleep "$settle_s"
  kill "$sampler"
  wait "$sampler" 2> /dev/null || true
  sampler=
  awk -F'\t' '$3 != "-" && $3 + 0 > most { most = $3 + 0 } END { print "seed_private_max", most + 0 }' "$work/samples.tsv" >> "$prepared/seeding"
  process_read "$server"
  echo "seed_private_shelved $private" >> "$prepared/seeding"
  echo "seed_live_shelved $(metric flatkube_allocator_live_bytes)" >> "$prepared/seeding"
  rm "$work/samples.tsv"
  stop
  echo "$key" > "$prepared/key"
}
seeding() { awk -v name="$1" '$1 == name { print $2 }' "$prepared/seeding"; }

[ "$served_only" = false ] || settle_s=0.2
prepare
echo - > "$work/phase"
say "copying $prepared"
cp -a --reflink=auto "$prepared/data" "$work/data"
environment=$(environment)
cgroup_make "flatkube-bench-$$" "$((memory_mib << 20))" "$cpus"
sample &
sampler=$!

# Cold: twice, because a list right after the start must not be what idle is measured after.
phase "idle, cold"
drop_page_cache "$work/data"
start "$work/data"
record "idle, cold" ready_ms "$ready_ms"
phase "idle, cold"
sleep "$settle_s"
figures "idle, cold"
stop
first_reads() {
  start "$work/data"
  phase "$1"
  record "$1" first_page_ms "$(($(whole "$(client list --table --path '/api/v1/pods?limit=500' | number last_byte_ms)") + ready_ms))"
  client list > "$work/list.json" || fail "a full list failed"
  record "$1" first_list_ms "$((($(now_us) - exec_us) / 1000))"
  stop
}
drop_page_cache "$work/data"
first_reads "idle, cold"

# Warm: what the limit let stay in the page cache, charged to the cgroup by the starts before.
first_reads "idle, warm"
start "$work/data"
record "idle, warm" ready_ms "$ready_ms"
phase "idle, warm"
sleep "$settle_s"
figures "idle, warm"

phase "after load"
load
figures "after load"

phase "after shelving"
shelved
sleep "$settle_s"
figures "after shelving"

phase "after full lists"
client list --times 3 > "$work/list.json" || fail "a full list failed"
figures "after full lists"
list_bytes=$(head -1 "$work/list.json" | number bytes)

for cycle in $(seq "$cycles"); do
  phase "cycle $cycle"
  load
  shelved
  sleep "$settle_s"
  figures "cycle $cycle"
done

if [ "$watches" != 0 ]; then
  phase "idle watches"
  # Both ends of each connection are files.
  ulimit -n "$(ulimit -Hn)" 2> /dev/null || true
  mkfifo "$work/open" "$work/end"
  "$BENCH_CLIENT" --server "$https" --pki "$work/data/pki" watch --watches "$watches" < "$work/end" > "$work/open" &
  watcher=$!
  exec {end}> "$work/end"
  read -r -t 120 line < "$work/open" || fail "the watches were not opened"
  sleep "$settle_s"
  figures "idle watches"
  echo >&"$end"
  exec {end}>&-
  wait "$watcher" || fail "the watches ended early"
  watcher=
  phase "watches ended"
  sleep "$settle_s"
  figures "watches ended"
fi
kill "$sampler"
wait "$sampler" 2> /dev/null || true
sampler=

# The table: a row a figure, a column a phase.
row() { # title figure mib|count
  local title=$1 figure=$2 unit=$3 name value
  printf '| %s |' "$title"
  for name in "${names[@]}"; do
    value=$(figure "$name" "$figure")
    if [ "$unit" = mib ]; then value=$(mib "${value:--}"); fi
    printf ' %s |' "${value:--}"
  done
  printf '\n'
}
limits="$(cgroup_name)"
[ "$cgroup_version" = 0 ] || limits="$limits of $memory_mib MiB and $cpus CPU"
binary_bytes=$(stat -Lc %s "$FLATKUBE")
report() {
  echo "$environment."
  echo "$objects Pods, $limits, $clients clients, $requests requests a load ($(number seconds < "$work/load.json" | awk '{ printf "%.1f s", $1 }'))."
  echo "Binary $(mib "$binary_bytes") MiB. Seeding took $(seeding seed_ms) ms ($(seeding seed_cpu_ms) ms of the server's CPU), private anonymous then" \
    "at most $(mib "$(seeding seed_private_max)") MiB, shelved $(mib "$(seeding seed_private_shelved)") MiB (no limits)."
  echo
  printf '| |'; printf ' %s |' "${names[@]}"; echo
  printf '| --- |'; printf ' --: |%.0s' "${names[@]}"; echo
  row "private anonymous, MiB" private mib
  row "allocator: live, MiB" live mib
  row "allocator: retained, MiB" retained mib
  row "RSS, MiB" rss mib
  row "PSS, MiB" pss mib
  row "cgroup charge, MiB" charge mib
  row "cgroup charge, highest, MiB" peak mib
  row "of the charge: anonymous, MiB" anon mib
  row "of the charge: file pages, MiB" file mib
  row "of the charge: kernel, MiB" kernel mib
  row "killed for memory" oom_kills count
  row "minor page faults" minor_faults count
  row "major page faults" major_faults count
  row "CPU since start, ms" cpu_ms count
  row "start to first answer, ms" ready_ms count
  row "exec to first Table page, ms" first_page_ms count
  row "exec to first full list, ms" first_list_ms count
  row "data directory, MiB" disk mib
}
report

verdict=0
judge() { # fine|bad, sentence
  if [ "$1" = fine ]; then echo "- ok: $2"; else echo "- **FAILED**: $2"; verdict=1; fi
}
# Whether three values lie within the tolerance of each other.
settled() {
  awk -v bytes="$tolerance_bytes" -v percent="$tolerance_percent" 'BEGIN {
    for (i = 1; i < ARGC; i++) { if (i == 1 || ARGV[i] < least) least = ARGV[i]; if (ARGV[i] > most) most = ARGV[i] }
    allowed = least * percent / 100; if (allowed < bytes) allowed = bytes
    print most - least <= allowed ? "fine" : "bad" }' "$@"
}
judgement() {
  if [ "$served_only" = false ]; then
    for figure in private live; do
      local values=()
      for cycle in $(seq "$cycles"); do values+=("$(figure "cycle $cycle" "$figure")"); done
      local title="private anonymous memory"
      [ "$figure" = private ] || title="the allocator's live bytes"
      if [[ "${values[*]}" == *-* ]]; then
        echo "- not judged: $title (unknown)"
        continue
      fi
      judge "$(settled "${values[@]}")" "after each of $cycles equal load cycles $title came to$(for value in "${values[@]}"; do printf ' %s' "$(mib "$value")"; done) MiB (may differ by 1 MiB or $tolerance_percent%)"
    done
    if [ "$watches" != 0 ]; then
      local each=$((($(figure "idle watches" private) - $(figure "cycle $cycles" private)) / watches))
      judge "$([ "$each" -le "$watch_bytes_max" ] && echo fine || echo bad)" \
        "an idle watch over TLS and HTTP/2 takes $(awk -v bytes="$each" 'BEGIN { printf "%.1f", bytes / 1024 }') KiB of private memory (at most 48), $watches of them"
    fi
  fi
  local kills
  kills=$(figure "${names[-1]}" oom_kills)
  if [ "$kills" = - ]; then
    echo "- not judged: being served within a limit (no cgroup)"
  else
    judge "$([ "$kills" = 0 ] && echo fine || echo bad)" "$objects Pods were served within $memory_mib MiB, full lists of $(mib "$list_bytes") MiB of mapped pages too; killed for memory: $kills"
  fi
}
echo
judgement > "$work/judgement" || true
cat "$work/judgement"
! grep -q '^- \*\*FAILED' "$work/judgement" || verdict=1

# Everything as JSON. Names of phases and figures are ours; only the environment is foreign text.
write_json() {
  printf '{"kind":"measure-baseline","environment":"%s",' "${environment//[\"\\]/}"
  printf '"objects":%s,"clients":%s,"requests":%s,"watches":%s,' "$objects" "$clients" "$requests" "$watches"
  printf '"limit":{"kind":"%s","memory_bytes":%s,"cpus":%s},' "$(cgroup_name)" "$((memory_mib << 20))" "$cpus"
  printf '"binary_bytes":%s,"list_bytes":%s,"seeding":{' "$binary_bytes" "$list_bytes"
  awk '{ printf "%s\"%s\":%s", (NR > 1 ? "," : ""), $1, ($2 == "-" ? "null" : $2) }' "$prepared/seeding"
  printf '},"phases":['
  awk -F'\t' '$1 != phase && !($1 in seen) { order[++phases] = $1; seen[$1] = 1 }
    { phase = $1; fields[$1] = fields[$1] sprintf(",\"%s\":%s", $2, $3 == "-" ? "null" : $3) }
    END { for (i = 1; i <= phases; i++) printf "%s{\"name\":\"%s\"%s}", (i > 1 ? "," : ""), order[i], fields[order[i]] }' "$work/figures.tsv"
  printf '],"loads":['
  paste -sd, "$work/loads.jsonl"
  printf '],"samples":{"fields":["ms","phase","private","file_pages","charge","anon","file"],"rows":[\n'
  awk -F'\t' '{ printf "%s[%s,\"%s\"", (NR > 1 ? ",\n" : ""), $1, $2
    for (i = 3; i <= 7; i++) printf ",%s", ($i == "-" ? "null" : $i); printf "]" }' "$work/samples.tsv"
  printf ']}}\n'
}
[ -z "$json" ] || write_json > "$json"
exit "$verdict"

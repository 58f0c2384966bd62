#!/usr/bin/env bash
# Did this tree become slower than BASE?
#
#   bench/perf-compare.sh BASE [-- ARGUMENTS OF api_load]
#   bench/perf-compare.sh --self N [-- ARGUMENTS OF api_load]
#
# BASE is any commit. It is checked out into a temporary git worktree and its benches/api_load is built; then the two
# builds take rounds of the same scenarios by turns, a tenth of a second each, on the same machine in the same job
# (`api_load --against`). Time an operation and CPU an operation may grow by a fifth, p99 by two fifths: in the median over
# the rounds of the ratio of each pair, between the better quartiles of both, and by half of that in four of five pairs.
# What seems slower is measured again in fresh processes, and only what was slower both times counts. While others use more
# than a fifth of the CPUs, CPU an operation is judged alone, and the report says so. Takes about two minutes a side beside
# the builds.
#
# --self N compares this tree with itself N times and tells how often that passed: it always should.
#
# The tables go to stdout, and to $GITHUB_STEP_SUMMARY where that is set; progress goes to stderr.
#
# Examples:
#   bench/perf-compare.sh origin/main
#   bench/perf-compare.sh HEAD~1 -- --scenario list_table --scenario get
#   bench/perf-compare.sh --self 10
#
# Environment:
#   FLATKUBE_BENCH_PROFILE  cargo's profile (default: release)
#   GITHUB_STEP_SUMMARY     a file that the tables are appended to
#
# Exit status: 0 nothing became slower, or BASE is older than this comparison (said loudly); 1 something did, a request
# failed, or an answer was wrong; 2 the command line was not understood; 3 a build failed.
set -euo pipefail
cd "$(dirname "$0")/.."

loud() { printf '\n!!! %s\n\n' "$*" >&2; }
usage() { sed -n '2,/^set -e/{/^set -e/d;s/^# \{0,1\}//;p}' "$0"; }

base='' times=0
case ${1:-} in
  -h | --help) usage; exit 0 ;;
  --self)
    times=${2:-}
    [[ $times =~ ^[1-9][0-9]*$ ]] || { echo "--self takes a number of comparisons" >&2; exit 2; }
    shift 2 ;;
  '' | -*) usage >&2; exit 2 ;;
  *) base=$1; shift ;;
esac
if [ $# -gt 0 ]; then
  [ "$1" = -- ] || { echo "unexpected argument $1: what api_load is to be told stands after --" >&2; exit 2; }
  shift
fi
if [ -n "$base" ]; then
  base=$(git rev-parse --verify --quiet "$base^{commit}") || { echo "no such commit" >&2; exit 2; }
fi

profile=${FLATKUBE_BENCH_PROFILE:-release}
folder=$profile
[ "$profile" = dev ] && folder=debug
temporary=$(mktemp -d)
cleanup() {
  if [ -d "$temporary/tree" ]; then git worktree remove --force "$temporary/tree" || true; fi
  rm -rf "$temporary"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Builds the api_load of the tree in directory $1 and puts it at $2.
build() {
  local binary
  (cd "$1" && cargo build --profile "$profile" --bench api_load --message-format=json) > "$temporary/messages" || return 1
  binary=$(grep '"name":"api_load"' "$temporary/messages" | grep -o '"executable":"[^"]*"' | tail -1 | cut -d'"' -f4)
  [ -n "$binary" ] || return 1
  cp "$binary" "$2"
}

# The table of one comparison goes to stdout and to the job's summary.
tell() {
  cat "$temporary/table"
  if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
    { printf '### %s\n\n' "$1"; cat "$temporary/table"; } >> "$GITHUB_STEP_SUMMARY"
  fi
}

against() { # BASE'S BINARY, api_load's arguments...
  local other=$1
  shift
  "$temporary/this" --against "$other" --margin 20 "$@" > "$temporary/table"
}

echo "building this tree" >&2
build . "$temporary/this" || { echo "this tree's api_load does not build" >&2; exit 3; }

if [ "$times" -gt 0 ]; then
  cp "$temporary/this" "$temporary/base"
  passed=0
  for ((n = 1; n <= times; n++)); do
    if against "$temporary/base" "$@"; then passed=$((passed + 1)); fi
    tell "This tree against itself, $n of $times"
  done
  echo "compared with itself $times times, passed $passed times"
  [ "$passed" = "$times" ]
  exit
fi

# The dependencies are the same, so what was built of them serves BASE too. The sources of the worktree are written after
# that, so cargo builds them anew.
built=$PWD/target/perf-base
if [ ! -d "$built/$folder" ] && [ -d "target/$folder" ] && [ -z "${CARGO_TARGET_DIR:-}" ]; then
  mkdir -p "$built/$folder"
  for part in .fingerprint build deps; do
    cp -a --reflink=auto "target/$folder/$part" "$built/$folder/$part"
  done
fi
git worktree add --quiet --detach "$temporary/tree" "$base"
echo "building $base" >&2
if ! grep -qs -e against "$temporary/tree/benches/api_load/arguments.rs"; then
  loud "$base is older than this comparison: its api_load cannot be compared with. NOTHING WAS MEASURED."
  exit 0
fi
CARGO_TARGET_DIR=$built build "$temporary/tree" "$temporary/base" || { echo "the api_load of $base does not build" >&2; exit 3; }

code=0
against "$temporary/base" "$@" || code=$?
tell "This tree against $(git rev-parse --short "$base")"
if [ "$code" = 4 ]; then
  loud "$base is older than this comparison: its api_load cannot be compared with. NOTHING WAS MEASURED."
  code=0
fi
exit "$code"

#!/usr/bin/env bash
# Every scenario of benches/api_load at full scale, as one Markdown table on stdout.
#
#   bench/run.sh [OBJECTS] [more arguments of api_load]
set -euo pipefail
cd "$(dirname "$0")/.."
objects=${1:-100000}
shift || true
echo "<!-- $(date -u +%F), $(nproc) CPUs, $(uname -sr), load $(cut -d' ' -f1 /proc/loadavg), commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown) -->"
exec cargo bench --quiet --bench api_load -- --objects "$objects" "$@"

# Memory, CPU and disk of a server, and the cgroup that it runs in. Sourced by measure-baseline.sh and run.sh.
# shellcheck shell=bash disable=SC2034
#
# A cgroup v2 is tried first (as root below the root of the hierarchy, else below the own cgroup, which has to be delegated),
# then v1. Where neither may be made `cgroup_version` is 0: figures of the cgroup are "-", and everything else still holds.
#
# FLATKUBE_CGROUP_ROOT: where the hierarchy is mounted (default: /sys/fs/cgroup); `none` does without.

cgroup_root=${FLATKUBE_CGROUP_ROOT:-/sys/fs/cgroup}
cgroup_version=0
# The cgroup that holds the memory controller, and where v1 has it elsewhere, the one that limits CPU.
cgroup_dir=
cgroup_cpu_dir=

loud() { printf '\n!!! %s\n\n' "$*" >&2; }

# Writes $2 to the file $1, quietly; whether it could.
put() { { printf '%s\n' "$2" > "$1"; } 2> /dev/null; }

# cgroup_make NAME MEMORY_BYTES CPUS: a cgroup with these limits; 0 is no limit.
cgroup_make() {
  local name=$1 memory=$2 cpus=$3 parent
  cgroup_version=0 cgroup_dir='' cgroup_cpu_dir=''
  [ "$cgroup_root" != none ] || { cgroup_none; return; }
  for parent in "$cgroup_root" "$cgroup_root/unified" "$(cgroup_own_v2)"; do
    if cgroup_make_v2 "$parent" "$name" "$memory" "$cpus"; then return; fi
  done
  if cgroup_make_v1 "$name" "$memory" "$cpus"; then return; fi
  cgroup_none
}

cgroup_none() {
  loud "NO CGROUP COULD BE MADE: there is no limit on memory or CPU, and figures come from /proc alone.
    As root it works as it is. As a user: systemd-run --user --scope -p Delegate=yes $0"
}

cgroup_own_v2() {
  local own
  own=$(sed -n 's/^0:://p' /proc/self/cgroup)
  printf '%s' "$cgroup_root${own%/}"
}

cgroup_make_v2() {
  local parent=$1 dir=$1/$2 memory=$3 cpus=$4
  [ -w "$parent/cgroup.subtree_control" ] || return 1
  grep -qw memory "$parent/cgroup.controllers" || return 1
  if ! grep -qw memory "$parent/cgroup.subtree_control" && ! put "$parent/cgroup.subtree_control" '+memory +cpu'; then
    # A cgroup with processes of its own hands no controllers down: this script moves one level below.
    mkdir -p "$parent/flatkube-script" && put "$parent/flatkube-script/cgroup.procs" $$ \
      && put "$parent/cgroup.subtree_control" '+memory +cpu' || return 1
  fi
  mkdir "$dir" 2> /dev/null || return 1
  if [ "$memory" != 0 ]; then
    put "$dir/memory.max" "$memory" || { rmdir "$dir"; return 1; }
    put "$dir/memory.swap.max" 0 || true
  fi
  if [ "$cpus" != 0 ] && ! put "$dir/cpu.max" "$((cpus * 100000)) 100000"; then
    loud "the cgroup has no CPU limit: no cpu controller in $parent"
  fi
  cgroup_version=2 cgroup_dir=$dir
}

cgroup_make_v1() {
  local name=$1 memory=$2 cpus=$3 dir=$cgroup_root/memory/$1
  [ -e "$cgroup_root/memory/memory.usage_in_bytes" ] && mkdir "$dir" 2> /dev/null || return 1
  if [ "$memory" != 0 ]; then
    put "$dir/memory.limit_in_bytes" "$memory" || { rmdir "$dir"; return 1; }
    put "$dir/memory.swappiness" 0 || true
  fi
  cgroup_version=1 cgroup_dir=$dir
  [ "$cpus" != 0 ] || return 0
  cgroup_cpu_dir=$cgroup_root/cpu/$name
  if ! mkdir "$cgroup_cpu_dir" 2> /dev/null || ! put "$cgroup_cpu_dir/cpu.cfs_period_us" 100000 \
    || ! put "$cgroup_cpu_dir/cpu.cfs_quota_us" "$((cpus * 100000))"; then
    loud "the cgroup has no CPU limit: no cpu controller in $cgroup_root/cpu"
    cgroup_cpu_dir=
  fi
}

# Moves the calling subshell into the cgroup; what it executes then starts there.
cgroup_enter() {
  local dir
  for dir in $cgroup_dir $cgroup_cpu_dir; do
    put "$dir/cgroup.procs" "$BASHPID" || { loud "cannot move into $dir"; exit 1; }
  done
}

# Removes the cgroup, which must be empty of processes; a fake tree of files too.
cgroup_remove() {
  local dir
  for dir in $cgroup_dir $cgroup_cpu_dir; do
    for _ in $(seq 50); do
      rmdir "$dir" 2> /dev/null && break
      sleep 0.02
    done
  done
  rmdir "$(dirname "${cgroup_dir:-/nowhere/x}")/flatkube-script" 2> /dev/null || true
  cgroup_dir='' cgroup_cpu_dir='' cgroup_version=0
}

# What the limit on memory is called for people.
cgroup_name() {
  case $cgroup_version in
    2) echo "cgroup v2" ;;
    1) echo "cgroup v1" ;;
    *) echo "no cgroup" ;;
  esac
}

# Sets `charge`, `peak`, `anon`, `file`, `mapped`, `kernel` (bytes) and `oom_kills` of the cgroup; each "-" where unknown.
# All of it without starting a process: it is called ten times a second.
cgroup_read() {
  charge=- peak=- anon=- file=- mapped=- kernel=- oom_kills=-
  local key value
  case $cgroup_version in
    2)
      read -r charge < "$cgroup_dir/memory.current"
      # Linux 5.19 and later.
      [ ! -r "$cgroup_dir/memory.peak" ] || read -r peak < "$cgroup_dir/memory.peak"
      while read -r key value; do
        case $key in anon) anon=$value ;; file) file=$value ;; file_mapped) mapped=$value ;; kernel) kernel=$value ;; esac
      done < "$cgroup_dir/memory.stat"
      while read -r key value; do
        case $key in oom_kill) oom_kills=$value ;; esac
      done < "$cgroup_dir/memory.events"
      ;;
    1)
      read -r charge < "$cgroup_dir/memory.usage_in_bytes"
      read -r peak < "$cgroup_dir/memory.max_usage_in_bytes"
      while read -r key value; do
        case $key in total_rss) anon=$value ;; total_cache) file=$value ;; total_mapped_file) mapped=$value ;; esac
      done < "$cgroup_dir/memory.stat"
      [ ! -r "$cgroup_dir/memory.kmem.usage_in_bytes" ] || read -r kernel < "$cgroup_dir/memory.kmem.usage_in_bytes"
      while read -r key value; do
        case $key in oom_kill) oom_kills=$value ;; esac
      done < "$cgroup_dir/memory.oom_control"
      ;;
  esac
}

# process_read PID...: sets `rss`, `pss`, `private` (anonymous), in bytes and summed, from smaps_rollup.
process_read() {
  local pid key value
  rss=0 pss=0 private=0
  for pid in "$@"; do
    while read -r key value _; do
      case $key in
        Rss:) rss=$((rss + value * 1024)) ;;
        Pss:) pss=$((pss + value * 1024)) ;;
        Anonymous:) private=$((private + value * 1024)) ;;
      esac
    done < "/proc/$pid/smaps_rollup"
  done
}

# process_cost PID: sets `minor_faults`, `major_faults` and `cpu_ms` since its start.
ticks_per_second=$(getconf CLK_TCK)
process_cost() {
  local stat field
  read -r stat < "/proc/$1/stat"
  # The second field is the name in parentheses, which may hold spaces.
  read -ra field <<< "${stat##*) }"
  minor_faults=${field[7]} major_faults=${field[9]}
  cpu_ms=$(((field[11] + field[12]) * 1000 / ticks_per_second))
}

# Milliseconds since some moment, and microseconds.
now_ms() { echo $((${EPOCHREALTIME/[.,]/} / 1000)); }
now_us() { echo "${EPOCHREALTIME/[.,]/}"; }

# Bytes of disk that a directory takes up.
disk_bytes() { du -s --block-size=1 "$1" | cut -f1; }

# Takes the pages of all files in a directory out of the page cache, as any user may; mapped pages stay.
drop_page_cache() {
  sync -f "$1" 2> /dev/null || sync
  find "$1" -type f -exec dd if={} iflag=nocache count=0 status=none \;
}

mib() { awk -v bytes="$1" 'BEGIN { if (bytes == "-") print "-"; else printf "%.1f", bytes / 1048576 }'; }

# One line on where figures were taken.
environment() {
  local commit
  commit=${BENCH_COMMIT:-$(git rev-parse --short HEAD 2> /dev/null || echo unknown)}
  [ -z "$(git status --porcelain 2> /dev/null)" ] || commit="$commit and changes"
  echo "$(date -u +%F), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(nproc) CPUs," \
    "$(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo), $(uname -sr)," \
    "load $(cut -d' ' -f1 /proc/loadavg), commit $commit"
}

# An answer without a body from a server in the clear, without starting a process: status line of GET $3.
http_status() {
  local socket status
  exec {socket}<> "/dev/tcp/$1/$2" || return 1
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$3" >&"$socket"
  read -r status <&"$socket"
  exec {socket}>&-
  [[ $status == *" 200 "* ]]
}

#!/usr/bin/env bash
# The footprint of whole systems at rest, one table: flatkube, and beside it those whose binaries are named by environment
# variables. Each system runs in a fresh cgroup without limits, empty and with N objects that were created through its API,
# right after that and started again. No controllers of a cluster, nodes or add-ons: what is compared is the API and its store.
#
#   bench/run.sh [--objects N] [--kind configmaps|pods] [--settle SECONDS] [--vm]
#
#   --objects N      default: 10000
#   --kind KIND      default: configmaps. (Pods that stand on nodes that do not exist are deleted by k3s.)
#   --settle SECONDS how long a system is left alone before it is measured (default: 10)
#   --vm             do all of it inside of a virtual machine of 1 GiB (see in-vm.sh)
#
# Environment: FLATKUBE (default: built with the profile BENCH_PROFILE, `release`); KUBE_APISERVER and ETCD together; K3S;
# BENCH_DIR (where data goes, a real disk; default: target/bench); FLATKUBE_CGROUP_ROOT (see footprint.sh).
# Needs bash 5, curl, awk, base64; openssl for kube-apiserver; for cgroups root or a delegated one (k3s wants root anyway).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/footprint.sh
. bench/footprint.sh

objects=10000 kind=configmaps settle_s=10 vm=false
arguments=("$@")
while [ $# -gt 0 ]; do
  case $1 in
    --objects) objects=$2; shift ;;
    --kind) kind=$2; shift ;;
    --settle) settle_s=$2; shift ;;
    --vm) vm=true ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

profile=${BENCH_PROFILE:-release}
if [ -z "${FLATKUBE:-}" ]; then
  cargo build --quiet --profile "$profile" --bin flatkube
  FLATKUBE=${CARGO_TARGET_DIR:-target}/$profile/flatkube
fi
if [ "$vm" = true ]; then
  inside=()
  for argument in "${arguments[@]}"; do [ "$argument" = --vm ] || inside+=("$argument"); done
  export FLATKUBE KUBE_APISERVER ETCD K3S
  exec bench/in-vm.sh bench/run.sh "${inside[@]}"
fi

work=${BENCH_DIR:-target/bench}/systems.$$
mkdir -p "$work"
work=$(cd "$work" && pwd)
# Processes of the system that runs now, the first to be ended first.
pids=()
# shellcheck disable=SC2317 # called by a trap
cleanup() {
  stop
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

fail() { printf 'run: %s\n' "$*" >&2; tail -n 5 "$work"/*.log >&2 || true; exit 1; }

# run NAME COMMAND...: starts a part of a system in the cgroup; its output goes to a log.
run() {
  local name=$1
  shift
  (cgroup_enter; exec "$@" > "$work/$name.log" 2>&1) &
  pids=("$!" "${pids[@]}")
}

# Ends the system: the API first, then what stores for it.
stop() {
  local pid
  for pid in "${pids[@]}"; do
    kill "$pid" 2> /dev/null || true
    wait "$pid" 2> /dev/null || true
  done
  pids=()
  [ -z "$cgroup_dir" ] || cgroup_remove
}

free_port() {
  local port socket
  while :; do
    port=$((20000 + RANDOM % 20000))
    { exec {socket}<> "/dev/tcp/127.0.0.1/$port"; } 2> /dev/null || { echo "$port"; return; }
    exec {socket}>&-
  done
}

# A value out of a kubeconfig, and the file that holds certificate material, inline or not.
config_value() { sed -n "s/^[ -]*$2: *\"\{0,1\}\([^\"]*\)\"\{0,1\} *$/\1/p" "$1" | head -1; }
material() { # kubeconfig, key
  local inline file
  inline=$(config_value "$1" "$2-data")
  file=$(config_value "$1" "$2")
  if [ -n "$inline" ]; then
    base64 -d <<< "$inline" > "$work/$2"
    echo "$work/$2"
  elif [ -n "$file" ]; then
    case $file in /*) echo "$file" ;; *) echo "$(dirname "$1")/$file" ;; esac
  fi
}

# How to reach the system: sets `server` and `who` (arguments of curl) once its kubeconfig is there.
know() {
  local authority certificate key token
  server='' who=()
  [ -s "$1" ] || return 0
  server=$(config_value "$1" server)
  authority=$(material "$1" certificate-authority)
  certificate=$(material "$1" client-certificate)
  key=$(material "$1" client-key)
  token=$(config_value "$1" token)
  who=(--cacert "$authority")
  [ -z "$certificate" ] || who+=(--cert "$certificate" --key "$key")
  [ -z "$token" ] || who+=(-H "Authorization: Bearer $token")
}

# ready BEGUN_US: waits until /readyz says ok; sets `ready_ms`, on a restart to within 5 ms. (At a first start the certificates
# have to be found out first, which takes some 50 ms.)
ready() {
  local begun=$1 asked socket answer
  for _ in $(seq 60000); do
    kill -0 "${pids[0]}" 2> /dev/null || fail "the system ended before it was ready"
    [ -n "$server" ] || know "$kubeconfig"
    # Knocking costs no process; curl asks only once somebody listens.
    if [ -n "$server" ] && { exec {socket}<> "/dev/tcp/127.0.0.1/$port"; } 2> /dev/null; then
      exec {socket}>&-
      asked=$(now_us)
      answer=$(curl -s -m 5 -w ' %{time_total}' "${who[@]}" "$server/readyz" 2> /dev/null) || answer=
      if [[ $answer == "ok "* ]]; then
        ready_ms=$(awk -v us=$((asked - begun)) -v s="${answer#ok }" 'BEGIN { printf "%.0f", us / 1000 + s * 1000 }')
        return
      fi
    fi
    sleep 0.002
  done
  fail "not ready in time"
}

# The systems. Each start function takes a data directory and starts everything; the API is to listen on `port`, and
# `kubeconfig` is set to the file that tells how to reach it. That file stays the same over restarts.

start_flatkube() {
  kubeconfig=$1/admin.kubeconfig
  know "$kubeconfig"
  begun=$(now_us)
  run flatkube "$FLATKUBE" server --data-dir "$1" --bind "127.0.0.1:$port"
}

# Of the control plane only the API and its store. Service accounts would need a controller that makes one per Namespace.
start_kubernetes() {
  local data=$1 client peer
  kubeconfig=$data/kubeconfig
  [ -e "$data/tls.crt" ] || kubernetes_pki "$data"
  client=$(free_port) peer=$(free_port)
  know "$kubeconfig"
  begun=$(now_us)
  run etcd "$ETCD" --name default --data-dir "$data/etcd" \
    --listen-client-urls "http://127.0.0.1:$client" --advertise-client-urls "http://127.0.0.1:$client" \
    --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
    --initial-cluster "default=http://127.0.0.1:$peer"
  run kube-apiserver "$KUBE_APISERVER" --etcd-servers "http://127.0.0.1:$client" \
    --bind-address 127.0.0.1 --secure-port "$port" --tls-cert-file "$data/tls.crt" --tls-private-key-file "$data/tls.key" \
    --cert-dir "$data" --endpoint-reconciler-type none --service-cluster-ip-range 10.96.0.0/16 \
    --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$data/tls.pub" \
    --service-account-signing-key-file "$data/tls.key" --disable-admission-plugins ServiceAccount \
    --authorization-mode RBAC --token-auth-file "$data/tokens.csv"
}

# A certificate of its own for 127.0.0.1, a token of an administrator, and the kubeconfig that says so.
kubernetes_pki() {
  local data=$1 token
  mkdir -p "$data"
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout "$data/ca.key" -out "$data/ca.crt" 2> /dev/null
  openssl req -newkey rsa:2048 -nodes -subj /CN=kube-apiserver -keyout "$data/tls.key" -out "$data/tls.csr" 2> /dev/null
  openssl x509 -req -days 2 -in "$data/tls.csr" -CA "$data/ca.crt" -CAkey "$data/ca.key" -CAcreateserial \
    -extfile <(echo 'subjectAltName=IP:127.0.0.1,DNS:localhost') -out "$data/tls.crt" 2> /dev/null
  openssl pkey -in "$data/tls.key" -pubout -out "$data/tls.pub"
  token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  echo "$token,bench,bench,system:masters" > "$data/tokens.csv"
  cat > "$data/kubeconfig" << CONFIG
apiVersion: v1
kind: Config
current-context: bench
clusters:
- name: bench
  cluster:
    server: https://127.0.0.1:$port
    certificate-authority: $data/ca.crt
contexts:
- name: bench
  context: {cluster: bench, user: bench}
users:
- name: bench
  user:
    token: $token
CONFIG
}

# The server alone: no agent, hence no kubelet and no containerd, and nothing that it would deploy.
start_k3s() {
  kubeconfig=$1/kubeconfig.yaml
  know "$kubeconfig"
  begun=$(now_us)
  run k3s "$K3S" server --disable-agent --data-dir "$1" --bind-address 127.0.0.1 --https-listen-port "$port" \
    --write-kubeconfig "$kubeconfig" --disable coredns,servicelb,traefik,local-storage,metrics-server \
    --disable-cloud-controller --disable-network-policy --disable-helm-controller --flannel-backend none \
    --egress-selector-mode disabled
}

# One row: what the system that runs now weighs.
row() { # system, state, data directory
  local members=("${pids[@]}")
  sleep "$settle_s"
  # Children too, where a cgroup knows them.
  [ -z "$cgroup_dir" ] || mapfile -t members < "$cgroup_dir/cgroup.procs"
  process_read "${members[@]}"
  cgroup_read
  printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$1" "$2" "$ready_ms" "${#members[@]}" "$(mib "$private")" \
    "$(mib "$pss")" "$(mib "$charge")" "$(mib "$file")" "$(mib "$(disk_bytes "$3")")"
}

number=0
# From nothing to ready in a fresh cgroup.
begin() { # start function, data directory
  number=$((number + 1))
  cgroup_make "flatkube-systems-$$-$number" 0 0
  "$1" "$2"
  ready "$begun"
}

system() { # name, start function
  local name=$1 start=$2 data=$work/$1 begun
  mkdir -p "$data"
  port=$(free_port)
  begin "$start" "$data"
  row "$name" "empty, first start" "$data"
  stop
  begin "$start" "$data"
  row "$name" "empty, started again" "$data"
  begun=$(now_ms)
  "$FLATKUBE" seed --kind "$kind" --objects "$objects" --kubeconfig "$kubeconfig" > "$work/seed.log" 2>&1 \
    || fail "$name: objects could not be created"
  row "$name" "$objects $kind, created in $((($(now_ms) - begun) / 1000)) s" "$data"
  stop
  drop_page_cache "$data"
  begin "$start" "$data"
  row "$name" "the same, started again (cold)" "$data"
  stop
  rm -rf "$data"
}

echo "$(environment)."
echo
echo "| system | state | start to ready, ms | processes | private anonymous, MiB | PSS, MiB | cgroup charge, MiB | of it file pages, MiB | data directory, MiB |"
echo "| --- | --- | --: | --: | --: | --: | --: | --: | --: |"
system flatkube start_flatkube
if [ -n "${KUBE_APISERVER:-}" ] && [ -n "${ETCD:-}" ]; then
  system kubernetes start_kubernetes
fi
if [ -n "${K3S:-}" ]; then
  system k3s start_k3s
fi

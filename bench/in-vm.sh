#!/usr/bin/env bash
# Runs one of the scripts beside it inside of a virtual machine of its own: 1 GiB, 2 CPUs, a cgroup v2, a fresh ext4 disk.
#
#   bench/in-vm.sh bench/measure-baseline.sh --objects 10000 --json OUT.json
#   bench/run.sh --vm
#
# The machine is made of this host's files: a kernel of /boot, the binaries that are named by FLATKUBE, BENCH_CLIENT,
# KUBE_APISERVER, ETCD and K3S, and the few tools that the scripts call. What the command writes to --json comes back.
# Without /dev/kvm everything is emulated and ten to twenty times slower: memory is right then, times are not.
#
# Environment: VM_KERNEL (default: the newest /boot/vmlinuz-* with modules), VM_MEMORY_MIB (1024), VM_CPUS (2), VM_DISK_MIB (8192),
# VM_SECONDS (how long it may take, 3600), BENCH_DIR (where the disk is made, default: target/bench).
# Needs qemu-system-x86_64, a static busybox, cpio, mkfs.ext4, debugfs, modprobe (on Debian: qemu-system-x86 busybox-static cpio
# e2fsprogs kmod linux-image-cloud-amd64).
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2; }
export PATH=$PATH:/usr/sbin:/sbin

fail() { printf 'in-vm: %s\n' "$*" >&2; exit 1; }
for tool in qemu-system-x86_64 busybox cpio mkfs.ext4 debugfs modprobe; do
  command -v "$tool" > /dev/null || fail "$tool is not installed"
done
kernel=${VM_KERNEL:-}
if [ -z "$kernel" ]; then
  for candidate in $(printf '%s\n' /boot/vmlinuz-* | sort -V); do
    [ ! -d "/lib/modules/${candidate#/boot/vmlinuz-}" ] || kernel=$candidate
  done
fi
[ -r "$kernel" ] || fail "no kernel: install one (linux-image-cloud-amd64), or name it with VM_KERNEL"
release=${kernel##*/vmlinuz-}
# The scripts build what is not given; inside there is no compiler.
[ -n "${FLATKUBE:-}" ] || fail "FLATKUBE has to name the binary"
[[ $1 != *measure-baseline.sh ]] || [ -n "${BENCH_CLIENT:-}" ] || fail "BENCH_CLIENT has to name the example bench_client, built"

work=${BENCH_DIR:-target/bench}/vm.$$
mkdir -p "$work/root" "$work/boot"
# shellcheck disable=SC2317 # called by a trap
cleanup() { rm -rf "$work"; }
trap cleanup EXIT

# Where this host keeps everything below /usr, the disk does, too.
for folder in bin sbin lib lib64; do
  if [ -L "/$folder" ]; then
    mkdir -p "$work/root/usr/$folder"
    ln -s "usr/$folder" "$work/root/$folder"
  fi
done
# Copies a file and, if it is dynamic, its libraries, to the same places below the root of the disk.
take() {
  local file library
  file=$(readlink -f "$1")
  mkdir -p "$work/root$(dirname "$file")" "$work/root$(dirname "$1")"
  cp -L "$file" "$work/root$file"
  [ -e "$work/root$1" ] || cp -L "$file" "$work/root$1"
  for library in $(ldd "$file" 2> /dev/null | grep -o '/[^ )]*'); do
    mkdir -p "$work/root$(dirname "$library")"
    cp -L "$library" "$work/root$library"
  done
}
for tool in bash awk base64 cat cksum cp curl cut date dd dirname du env find getconf grep head kill mkdir mkfifo mktemp mv nproc \
  od openssl paste rm rmdir sed seq sleep stat sync tail tr uname; do
  path=$(type -P "$tool") || fail "$tool is not installed"
  take "$path"
done
mkdir -p "$work/root"/{proc,sys,dev,tmp,guest/target,etc}
cp -r bench "$work/root/guest/"
settings=("BENCH_COMMIT=$(git rev-parse --short HEAD 2> /dev/null || echo unknown)")
for name in FLATKUBE BENCH_CLIENT KUBE_APISERVER ETCD K3S; do
  [ -n "${!name:-}" ] || continue
  binary=$(readlink -f "${!name}")
  take "$binary"
  settings+=("$name=$binary")
done
# The result of --json is fetched from the disk afterwards.
arguments=() json=''
while [ $# -gt 0 ]; do
  if [ "$1" = --json ]; then json=$2; arguments+=(--json /guest/out.json); shift; else arguments+=("$1"); fi
  shift
done
{
  echo 'export PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp TMPDIR=/tmp'
  printf 'export %q\n' "${settings[@]}"
  echo 'cd /guest'
  printf '%q ' "${arguments[@]}"
  echo '< /dev/null; echo "exit status $?" > /guest/status'
} > "$work/root/guest/command"
mkfs.ext4 -q -d "$work/root" "$work/disk" "${VM_DISK_MIB:-8192}M" > /dev/null

# The initramfs: a busybox, the modules of the disk, and an init that moves to the disk and runs the command.
mkdir -p "$work/boot"/{bin,modules,disk,proc,dev}
cp "$(command -v busybox)" "$work/boot/bin/busybox"
modprobe -S "$release" --show-depends virtio_pci > "$work/modules"
modprobe -S "$release" --show-depends virtio_blk >> "$work/modules"
number=10
while read -r _ module _; do
  number=$((number + 1))
  case $module in
    *.xz) xz -dc "$module" > "$work/boot/modules/$number.ko" ;;
    *.zst) zstd -qdc "$module" > "$work/boot/modules/$number.ko" ;;
    *.ko) cp "$module" "$work/boot/modules/$number.ko" ;;
  esac
done < <(grep '^insmod' "$work/modules")
cat > "$work/boot/init" << 'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for module in /modules/*.ko; do /bin/busybox insmod "$module" 2> /dev/null; done
/bin/busybox mount -t ext4 /dev/vda /disk || /bin/busybox poweroff -f
for name in proc dev; do /bin/busybox mount --move /$name /disk/$name; done
/bin/busybox mount -t sysfs sys /disk/sys
/bin/busybox mount -t cgroup2 cgroup /disk/sys/fs/cgroup
/bin/busybox ln -s /proc/self/fd /disk/dev/fd
/bin/busybox ip link set lo up
/bin/busybox chroot /disk /bin/bash /guest/command > /disk/dev/ttyS1 2> /disk/dev/ttyS2
/bin/busybox sync
/bin/busybox umount /disk/sys/fs/cgroup /disk/sys
/bin/busybox mount -o remount,ro /disk
/bin/busybox poweroff -f
INIT
chmod +x "$work/boot/init"
(cd "$work/boot" && find . | cpio -o -H newc --quiet | gzip -1 > ../initrd)

acceleration=tcg
if [ -w /dev/kvm ] && grep -qE '\b(vmx|svm)\b' /proc/cpuinfo; then acceleration=kvm; fi
[ "$acceleration" = kvm ] || printf '\n!!! NO KVM: the machine is emulated; times mean nothing\n\n' >&2
cpu=max
[ "$acceleration" != kvm ] || cpu=host
# Standard output and standard error of the command have a serial line each, beside the console.
timeout "${VM_SECONDS:-3600}" qemu-system-x86_64 -accel "$acceleration" -cpu "$cpu" -m "${VM_MEMORY_MIB:-1024}" -smp "${VM_CPUS:-2}" \
  -kernel "$kernel" -initrd "$work/initrd" -append 'console=ttyS0 quiet loglevel=3 panic=-1' -no-reboot -nographic -nodefaults \
  -drive "file=$work/disk,format=raw,if=virtio,cache=none" -serial "file:$work/console" \
  -serial "file:$work/stdout" -serial "file:$work/stderr" \
  < /dev/null || fail "qemu failed or took too long"
tr -d '\r' < "$work/stdout"
tr -d '\r' < "$work/stderr" >&2
[ -z "$json" ] || debugfs -R "dump /guest/out.json $json" "$work/disk" 2> /dev/null
status=$(debugfs -R 'cat /guest/status' "$work/disk" 2> /dev/null | sed -n 's/^exit status //p')
[ -n "$status" ] || { tr -d '\r' < "$work/console" | tail -n 20 >&2; fail "the machine ended early"; }
exit "$status"

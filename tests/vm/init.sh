#!/bin/busybox sh
# /init of the guest, in which %NAMES% are replaced: the root's files below a layer of memory, then SHARED, then INIT or the
# command.
# If anything fails here the machine ends at once.
set -e
trap '/bin/busybox poweroff -f' EXIT
/bin/busybox mount -t proc proc /proc
/bin/busybox --install -s /bin
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in %MODULES%; do insmod "$module"; done

mount -t virtiofs -o ro host /lower
mkdir /shared
mount -t virtiofs shared /shared
mount -t tmpfs -o size=25% upper /upper
mkdir /upper/files /upper/work
files=%FILES% init=%INIT%
mount -t overlay -o "lowerdir=${files:+/shared/$files:}/lower,upperdir=/upper/files,workdir=/upper/work" overlay /root
mkdir -p /root%SHARED%
mount --move /shared /root%SHARED%

for directory in proc sys dev; do mount --move "/$directory" "/root/$directory"; done
cd /root
mkswap dev/vda >/dev/null
swapon dev/vda
# It mounts the rest itself, and protects what it is told to.
[ -z "$init" ] || exec switch_root /root "$init"
mkdir -p dev/pts dev/shm
mount -t devpts devpts dev/pts
mount -t tmpfs shm dev/shm
mount -t tmpfs run run
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t debugfs debugfs sys/kernel/debug
mount -t tracefs tracefs sys/kernel/tracing
ifconfig lo up
# When memory runs out, what runs the tests must neither be killed nor wait for its own code to be read again.
echo +memory >sys/fs/cgroup/cgroup.subtree_control
mkdir sys/fs/cgroup/tests
echo max >sys/fs/cgroup/tests/memory.min
echo $$ >sys/fs/cgroup/tests/cgroup.procs
echo -1000 >proc/self/oom_score_adj
exec switch_root /root /bin/sh %SHARED%/%START%

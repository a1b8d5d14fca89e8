#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# The first program of a guest. It makes the host's files the guest's, read-only beneath a layer in
# memory, and starts the agent, which runs commands for the host.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for module in $(cat /modules/order); do insmod "/modules/$module.ko"; done

mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /lower
mount -t tmpfs tmpfs /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work overlay /root
for folder in proc sys dev run var/tmp; do mkdir -p "/root/$folder"; done
mount -t proc proc /root/proc
mount -t sysfs sysfs /root/sys
mount -t devtmpfs dev /root/dev
mkdir -p /root/dev/pts /root/dev/shm
mount -t devpts devpts /root/dev/pts
mount -t tmpfs -o mode=1777 tmpfs /root/dev/shm
mount -t tmpfs tmpfs /root/run
[ -e /root/dev/fd ] || ln -s /proc/self/fd /root/dev/fd

for word in $(cat /proc/cmdline); do
    case $word in cluster.agent=*) agent=${word#cluster.agent=} ;; esac
done
exec switch_root /root /usr/bin/python3 -I "$agent"

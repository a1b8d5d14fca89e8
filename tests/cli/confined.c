/* SPDX-License-Identifier: BSD-2-Clause */
/* confined [--shm MIB] [--read-only-sys] [--deny CALL]... -- PROGRAM [ARGUMENT]...
 *
 * Runs a program under the limits that container engines set: a small /dev/shm of its own, a /sys
 * that cannot be written, and system calls that a seccomp filter refuses with EPERM (userfaultfd,
 * process_vm_readv, process_vm_writev, ptrace, memfd_create). Exit code 77: this machine does not
 * let us make namespaces. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char* name;
    unsigned number;
} calls[] = {
    {"userfaultfd", SYS_userfaultfd},
    {"process_vm_readv", SYS_process_vm_readv},
    {"process_vm_writev", SYS_process_vm_writev},
    {"ptrace", SYS_ptrace},
    {"memfd_create", SYS_memfd_create},
};
enum { CALLS = sizeof calls / sizeof calls[0] };

static void fail(const char* what) {
    fprintf(stderr, "confined: %s: %s\n", what, strerror(errno));
    exit(77);
}

static void write_file(const char* path, const char* text) {
    FILE* file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) fail(path);
}

/* A mount namespace. Without privilege it needs a user namespace, in which our number is mapped: a
 * number that is not cannot own files. */
static void enter_namespaces(void) {
    char map[64];
    if (unshare(CLONE_NEWNS) == 0) return;
    const unsigned user = geteuid(), group = getegid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) fail("namespaces");
    write_file("/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "%u %u 1", user, user);
    write_file("/proc/self/uid_map", map);
    snprintf(map, sizeof map, "%u %u 1", group, group);
    write_file("/proc/self/gid_map", map);
}

static void refuse(const unsigned* numbers, unsigned count) {
    struct sock_filter code[CALLS * 2 + 2];
    unsigned n = 0;
    code[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; ++i) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = (unsigned short)n, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        fail("seccomp");
}

int main(int argc, char** argv) {
    unsigned denied[CALLS], count = 0;
    const char* shm = NULL;
    int read_only = 0, at = 1;
    for (; at < argc && strcmp(argv[at], "--") != 0; ++at) {
        if (strcmp(argv[at], "--shm") == 0 && at + 1 < argc) {
            shm = argv[++at];
        } else if (strcmp(argv[at], "--read-only-sys") == 0) {
            read_only = 1;
        } else if (strcmp(argv[at], "--deny") == 0 && at + 1 < argc) {
            const char* name = argv[++at];
            unsigned i = 0;
            while (i < CALLS && strcmp(calls[i].name, name) != 0)
                ++i;
            if (i == CALLS || count == CALLS) return 2;
            denied[count++] = calls[i].number;
        } else {
            return 2;
        }
    }
    if (at + 1 >= argc) return 2;
    if (shm != NULL || read_only) {
        enter_namespaces();
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) fail("/");
    }
    if (shm != NULL) {
        char options[64];
        snprintf(options, sizeof options, "size=%sm,mode=1777", shm);
        if (mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options) != 0)
            fail("/dev/shm");
    }
    if (read_only && (mount("/sys", "/sys", NULL, MS_BIND | MS_REC, NULL) != 0 ||
                      mount(NULL, "/sys", NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) != 0))
        fail("/sys");
    if (count != 0) refuse(denied, count);
    execvp(argv[at + 1], argv + at + 1);
    fail(argv[at + 1]);
}

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* The CPU time that packets take in NAPI threads (/sys/class/net/DEVICE/threaded), by CPU. See net_time.bpf.c. */
#include "include/net_time.h"
#include <bpf/bpf_core_read.h>

enum { KERNEL_THREAD = 0x00200000 }; /* PF_KTHREAD */

struct task_struct___shunt {
	unsigned int flags;
	char comm[16];
} __attribute__((preserve_access_index));

/* A user may give a process any name, but not the flag. */
static __always_inline int is_napi(const struct task_struct___shunt *task)
{
	char name[5];

	if (!(BPF_CORE_READ(task, flags) & KERNEL_THREAD) || BPF_CORE_READ_INTO(&name, task, comm))
		return 0;
	/* clang would call memcmp, which BPF lacks. */
	return name[0] == 'n' && name[1] == 'a' && name[2] == 'p' && name[3] == 'i' && name[4] == '/';
}

/* sched_switch(preempt, from, to, state) */
SEC("raw_tp/sched_switch")
int shunt_thread_switch(__u64 *ctx)
{
	struct shunt_net_time *time = shunt_net_time_here();

	if (!time)
		return 0;
	shunt_add_net_time(time, &time->thread_since_ns);
	if (is_napi((void *)ctx[2]))
		time->thread_since_ns = bpf_ktime_get_ns();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

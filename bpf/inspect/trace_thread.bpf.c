// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * What threads do that read or send traced packets: when they get a CPU, when they leave it and why, and who wakes
 * them. While one of them waits for a CPU, all switches are recorded, so that the reader knows who had it. Long
 * softirqs are recorded always: packets wait for them, too.
 */
#include "inspect/arrivals.h"
#include "inspect/threads.h"
#include <bpf/bpf_core_read.h>

enum { TRACE_SOFTIRQ_LONG_NS = 50000 };

struct kernfs_node___shunt {
	const char *name;
} RELOCATED;

struct cgroup___shunt {
	struct kernfs_node___shunt *kn;
} RELOCATED;

struct cgroup_subsys_state___shunt {
	struct cgroup___shunt *cgroup;
} RELOCATED;

struct task_group___shunt {
	struct cgroup_subsys_state___shunt css;
} RELOCATED;

struct cfs_rq___shunt {
	int throttle_count;
} RELOCATED;

struct sched_entity___shunt {
	struct cfs_rq___shunt *cfs_rq;
} RELOCATED;

struct task_struct___thread {
	int pid;
	int tgid;
	char comm[TRACE_COMM_BYTES];
	unsigned char throttled; /* Linux 6.18 */
	struct sched_entity___shunt se;
	struct task_group___shunt *sched_task_group;
} RELOCATED;

/* Of the number of a system call; which of these fields exists depends on the architecture. */
struct pt_regs___x86 {
	unsigned long orig_ax;
} RELOCATED;

struct pt_regs___arm {
	int syscallno;
} RELOCATED;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 * 1024 * 1024);
} trace_switches SEC(".maps");

/* The number of followed threads that wait for a CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} trace_waiting SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} trace_softirq_ns SEC(".maps");

static __always_inline __u32 *waiting(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&trace_waiting, &zero);
}

/* A followed thread begins or ends to wait for a CPU. */
static __always_inline void set_waits(__u32 *waits, __u32 now)
{
	__u32 *all = waiting();

	if (!all || *waits == now)
		return;
	*waits = now;
	__sync_fetch_and_add(all, now ? 1 : -1);
}

static __always_inline struct trace_switch *new_switch(__u32 kind, const struct task_struct___thread *from,
						       const struct task_struct___thread *to)
{
	struct trace_switch *event = bpf_ringbuf_reserve(&trace_switches, sizeof(*event), 0);

	if (!event) {
		lose(1);
		return NULL;
	}
	__builtin_memset(event, 0, sizeof(*event));
	event->at_ns = bpf_ktime_get_ns();
	event->kind = kind;
	event->cpu = bpf_get_smp_processor_id();
	event->from = from->pid;
	event->from_process = from->tgid;
	bpf_probe_read_kernel(event->from_comm, sizeof(event->from_comm), &from->comm);
	event->to = to->pid;
	event->to_process = to->tgid;
	bpf_probe_read_kernel(event->to_comm, sizeof(event->to_comm), &to->comm);
	return event;
}

/* The system call in which a thread is; negative if it is in none. */
static __always_inline int call_of(const struct task_struct___thread *task)
{
	const void *regs = (void *)bpf_task_pt_regs((void *)task);
	const struct pt_regs___x86 *x86 = regs;
	const struct pt_regs___arm *arm = regs;

	if (bpf_core_field_exists(x86->orig_ax))
		return x86->orig_ax;
	if (bpf_core_field_exists(arm->syscallno))
		return arm->syscallno;
	return -1;
}

/* Whether a thread's cgroup has used up its CPU time. */
static __always_inline int is_throttled(const struct task_struct___thread *task)
{
	if (bpf_core_field_exists(task->throttled) && task->throttled)
		return 1;
	return bpf_core_field_exists(task->se.cfs_rq->throttle_count) && task->se.cfs_rq->throttle_count > 0;
}

/* sched_switch(preempt, prev, next, prev_state) */
SEC("tp_btf/sched_switch")
int trace_switch(__u64 *ctx)
{
	const struct task_struct___thread *from = (void *)ctx[1], *to = (void *)ctx[2];
	__u32 from_thread = from->pid, to_thread = to->pid;
	__u32 *from_waits = bpf_map_lookup_elem(&trace_threads, &from_thread);
	__u32 *to_waits = bpf_map_lookup_elem(&trace_threads, &to_thread), *all = waiting();
	int runnable = ctx[0] || !ctx[3];
	struct trace_switch *event;

	if (!from_waits) {
		/* Keep clang from joining both tests into arithmetic on pointers. */
		barrier_var(to_waits);
		if (!to_waits && (!all || !*all))
			return 0;
	}
	if (from_waits && runnable)
		set_waits(from_waits, 1);
	if (to_waits)
		set_waits(to_waits, 0);
	event = new_switch(TRACE_SWITCH, from, to);
	if (!event)
		return 0;
	event->call = call_of(from);
	if (runnable)
		event->flags = TRACE_RUNNABLE;
	if (runnable && from_waits && is_throttled(from)) {
		event->flags |= TRACE_THROTTLED;
		bpf_probe_read_kernel_str(event->cgroup, sizeof(event->cgroup),
					  from->sched_task_group->css.cgroup->kn->name);
	}
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/sched_waking")
int trace_wake(__u64 *ctx)
{
	const struct task_struct___thread *to = (void *)ctx[0], *from = (void *)bpf_get_current_task_btf();
	__u32 thread = to->pid, *waits = bpf_map_lookup_elem(&trace_threads, &thread);
	struct trace_switch *event;

	if (!waits || from->pid == to->pid)
		return 0;
	set_waits(waits, 1);
	event = new_switch(TRACE_WAKE, from, to);
	if (!event)
		return 0;
	event->call = call_of(from);
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

SEC("tp_btf/softirq_entry")
int trace_softirq_first(void)
{
	__u32 zero = 0;
	__u64 *began_ns = bpf_map_lookup_elem(&trace_softirq_ns, &zero);

	struct trace_arrivals *came = arrivals();

	if (began_ns)
		*began_ns = bpf_ktime_get_ns();
	if (came)
		__builtin_memset(came, 0, sizeof(*came));
	return 0;
}

/* Short softirqs are everywhere, and none of them is why a packet is late. softirq_exit(vector) */
SEC("tp_btf/softirq_exit")
int trace_softirq_last(__u64 *ctx)
{
	const struct task_struct___thread *from = (void *)bpf_get_current_task_btf();
	const struct trace_arrivals *came = arrivals();
	const struct net_device___shunt *dev;
	__u32 zero = 0;
	__u64 *began_ns = bpf_map_lookup_elem(&trace_softirq_ns, &zero), took_ns;
	struct trace_switch *event;

	if (!began_ns || !*began_ns)
		return 0;
	took_ns = bpf_ktime_get_ns() - *began_ns;
	*began_ns = 0;
	if (took_ns < TRACE_SOFTIRQ_LONG_NS)
		return 0;
	event = new_switch(TRACE_SOFTIRQ, from, from);
	if (!event)
		return 0;
	event->took_ns = took_ns;
	event->call = -1;
	event->vector = ctx[0];
	dev = came ? busiest_device(came) : NULL;
	if (dev) {
		bpf_probe_read_kernel_str(event->device, sizeof(event->device), &dev->name);
		if (BPF_CORE_READ(dev, nd_net.net, ns.inum) != plan.netns)
			event->flags = TRACE_FOREIGN;
	}
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The CPU time that packets take, by CPU: network softirqs. And samples of the slow path: for some milliseconds, all
 * packets of known flows go to Linux, so that both paths can be compared under the same traffic.
 *
 * The tracepoints are attached for a fraction of a second at a time.
 */
#include "include/net_time.h"
#include "include/control.h"

enum {
	NET_TX_VECTOR = 2,
	NET_RX_VECTOR = 3,
};

static __always_inline int is_network(__u64 vector)
{
	return vector == NET_TX_VECTOR || vector == NET_RX_VECTOR;
}

/* softirq_entry(vector). Softirqs do not nest. */
SEC("raw_tp/softirq_entry")
int shunt_softirq_entry(__u64 *ctx)
{
	struct shunt_net_time *time = shunt_net_time_here();

	/* The time of a NAPI thread is counted as a whole, with softirqs that interrupt it. */
	if (time && is_network(ctx[0]) && !time->thread_since_ns)
		time->softirq_since_ns = bpf_ktime_get_ns();
	return 0;
}

/* softirq_exit(vector) */
SEC("raw_tp/softirq_exit")
int shunt_softirq_exit(__u64 *ctx)
{
	struct shunt_net_time *time = shunt_net_time_here();

	if (time && is_network(ctx[0]))
		shunt_add_net_time(time, &time->softirq_since_ns);
	return 0;
}

/* A sample begins only while the daemon's heartbeat is recent, and renews none. */
SEC("syscall")
int shunt_sample(struct shunt_sample *sample)
{
	__u64 now = shunt_now();

	sample->began = 0;
	if (sample->ticks) {
		if (shunt_control.sample_until_ticks || !shunt_daemon_alive(&shunt_control, now))
			return 0;
		shunt_control.sample_beat_ticks = shunt_control.heartbeat_ticks;
		shunt_control.sample_until_ticks = now + sample->ticks;
		/* A full barrier: programs that find no heartbeat must find the sample. */
		__sync_lock_test_and_set(&shunt_control.heartbeat_ticks, 0);
		sample->began = 1;
	} else if (shunt_control.sample_until_ticks) {
		__sync_lock_test_and_set(&shunt_control.heartbeat_ticks, shunt_control.sample_beat_ticks);
		shunt_control.sample_until_ticks = 0;
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

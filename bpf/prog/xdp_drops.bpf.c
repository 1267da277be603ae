// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Counts frames that XDP redirected and the egress driver did not accept. The kernel drops such frames after
 * xdp_forward counted them as forwarded, and reports the drops on the same CPU.
 */
#include "include/events.h"
#include "include/table/maps.h"

enum {
	SHUNT_ENETDOWN = 100,
	SHUNT_REPORT_MS = 100, /* minimum time between events about the same port */
};

struct ns_common___shunt {
	__u32 inum;
} __attribute__((preserve_access_index));

struct net___shunt {
	struct ns_common___shunt ns;
} __attribute__((preserve_access_index));

struct net_device___shunt {
	int ifindex;
	struct {
		struct net___shunt *net;
	} nd_net;
} __attribute__((preserve_access_index));

/* When a port was last reported, by slot; 0 for never. */
__u32 reported_ticks[SHUNT_PORTS_MAX] SEC(".bss.reported");

/* Returns the port of a device if it runs Shunt's XDP program. Tracepoints fire for all programs and namespaces. */
static __always_inline struct shunt_port *port_of(const struct net_device___shunt *dev)
{
	struct shunt_port *port;

	if (dev->nd_net.net->ns.inum != shunt_control.netns)
		return 0;
	port = shunt_port_of(dev->ifindex);
	return port && port->flags & SHUNT_PORT_XDP_IN ? port : 0;
}

static __always_inline void count_lost(const struct shunt_port *in, __u32 drops, enum shunt_reason why)
{
	struct shunt_counters *counters = shunt_counters_of(in->slot);

	if (!counters)
		return;
	counters->dropped_pkts += drops;
	counters->reasons[why] += drops;
}

/* Counts drops of frames that were counted as forwarded. */
static __always_inline void count(const struct shunt_port *in, __u32 drops, enum shunt_reason why)
{
	struct shunt_counters *counters = shunt_counters_of(in->slot);

	if (!counters)
		return;
	/* The port may have been re-attached since, with its counters at 0. */
	counters->xdp_pkts -= drops < counters->xdp_pkts ? drops : counters->xdp_pkts;
	count_lost(in, drops, why);
}

/* Asks the daemon to use tc for this port. ENETDOWN is not reported, since netlink reports link state. */
static __always_inline void report(__u32 ifindex, int error)
{
	struct shunt_port *port = shunt_port_of(ifindex);
	__u32 now = shunt_now() | 1, *reported;
	struct shunt_event *event;

	if (!port || error == SHUNT_ENETDOWN)
		return;
	reported = &reported_ticks[port->slot % SHUNT_PORTS_MAX];
	if (*reported && shunt_is_within(*reported, now, shunt_ticks(SHUNT_REPORT_MS)))
		return;
	event = bpf_ringbuf_reserve(&shunt_events, sizeof(*event), 0);
	if (!event)
		return;
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = SHUNT_EVENT_TX_ERROR;
	event->ifindex = ifindex;
	event->value = error;
	bpf_ringbuf_submit(event, 0);
	*reported = now;
}

/* xdp_devmap_xmit(from_dev, to_dev, sent, drops, err): the driver was passed a batch of up to 16 frames. */
SEC("tp_btf/xdp_devmap_xmit")
int shunt_tx_drops(__u64 *ctx)
{
	const struct net_device___shunt *to;
	const struct shunt_port *in;
	int drops = ctx[3], error = -(int)ctx[4];

	if (shunt_likely(drops <= 0))
		return 0;
	in = port_of((void *)ctx[0]);
	if (!in)
		return 0;
	count(in, drops, error > 0 ? SHUNT_TX_ERROR : SHUNT_TX_FULL);
	to = (void *)ctx[1];
	if (error > 0)
		report(to->ifindex, error);
	return 0;
}

/* xdp_redirect_err(dev, xdp, tgt, err, map_type, map_id, index): the frame did not reach the driver. */
SEC("tp_btf/xdp_redirect_err")
int shunt_redirect_errors(__u64 *ctx)
{
	const struct shunt_port *in = port_of((void *)ctx[0]);

	if (!in)
		return 0;
	if (ctx[4] == BPF_MAP_TYPE_XSKMAP) {
		count_lost(in, 1, SHUNT_ENGINE_FULL);
		return 0;
	}
	count(in, 1, SHUNT_TX_ERROR);
	report(shunt_ifindex_of(ctx[6]), -(int)ctx[3]);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

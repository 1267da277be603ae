// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * XDP ingress of ports that the external engine serves: gives packets of known flows to the engine's AF_XDP socket,
 * with the place of the flow before the frame. The engine decides about them, in the order in which they arrived. If
 * the configuration names a VLAN whose frames the engine copies, they go to it, too. All other packets pass, unchanged
 * and uncounted. And the programs that the engine runs: its heartbeat, and what passes frames to Linux.
 */
#include "include/send/external.h"

/* Leaves the place of the flow and the time before the frame, where the driver has room for them. */
static __always_inline void tell_flow(struct xdp_md *ctx, __u32 family, __u32 entry)
{
	struct shunt_flow_id *id;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*id)))
		return;
	id = (void *)(long)ctx->data_meta;
	if ((void *)(id + 1) > (void *)(long)ctx->data)
		return;
	id->entry = entry;
	id->family = family;
	id->arrived_ticks = shunt_now();
}

/* The socket of the frame's queue of the port in this slot; -1 if the engine has none, since it may have ended. */
static __always_inline int socket_of(const struct xdp_md *ctx, __u32 slot)
{
	__u32 queue = ctx->rx_queue_index, socket = slot * SHUNT_QUEUES_MAX + queue;

	if (slot >= SHUNT_EXTERNAL_PORTS_MAX || queue >= SHUNT_QUEUES_MAX)
		return -1;
	return bpf_map_lookup_elem(&shunt_sockets, &socket) ? (int)socket : -1;
}

static __always_inline int steer(struct xdp_md *ctx, __u32 family, const struct shunt_flow *f, __u32 entry)
{
	const struct shunt_port *out = shunt_port_of(shunt_ifindex_of(f->out_slot));
	int socket;

	if (!out || !(out->flags & SHUNT_PORT_EXTERNAL))
		return XDP_PASS;
	socket = socket_of(ctx, f->in_slot);
	if (socket < 0)
		return XDP_PASS;
	tell_flow(ctx, family, entry);
	return bpf_redirect_map(&shunt_sockets, socket, XDP_PASS);
}

/* Whether the engine copies this frame without looking at it any further. */
static __always_inline int is_copied(const struct shunt_packet *p)
{
	__u32 vlan = shunt_external.copy_vlan;

	return shunt_unlikely(vlan != 0) && p->tags > 0 && shunt_is_in_vlan(shunt_outer_tag(p), vlan);
}

static __always_inline int steer_copied(struct xdp_md *ctx)
{
	const struct shunt_port *in = shunt_port_of(ctx->ingress_ifindex);
	int socket = in ? socket_of(ctx, in->slot) : -1;

	return socket < 0 ? XDP_PASS : bpf_redirect_map(&shunt_sockets, socket, XDP_PASS);
}

static __always_inline int handle(struct xdp_md *ctx, struct shunt_packet *p, __u32 family, void *l3, void *end)
{
	union shunt_key key;
	struct shunt_flow *f;
	__u32 entry;

	if (shunt_parse_l3(family, l3, end, ctx->ingress_ifindex, p, &key) != SHUNT_OK)
		return XDP_PASS;
	f = shunt_find_soon(family, &key, shunt_hash(family, &key), &entry);
	if (!f || !(f->flags & SHUNT_FLOW_XDP))
		return XDP_PASS;
	/* A socket of this machine left the checksum to the driver, which only tc can see. */
	if (!shunt_is_summed(p, family, p->l4_proto, f, l3))
		return XDP_PASS;
	return steer(ctx, family, f, entry);
}

SEC("xdp")
int shunt_xdp_ext(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct shunt_hw_tag none = {};
	struct shunt_packet p;
	__u32 family;

	if (!shunt_engine_alive() || end - data > SHUNT_FRAME_MAX)
		return XDP_PASS;
	if (shunt_parse_l2(data, end, none, &p, &family) != SHUNT_OK)
		return XDP_PASS;
	if (is_copied(&p))
		return steer_copied(ctx);
	if (shunt_empty())
		return XDP_PASS;
	if (family == 4)
		return handle(ctx, &p, 4, data + p.l2_bytes, end);
	if (family == 6)
		return handle(ctx, &p, 6, data + p.l2_bytes, end);
	return XDP_PASS;
}

/*
 * Passes a frame of the engine to Linux as if the port had received it. Run by BPF_PROG_RUN on live frames, once for
 * each frame in shunt_injected.
 */
SEC("xdp")
int shunt_inject(struct xdp_md *ctx)
{
	__u32 index = shunt_external.inject_next, bytes;
	struct shunt_injected *injected = bpf_map_lookup_elem(&shunt_injected, &index);

	if (!injected)
		return XDP_DROP;
	shunt_external.inject_next = index + 1;
	bytes = injected->bytes;
	if (bytes < SHUNT_L2_MIN || bytes > SHUNT_FRAME_MAX)
		return XDP_DROP;
	if (bpf_xdp_adjust_tail(ctx, (int)(bytes - bpf_xdp_get_buff_len(ctx))))
		return XDP_DROP;
	if (bpf_xdp_store_bytes(ctx, 0, injected->frame, shunt_bound(bytes - 1, 2047) + 1))
		return XDP_DROP;
	return XDP_PASS;
}

/* The engine's heartbeat, and its clock. */
SEC("syscall")
int shunt_ext_beat(void *ctx)
{
	(void)ctx;
	shunt_external.beat_ticks = shunt_now();
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

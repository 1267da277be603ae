// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Stages of packets that have an skb: the slow path, the tc engine, and local TCP. Each tracepoint has a program of its
 * own, which the loader leaves out if the kernel lacks the tracepoint (crates/shunt-inspect/src/trace/programs.rs).
 */
#include "inspect/arrivals.h"
#include "inspect/headers.h"
#include "inspect/sockets.h"
#include "inspect/threads.h"

/* Of skb_drop_reason: the driver of a veth frees with it what the other end took. */
enum { SKB_DROP_REASON_NOT_SPECIFIED___shunt = 2 };

struct nf_hook_state___shunt {
	__u8 hook;
	struct net___shunt *net;
} RELOCATED;

struct bpf_nf_ctx___shunt {
	const struct nf_hook_state___shunt *state;
	struct sk_buff___shunt *skb;
};

enum { NF_ACCEPT___shunt = 1 };
enum { NF_LOCAL_IN___shunt = 1, NF_LOCAL_OUT___shunt = 3 };
/* The position of a packet that goes to a socket. */
enum { TRACE_DELIVERED = TRACE_HOOK + 2 * NF_LOCAL_IN___shunt + 1 };

/* A driver hands a packet to Linux. */
static __always_inline int arrive(const struct sk_buff___shunt *skb)
{
	struct trace_record *record = record_of(skb);
	const struct net_device___shunt *dev = skb->dev;
	struct trace_tuple tuple;
	__u32 bytes, answers;

	if (record) {
		if (!is_ours(dev))
			return 0;
		if (!(record->flags & TRACE_LEFT) && record->position != TRACE_START &&
		    record->position != TRACE_DRIVER) {
			/* It comes out of a tunnel or of a device on top. */
			stamp(record, TRACE_DRIVER);
			return 0;
		}
		/* The other end of a veth, or the memory of a packet that GRO merged. */
		finish(record, record->position == TRACE_DRIVER ? TRACE_VANISHED : TRACE_DONE);
	}
	answers = awaited();
	if (!plan.filters && !answers && !is_sampled())
		return 0;
	if (!is_ours(dev))
		return 0;
	bytes = read_arrived(skb, &tuple);
	if (!is_wanted(&tuple))
		return 0;
	if (answers)
		answers = take_awaited(&tuple);
	if (!answers && plan.filters && !is_sampled())
		return 0;
	if (plan.ifindex && !answers && dev->ifindex != plan.ifindex)
		return 0;
	record = claim(skb, 0, &tuple, bytes);
	if (!record)
		return 0;
	record->in_ifindex = dev->ifindex;
	if (answers)
		record->flags = TRACE_ANSWER;
	stamp_at(record, TRACE_DRIVER, 0, record->began_ns);
	return 0;
}

SEC("tp_btf/napi_gro_receive_entry")
int trace_gro(__u64 *ctx)
{
	return arrive((void *)ctx[0]);
}

SEC("tp_btf/napi_gro_frags_entry")
int trace_gro_frags(__u64 *ctx)
{
	return arrive((void *)ctx[0]);
}

SEC("tp_btf/netif_rx_entry")
int trace_netif_rx(__u64 *ctx)
{
	return arrive((void *)ctx[0]);
}

SEC("tp_btf/netif_receive_skb_entry")
int trace_receive_entry(__u64 *ctx)
{
	return arrive((void *)ctx[0]);
}

SEC("tp_btf/netif_receive_skb_list_entry")
int trace_receive_list(__u64 *ctx)
{
	return arrive((void *)ctx[0]);
}

SEC("tp_btf/netif_receive_skb")
int trace_receive(__u64 *ctx)
{
	const struct sk_buff___shunt *skb = (void *)ctx[0];
	struct trace_record *record = record_of(skb);

	count_arrival(skb->dev);
	if (record && !(record->flags & TRACE_LEFT)) {
		stamp(record, TRACE_RECEIVE);
		follow_receiver();
	}
	return 0;
}

/* A packet that this machine sends is on its way to netfilter. */
static __always_inline void depart(const struct nf_hook_state___shunt *state, const struct sk_buff___shunt *skb)
{
	const struct sock___shunt *sk = skb->sk;
	struct trace_record *record;
	struct trace_tuple tuple;
	__u64 sent_ns = 0;
	__u32 bytes;

	record = record_of(skb);
	if (record && record->position == TRACE_DELIVERED)
		/* Its memory was freed without a tracepoint, and is that of another packet now. */
		finish(record, TRACE_VANISHED);
	else if (record && !(record->flags & TRACE_LEFT))
		/* A tunnel sends the packet on. */
		return;
	if (!plan.filters && !is_sampled())
		return;
	if (state->net->ns.inum != plan.netns)
		return;
	bytes = read_known(skb, &tuple);
	if (!is_wanted(&tuple) || (plan.filters && !is_sampled()))
		return;
	if (sk)
		sent_ns = take_sent(sk);
	record = claim(skb, sent_ns, &tuple, bytes);
	if (!record)
		return;
	record->flags = TRACE_LOCAL_OUT;
	if (sent_ns) {
		stamp_at(record, TRACE_SEND, 0, sent_ns);
		follow_thread();
	}
	await(&tuple);
}

static __always_inline int hook(struct bpf_nf_ctx___shunt *ctx, __u32 last)
{
	const struct sk_buff___shunt *skb = ctx->skb;
	struct trace_record *record;
	__u32 number = ctx->state->hook;
	__u64 *skb_at;

	if (!last && number == NF_LOCAL_OUT___shunt)
		depart(ctx->state, skb);
	record = record_of(skb);
	if (record && !(record->flags & TRACE_LEFT)) {
		stamp(record, TRACE_HOOK + 2 * number + last);
		skb_at = last && number == NF_LOCAL_IN___shunt ? delivered() : NULL;
		if (skb_at)
			*skb_at = (__u64)skb;
	}
	return NF_ACCEPT___shunt;
}

SEC("netfilter")
int trace_hook_first(struct bpf_nf_ctx___shunt *ctx)
{
	return hook(ctx, 0);
}

SEC("netfilter")
int trace_hook_last(struct bpf_nf_ctx___shunt *ctx)
{
	return hook(ctx, 1);
}

SEC("tp_btf/net_dev_queue")
int trace_queue(__u64 *ctx)
{
	const struct sk_buff___shunt *skb = (void *)ctx[0];
	struct trace_record *record = record_of(skb);

	if (!record || record->flags & TRACE_LEFT)
		return 0;
	stamp(record, TRACE_QUEUE);
	read_known(skb, &record->out);
	record->out_ifindex = skb->dev->ifindex;
	bpf_probe_read_kernel(record->qdisc, sizeof(record->qdisc), &skb->dev->qdisc->ops->id);
	return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int trace_start(__u64 *ctx)
{
	struct trace_record *record = record_of((void *)ctx[0]);

	if (record && !(record->flags & TRACE_LEFT))
		stamp(record, TRACE_START);
	return 0;
}

/* net_dev_xmit(skb, rc, dev, len): the skb may be free already, so only its address is used. */
SEC("tp_btf/net_dev_xmit")
int trace_xmit(__u64 *ctx)
{
	struct trace_record *record = record_of((void *)ctx[0]);

	if (!record || record->position != TRACE_START || (int)ctx[1])
		return 0;
	stamp(record, TRACE_XMIT);
	record->flags |= TRACE_LEFT;
	return 0;
}

static __always_inline int freed(const void *skb, int dropped, __u32 reason)
{
	struct trace_record *record = record_of(skb);
	int left;

	if (!record)
		return 0;
	left = record->flags & TRACE_LEFT ||
	       (record->position == TRACE_START && (!dropped || reason == SKB_DROP_REASON_NOT_SPECIFIED___shunt));
	stamp(record, TRACE_FREED);
	record->reason = left ? 0 : reason;
	finish(record, left ? TRACE_DONE : dropped ? TRACE_DROPPED : TRACE_CONSUMED);
	return 0;
}

SEC("tp_btf/consume_skb")
int trace_consume(__u64 *ctx)
{
	return freed((void *)ctx[0], 0, 0);
}

/* kfree_skb(skb, location, reason, ...) */
SEC("tp_btf/kfree_skb")
int trace_drop(__u64 *ctx)
{
	return freed((void *)ctx[0], 1, ctx[2]);
}

/* tcp_sendmsg_locked(sk, msg, skb, size_goal): the send call copies data. */
SEC("tp_btf/tcp_sendmsg_locked")
int trace_send(__u64 *ctx)
{
	note_sent((void *)ctx[0]);
	return 0;
}

/* tcp_probe(sk, skb) */
SEC("tp_btf/tcp_probe")
int trace_tcp(__u64 *ctx)
{
	const struct sk_buff___shunt *skb = (void *)ctx[1];
	struct trace_record *record = record_of(skb);

	if (!record || record->flags & TRACE_LEFT)
		return 0;
	stamp(record, TRACE_TCP);
	/* The TCP header has been taken off: what is left is for a reader. */
	if (skb->len)
		wait_for_reader((void *)ctx[0], record);
	else
		finish(record, TRACE_DONE);
	return 0;
}

/* skb_copy_datagram_iovec(skb, len): the reader has the CPU, and its call has come to data of its socket. */
SEC("tp_btf/skb_copy_datagram_iovec")
int trace_copy(__u64 *ctx)
{
	const struct sk_buff___shunt *skb = (void *)ctx[0];
	struct trace_record *record;

	if (!skb->sk)
		return 0;
	record = waiting_record(skb->sk, 0);
	if (record && record->position != TRACE_COPY) {
		stamp(record, TRACE_COPY);
		follow_thread();
	}
	return 0;
}

SEC("tp_btf/sk_data_ready")
int trace_ready(__u64 *ctx)
{
	void *sk = (void *)ctx[0];
	struct trace_record *record;
	__u64 *skb_at = delivered();

	/* A datagram: no tracepoint has both it and its socket. */
	if (skb_at && *skb_at) {
		record = record_of((void *)*skb_at);
		*skb_at = 0;
		if (record && record->position == TRACE_DELIVERED) {
			stamp(record, TRACE_READY);
			wait_for_reader(sk, record);
			return 0;
		}
	}
	record = waiting_record(sk, 0);
	if (record && record->position == TRACE_TCP)
		stamp(record, TRACE_READY);
	return 0;
}

/* sock_recv_length(sk, ret, flags) */
SEC("tp_btf/sock_recv_length")
int trace_read(__u64 *ctx)
{
	struct trace_record *record;

	if ((int)ctx[1] <= 0)
		return 0;
	record = waiting_record((void *)ctx[0], 1);
	if (record) {
		stamp(record, TRACE_READ);
		follow_thread();
		finish(record, TRACE_DONE);
	}
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

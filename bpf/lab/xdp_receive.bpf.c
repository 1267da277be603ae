// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The receiver: consumes the packets of one generator, accounts for them by flow, and passes everything else to Linux.
 * Replayed frames have no stamp; the receiver accounts for frames whose kind occurs in the capture.
 * The loader is crates/shunt-traffic/src/receiver.rs.
 */
#include "include/bpf.h"
#include "lab/arrivals.h"

enum {
	CLOCK_EACH = 8, /* most frames of one poll that share a reading of the clock */
/* Whether words of a frame may be loaded from anywhere. */
#ifdef SHUNT_UNALIGNED
	LOADS_ANYWHERE = 1,
#else
	LOADS_ANYWHERE = 0,
#endif
};

volatile const struct receive_plan plan = { .flows = 1 };
/* The label of packets to account for; a value of more than 8 bits matches none. Written by the loader. */
__u32 expected_label;
/* Whether shunt_poll_ended is attached, and the driver runs this program in polls only. Written by the loader. */
__u32 polled;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct arrival);
} arrivals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1); /* number of streams; set by the loader */
	__type(key, __u32);
	__type(value, struct received);
} totals SEC(".maps");

/* The verdict for accounted frames, by kind: XDP_DROP, or XDP_PASS if Linux needs them, too. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u32);
} kinds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} captured SEC(".maps");

static __always_inline void add_time(struct times *times, __u32 ns)
{
	__u32 shift = times->shift & 31, bucket;

	/* Most times have as many bits as the last one. */
	if ((ns >> shift) - LATENCY_SUB_BUCKETS >= LATENCY_SUB_BUCKETS) {
		shift = latency_shift(ns);
		times->shift = shift;
	}
	bucket = latency_bucket(ns, shift);
	if (bucket < LATENCY_BUCKETS)
		times->counts[bucket]++;
	if (ns > times->ns_max)
		times->ns_max = ns;
	/* 0 - 1 is more than any time. */
	if (ns < times->ns_min - 1)
		times->ns_min = (__u64)ns + 1;
}

static __always_inline struct traffic_ends ends_between(__be32 src_be, __be32 dst_be, __be16 sport_be, __be16 dport_be)
{
	return (struct traffic_ends){
		.src = traffic_ntohl(src_be),
		.dst = traffic_ntohl(dst_be),
		.sport = shunt_ntohs(sport_be),
		.dport = shunt_ntohs(dport_be),
	};
}

/* A packet with a stamp. */
struct stamped {
	struct traffic_stamp *stamp;
	__u32 bytes; /* of the frame, without FCS and padding */
};

/*
 * Finds the stamp of a packet of the usual form: UDP without VLAN tags, IP options and fragments. Takes fewer
 * instructions than the parser, which must find the same. Returns 0 for packets of any other form.
 */
static __always_inline int find_usual_stamp(__u32 family, void *data, void *end, struct stamped *found)
{
	void *l3 = shunt_untagged_l3(data);
	struct udphdr *udp = l3 + shunt_l3_size(family);
	__u32 l3_bytes, udp_bytes;

	found->stamp = (void *)(udp + 1);
	if ((void *)(found->stamp + 1) > end)
		return 0;
	if (family == 4) {
		/* EtherType, version and size of the header; fragment and protocol. */
		if ((*(__be32 *)(l3 - 2) & shunt_ntohl(0xffffff00)) != shunt_ntohl(ETH_P_IP << 16 | 0x4500) ||
		    (*(__be32 *)(l3 + 6) & shunt_ntohl(0x3fff00ff)) != shunt_ntohl(IPPROTO_UDP))
			return 0;
		l3_bytes = shunt_ntohs(*(__be16 *)(l3 + 2));
	} else {
		if ((*(__be32 *)(l3 - 2) & shunt_ntohl(0xfffff000)) != shunt_ntohl(ETH_P_IPV6 << 16 | 0x6000) ||
		    *(__u8 *)(l3 + 6) != IPPROTO_UDP)
			return 0;
		l3_bytes = shunt_ntohs(*(__be16 *)(l3 + 4)) + sizeof(struct ipv6hdr);
	}
	udp_bytes = shunt_ntohs(udp->len);
	found->bytes = ETH_HLEN + l3_bytes;
	return udp_bytes >= sizeof(*udp) && l3_bytes == udp_bytes + shunt_l3_size(family) && l3_bytes <= 0xffff;
}

/* Finds the stamp of a packet, whose L2 header has been parsed, and its ends. Returns 0 if there is none. */
static __always_inline int find_stamp(__u32 family, void *data, void *end, struct shunt_packet *p,
				      struct stamped *found, struct traffic_ends *ends)
{
	union shunt_key key;
	void *l3 = data + p->l2_bytes;

	if (shunt_parse_l3(family, l3, end, 0, p, &key) != SHUNT_OK)
		return 0;
	*ends = family == 4 ? ends_between(key.v4.src_be, key.v4.dst_be, key.v4.sport_be, key.v4.dport_be) :
			      ends_between(*(__be32 *)(key.v6.src_be + 12), *(__be32 *)(key.v6.dst_be + 12),
					   key.v6.sport_be, key.v6.dport_be);
	found->bytes = p->l2_bytes + p->l3_bytes;
	found->stamp = l3 + shunt_l3_size(family) + p->l4_bytes;
	return (void *)(found->stamp + 1) <= end;
}

/*
 * The time of arrival. Reading the clock takes as long as all else that is done for a frame. So up to CLOCK_EACH frames
 * share a reading if the driver got them in one poll, and thus handles them one after the other.
 */
static __always_inline __u64 arrival_time(struct received *total)
{
	if (total->clock_uses) {
		total->clock_uses--;
	} else {
		total->clock_ns = bpf_ktime_get_ns();
		total->clock_uses = polled ? CLOCK_EACH - 1 : 0;
	}
	return total->clock_ns;
}

/* A poll on this CPU has ended: the next frame may come at any time. */
SEC("raw_tp/napi_poll")
int shunt_poll_ended(void *ctx)
{
	__u32 zero = 0;
	struct received *total = bpf_map_lookup_elem(&totals, &zero);

	(void)ctx;
	if (total)
		total->clock_uses = 0;
	return 0;
}

/* Accounts for a frame and captures it if the plan says so. Returns `verdict`. */
static __always_inline int account(struct xdp_md *ctx, struct received *total, __u64 now, __u32 bytes, int verdict)
{
	struct captured_frame head = { .at_ns = now };

	total->packets++;
	total->bytes += bytes;
	total->last_ns = now;
	head.bytes = bytes;
	/* A frame that does not fit the buffer is lost; user space can tell from the counts. */
	if (plan.capture)
		bpf_perf_event_output(ctx, &captured, BPF_F_CURRENT_CPU | (__u64)head.bytes << 32, &head, sizeof(head));
	return verdict;
}

/* Answers the second segment of a TCP handshake with the third. */
static __always_inline int finish_handshake(struct xdp_md *ctx, struct shunt_packet *p, void *data, void *end)
{
	__u32 family = p->family == 4 ? 4 : 6, l3_bytes = shunt_l3_size(family);
	void *l3 = data + p->l2_bytes;
	struct tcphdr *tcp = l3 + l3_bytes;

	if (p->l4_proto != IPPROTO_TCP || (void *)(tcp + 1) > end || !(((__u8 *)tcp)[13] & SHUNT_TCP_ACK) ||
	    !traffic_answer_handshake(tcp, p->l3_bytes - l3_bytes - p->l4_bytes))
		return XDP_DROP;
	traffic_swap_ends(data, l3, family);
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

/* Accounts for a stamped packet of a flow that has begun. Returns `verdict`. */
static __always_inline int take(struct xdp_md *ctx, struct received *total, __u64 now, struct arrival *arrival,
				const struct stamped *found, int verdict)
{
	__u32 sent = traffic_ntohl(found->stamp->sent_be);

	/* Another CPU may have sent this packet after the clock was read for the poll. */
	if ((__s32)((__u32)now - sent) < 0) {
		total->clock_uses = 0;
		now = arrival_time(total);
	}
	if (arrival->stream) {
		total = bpf_map_lookup_elem(&totals, &arrival->stream);
		if (!total)
			return XDP_PASS;
	}
	arrival_note(arrival, traffic_ntohl(found->stamp->number_be), (__u32)now - sent);
	add_time(&total->latency, (__u32)now - sent);
	if (arrival->packets > 1)
		add_time(&total->jitter, arrival->jitter >> 4);
	return account(ctx, total, now, found->bytes, verdict);
}

/* The account of the flow of a stamped packet; NULL for packets of others and of a warm-up. */
static __always_inline struct arrival *flow_of(const struct traffic_stamp *stamp)
{
	__u32 stream = traffic_ntohl(stamp->stream_be), flow = stream & 0xffffff;

	if (stream >> 24 != expected_label || flow >= plan.flows)
		return NULL;
	return bpf_map_lookup_elem(&arrivals, &flow);
}

/* Accounts for a frame of a capture, by its kind. */
static __always_inline int receive_kind(struct xdp_md *ctx, struct received *total, __u64 now, void *data, void *end)
{
	__u32 kind = frame_kind(data, end);
	__u32 *verdict = expected_label > 0xff ? NULL : bpf_map_lookup_elem(&kinds, &kind);

	if (verdict)
		return account(ctx, total, now, bpf_xdp_get_buff_len(ctx), *verdict);
	total->others++;
	return XDP_PASS;
}

/* Accounts for a packet of any form. */
static __always_inline int receive_any(struct xdp_md *ctx, struct received *total, __u64 now, void *data, void *end)
{
	struct shunt_hw_tag none = {};
	struct traffic_ends ends;
	struct shunt_packet p;
	struct stamped found;
	struct arrival *arrival;
	__u32 family;

	if (shunt_parse_l2(data, end, none, &p, &family) != SHUNT_OK)
		goto other;
	if (!(family == 4 && find_stamp(4, data, end, &p, &found, &ends)) &&
	    !(family == 6 && find_stamp(6, data, end, &p, &found, &ends)))
		goto other;
	arrival = flow_of(found.stamp);
	if (!arrival) {
		if (traffic_ntohl(found.stamp->stream_be) == (expected_label << 24 | TRAFFIC_WARM_UP_FLOW))
			return XDP_DROP;
		goto other;
	}
	if (!arrival_has_begun(arrival, expected_label)) {
		arrival_begin(arrival, expected_label, traffic_ntohl(found.stamp->number_be));
		arrival->ends = ends;
	}
	return take(ctx, total, now, arrival, &found,
		    plan.handshakes ? finish_handshake(ctx, &p, data, end) : XDP_DROP);
other:
	total->others++;
	return XDP_PASS;
}

/* Frags: a jumbo frame has several buffers. Headers and stamp are in the first. */
SEC("xdp.frags")
int shunt_receive(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u32 zero = 0;
	struct received *total = bpf_map_lookup_elem(&totals, &zero);
	struct stamped found;
	struct arrival *arrival;
	__u64 now;

	if (!total)
		return XDP_PASS;
	now = arrival_time(total);
	if (plan.by_kind)
		return receive_kind(ctx, total, now, data, end);
	if (LOADS_ANYWHERE && (find_usual_stamp(4, data, end, &found) || find_usual_stamp(6, data, end, &found))) {
		arrival = flow_of(found.stamp);
		if (arrival && arrival_has_begun(arrival, expected_label))
			return take(ctx, total, now, arrival, &found, XDP_DROP);
	}
	return receive_any(ctx, total, now, data, end);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * XDP ingress: forwards packets of active flows whose egress port XDP can reach. All other packets pass unchanged and
 * uncounted; the tc program of the same port counts them by reason.
 */
#include "include/table/hints.h"
#include "include/table/maps.h"
#include "include/table/sessions.h"

/* Verification costs instructions even where it is off, so there is an object with it and one without. */
#ifdef SHUNT_VERIFYING
#define SHUNT_FRAME struct xdp_md
#define SHUNT_LOAD_BYTES bpf_xdp_load_bytes
#include "include/send/verify.h"
#endif

/* With many flows: the next packets' entries are loaded ahead. */
#ifdef SHUNT_RING
#include "include/send/ahead.h"
#endif

/* Programs that ask the driver are bound to one device, so there are objects that do and objects that do not. */
#ifdef SHUNT_STRIPPED_TAGS
int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto, __u16 *vlan_tci) __ksym;
#endif

/* The VLAN tag that the driver has taken out of the frame. */
static __always_inline struct shunt_hw_tag stripped_tag(struct xdp_md *ctx)
{
	struct shunt_hw_tag tag = {};

#ifdef SHUNT_STRIPPED_TAGS
	tag.present = !bpf_xdp_metadata_rx_vlan_tag(ctx, &tag.tpid_be, &tag.tci);
#else
	(void)ctx;
#endif
	return tag;
}

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, SHUNT_PORTS_MAX);
	__type(key, __u32); /* slot */
	__type(value, struct shunt_xdp_exit);
} shunt_devmap SEC(".maps");

/* Trims the padding after the L3 packet. Returns nonzero on failure. */
static __always_inline int trim(struct xdp_md *ctx, const struct shunt_flow *f, __u32 want)
{
	__u32 have = bpf_xdp_get_buff_len(ctx), bytes;

	if (have < want)
		return -1;
	bytes = shunt_frame_bytes(f, want, have);
	return have > bytes ? (int)bpf_xdp_adjust_tail(ctx, (int)(bytes - have)) : 0;
}

static __always_inline int drop(struct shunt_counters *counters)
{
	counters->dropped_pkts++;
	shunt_count_reason(counters, SHUNT_HALF_WRITTEN);
	return XDP_DROP;
}

/* As drop(), for a packet that was counted as forwarded. */
static __always_inline int drop_counted(struct shunt_counters *counters, __u32 bytes)
{
	counters->xdp_pkts--;
	counters->xdp_bytes -= bytes;
	return drop(counters);
}

/* Whether the egress driver accepts multi-buffer frames. */
static __always_inline int takes_frags(const struct shunt_flow *f)
{
	const struct shunt_port *port = shunt_port_of(shunt_ifindex_of(f->out_slot));

	return port && port->flags & SHUNT_PORT_XDP_FRAGS;
}

/*
 * Whether the kernel will redirect a frame with two tags: it allows room for one tag beyond the MTU of the egress
 * device. Frames with at most one tag fit, since Linux has forwarded packets of their size.
 */
static __always_inline int fits(struct xdp_md *ctx, const struct shunt_flow *f, __u32 l3_bytes)
{
	__u32 with_inner_tag = l3_bytes + 4;

	return !bpf_check_mtu(ctx, shunt_ifindex_of(f->out_slot), &with_inner_tag, 0, 0);
}

/* A function, because clang would load a constant before every test that may end in its return. */
static __noinline int pass(void)
{
	int verdict = XDP_PASS;

	shunt_keep(verdict);
	return verdict;
}

/* Trims the padding, if there is any. Returns the L3 header, or 0 if the packet cannot be forwarded. */
static __always_inline void *trimmed(struct xdp_md *ctx, const struct shunt_packet *p, __u32 family, __u8 l4_proto,
				     const struct shunt_flow *f)
{
	void *eth, *end, *l3;

	if (trim(ctx, f, p->l2_bytes + p->l3_bytes))
		return 0;
	eth = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	l3 = eth + p->l2_bytes;
	if ((long)bpf_xdp_get_buff_len(ctx) > end - (void *)eth && !takes_frags(f))
		return 0;
	return l3 + shunt_l3_size(family) + shunt_l4_size(l4_proto) > end ? 0 : l3;
}

/* Counts a packet that has been rewritten, and sends it to the port in a slot. */
static __always_inline int send(__u32 family, __u8 l4_proto, const struct shunt_packet *p, struct shunt_flow *f,
				const __u32 *entry, __u32 slot, struct shunt_counters *counters, __u32 now)
{
	counters->xdp_pkts++;
	counters->xdp_bytes += p->l3_bytes;
	if (l4_proto == IPPROTO_TCP)
		f->tcp_position = p->tcp_position;
	shunt_count_flow(family, f, entry, p->l3_bytes, now);
	/* Fails if the egress port was removed. */
	if (shunt_unlikely(bpf_redirect_map(&shunt_devmap, slot, XDP_DROP) != XDP_REDIRECT))
		return drop_counted(counters, p->l3_bytes);
	return XDP_REDIRECT;
}

/* What stands before the IP header of a packet; always a constant. */
enum form {
	UNTAGGED, /* an Ethernet header; it leaves with one, too */
	ANY, /* tags, or none */
	IN_SESSION, /* a session of PPPoE */
};

/* Handles any packet. `tpid_be` and `tci` are of the tag that the driver has taken out of the frame, or 0. */
static __noinline int handle_any(struct xdp_md *ctx, __u32 tpid_be, __u32 tci);

/*
 * The session in which a packet leaves, and the slot of the Ethernet port; 0 if there is none, or if the kernel will
 * not redirect a frame that long: it allows room for one tag beyond the MTU of the port.
 */
static __always_inline struct shunt_session *session_out(struct xdp_md *ctx, const struct shunt_flow *f, __u32 l3_bytes,
							 __u64 now, __u32 *slot)
{
	struct shunt_session *s = shunt_session_of(shunt_ifindex_of(f->out_slot), now);
	__u32 with_pppoe = l3_bytes + sizeof(struct shunt_pppoe);
	const struct shunt_port *below = s ? shunt_port_of(s->below) : 0;

	if (!below || !(below->flags & SHUNT_PORT_XDP_OUT) || bpf_check_mtu(ctx, s->below, &with_pppoe, 0, 0))
		return 0;
	*slot = below->slot;
	return s;
}

/*
 * The functions below are inlined several times: for each family and protocol, and for untagged packets apart from
 * others. `form` and mostly `l4_proto` are constants.
 */
static __always_inline int forward(struct xdp_md *ctx, const struct shunt_packet *p, __u32 family, __u8 l4_proto,
				   enum form form, struct shunt_flow *f, __u32 entry, void *eth, void *l3, void *end)
{
	__u64 now = shunt_now(), no_macs[2] = {};
	const void *macs = form == UNTAGGED   ? shunt_untagged_macs(l3) :
			   form == IN_SESSION ? (const void *)no_macs :
						eth;
	enum shunt_reason why = shunt_decide(f, p, macs, &shunt_control, shunt_current_epoch(f), now, SHUNT_FLOW_XDP);
	struct shunt_session *session = 0;
	struct shunt_counters *counters;
	__u32 session_slot = 0;

	if (shunt_unlikely(why == SHUNT_REPROVE)) {
		/* Advance the time here, so that one packet of a burst is punted by tc, and not all of them. */
		f->reprove_at_ticks = now + shunt_control.reprove_ticks;
		f->punt_due = 1;
		shunt_move_home(f, shunt_this_cpu());
	}
	if (shunt_unlikely(why != SHUNT_OK))
		return pass();
	if (family == 4 && shunt_unlikely(!shunt_ipv4_header_good(l3)))
		return pass();
	counters = shunt_counters_of(f->in_slot);
	if (shunt_unlikely(!counters))
		return pass();
	/* Loaded again: there are too few registers to keep it. */
	end = (void *)(long)ctx->data_end;
	if (shunt_unlikely(l3 + p->l3_bytes != end)) {
		if (!shunt_is_summed(p, family, l4_proto, f, l3))
			return pass();
		l3 = trimmed(ctx, p, family, l4_proto, f);
		if (!l3)
			return pass();
	}
	if (form != UNTAGGED && f->out_tags == SHUNT_NO_L2) {
		session = session_out(ctx, f, p->l3_bytes, now, &session_slot);
		if (!session)
			return pass();
	} else if (shunt_unlikely(f->out_tags > 1) && !fits(ctx, f, p->l3_bytes)) {
		return pass();
	}
	if (shunt_unlikely(!shunt_is_summed(p, family, l4_proto, f, l3)))
		return pass();
#ifdef SHUNT_VERIFYING
	if (shunt_control.flags & SHUNT_CONTROL_VERIFY_XDP && !shunt_checksum_good(ctx, p, family, f, l3, end))
		return pass();
#endif
	shunt_rewrite(l3, l3 + shunt_l3_size(family), family, l4_proto, f, shunt_new_addrs(f), SHUNT_CHECKSUM_FINISHED);
	if (form != UNTAGGED || shunt_unlikely(f->out_tags)) {
		int room = p->l2_bytes - (session ? shunt_l2_bytes(session->tags) + sizeof(struct shunt_pppoe) :
						    shunt_l2_bytes(f->out_tags));

		if (room && bpf_xdp_adjust_head(ctx, room)) {
			/* The driver left no headroom for tags; use tc from now on. */
			f->flags &= ~SHUNT_FLOW_XDP;
			return drop(counters);
		}
		eth = (void *)(long)ctx->data;
		end = (void *)(long)ctx->data_end;
		if (eth + SHUNT_SESSION_MAX > end)
			return drop(counters);
		if (session)
			shunt_write_session(eth, session, family, p->l3_bytes);
		else
			shunt_copy_l2(eth, f->l2, f->out_tags);
	} else {
		shunt_copy_macs(shunt_untagged_macs(l3), f->l2);
		/* Keep clang from sharing the last store with the branch above: it would compute the address. */
		barrier();
	}
	return send(family, l4_proto, p, f, &entry, session ? session_slot : f->out_slot, counters, now);
}

/* `ifindex` is that of the port by which Linux gets the packet. */
static __always_inline int find(struct xdp_md *ctx, struct shunt_packet *p, __u32 family, __u8 l4_proto, enum form form,
				__u32 ifindex, void *eth, void *l3, void *end)
{
	union shunt_key key;
	struct shunt_flow *f;
	__u32 entry;

	if (shunt_unlikely(shunt_parse_l3(family, l3, end, ifindex, p, &key) != SHUNT_OK ||
			   shunt_admit_tcp(p) != SHUNT_OK))
		return pass();
	f = shunt_find_soon(family, &key, shunt_hash(family, &key), &entry);
	if (shunt_unlikely(!f))
		return pass();
	/* Keep clang from recomputing the addresses of the members from the entry. */
	shunt_keep(f);
	if (form == UNTAGGED && shunt_unlikely(f->out_tags == SHUNT_NO_L2))
		return handle_any(ctx, 0, 0);
	return forward(ctx, p, family, l4_proto, form, f, entry, eth, l3, end);
}

static __always_inline int handle(struct xdp_md *ctx, struct shunt_packet *p, __u32 family, enum form form,
				  __u32 ifindex, void *eth, void *l3, void *end)
{
	__u8 l4_proto;

	if (shunt_unlikely(shunt_headers_end(family, IPPROTO_UDP, l3) > end))
		return pass();
	l4_proto = shunt_l4_proto_of(family, l3);
	if (form != UNTAGGED)
		return find(ctx, p, family, l4_proto, form, ifindex, eth, l3, end);
	if (l4_proto == IPPROTO_UDP)
		return find(ctx, p, family, IPPROTO_UDP, form, ifindex, eth, l3,
			    shunt_headers_end(family, IPPROTO_UDP, l3));
	if (l4_proto == IPPROTO_TCP && shunt_headers_end(family, IPPROTO_TCP, l3) <= end)
		return find(ctx, p, family, IPPROTO_TCP, form, ifindex, eth, l3,
			    shunt_headers_end(family, IPPROTO_TCP, l3));
	return pass();
}

/*
 * Handles a packet in a session of PPPoE, whose header is behind `p->l2_bytes`. To Linux, and so to the flow, it is one
 * of the ppp port, without an L2 header.
 */
static __always_inline int handle_session(struct xdp_md *ctx, struct shunt_packet *p, void *eth, void *end)
{
	struct shunt_pppoe *header = eth + p->l2_bytes;
	struct shunt_session_key key, known;
	__u32 ppp = shunt_session_port(header, end, ctx->ingress_ifindex, p, &key), family, bytes;
	struct shunt_session *s = ppp ? shunt_session_of(ppp, shunt_now()) : 0;
	void *l3 = header + 1;

	if (!s || !shunt_is_from_peer(s, eth) || l3 > end)
		return pass();
	/* The port may have another session by now. */
	known = shunt_session_key(s);
	if (known.below != key.below || known.tag != key.tag || known.session_be != key.session_be)
		return pass();
	family = shunt_pppoe_family(header, &bytes);
	*p = (struct shunt_packet){ .l2_bytes = p->l2_bytes + sizeof(*header) };
	if (family == 4 && l3 + sizeof(struct iphdr) <= end && bytes == shunt_ntohs(((struct iphdr *)l3)->tot_len))
		return handle(ctx, p, 4, IN_SESSION, ppp, eth, l3, end);
	if (family == 6 && l3 + sizeof(struct ipv6hdr) <= end &&
	    bytes == shunt_ntohs(((struct ipv6hdr *)l3)->payload_len) + sizeof(struct ipv6hdr))
		return handle(ctx, p, 6, IN_SESSION, ppp, eth, l3, end);
	return pass();
}

/* Not inlined: packets with tags or in sessions pay for a call, so that others need no registers for either. */
static __noinline int handle_any(struct xdp_md *ctx, __u32 tpid_be, __u32 tci)
{
	struct shunt_hw_tag stripped = { .tpid_be = tpid_be, .tci = tci, .present = tpid_be != 0 };
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct shunt_packet p;
	__u32 family;

	if (shunt_parse_l2(data, end, stripped, &p, &family) != SHUNT_OK)
		return pass();
	if (family == 4)
		return handle(ctx, &p, 4, ANY, ctx->ingress_ifindex, data, data + p.l2_bytes, end);
	if (family == 6)
		return handle(ctx, &p, 6, ANY, ctx->ingress_ifindex, data, data + p.l2_bytes, end);
	return handle_session(ctx, &p, data, end);
}

/* Whether a frame that does not begin with an IP packet may be one for handle_any(). */
static __always_inline int may_hold_ip(__be16 proto_be)
{
	return shunt_is_vlan(proto_be) || proto_be == shunt_htons(ETH_P_PPP_SES);
}

SEC("xdp.frags")
int shunt_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	void *l3 = shunt_untagged_l3(data), *eth;
	struct shunt_hw_tag stripped;
	struct shunt_packet p;
	__be16 proto_be;

	/* One base register for both headers. */
	shunt_keep(l3);
	if (shunt_unlikely(shunt_empty() || shunt_headers_end(4, IPPROTO_UDP, l3) > end))
		return XDP_PASS;
#ifdef SHUNT_RING
	shunt_look_ahead(ctx);
	/* The verifier forgets the bounds of the frame in a call. */
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	l3 = shunt_untagged_l3(data);
	shunt_keep(l3);
	if (shunt_headers_end(4, IPPROTO_UDP, l3) > end)
		return XDP_PASS;
#endif
	stripped = stripped_tag(ctx);
	if (stripped.present)
		return handle_any(ctx, stripped.tpid_be, stripped.tci);
	eth = shunt_untagged_macs(l3);
	proto_be = shunt_proto_before(l3);
	shunt_untagged(&p);
	if (shunt_family_of(proto_be) == 4)
		return handle(ctx, &p, 4, UNTAGGED, ctx->ingress_ifindex, eth, l3, end);
	if (shunt_family_of(proto_be) == 6)
		return handle(ctx, &p, 6, UNTAGGED, ctx->ingress_ifindex, eth, l3, end);
	return may_hold_ip(proto_be) ? handle_any(ctx, 0, 0) : pass();
}

#if !defined(SHUNT_VERIFYING) && !defined(SHUNT_RING) && !defined(SHUNT_STRIPPED_TAGS)

/* The number of the entry of an untagged packet, by the index; -1 if there is none. */
static __always_inline __s64 search(struct xdp_md *ctx, __u32 family)
{
	void *l3 = shunt_untagged_l3((void *)(long)ctx->data), *end = (void *)(long)ctx->data_end;
	struct shunt_packet p;
	union shunt_key key;
	__u32 entry = 0;

	shunt_untagged(&p);
	if (shunt_parse_l3(family, l3, end, ctx->ingress_ifindex, &p, &key) != SHUNT_OK ||
	    shunt_admit_tcp(&p) != SHUNT_OK)
		return -1;
	return shunt_find_soon(family, &key, shunt_hash(family, &key), &entry) ? (__s64)entry : -1;
}

/* Functions, since what they parse would stay on the stack of their caller; global, so that they are verified once. */
__noinline __s64 shunt_search4(struct xdp_md *ctx)
{
	return search(ctx, 4);
}

__noinline __s64 shunt_search6(struct xdp_md *ctx)
{
	return search(ctx, 6);
}

/*
 * Forwards a usual packet: untagged, of a flow that is current, routed, and leaves without tags. Any other packet is
 * left to handle_any(), which starts again; nothing is changed before all is known.
 *
 * Helpers are called first, since they leave few registers alone. Until the packet is parsed, the entry may be that of
 * any flow.
 */
static __always_inline int forward_usual(struct xdp_md *ctx, __u32 family, __u8 l4_proto, void *l3)
{
	const union shunt_head excluded = { .flags = SHUNT_FLOW_BRIDGED, .out_tags = 0xff };
	void *end = shunt_headers_end(family, l4_proto, l3);
	struct shunt_counters *counters;
	struct shunt_packet p;
	union shunt_key key;
	struct shunt_flow *f;
	__u64 *words, now;
	__s64 found;
	__u32 entry;

	entry = shunt_hinted(family, l3 + shunt_l3_size(family) - shunt_addrs_size(family));
	words = shunt_words_of(family, &entry);
	if (shunt_unlikely(!words)) {
		found = family == 4 ? shunt_search4(ctx) : shunt_search6(ctx);
		entry = found;
		words = shunt_words_of(family, &entry);
		if (found < 0 || !words)
			return pass();
	}
	shunt_prefetch(words, family == 4 ? sizeof(struct shunt_entry4) : sizeof(struct shunt_entry6));
	f = shunt_flow_at(family, words);
	/* Keep clang from recomputing the addresses of the members from the entry. */
	shunt_keep(f);
	now = shunt_now();
	counters = shunt_counters_of(f->in_slot);
	if (shunt_unlikely(!counters))
		return handle_any(ctx, 0, 0);
	shunt_untagged(&p);
	if (shunt_unlikely(shunt_parse_l3(family, l3, end, ctx->ingress_ifindex, &p, &key) != SHUNT_OK ||
			   shunt_admit_tcp(&p) != SHUNT_OK ||
			   !shunt_same_key(family, (__u64 *)f - shunt_key_words(family), &key) ||
			   !shunt_is_current(f, shunt_current_epoch(f), SHUNT_FLOW_XDP, excluded) ||
			   !shunt_daemon_alive(&shunt_control, now) ||
			   shunt_decide_as(f, &p, shunt_untagged_macs(l3), &shunt_control, 0, now,
					   SHUNT_KNOWN_ROUTED) != SHUNT_OK))
		return handle_any(ctx, 0, 0);
	/* Keep clang from taking words of the header from registers. */
	shunt_keep(l3);
	if (shunt_unlikely((family == 4 && !shunt_ipv4_header_good(l3)) ||
			   !shunt_is_summed(&p, family, l4_proto, f, l3)))
		return pass();
	if (shunt_unlikely(l3 + p.l3_bytes != (void *)(long)ctx->data_end)) {
		l3 = trimmed(ctx, &p, family, l4_proto, f);
		if (!l3)
			return pass();
	}
	shunt_rewrite_as(l3, l3 + shunt_l3_size(family), family, l4_proto, f, shunt_new_addrs(f),
			 SHUNT_CHECKSUM_FINISHED, f->flags & ~SHUNT_FLOW_BRIDGED);
	shunt_copy_macs(shunt_untagged_macs(l3), f->l2);
	return send(family, l4_proto, &p, f, &entry, f->out_slot, counters, now);
}

static __always_inline int handle_usual(struct xdp_md *ctx, __u32 family, void *l3, void *end)
{
	__u8 l4_proto;

	if (shunt_unlikely(shunt_headers_end(family, IPPROTO_UDP, l3) > end))
		return pass();
	l4_proto = shunt_l4_proto_of(family, l3);
	if (l4_proto == IPPROTO_UDP)
		return forward_usual(ctx, family, IPPROTO_UDP, l3);
	if (l4_proto == IPPROTO_TCP && shunt_headers_end(family, IPPROTO_TCP, l3) <= end)
		return forward_usual(ctx, family, IPPROTO_TCP, l3);
	return pass();
}

/*
 * As shunt_xdp(), for a plane whose flows are few and usual: they are found by hints, and what no usual packet needs
 * is left to a function. Both programs do the same with every packet, so nothing depends on when they are exchanged.
 */
SEC("xdp.frags")
int shunt_xdp_usual(struct xdp_md *ctx)
{
	void *l3 = shunt_untagged_l3((void *)(long)ctx->data);
	void *end = (void *)(long)ctx->data_end;
	__be16 proto_be;

	/* One base register for both headers. */
	shunt_keep(l3);
	if (shunt_unlikely(shunt_empty() || shunt_headers_end(4, IPPROTO_UDP, l3) > end))
		return XDP_PASS;
	proto_be = shunt_proto_before(l3);
	if (shunt_family_of(proto_be) == 4)
		return handle_usual(ctx, 4, l3, end);
	if (shunt_family_of(proto_be) == 6)
		return handle_usual(ctx, 6, l3, end);
	return may_hold_ip(proto_be) ? handle_any(ctx, 0, 0) : pass();
}

#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";

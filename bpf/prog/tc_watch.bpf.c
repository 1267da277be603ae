// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * tc egress: sees packets that Linux forwarded, as they will leave, and learns from those whose headers at ingress
 * are still known. Alone in its object because it needs conntrack's kfuncs.
 */
#include "include/conntrack.h"
#include "include/events.h"
#include "include/skb.h"
#include "include/trace.h"
#include "include/watch.h"

/* Too large for the stack. Programs do not nest on a CPU here. */
struct workbench {
	struct shunt_headers expected;
	struct shunt_headers seen;
	struct shunt_flow flow;
	__u8 to[32]; /* the new addresses */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct workbench);
} shunt_workbench SEC(".maps");

struct sight {
	struct __sk_buff *skb;
	struct shunt_candidate *c;
	struct shunt_counters *counters; /* of the ingress port */
	struct shunt_port *port;	 /* egress */
	struct workbench *bench;
	__u32 now;
};

/* The source address, and behind it the destination. */
static __always_inline const __u32 *addresses(__u32 family, const struct shunt_headers *h)
{
	__u32 at = family == 4 ? __builtin_offsetof(struct iphdr, saddr) : __builtin_offsetof(struct ipv6hdr, saddr);

	return (const __u32 *)(h->l3 + at);
}

/* The key that the candidate came in with. */
static __always_inline void key_of(__u32 family, const struct shunt_candidate *c, union shunt_key *key)
{
	const __be16 *ports = (const __be16 *)c->headers.l4;

	if (family == 4) {
		key->v4 = (struct shunt_key4){
			.sport_be = ports[0],
			.dport_be = ports[1],
			.ifindex = c->ifindex,
			.l4_proto = c->l4_proto,
		};
		__builtin_memcpy(&key->v4.src_be, addresses(4, &c->headers), 8);
		shunt_tags_of(c->headers.l2, (c->headers.l2_bytes - ETH_HLEN) / 4, key->v4.tags);
	} else {
		key->v6 = (struct shunt_key6){
			.sport_be = ports[0],
			.dport_be = ports[1],
			.ifindex = c->ifindex,
			.l4_proto = c->l4_proto,
		};
		__builtin_memcpy(key->v6.src, addresses(6, &c->headers), 32);
		shunt_tags_of(c->headers.l2, (c->headers.l2_bytes - ETH_HLEN) / 4, key->v6.tags);
	}
}

/* Whether one direction of a connection has the addresses and ports that the candidate came in with. */
static __always_inline int same_tuple(__u32 family, const struct nf_conntrack_tuple___shunt *t,
				      const struct shunt_candidate *c)
{
	const __be16 *ports = (const __be16 *)c->headers.l4;
	const __u32 *addr = addresses(family, &c->headers);

	if (t->src.u.all != ports[0] || t->dst.u.all != ports[1])
		return 0;
	if (family == 4)
		return t->src.u3.all[0] == addr[0] && t->dst.u3.all[0] == addr[1];
	return t->src.u3.all[0] == addr[0] && t->src.u3.all[1] == addr[1] && t->src.u3.all[2] == addr[2] &&
	       t->src.u3.all[3] == addr[3] && t->dst.u3.all[0] == addr[4] && t->dst.u3.all[1] == addr[5] &&
	       t->dst.u3.all[2] == addr[6] && t->dst.u3.all[3] == addr[7];
}

static __always_inline void ask_for_liberal(__u32 family, const struct nf_conn *ct, __u32 ifindex)
{
	const struct nf_conntrack_tuple___shunt *t = &ct->tuplehash[0].tuple;
	struct shunt_event *event = bpf_ringbuf_reserve(&shunt_events, sizeof(*event), 0);
	__u32 *src, *dst;

	if (!event)
		return;
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = SHUNT_EVENT_WANT_LIBERAL;
	event->family = family;
	event->l4_proto = IPPROTO_TCP;
	event->sport_be = t->src.u.all;
	event->dport_be = t->dst.u.all;
	event->ifindex = ifindex;
	src = (__u32 *)event->src;
	dst = (__u32 *)event->dst;
	src[0] = t->src.u3.all[0];
	dst[0] = t->dst.u3.all[0];
	if (family == 6) {
		src[1] = t->src.u3.all[1];
		src[2] = t->src.u3.all[2];
		src[3] = t->src.u3.all[3];
		dst[1] = t->dst.u3.all[1];
		dst[2] = t->dst.u3.all[2];
		dst[3] = t->dst.u3.all[3];
	}
	bpf_ringbuf_submit(event, 0);
}

static __always_inline int excluded(__u32 mark, __u32 value, __u32 mask)
{
	return mask && (mark & mask) == value;
}

/* Whether conntrack lets this connection go fast. Also says which direction the packet belongs to. */
static __always_inline enum shunt_reason judge(const struct sight *s, __u32 family, const struct nf_conn *ct,
					       __u8 found_dir, __u8 *flags)
{
	unsigned long status = ct->status;
	__u8 both;

	/* The reverse of the packet was looked up, so the packet's own direction is the other one. */
	if (found_dir == 0) {
		*flags |= SHUNT_FLOW_REPLY;
		if (!same_tuple(family, &ct->tuplehash[1].tuple, s->c))
			return SHUNT_OTHER_TUPLE;
	} else if (!same_tuple(family, &ct->tuplehash[0].tuple, s->c)) {
		return SHUNT_OTHER_TUPLE;
	}
	if (status & SHUNT_IPS_DYING)
		return SHUNT_DYING;
	if (!(status & SHUNT_IPS_CONFIRMED))
		return SHUNT_UNCONFIRMED;
	/* What a helper has announced may have the helper too, and lacks the status bit. */
	if (status & SHUNT_IPS_HELPER || (ct->ext && ct->ext->offset[0]))
		return SHUNT_HELPER;
	if (bpf_core_field_exists(ct->mark) &&
	    excluded(ct->mark, shunt_control.exclude_ct_mark, shunt_control.exclude_ct_mark_mask))
		return SHUNT_EXCLUDED;
	if (status & (SHUNT_IPS_SEQ_ADJUST | SHUNT_IPS_NAT_CLASH))
		return SHUNT_SEQ_ADJUST;
	if (s->c->l4_proto == IPPROTO_UDP) {
		if (status & SHUNT_IPS_SEEN_REPLY)
			return SHUNT_OK;
		*flags |= SHUNT_FLOW_UNREPLIED;
		return shunt_control.flags & SHUNT_CONTROL_UDP_UNREPLIED ? SHUNT_OK : SHUNT_UNREPLIED;
	}
	if (ct->proto.tcp.state != SHUNT_TCP_CONNTRACK_ESTABLISHED || !(status & SHUNT_IPS_ASSURED))
		return SHUNT_NOT_ESTABLISHED;
	both = ct->proto.tcp.seen[0].flags & ct->proto.tcp.seen[1].flags;
	/* A connection picked up in the middle: without an acknowledgement of each end conntrack believes any reset. */
	if (!(both & SHUNT_TCP_MAXACK_SET))
		return SHUNT_NOT_ESTABLISHED;
	if (!(both & SHUNT_TCP_BE_LIBERAL)) {
		ask_for_liberal(family, ct, s->c->ifindex);
		return SHUNT_NOT_LIBERAL;
	}
	return SHUNT_OK;
}

/* Conntrack must see a packet well before it forgets the connection, whose timeout may be its own (nft `ct timeout`). */
static __always_inline void prove_in_time(const struct sight *s, const struct nf_conn *ct, struct shunt_flow *f)
{
	__u32 ticks = (ct->timeout - s->now) / 3;

	if (ticks < shunt_control.reprove_ticks)
		f->reprove_at_ticks = s->now + ticks;
}

static __always_inline enum shunt_reason ask_conntrack(const struct sight *s, __u32 family, struct shunt_flow *f)
{
	struct bpf_ct_opts___shunt opts = { .netns_id = -1, .l4proto = s->c->l4_proto };
	const __be16 *ports = (const __be16 *)s->bench->seen.l4;
	const __u32 *addr = addresses(family, &s->bench->seen);
	struct bpf_sock_tuple tuple = {};
	enum shunt_reason why;
	struct nf_conn *ct;

	if (family == 4) {
		__builtin_memcpy(&tuple.ipv4.saddr, addr + 1, 4);
		__builtin_memcpy(&tuple.ipv4.daddr, addr, 4);
		tuple.ipv4.sport = ports[1];
		tuple.ipv4.dport = ports[0];
		ct = bpf_skb_ct_lookup(s->skb, &tuple, sizeof(tuple.ipv4), &opts, sizeof(opts));
	} else {
		__builtin_memcpy(tuple.ipv6.saddr, addr + 4, 16);
		__builtin_memcpy(tuple.ipv6.daddr, addr, 16);
		tuple.ipv6.sport = ports[1];
		tuple.ipv6.dport = ports[0];
		ct = bpf_skb_ct_lookup(s->skb, &tuple, sizeof(tuple.ipv6), &opts, sizeof(opts));
	}
	if (!ct)
		return SHUNT_NO_CONNTRACK;
	why = judge(s, family, ct, opts.dir, &f->flags);
	prove_in_time(s, ct, f);
	bpf_ct_release(ct);
	return why;
}

/* Renews the flow that is there. */
static __always_inline enum shunt_reason renew(const struct sight *s, struct shunt_flow *have)
{
	const struct shunt_flow *f = &s->bench->flow;

	/* What Linux was seen to forward before a change it need not forward after it. */
	if (have->epoch != s->c->epoch || f->max_l3_bytes > have->max_l3_bytes)
		have->max_l3_bytes = f->max_l3_bytes;
	have->flags = f->flags;
	have->class_bits = f->class_bits;
	have->in_ttl = f->in_ttl;
	/* What held before a change need not hold after it: that it leaves only once is to be seen again. */
	if (have->epoch != s->c->epoch)
		have->state = SHUNT_FLOW_PENDING;
	have->prove_by_ticks = f->prove_by_ticks;
	have->reprove_at_ticks = f->reprove_at_ticks;
	have->seen_ticks = s->now;
	have->epoch = s->c->epoch;
	s->counters->proved++;
	return SHUNT_OK;
}

/* The flow is learned again while its connection lives: what was counted of it stays counted. */
static __always_inline void carry_on(__u32 family, __u32 entry, const struct shunt_flow *have,
				     struct shunt_flow *f)
{
	const struct shunt_cold *cold = shunt_cold_at(family, entry);

	if (!cold || have->retired_why == SHUNT_CONNTRACK_GONE)
		return;
	f->pkts = have->pkts + cold->away_pkts;
	f->bytes = have->bytes + cold->away_bytes;
}

/* The flow of the other direction. */
static __always_inline struct shunt_flow *other_way(const struct sight *s, __u32 family)
{
	union shunt_key back;
	__u32 entry;

	shunt_reverse_key(family, &s->bench->flow, s->bench->to, s->c->l4_proto, s->skb->ifindex, &back);
	return shunt_find_by(family, &back, shunt_hash(family, &back), &entry);
}

/*
 * Now that an answer is seen, the direction that asked is proved again: when it was learned, the connection was new to
 * the rules, and now it is established.
 */
static __always_inline void prove_asker_again(const struct sight *s, __u32 family)
{
	struct shunt_flow *asked = other_way(s, family);

	if (asked && asked->flags & SHUNT_FLOW_UNREPLIED)
		asked->prove_by_ticks = s->now;
}

/* Where nobody tracks connections, the original direction is the one that was learned first. */
static __always_inline void take_sides(const struct sight *s, __u32 family)
{
	const struct shunt_flow *other = other_way(s, family);

	if (other && !(other->flags & SHUNT_FLOW_REPLY))
		s->bench->flow.flags |= SHUNT_FLOW_REPLY;
}

/* Puts a proved action into the table, or renews the one that is there. */
static __always_inline enum shunt_reason install(const struct sight *s, __u32 family)
{
	struct shunt_flow *f = &s->bench->flow;
	struct shunt_flow *have;
	union shunt_key key;
	__u32 entry, found;
	__u64 hash;

	f->epoch = s->c->epoch;
	f->state = SHUNT_FLOW_PENDING;
	f->home_cpu = bpf_get_smp_processor_id();
	f->prove_by_ticks = f->reprove_at_ticks + (shunt_control.prove_ticks - shunt_control.reprove_ticks);
	f->seen_ticks = s->now;
	key_of(family, s->c, &key);
	hash = shunt_hash(family, &key);
	have = shunt_find(family, &key, hash, &entry);
	if (!have) {
		if (shunt_insert(family, &key, hash, f, s->bench->to, s->now, &entry))
			return SHUNT_TABLE_FULL;
		/* Another CPU may have learned it at the same time; the one that is found stays. */
		have = shunt_find(family, &key, hash, &found);
		if (have && found != entry) {
			shunt_unpublish(family, entry, s->now);
			return SHUNT_RETIRING;
		}
	} else if (have->flags & SHUNT_FLOW_STATIC) {
		return SHUNT_OK;
	} else if (have->epoch == SHUNT_EPOCH_RETIRED) {
		if (shunt_since(have->retired_ticks, s->now) < (__s32)shunt_ticks(SHUNT_RETIRED_MS))
			return SHUNT_RETIRING;
		carry_on(family, entry, have, f);
		if (shunt_write(family, entry, &key, f, s->bench->to, s->now))
			return SHUNT_RETIRING;
	} else if (shunt_same_action(family, have, shunt_to(have), f, s->bench->to)) {
		return renew(s, have);
	} else {
		shunt_retire(have, s->now, SHUNT_NOT_PROVED);
		s->counters->retired++;
		shunt_trace(SHUNT_TRACE_RETIRE, SHUNT_NOT_PROVED, family, &key);
		return SHUNT_RETIRING;
	}
	if (f->flags & SHUNT_FLOW_REPLY && s->c->l4_proto == IPPROTO_UDP)
		prove_asker_again(s, family);
	s->counters->learned++;
	shunt_trace(SHUNT_TRACE_LEARN, SHUNT_OK, family, &key);
	return SHUNT_OK;
}

/*
 * Whether a refusal says that an action learned before is right no more. The others say something about this packet
 * only.
 */
static __always_inline int disproves(enum shunt_reason why)
{
	switch (why) {
	case SHUNT_FRAGMENT:
	case SHUNT_AGED:
	case SHUNT_OLD_EPOCH:
	case SHUNT_TABLE_FULL:
	case SHUNT_RETIRING:
		return 0;
	default:
		return 1;
	}
}

/* The packet taught nothing. Its flow, if it has one, goes out of use where this says that it is wrong by now. */
static __always_inline void refuse(const struct sight *s, __u32 family, enum shunt_reason why)
{
	struct shunt_flow *have;
	union shunt_key key;
	__u32 entry;
	__u64 hash;

	key_of(family, s->c, &key);
	shunt_trace(SHUNT_TRACE_REFUSE, why, family, &key);
	if (!disproves(why))
		return;
	hash = shunt_hash(family, &key);
	have = shunt_find(family, &key, hash, &entry);
	if (!have || have->flags & SHUNT_FLOW_STATIC || have->epoch == SHUNT_EPOCH_RETIRED)
		return;
	shunt_retire(have, s->now, why);
	s->counters->retired++;
	shunt_trace(SHUNT_TRACE_RETIRE, why, family, &key);
}

static __always_inline enum shunt_reason learn(const struct sight *s, __u32 family, struct shunt_packet *p, void *eth)
{
	struct shunt_flow *f = &s->bench->flow;
	enum shunt_reason why;

	if (s->now - s->c->at_ticks > shunt_ticks(SHUNT_CANDIDATE_MS))
		return SHUNT_AGED;
	if (s->c->epoch != shunt_control.epoch)
		return SHUNT_OLD_EPOCH;
	if (s->port->flags & SHUNT_PORT_CAPTURED)
		return SHUNT_EGRESS_CAPTURE;
	if (s->port->flags & SHUNT_PORT_FILTERED_OUT)
		return SHUNT_EGRESS_FILTER;
	if (excluded(s->skb->mark, shunt_control.exclude_mark, shunt_control.exclude_mark_mask))
		return SHUNT_EXCLUDED;
	if (shunt_capture(s->skb, p, eth, &s->bench->seen))
		return SHUNT_ODD_EGRESS;
	__builtin_memset(f, 0, sizeof(*f));
	why = shunt_derive(s->c, &s->bench->seen, p, f, s->bench->to);
	if (why != SHUNT_OK)
		return why;
	f->reprove_at_ticks = s->now + shunt_control.reprove_ticks;
	if (f->flags & SHUNT_FLOW_UNTRACKED) {
		take_sides(s, family);
	} else {
		why = ask_conntrack(s, family, f);
		if (why != SHUNT_OK)
			return why;
	}
	s->bench->expected = s->c->headers;
	if (!shunt_proved(&s->bench->expected, &s->bench->seen, s->c, f, s->bench->to) ||
	    shunt_skb_padded(s->skb, p) != (s->c->padded && f->flags & SHUNT_FLOW_UNTRACKED))
		return SHUNT_NOT_PROVED;
	if (s->port->flags & SHUNT_PORT_XDP_OUT)
		f->flags |= SHUNT_FLOW_XDP;
	if (s->c->in_flags & SHUNT_PORT_PARTIAL)
		f->flags |= SHUNT_FLOW_PARTIAL;
	f->in_slot = s->c->in_slot;
	f->out_slot = s->port->slot;
	f->mark = s->skb->mark;
	f->priority = s->skb->priority;
	return install(s, family);
}

static __always_inline enum shunt_reason see(const struct sight *s, __u32 family, struct shunt_packet *p,
					     struct ethhdr *eth, void *end)
{
	union shunt_key key;
	enum shunt_reason why =
		shunt_parse_l3(family, (void *)eth + p->l2_bytes, end, s->skb->ifindex, p, &key);

	if (s->c->family != family)
		return SHUNT_ODD_EGRESS;
	if (why == SHUNT_OK) {
		shunt_skb_wire_bytes(s->skb, p);
		/* A packet that leaves once more than it came in: its flow cannot be expressed by one action. */
		why = s->c->left++ ? SHUNT_LEFT_TWICE : learn(s, family, p, eth);
	} else if (why != SHUNT_FRAGMENT) {
		why = SHUNT_ODD_EGRESS;
	}
	if (why != SHUNT_OK)
		refuse(s, family, why);
	return why;
}

/* How long not to ask about a tuple again after it was refused. */
static __always_inline __u32 quiet_ms(enum shunt_reason why)
{
	switch (why) {
	case SHUNT_AGED:
	case SHUNT_OLD_EPOCH:
	case SHUNT_RETIRING:
	case SHUNT_EGRESS_CAPTURE:
	case SHUNT_EGRESS_FILTER:
		return 0;
	case SHUNT_NOT_LIBERAL:
	case SHUNT_UNCONFIRMED:
	case SHUNT_NOT_ESTABLISHED:
	case SHUNT_UNREPLIED:
		return SHUNT_QUIET_SHORT_MS;
	case SHUNT_LEFT_TWICE:
		return SHUNT_QUIET_LONG_MS;
	default:
		return SHUNT_QUIET_MS;
	}
}

SEC("tcx/egress")
int shunt_out(struct __sk_buff *skb)
{
	__u32 ticket = skb->tc_index, index = ticket % SHUNT_CANDIDATES, zero = 0;
	struct sight s = { .skb = skb };
	enum shunt_reason why = SHUNT_ODD_EGRESS;
	struct shunt_packet p;
	struct ethhdr *eth;
	__be16 proto_be;
	void *end;

	if (!ticket)
		return SHUNT_TC_NEXT;
	s.c = bpf_map_lookup_elem(&shunt_candidates, &index);
	s.port = shunt_port_of(skb->ifindex);
	s.bench = bpf_map_lookup_elem(&shunt_workbench, &zero);
	if (!s.c || !s.port || !s.bench)
		return SHUNT_TC_NEXT;
	if (s.c->ticket != ticket) {
		s.counters = shunt_counters_of(s.port->slot);
		if (s.counters)
			shunt_count_reason(s.counters, SHUNT_NOT_WATCHED);
		return SHUNT_TC_NEXT;
	}
	s.counters = shunt_counters_of(s.c->in_slot);
	if (!s.counters)
		return SHUNT_TC_NEXT;
	s.now = shunt_now();
	skb->tc_index = 0;
	shunt_skb_pull(skb);
	eth = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	if (shunt_parse_l2(eth, end, shunt_skb_tag(skb), &p, &proto_be) == SHUNT_OK) {
		if (proto_be == shunt_htons(ETH_P_IP))
			why = see(&s, 4, &p, eth, end);
		else if (proto_be == shunt_htons(ETH_P_IPV6))
			why = see(&s, 6, &p, eth, end);
	}
	if (why != SHUNT_OK) {
		shunt_count_reason(s.counters, why);
		shunt_refuse(s.c, why, s.now, shunt_ticks(quiet_ms(why)));
	}
	return SHUNT_TC_NEXT;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A connection at a port, and what is counted of it: round trips to the end beyond the port, and segments that are lost
 * there, for the host that the connection belongs to.
 *
 * Two CPUs may handle packets of a connection at once. Their writes may then get lost, which costs samples.
 */
#ifndef SHUNT_INSPECT_QUALITY_FLOW_H
#define SHUNT_INSPECT_QUALITY_FLOW_H

#include "inspect/quality_packet.h"

enum {
	/* A full segment, for receivers: they acknowledge every second one at once. */
	QUALITY_FULL = 512,
	/* A gap of so small a part of a round trip makes it at most so much longer. */
	QUALITY_GAP = 16,
	/* The same for echoes: nearly all of them are sent without a gap, by senders that wait for acknowledgements. */
	QUALITY_ECHO_GAP = 4,
};

struct quality_flow {
	__u64 sample_at; /* when the bytes before sample_end left; 0: no sample is on its way */
	__u64 next_at; /* when the packet behind these, up to next_end, left; 0: none has */
	__u64 stamp_at; /* when the first packet with this time stamp left; 0: its echo has come back */
	__u64 inside_at; /* as sample_at, for bytes that entered */
	__u64 entered_at; /* when data entered last */
	__u32 sample_end;
	__u32 sample_bytes;
	__u32 next_end;
	__u32 stamp; /* its echo is awaited */
	__u32 last_stamp; /* that left */
	__u32 inside_end;
	__u32 acked; /* by the end beyond the port */
	__u32 recovered; /* an acknowledgement that skips bytes before this has waited for repeated ones */
	__u32 shortest; /* round trip; 0: unknown */
	__u32 inside_shortest; /* the same on the other side, through the router */
	__u32 repeated; /* segments that left twice, without those that the receiver says it had */
	__u32 is_stamp_known;
	struct quality_host host;
	struct quality_stream in;
	struct quality_stream out;
};

/* A connection that waits for the answer to a packet that has left. */
struct quality_opening {
	__u64 at; /* 0: its bytes left twice, so their acknowledgement says nothing */
	__u32 end; /* the sequence number after its bytes */
	__u32 ack; /* the sequence number that it expects */
	__u16 has_bytes; /* or a SYN */
	__u16 has_ack;
	__u16 is_syn;
	__u16 is_assumed; /* as of a host; its address */
	__be32 host_be[4];
};

#define QUALITY_MAP(map_type, name, entries, key_type, value_type)                                                     \
	struct {                                                                                                       \
		__uint(type, map_type);                                                                                \
		__uint(max_entries, entries);                                                                          \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
	} name SEC(".maps")

QUALITY_MAP(BPF_MAP_TYPE_LRU_HASH, quality_flows, QUALITY_FLOWS, struct quality_key, struct quality_flow);
/* Apart from those above, so that what is never answered takes nobody's place. */
QUALITY_MAP(BPF_MAP_TYPE_LRU_HASH, quality_openings, QUALITY_OPENING, struct quality_key, struct quality_opening);
QUALITY_MAP(BPF_MAP_TYPE_HASH, quality_hosts, QUALITY_HOSTS, struct quality_host, struct quality_tally);
QUALITY_MAP(BPF_MAP_TYPE_ARRAY, quality_unseen, 1, __u32, struct quality_unseen);
/* Entries with zeros, to begin with: too large for the stack. */
QUALITY_MAP(BPF_MAP_TYPE_ARRAY, quality_new_tally, 1, __u32, struct quality_tally);
QUALITY_MAP(BPF_MAP_TYPE_ARRAY, quality_new_flow, 1, __u32, struct quality_flow);

static __always_inline struct quality_unseen *unseen(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&quality_unseen, &zero);
}

static __always_inline __u32 units(__u64 ns)
{
	ns >>= 10;
	return ns > 0x7fffffff ? 0x7fffffff : ns;
}

static __always_inline void count_time(struct quality_times *times, __u32 time)
{
	__u32 bucket = quality_bucket(time);

	if (bucket >= QUALITY_BUCKETS)
		bucket = QUALITY_BUCKETS - 1;
	__sync_fetch_and_add(&times->count[bucket], 1);
}

static __always_inline void count(__u64 *counter, __u32 by)
{
	if (by)
		__sync_fetch_and_add(counter, by);
}

/* The counts of a connection's host, or of those for which there is no room. */
static __noinline struct quality_tally *tally_of(struct quality_flow *f)
{
	struct quality_host host = f->host;
	struct quality_tally *tally = bpf_map_lookup_elem(&quality_hosts, &host), *empty;
	struct quality_unseen *missed;
	__u32 zero = 0;

	if (tally)
		return tally;
	empty = bpf_map_lookup_elem(&quality_new_tally, &zero);
	if (!empty)
		return NULL;
	bpf_map_update_elem(&quality_hosts, &host, empty, BPF_NOEXIST);
	tally = bpf_map_lookup_elem(&quality_hosts, &host);
	if (tally)
		return tally;
	missed = unseen();
	if (missed)
		count(&missed->hosts, 1);
	/* The loader has made this one. */
	__builtin_memset(f->host.addr_be, 0, sizeof(f->host.addr_be));
	f->host.family = 0;
	f->host.is_assumed = 0;
	host = f->host;
	return bpf_map_lookup_elem(&quality_hosts, &host);
}

/* A round trip has been measured. If it is prompt, the other end had waited for at most `unsure` before it answered. */
QUALITY_FUNCTION int note_round_trip(struct quality_flow *f, __u32 time, __u32 is_prompt, __u32 unsure)
{
	struct quality_tally *tally = tally_of(f);
	__u32 shortest = f->shortest, least = time < unsure ? 0 : time - unsure;

	if (!tally)
		return 0;
	if (!is_prompt) {
		count_time(&tally->delayed, time);
	} else {
		count_time(&tally->prompt, time);
		/* A connection's first one would say nothing. */
		if (shortest)
			count_time(&tally->excess, least < shortest ? 0 : least - shortest);
	}
	if (!shortest || time < shortest)
		f->shortest = time ? time : 1;
	return 0;
}

/* How soon a missing segment is late, not lost: no sender knows of it before half a round trip has passed. */
static __always_inline __u32 reordered_within(const struct quality_flow *f)
{
	__u32 half = (f->shortest + f->inside_shortest) / 2;

	return f->shortest && f->inside_shortest && half < QUALITY_REORDERED ? half : QUALITY_REORDERED;
}

/* Follows data in a direction of a connection. */
static __always_inline void pass(struct quality_flow *f, struct quality_stream *s, const struct quality_packet *p,
				 __u64 now, struct quality_step *step)
{
	__u32 each = p->segment_bytes ? p->segment_bytes : p->bytes;

	if (each > s->segment_bytes)
		s->segment_bytes = each;
	__builtin_memset(step, 0, sizeof(*step));
	step->seq = p->seq;
	step->bytes = p->bytes;
	step->now = now >> 10;
	step->reordered_within = reordered_within(f);
	follow(s, step);
}

/* Data enters the router. */
QUALITY_FUNCTION int data_in(struct quality_flow *f, struct quality_packet *p, __u64 now)
{
	struct quality_tally *tally;
	struct quality_step step;
	__u64 since, gap;

	pass(f, &f->in, p, now, &step);
	tally = tally_of(f);
	if (tally) {
		count(&tally->in_segments, segments(&f->in, p->bytes));
		count(&tally->in_lost, segments(&f->in, step.lost));
		count(&tally->in_reordered, segments(&f->in, step.reordered));
		count(&tally->in_unclear, segments(&f->in, step.unclear));
	}
	if (!step.is_new) {
		f->inside_at = 0;
	} else if (!f->inside_at) {
		f->inside_end = p->seq + p->bytes;
		f->inside_at = now;
	}
	/*
	 * Time stamps: an echo left the sender after the data before it, which had an older one. After a silence, it
	 * tells how long an application thought.
	 */
	if (p->has_stamp && f->stamp_at && !is_before(p->echo, f->stamp)) {
		since = now - f->stamp_at;
		gap = now - f->entered_at;
		if (p->echo == f->stamp && units(gap) < QUALITY_WAITS)
			note_round_trip(f, units(since), gap * QUALITY_ECHO_GAP <= since, units(gap));
		f->stamp_at = 0;
	}
	f->entered_at = now;
	return 0;
}

/* An acknowledgement enters the router. */
QUALITY_FUNCTION int acknowledged(struct quality_flow *f, struct quality_packet *p, __u64 now)
{
	__u64 at = f->sample_at, next = f->next_at;
	struct quality_tally *tally;
	__u32 segments_twice, each = f->out.segment_bytes;
	int is_prompt, has_second, has_waited = is_before(f->acked, f->recovered);

	if (is_before(f->acked, p->ack))
		f->acked = p->ack;
	/* Keeps up, so that it is not taken for one to come when sequence numbers start again. */
	if (!has_waited)
		f->recovered = f->acked;
	if (at && !is_before(p->ack, f->sample_end)) {
		f->sample_at = 0;
		is_prompt = f->sample_bytes >= 2 * each;
		has_second = f->sample_bytes >= each && next;
		if (has_second && is_before(p->ack, f->next_end)) {
			is_prompt |= (next - at) * QUALITY_GAP <= now - at;
		} else if (has_second && f->next_end - f->sample_end >= each) {
			/* It was held back until the second segment came. */
			is_prompt = 1;
			at = next;
		}
		if (!has_waited)
			note_round_trip(f, units(now - at), is_prompt && each >= QUALITY_FULL, 0);
	}
	if (!f->repeated)
		return 0;
	segments_twice = segments(&f->out, duplicate_bytes(p));
	if (!segments_twice)
		return 0;
	if (segments_twice > f->repeated)
		segments_twice = f->repeated;
	f->repeated -= segments_twice;
	tally = tally_of(f);
	if (tally)
		count(&tally->out_duplicate, segments_twice);
	return 0;
}

/* Data leaves the router. */
QUALITY_FUNCTION int data_out(struct quality_flow *f, struct quality_packet *p, __u64 now)
{
	struct quality_tally *tally;
	struct quality_step step;
	__u32 repeated;

	pass(f, &f->out, p, now, &step);
	repeated = segments(&f->out, step.repeated);
	f->repeated += repeated;
	tally = tally_of(f);
	if (tally) {
		count(&tally->out_segments, segments(&f->out, p->bytes));
		count(&tally->out_repeated, repeated);
		count(&tally->out_unclear, segments(&f->out, step.unclear));
	}
	if (!step.is_new) {
		/* Karn: the acknowledgement may be that of either; and those of later bytes wait for it. */
		if (is_before(p->seq, f->sample_end))
			f->sample_at = 0;
		if (is_before(f->recovered, p->seq + p->bytes))
			f->recovered = p->seq + p->bytes;
	} else if (f->sample_at) {
		if (!f->next_at) {
			f->next_end = p->seq + p->bytes;
			f->next_at = now;
		}
	} else {
		f->sample_end = p->seq + p->bytes;
		f->sample_bytes = p->bytes;
		f->next_at = 0;
		f->sample_at = now;
	}
	return 0;
}

/* Any packet leaves: its acknowledgement and its time stamp. */
static __always_inline void left(struct quality_flow *f, const struct quality_packet *p, __u64 now)
{
	__u64 at = f->inside_at;
	__u32 time;

	if (at && p->flags & SHUNT_TCP_ACK && !is_before(p->ack, f->inside_end)) {
		time = units(now - at);
		if (!f->inside_shortest || time < f->inside_shortest)
			f->inside_shortest = time ? time : 1;
		f->inside_at = 0;
	}
	/* Of packets with the same time stamp, the first one is echoed first. */
	if (!p->has_stamp || (f->is_stamp_known && !is_before(f->last_stamp, p->stamp)))
		return;
	f->is_stamp_known = 1;
	f->last_stamp = p->stamp;
	if (!f->stamp_at) {
		f->stamp = p->stamp;
		f->stamp_at = now;
	}
}

#endif

// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The daemon's access to the flow tables, run by BPF_PROG_RUN. In BPF and not in user space, so that there is a single
 * implementation of finding, allocating and freeing entries.
 */
#include "include/changes/dependencies.h"
#include "include/ends/expired.h"
#include "include/ends/finals.h"
#include "include/ends/silent.h"
#include "include/changes/stations.h"
#include "include/table/hints.h"

enum {
	SHUNT_IDLE_LEAST_MS = 5000, /* a flow that was unused for less is in use, however full the table is */
	SHUNT_REMOVE_MS = 1000, /* a flow learned again within this time continues its counters */
	SHUNT_SWEEP_AT_ONCE = 1024, /* entries per run; each is a branch to the verifier, which allows 8192 */
	SHUNT_NOT_THERE = -2, /* -ENOENT */
};

/*
 * Keeps the counters of a removed flow, since its connection may live on. Keeps the TCP position unless TCP has
 * ended.
 */
static __always_inline void keep_expired(__u32 family, const union shunt_key *key, struct shunt_flow *f,
					 const struct shunt_cold *cold)
{
	struct shunt_expired kept = {
		.pkts = f->pkts + cold->remote_pkts,
		.bytes = f->bytes + cold->remote_bytes,
		.seen_ticks = f->seen_ticks,
		.reply = !!(f->flags & SHUNT_FLOW_REPLY),
	};
	__u64 hash = shunt_hash(family, key);
	struct shunt_expired *expired;
	struct shunt_tuple tuple;
	union shunt_key back;
	__u32 entry = 0;

	if (!kept.pkts || f->flags & (SHUNT_FLOW_STATIC | SHUNT_FLOW_UNTRACKED) ||
	    f->retired_why == SHUNT_CONNTRACK_GONE)
		return;
	if (f->tcp_position && f->retired_why != SHUNT_TCP_FLAGS) {
		shunt_reverse_key(family, f, shunt_new_addrs(f), IPPROTO_TCP, shunt_ifindex_of(f->out_slot), &back);
		kept.other_position =
			shunt_position(family, &back, shunt_find_by(family, &back, shunt_hash(family, &back), &entry));
		kept.tcp_position = kept.other_position ? f->tcp_position : 0;
	}
	shunt_tuple_of(family, key, &tuple);
	expired = bpf_map_lookup_elem(&shunt_expired, &tuple);
	if (expired) {
		kept.pkts += expired->pkts;
		kept.bytes += expired->bytes;
		shunt_forget_position(expired, hash);
		*expired = kept;
	} else {
		/* First the count: ct_gone skips the look-up while it is 0. */
		__sync_fetch_and_add(&shunt_usage.expired, 1);
		if (bpf_map_update_elem(&shunt_expired, &tuple, &kept, BPF_NOEXIST)) {
			__sync_fetch_and_add(&shunt_usage.expired, -1);
			shunt_usage.expired_lost++;
			return;
		}
	}
	if (kept.tcp_position)
		shunt_note_position(hash);
}

/*
 * How long a flow may be unused: as configured, and less while less than a quarter of the table is free, so that flows
 * in use find room. SHUNT_IDLE_LEAST_MS exceeds SHUNT_SILENT_MS: silence is reported before the flow is removed as
 * idle.
 */
static __always_inline __u32 idle_limit(__u32 family, const struct shunt_sweep *s)
{
	__u32 free = shunt_free_entries(family), enough = shunt_control.max_flows / SHUNT_CROWDED;
	__u32 least = shunt_ticks(SHUNT_IDLE_LEAST_MS);

	if (free >= enough || s->idle_ticks <= least)
		return s->idle_ticks;
	return least + (__u64)(s->idle_ticks - least) * free / enough;
}

/* Sweeps an entry that is in the index. Returns 1 if it is to be removed from the index. */
static __always_inline int sweep_one(__u32 family, const union shunt_key *key, struct shunt_flow *f,
				     struct shunt_sweep *s)
{
	if (f->flags & SHUNT_FLOW_STATIC) {
		s->statics++;
		return 0;
	}
	if (f->epoch != SHUNT_EPOCH_RETIRED &&
	    (s->all || shunt_since(f->seen_ticks, s->now_ticks) > (__s32)idle_limit(family, s))) {
		enum shunt_reason why = s->all ? SHUNT_FLUSHED : SHUNT_IDLE;

		shunt_retire(f, s->now_ticks, why);
		s->flushed++;
		shunt_trace(SHUNT_TRACE_RETIRE, why, family, key);
	}
	if (f->epoch == SHUNT_EPOCH_RETIRED) {
		s->retired++;
		if (shunt_since(f->retired_ticks, s->now_ticks) >= (__s32)s->remove_ticks) {
			s->deleted++;
			return 1;
		}
	} else if (f->state == SHUNT_FLOW_ACTIVE) {
		s->active++;
	} else {
		s->pending++;
	}
	return 0;
}

static __always_inline void sweep_entry(__u32 family, __u32 number, struct shunt_sweep *s)
{
	__u64 *words = shunt_words_at(family, number);
	struct shunt_cold *cold = shunt_cold_at(family, number);
	const union shunt_key *key = (const union shunt_key *)words;
	struct shunt_flow *f;

	if (!words || !cold)
		return;
	f = shunt_flow_at(family, words);
	if (!words[shunt_live_word(family)]) {
		/*
		 * Another CPU may have published the entry between the two loads; the state is then the new flow's. The
		 * atomic operation reads the word again and orders the loads.
		 */
		if (!f->state || __sync_fetch_and_add(&words[shunt_live_word(family)], 0))
			return;
		if (shunt_since(f->retired_ticks, s->now_ticks) >= (__s32)shunt_ticks(SHUNT_RETIRED_MS) &&
		    shunt_hand_over(family, key, f, cold, s->now_ticks))
			shunt_free(family, number, words);
		else
			s->retired++;
		return;
	}
	shunt_report_silence(family, key, f, cold, s);
	if (sweep_one(family, key, f, s)) {
		keep_expired(family, key, f, cold);
		shunt_unpublish(family, number, s->now_ticks);
	}
}

/*
 * A global function, so that the verifier checks it once and not in each iteration. bpf_loop() would need a JIT that
 * supports callbacks.
 */
__noinline int shunt_sweep_entry(__u64 index, struct shunt_sweep *s)
{
	__u64 each = shunt_control.max_flows;

	if (s && index < each)
		sweep_entry(4, index, s);
	else if (s)
		sweep_entry(6, index - each, s);
	return 0;
}

enum { SWEEP_RUN = 32 };
_Static_assert(SHUNT_SWEEP_AT_ONCE % SWEEP_RUN == 0, "a sweep consists of whole runs");

/*
 * Sweeps a run of entries. The verifier follows every iteration of a loop: nested short loops cost less than one long
 * loop.
 */
__noinline int shunt_sweep_run(__u64 from, __u64 end, struct shunt_sweep *s)
{
	if (!s)
		return 0;
	for (__u32 n = 0; n < SWEEP_RUN && from < end; n++, from++)
		shunt_sweep_entry(from, s);
	return 0;
}

/*
 * Counts flows, retires idle ones and frees retired ones, in a range of entries, since a whole table may take long. The
 * caller repeats the call until no entries are left.
 */
SEC("syscall")
int shunt_sweep_flows(struct shunt_sweep *args)
{
	__u64 each = shunt_control.max_flows, from, end;
	struct shunt_sweep s = *args;

	s.now_ticks = shunt_now();
	s.remove_ticks = shunt_ticks(SHUNT_REMOVE_MS);
	s.silent_ticks = shunt_ticks(SHUNT_SILENT_MS);
	/* Report silence before the flow is removed as idle. */
	if (s.silent_ticks > s.idle_ticks)
		s.silent_ticks = s.idle_ticks;
	from = s.from;
	end = from + s.entries;
	if (end > 2 * each)
		end = 2 * each;
	/* Skip entries that were never used. */
	if (from < each && from >= shunt_usage.fresh[0])
		from = each;
	if (from >= each + shunt_usage.fresh[1])
		from = end;
	for (__u32 n = 0; n < SHUNT_SWEEP_AT_ONCE && from + n < end; n += SWEEP_RUN)
		shunt_sweep_run(from + n, end, &s);
	if (from < end)
		from = end - from > SHUNT_SWEEP_AT_ONCE ? from + SHUNT_SWEEP_AT_ONCE : end;
	args->from = from;
	args->entries = from < end ? end - from : 0;
	args->active = s.active;
	args->pending = s.pending;
	args->retired = s.retired;
	args->statics = s.statics;
	args->deleted = s.deleted;
	args->flushed = s.flushed;
	args->now_ticks = s.now_ticks;
	return 0;
}

static __always_inline int look_up_sighting(struct shunt_edit *e, __u64 hash)
{
	const struct shunt_sighting *s = shunt_sighting_of(hash);

	e->sighting = *s;
	if (s->fingerprint != shunt_fingerprint(hash))
		e->sighting.fingerprint = 0;
	if (s->refused_fingerprint != shunt_fingerprint(hash))
		e->sighting.refused_why = SHUNT_OK;
	return 0;
}

static __always_inline int edit(__u32 family, struct shunt_edit *e, const union shunt_key *key)
{
	__u64 hash = shunt_hash(family, key);
	struct shunt_cold *cold;
	struct shunt_flow *f;
	__u32 entry = 0, fresh;

	if (e->op == SHUNT_EDIT_SIGHTING)
		return look_up_sighting(e, hash);
	f = shunt_find(family, key, hash, &entry);
	if (e->op == SHUNT_EDIT_PUT) {
		int err;

		if (e->flow.flags & SHUNT_FLOW_STATIC) {
			shunt_control.flags |= SHUNT_CONTROL_STATICS;
			hash = shunt_static_hash(family, key, hash);
		}
		e->flow.seen_ticks = shunt_now();
		err = shunt_insert(family, key, hash, &e->flow, e->to, shunt_now(), &fresh);
		if (!err && !(e->flow.flags & SHUNT_FLOW_STATIC))
			shunt_write_hint(family, key, fresh);
		if (!f)
			return err;
		/* The new entry is published: a packet finds the old or the new one, never a mixture. */
		if (!err)
			shunt_unpublish(family, entry, shunt_now());
		else if (err == SHUNT_FULL)
			err = shunt_overwrite(family, entry, key, f, &e->flow, e->to, shunt_now());
		return err;
	}
	if (!f)
		return SHUNT_NOT_THERE;
	if (e->op == SHUNT_EDIT_REMOVE) {
		shunt_unpublish(family, entry, shunt_now());
		return 0;
	}
	cold = shunt_cold_at(family, entry);
	if (!cold)
		return SHUNT_NOT_THERE;
	e->flow = *f;
	__builtin_memcpy(e->to, shunt_new_addrs(f), family == 4 ? 8 : 32);
	e->cold = *cold;
	return 0;
}

/* The daemon's heartbeat. It ends a sample of the slow path that has ended by itself. */
SEC("syscall")
int shunt_beat(void *ctx)
{
	__u64 now = shunt_now();

	(void)ctx;
	if (now < shunt_control.sample_until_ticks) {
		shunt_control.sample_beat_ticks = now;
	} else {
		shunt_control.heartbeat_ticks = now;
		shunt_control.sample_until_ticks = 0;
	}
	return 0;
}

/* The bits of an address in a cache line. */
static __always_inline __u64 in_line(__u64 *scratch, const void *element)
{
	/* The verifier takes what comes back from memory for a number. */
	*(volatile __u64 *)scratch = (unsigned long)element;
	return *(volatile __u64 *)scratch % 64;
}

/* Returns 1 if the tables and their indexes begin on a cache line, and 0 if one does not. `scratch` is left at 0. */
SEC("syscall")
int shunt_tables_aligned(__u64 *scratch)
{
	__u32 zero = 0;
	__u64 bits = in_line(scratch, bpf_map_lookup_elem(&shunt_table4, &zero)) |
		     in_line(scratch, bpf_map_lookup_elem(&shunt_table6, &zero)) |
		     in_line(scratch, bpf_map_lookup_elem(&shunt_index4, &zero)) |
		     in_line(scratch, bpf_map_lookup_elem(&shunt_index6, &zero));

	*(volatile __u64 *)scratch = 0;
	return !bits;
}

/* Records a change that the daemon has seen, and ends the flows that may depend on what has changed. */
SEC("syscall")
int shunt_note(struct shunt_change *change)
{
	__u32 family = change->family, address[4];
	__u64 hi, lo;
	int moved;

	__builtin_memcpy(address, change->address, sizeof(address));
	shunt_address_words(6, address, &hi, &lo);
	if (family == 4)
		moved = shunt_note_prefix(4, hi >> 32 << 32, 0, change->prefix_len);
	else if (family == 6)
		moved = shunt_note_prefix(6, hi, lo, change->prefix_len);
	else
		moved = shunt_note_station((const __u8 *)address);
	if (moved && family)
		shunt_move_epoch();
	change->moved = moved;
	return 0;
}

/* The request and its result. Not in the context, which a program can write at constant offsets only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_edit);
} shunt_edit SEC(".maps");

/* Inserts, removes or reads a flow. */
SEC("syscall")
int shunt_edit_flow(void *ctx)
{
	union shunt_key key = {};
	struct shunt_edit *e;
	__u32 zero = 0;

	(void)ctx;
	e = bpf_map_lookup_elem(&shunt_edit, &zero);
	if (!e)
		return 0;
	__builtin_memcpy(&key, e->key, sizeof(e->key));
	e->result = e->family == 4 ? edit(4, e, &key) : edit(6, e, &key);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

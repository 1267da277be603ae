// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The daemon's hands in the flow tables: run by BPF_PROG_RUN, not by packets. Here and not in user space, so that there
 * is one way to find, claim and free an entry.
 */
#include "include/silent.h"
#include "include/trace.h"
#include "include/watch.h"

enum {
	/* Long after any CPU that found the flow has let go of it. */
	SHUNT_REMOVE_MS = 1000,
	SHUNT_SWEEP_AT_ONCE = 1024, /* buckets: each is another branch to the verifier, which takes 8192 */
	SHUNT_NOT_THERE = -2, /* -ENOENT */
};

/* The flow goes, and its connection may live on: what was counted is kept. */
static __always_inline void keep_counts(__u32 family, const union shunt_key *key, const struct shunt_flow *f,
					const struct shunt_cold *cold)
{
	struct shunt_past counts = { .pkts = f->pkts + cold->away_pkts, .bytes = f->bytes + cold->away_bytes };
	struct shunt_past *past;
	struct shunt_tuple tuple;

	if (!counts.pkts || f->flags & (SHUNT_FLOW_STATIC | SHUNT_FLOW_UNTRACKED) || f->retired_why == SHUNT_CONNTRACK_GONE)
		return;
	shunt_tuple_of(family, key, &tuple);
	past = bpf_map_lookup_elem(&shunt_past, &tuple);
	if (past) {
		past->pkts += counts.pkts;
		past->bytes += counts.bytes;
	} else if (bpf_map_update_elem(&shunt_past, &tuple, &counts, BPF_NOEXIST)) {
		shunt_usage.past_lost++;
	}
}

static __always_inline void release(__u32 family, const struct shunt_place *place)
{
	__u64 *words = shunt_words_at(family, place);
	struct shunt_cold *cold = shunt_cold_at(family, place);
	__u64 *used = shunt_used(family);

	if (!words || !cold)
		return;
	if (words[shunt_live_word(family)])
		keep_counts(family, (const union shunt_key *)words, shunt_flow_at(family, words), cold);
	shunt_set_digest(family, place, 0);
	words[shunt_live_word(family)] = 0;
	shunt_flow_at(family, words)->state = 0;
	__sync_fetch_and_add(used, -1);
	/* Free from here on; the exchange is a full barrier. */
	__sync_lock_test_and_set(&cold->claim, 0);
}

static __always_inline int is_leaving(const struct shunt_flow *f)
{
	return f->state == SHUNT_FLOW_LEAVING;
}

/* 1 where the entry is to be freed. */
static __always_inline int sweep_one(__u32 family, const union shunt_key *key, struct shunt_flow *f,
				     struct shunt_sweep *s)
{
	if (is_leaving(f)) {
		int gone = shunt_since(f->retired_ticks, s->now_ticks) >= (__s32)s->remove_ticks;

		s->deleted += gone;
		return gone;
	}
	if (f->flags & SHUNT_FLOW_STATIC) {
		s->statics++;
		return 0;
	}
	if (f->epoch != SHUNT_EPOCH_RETIRED &&
	    (s->all || shunt_since(f->seen_ticks, s->now_ticks) > (__s32)s->idle_ticks)) {
		enum shunt_reason why = s->all ? SHUNT_FLUSHED : SHUNT_IDLE;

		shunt_retire(f, s->now_ticks, why);
		s->flushed++;
		shunt_trace(SHUNT_TRACE_RETIRE, why, family, key);
	}
	if (f->epoch == SHUNT_EPOCH_RETIRED) {
		if (shunt_since(f->retired_ticks, s->now_ticks) >= (__s32)s->remove_ticks) {
			s->deleted++;
			return 1;
		}
		s->retired++;
	} else if (f->state == SHUNT_FLOW_ACTIVE) {
		s->active++;
	} else {
		s->pending++;
	}
	return 0;
}

static __always_inline void sweep_bucket(__u32 family, __u32 index, struct shunt_sweep *s)
{
	struct shunt_place place = { .bucket = index };

	for (__u32 way = 0; way < SHUNT_WAYS; way++) {
		struct shunt_cold *cold;
		struct shunt_flow *f;
		__u64 *words;

		place.way = way;
		words = shunt_words_at(family, &place);
		if (!words)
			return;
		f = shunt_flow_at(family, words);
		if (!words[shunt_live_word(family)] && !is_leaving(f))
			continue;
		cold = shunt_cold_at(family, &place);
		if (cold)
			shunt_notice_silence(family, (const union shunt_key *)words, f, cold, s);
		if (sweep_one(family, (const union shunt_key *)words, f, s))
			release(family, &place);
	}
}

/*
 * Not static, so that the verifier looks at it once, and not at each turn of the loop around it. A callback would need a
 * JIT that knows callbacks. `each` is how many buckets a family has.
 */
__noinline int shunt_sweep_bucket(__u64 index, __u64 each, struct shunt_sweep *s)
{
	if (s && index < each)
		sweep_bucket(4, index, s);
	else if (s)
		sweep_bucket(6, index - each, s);
	return 0;
}

static __always_inline int is_used(__u32 family)
{
	return *shunt_used(family) != 0;
}

/*
 * Counts flows, retires what is idle, frees what was retired: in a range of buckets, since the whole may take long. Whoever
 * asks does so again until no buckets are left.
 */
SEC("syscall")
int shunt_sweep_flows(struct shunt_sweep *args)
{
	struct shunt_sweep s = *args;
	__u64 each, from, end;

	s.now_ticks = shunt_now();
	s.remove_ticks = shunt_ticks(SHUNT_REMOVE_MS);
	s.silent_ticks = shunt_ticks(SHUNT_SILENT_MS);
	/* Before it leaves the table for being idle. */
	if (s.silent_ticks > s.idle_ticks)
		s.silent_ticks = s.idle_ticks;
	each = (__u64)shunt_control.bucket_mask + 1;
	from = s.from;
	end = from + s.buckets;
	if (end > 2 * each)
		end = 2 * each;
	if (from < each && !is_used(4))
		from = each;
	if (from >= each && !is_used(6))
		from = end;
	for (__u32 n = 0; n < SHUNT_SWEEP_AT_ONCE && from < end; n++, from++)
		shunt_sweep_bucket(from, each, &s);
	args->from = from;
	args->buckets = from < end ? end - from : 0;
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
	if (s->refused_fingerprint != shunt_fingerprint(hash))
		e->sighting.refused_why = SHUNT_OK;
	return 0;
}

static __always_inline int edit(__u32 family, struct shunt_edit *e, const union shunt_key *key)
{
	struct shunt_place place, fresh;
	struct shunt_cold *cold;
	struct shunt_flow *f;
	__u64 hash = shunt_hash(family, key);

	if (e->op == SHUNT_EDIT_SIGHTING)
		return look_up_sighting(e, hash);
	f = shunt_find(family, key, hash, &place);
	if (e->op == SHUNT_EDIT_PUT) {
		int err;

		if (e->flow.flags & SHUNT_FLOW_STATIC) {
			shunt_control.flags |= SHUNT_CONTROL_STATICS;
			hash = shunt_static_hash(family, key, hash);
		}
		e->flow.seen_ticks = shunt_now();
		err = shunt_insert(family, key, hash, &e->flow, e->to, shunt_now(), &fresh);
		if (!f)
			return err;
		/* The new one is there: packets find one or the other, and never a mixture. */
		if (!err)
			shunt_unpublish(family, &place, shunt_now());
		else if (err == SHUNT_FULL)
			err = shunt_write(family, &place, key, &e->flow, e->to, shunt_now());
		return err;
	}
	if (!f)
		return SHUNT_NOT_THERE;
	if (e->op == SHUNT_EDIT_REMOVE) {
		shunt_unpublish(family, &place, shunt_now());
		return 0;
	}
	cold = shunt_cold_at(family, &place);
	if (!cold)
		return SHUNT_NOT_THERE;
	e->flow = *f;
	__builtin_memcpy(e->to, shunt_to(f), family == 4 ? 8 : 32);
	e->cold = *cold;
	return 0;
}

/* The daemon says that it is alive. */
SEC("syscall")
int shunt_beat(void *ctx)
{
	(void)ctx;
	shunt_control.heartbeat_ticks = shunt_now();
	return 0;
}

/* What is to be done and what came of it; a program's context may only be written at fixed places. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_edit);
} shunt_desk SEC(".maps");

/* Puts in, takes out or reads one flow. */
SEC("syscall")
int shunt_edit_flow(void *ctx)
{
	union shunt_key key = {};
	struct shunt_edit *e;
	__u32 zero = 0;

	(void)ctx;
	e = bpf_map_lookup_elem(&shunt_desk, &zero);
	if (!e)
		return 0;
	__builtin_memcpy(&key, e->key, sizeof(e->key));
	e->result = e->family == 4 ? edit(4, e, &key) : edit(6, e, &key);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

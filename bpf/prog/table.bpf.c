// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * The daemon's hands in the flow tables: run by BPF_PROG_RUN, not by packets. Here and not in user space, so that there
 * is one way to find, claim and free an entry.
 */
#include "include/maps.h"

enum {
	/* Long after any CPU that found the flow has let go of it. */
	SHUNT_REMOVE_MS = 1000,
	SHUNT_NOT_THERE = -2, /* -ENOENT */
};

struct bpf_map;

static __always_inline void release(__u32 family, const struct shunt_place *place)
{
	__u64 *words = shunt_words_at(family, place);
	struct shunt_cold *cold = shunt_cold_at(family, place);
	__u64 *used = shunt_used(family);

	if (!words || !cold || !used)
		return;
	shunt_set_tag(family, place, 0);
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
static __always_inline int sweep_one(struct shunt_flow *f, struct shunt_sweep *s)
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
	if (f->epoch != SHUNT_EPOCH_RETIRED && (s->all || shunt_since(f->seen_ticks, s->now_ticks) > (__s32)s->idle_ticks))
		shunt_retire(f, s->now_ticks);
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

static long sweep_bucket4(struct bpf_map *map, const __u32 *index, struct shunt_bucket4 *bucket, struct shunt_sweep *s)
{
	struct shunt_place place = { .bucket = *index };

	(void)map;
	for (__u32 way = 0; way < SHUNT_WAYS; way++) {
		place.way = way;
		if (!bucket->entry[way].key.ifindex && !is_leaving(&bucket->entry[way].flow))
			continue;
		if (sweep_one(&bucket->entry[way].flow, s))
			release(4, &place);
	}
	return 0;
}

static long sweep_bucket6(struct bpf_map *map, const __u32 *index, struct shunt_bucket6 *bucket, struct shunt_sweep *s)
{
	struct shunt_place place = { .bucket = *index };

	(void)map;
	for (__u32 way = 0; way < SHUNT_WAYS; way++) {
		place.way = way;
		if (!bucket->entry[way].key.ifindex && !is_leaving(&bucket->entry[way].flow))
			continue;
		if (sweep_one(&bucket->entry[way].flow, s))
			release(6, &place);
	}
	return 0;
}

/* Counts flows, retires what is idle, frees what was retired. */
SEC("syscall")
int shunt_sweep_flows(struct shunt_sweep *args)
{
	struct shunt_control *control = shunt_the_control();
	struct shunt_sweep s = *args;

	if (!control)
		return 0;
	s.now_ticks = shunt_now();
	s.remove_ticks = shunt_ticks(control, SHUNT_REMOVE_MS);
	if (!shunt_empty()) {
		bpf_for_each_map_elem(&shunt_table4, sweep_bucket4, &s, 0);
		bpf_for_each_map_elem(&shunt_table6, sweep_bucket6, &s, 0);
	}
	args->active = s.active;
	args->pending = s.pending;
	args->retired = s.retired;
	args->statics = s.statics;
	args->deleted = s.deleted;
	args->now_ticks = s.now_ticks;
	return 0;
}

static __always_inline int edit(__u32 family, struct shunt_edit *e, const union shunt_key *key)
{
	struct shunt_control *control = shunt_the_control();
	struct shunt_place place, fresh;
	struct shunt_cold *cold;
	struct shunt_flow *f;
	__u64 hash;

	if (!control)
		return SHUNT_NOT_THERE;
	hash = shunt_hash(family, key, control->seed);
	f = shunt_find(family, key, hash, control, &place);
	if (e->op == SHUNT_EDIT_PUT) {
		int err;

		e->flow.seen_ticks = shunt_now();
		err = shunt_insert(family, key, hash, control, &e->flow, e->to, shunt_now(), &fresh);
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
	struct shunt_control *control = shunt_the_control();

	(void)ctx;
	if (control)
		control->heartbeat_ticks = shunt_now();
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

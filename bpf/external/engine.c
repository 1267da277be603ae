// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Rewriting a batch. Each pass over the batch loads what the next pass needs, so that the batch waits for many cache
 * lines at the same time, and not for one after the other.
 */
#include "external/engine.h"
#include "include/table/maps.h"

#define SHUNT_FRAME struct shunt_frame
#define SHUNT_LOAD_BYTES load_bytes

/* Cache lines of packets are requested this many packets ahead. */
enum { AHEAD = 8 };

static int load_bytes(const struct shunt_frame *frame, __u32 at, __u8 *to, __u32 bytes)
{
	if ((__u32)(frame->data_end - frame->data) < at + bytes)
		return -1;
	__builtin_memcpy(to, frame->data + at, bytes);
	return 0;
}

#include "include/send/verify.h"

static struct shunt_chunk chunk;

void shunt_engine_tables(const struct shunt_memory *memory)
{
	shunt_control_at = memory->control;
	shunt_groups = memory->groups;
	shunt_index4.value = memory->index[0];
	shunt_index6.value = memory->index[1];
	shunt_index4.value_count = shunt_index6.value_count = memory->buckets;
	shunt_table4.value = memory->entries4;
	shunt_table6.value = memory->entries6;
	shunt_table4.value_count = shunt_table6.value_count = memory->entries;
	shunt_cold4.value = memory->cold[0];
	shunt_cold6.value = memory->cold[1];
	shunt_cold4.value_count = shunt_cold6.value_count = memory->entries;
	shunt_chunk.value = &chunk;
	shunt_chunk.value_count = 1;
	__builtin_memset(&shunt_usage, 0, sizeof(shunt_usage));
	__builtin_memset(shunt_sources, 0, sizeof(shunt_sources));
	__builtin_memset(shunt_opened, 0, sizeof(shunt_opened));
}

static __u64 placed(__u32 family, const union shunt_key *key, __u8 flags)
{
	__u64 hash = shunt_hash(family, key);

	return flags & SHUNT_FLOW_STATIC ? shunt_static_hash(family, key, hash) : hash;
}

int shunt_engine_insert(__u32 family, const void *bytes, const struct shunt_flow *flow, const __u8 *to, __u32 now)
{
	struct shunt_flow f = *flow;
	union shunt_key key;
	__u32 entry;

	if (family == 4) {
		__builtin_memcpy(&key, bytes, sizeof(key.v4));
		return shunt_insert(4, &key, placed(4, &key, f.flags), &f, to, now, &entry);
	}
	__builtin_memcpy(&key, bytes, sizeof(key.v6));
	return shunt_insert(6, &key, placed(6, &key, f.flags), &f, to, now, &entry);
}

struct shunt_flow *shunt_engine_find(__u32 family, const void *bytes)
{
	union shunt_key key;
	__u32 entry;

	if (family == 4) {
		__builtin_memcpy(&key, bytes, sizeof(key.v4));
		return shunt_find(4, &key, shunt_hash(4, &key), &entry);
	}
	__builtin_memcpy(&key, bytes, sizeof(key.v6));
	return shunt_find(6, &key, shunt_hash(6, &key), &entry);
}

/* What is known of a packet between two passes. */
struct work {
	union shunt_key key;
	struct shunt_packet p;
	__u64 hash;
	__u32 entry; /* of its flow, as XDP has found it */
	__u32 hinted; /* whether `entry` is valid; the key is compared later */
	__u32 known; /* whether XDP has found the flow, */
	__u32 arrived_ticks; /* and when */
};

/* Requests the cache lines of an entry. Returns 0 if there is no such entry. */
static __always_inline int request_entry(__u32 family, __u32 number)
{
	const char *entry = (const char *)shunt_words_at(family, number);

	if (!entry)
		return 0;
	__builtin_prefetch(entry, 1);
	__builtin_prefetch(entry + 64, 1);
	if (family == 6)
		__builtin_prefetch(entry + 128, 1);
	return 1;
}

static __always_inline void parse(__u32 family, struct shunt_frame *frame, struct work *w)
{
	struct id {
		__u32 entry;
		__u32 family;
		__u32 arrived_ticks;
	} __attribute__((packed, aligned(2))) * id; /* struct shunt_flow_id at any even address */

	frame->why =
		shunt_parse_l3(family, frame->data + w->p.l2_bytes, frame->data_end, frame->ifindex, &w->p, &w->key);
	if (frame->why != SHUNT_OK)
		return;
	w->hash = shunt_hash(family, &w->key);
	frame->order = w->hash;
	frame->why = shunt_admit(&w->p);
	if (frame->why != SHUNT_OK)
		return;
	id = (void *)(frame->data - sizeof(*id));
	w->entry = id->entry;
	w->arrived_ticks = id->arrived_ticks;
	w->known = id->family == family;
	/* Where a driver has no room for an id, the next frame in this memory has none. */
	id->family = 0;
	w->hinted = w->known && request_entry(family, w->entry);
	if (!w->hinted)
		__builtin_prefetch(shunt_bucket_at(family, shunt_bucket_of(w->hash, 0)));
}

static __always_inline void parse_frame(struct shunt_frame *frame, struct work *w)
{
	struct shunt_hw_tag none = {};
	__u32 family;

	frame->order = 0;
	frame->late = 0;
	frame->why = shunt_parse_l2(frame->data, frame->data_end, none, &w->p, &family);
	if (frame->why != SHUNT_OK)
		return;
	if (family == 4)
		parse(4, frame, w);
	else if (family == 6)
		parse(6, frame, w);
	else
		frame->why = SHUNT_PROTOCOL;
}

/* Requests the entries that a bucket names for a hash. Returns 0 if there are none. */
static __always_inline int request(__u32 family, __u64 hash, int second)
{
	const struct shunt_bucket *bucket = shunt_bucket_at(family, shunt_bucket_of(hash, second));
	int found = 0;

	if (!bucket)
		return 1;
	for (__u32 way = 0; way < SHUNT_WAYS; way++) {
		__u32 slot = shunt_slot(bucket, way);

		if (slot && shunt_slot_digest(slot) == shunt_digest_of(hash))
			found |= request_entry(family, shunt_slot_entry(slot));
	}
	return found;
}

/* Requests entries by the first bucket. If it has none, requests the second bucket, and returns 0. */
static __always_inline int request_first(__u32 family, __u64 hash)
{
	if (shunt_likely(request(family, hash, 0)))
		return 1;
	__builtin_prefetch(shunt_bucket_at(family, shunt_bucket_of(hash, 1)));
	return 0;
}

/* The flow of a packet. */
static __always_inline struct shunt_flow *flow_of(__u32 family, struct work *w, __u32 *entry)
{
	__u64 *words;

	if (w->hinted) {
		words = shunt_words_at(family, w->entry);
		*entry = w->entry;
		if (shunt_likely(words && shunt_same_key(family, words, &w->key)))
			return shunt_flow_at(family, words);
	}
	return shunt_find(family, &w->key, w->hash, entry);
}

/*
 * Whether conntrack has forgotten the connection while the packet waited for the engine. Linux would take the packet
 * for the first one of another connection. The flow itself may be gone since; a flow that went within two ticks was
 * removed for another reason.
 */
static __always_inline int waited_too_long(const struct work *w, const struct shunt_flow *f, __u32 now)
{
	if (!w->known)
		return 0;
	if (!f)
		return shunt_before(w->arrived_ticks + 2, now);
	return f->epoch == SHUNT_EPOCH_RETIRED && f->retired_why == SHUNT_CONNTRACK_GONE &&
	       shunt_before(w->arrived_ticks, f->retired_ticks);
}

static __always_inline enum shunt_reason rewrite(__u32 family, struct shunt_frame *frame, struct work *w,
						 __u64 reachable, __u64 jiffies)
{
	struct shunt_packet *p = &w->p;
	__u8 *l3 = frame->data + p->l2_bytes;
	__u32 have = frame->data_end - frame->data, want = p->l2_bytes + p->l3_bytes, entry, l2_bytes;
	struct shunt_flow *f = flow_of(family, w, &entry);
	enum shunt_reason why;

	if (!f) {
		frame->late = waited_too_long(w, f, jiffies);
		return SHUNT_MISS;
	}
	why = shunt_decide(f, p, frame->data, &shunt_control, shunt_current_epoch(f), jiffies, 0);
	if (shunt_unlikely(why == SHUNT_REPROVE)) {
		/* One packet of a burst is punted, and not all of them. */
		f->reprove_at_ticks = jiffies + shunt_control.reprove_ticks;
		f->punt_due = 1;
	}
	if (shunt_unlikely(why != SHUNT_OK)) {
		frame->late = waited_too_long(w, f, jiffies);
		return why;
	}
	if (shunt_unlikely(!(reachable >> (f->out_slot % SHUNT_PORTS_MAX) & 1)))
		return SHUNT_PORT;
	if (shunt_unlikely(have < want || (family == 4 && !shunt_ipv4_header_good((void *)l3))))
		return SHUNT_BAD_HEADER;
	if (!shunt_is_summed(p, family, p->l4_proto, f, l3))
		return SHUNT_BAD_CHECKSUM;
	if (shunt_unlikely(shunt_control.flags & SHUNT_CONTROL_VERIFY_XDP) &&
	    !shunt_checksum_good(frame, p, family, f, l3, frame->data_end))
		return SHUNT_BAD_CHECKSUM;
	shunt_rewrite(l3, l3 + shunt_l3_size(family), family, p->l4_proto, f, shunt_new_addrs(f),
		      SHUNT_CHECKSUM_FINISHED);
	l2_bytes = shunt_l2_bytes(f->out_tags);
	frame->data_end = frame->data + shunt_frame_bytes(f, want, have);
	frame->data = l3 - l2_bytes;
	shunt_copy_l2(frame->data, f->l2, f->out_tags);
	frame->l3_bytes = p->l3_bytes;
	frame->out_slot = f->out_slot % SHUNT_PORTS_MAX;
	frame->dscp = (p->class_bits & SHUNT_DSCP_MASK) >> 2;
	frame->mark = f->mark;
	frame->priority = f->priority;
	f->tcp_position = p->tcp_position;
	shunt_count_flow(family, f, entry, p->l3_bytes, jiffies);
	return SHUNT_OK;
}

void shunt_engine_batch(struct shunt_frame *frames, __u32 count, __u64 reachable, __u64 jiffies)
{
	struct work work[SHUNT_BATCH];
	__u8 late[SHUNT_BATCH];
	__u32 late_count = 0;

	shunt_batch_ticks = jiffies;
	for (__u32 i = 0; i < count; i++) {
		if (i + AHEAD < count)
			__builtin_prefetch(frames[i + AHEAD].data, 1);
		parse_frame(&frames[i], &work[i]);
	}
	for (__u32 i = 0; i < count; i++) {
		if (frames[i].why != SHUNT_OK || work[i].hinted)
			continue;
		if (!(work[i].p.family == 4 ? request_first(4, work[i].hash) : request_first(6, work[i].hash)))
			late[late_count++] = i;
	}
	for (__u32 i = 0; i < late_count; i++) {
		struct work *w = &work[late[i]];

		if (w->p.family == 4)
			request(4, w->hash, 1);
		else
			request(6, w->hash, 1);
	}
	for (__u32 i = 0; i < count; i++) {
		if (frames[i].why != SHUNT_OK)
			continue;
		frames[i].why = work[i].p.family == 4 ? rewrite(4, &frames[i], &work[i], reachable, jiffies) :
							rewrite(6, &frames[i], &work[i], reachable, jiffies);
	}
}

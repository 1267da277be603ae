/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What the flows of the current epoch depend on: stations, by MAC, and addresses, by prefixes that contain them. A
 * change that concerns no such flow moves no epoch; docs/adr/0015 has the reasons.
 *
 * Dependencies are hashed and marked in a Bloom filter, whose marks count in one epoch only. So the filter never has to
 * be cleared, and finds a dependency that is not there at worst: then the epoch moves, and the marks are new.
 *
 * A program that learns a flow marks its dependencies, then checks whether one of them has changed since the packet
 * arrived. A program that sees a change records it, then looks for the mark. Both have a full barrier in between, so at
 * least one of them sees the other.
 */
#ifndef SHUNT_DEPENDENCIES_H
#define SHUNT_DEPENDENCIES_H

#include "include/control.h"

enum {
	SHUNT_MARKS = 64, /* per line; a dependency has all its marks in one cache line */
	SHUNT_MARKS_EACH = 3,
	SHUNT_MARK_TRIES = 4,
	SHUNT_CHANGE_SLOTS = 8192, /* a power of two */
	SHUNT_LEVELS_MAX = 8,
	SHUNT_LEVELS_END = 0xff,
};

/*
 * The lengths of the prefixes by which addresses are marked, from the lowest byte on, ascending. A change of another
 * prefix counts as one of the next shorter prefix here.
 */
#define SHUNT_LEVELS4 0xffff201814100800ULL /* 0, 8, 16, 20, 24, 32 */
#define SHUNT_LEVELS6 0x8040383028201000ULL /* 0, 16, 32, 40, 48, 56, 64, 128 */

/* Four marks of a byte in each word. */
struct shunt_mark_line {
	__u32 word[SHUNT_MARKS / 4];
};

/* The loader sets the size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shunt_mark_line);
} shunt_marks SEC(".maps");

struct shunt_changes {
	__u64 count; /* number of changes so far */
	__u64 last[SHUNT_CHANGE_SLOTS]; /* number of the last change of a dependency with this hash */
};

struct shunt_changes shunt_changes SEC(".bss.changes");

/* The hash of a dependency. The seed hides from senders which ones share marks. `kind` is a constant. */
static __always_inline __u64 shunt_dependency(__u64 hi, __u64 lo, __u64 kind)
{
	__u64 seed = shunt_control.seed;
	__u64 hash = (hi ^ seed) * 0x9e3779b97f4a7c15ULL ^ (lo + kind + seed) * 0xc2b2ae3d27d4eb4fULL;

	hash ^= hash >> 29;
	hash *= 0xbf58476d1ce4e5b9ULL;
	return hash ^ hash >> 32;
}

static __always_inline __u64 shunt_station(const __u8 *mac)
{
	const __u16 *part = (const __u16 *)mac;

	return shunt_dependency((__u64)part[0] << 32 | (__u64)part[1] << 16 | part[2], 0, 1ULL << 60);
}

/* The first `len` bits of an address; the length is one of the levels. An IPv4 address is the upper half of `hi`. */
static __always_inline __u64 shunt_prefix(__u32 family, __u64 hi, __u64 lo, __u32 len)
{
	if (len < 64)
		hi = len ? hi >> (64 - len) << (64 - len) : 0;
	if (len <= 64)
		lo = 0;
	return shunt_dependency(hi, lo, (__u64)(family << 8 | len) << 48);
}

static __always_inline __u64 shunt_levels(__u32 family)
{
	return family == 4 ? SHUNT_LEVELS4 : SHUNT_LEVELS6;
}

/* Reads an address as shunt_prefix() takes it. */
static __always_inline void shunt_address_words(__u32 family, const void *address, __u64 *hi, __u64 *lo)
{
	const __u32 *word = address;

	*hi = (__u64)shunt_ntohl(word[0]) << 32;
	*lo = 0;
	if (family == 6) {
		*hi |= shunt_ntohl(word[1]);
		*lo = (__u64)shunt_ntohl(word[2]) << 32 | shunt_ntohl(word[3]);
	}
}

static __always_inline __u32 shunt_epoch_now(void)
{
	return *(volatile __u32 *)&shunt_control.epoch;
}

/* The mark of an epoch; never 0. Marks of 255 epochs ago look like those of the present one, which does no harm. */
static __always_inline __u32 shunt_mark_of(__u32 epoch)
{
	return epoch % 255 + 1;
}

static __always_inline struct shunt_mark_line *shunt_marks_at(__u64 hash)
{
	__u32 index = hash & shunt_control.mark_mask;

	return bpf_map_lookup_elem(&shunt_marks, &index);
}

/* The position of one of the marks of a dependency within its line. */
static __always_inline __u32 shunt_mark_at(__u64 hash, __u32 i)
{
	return hash >> (64 - 6 * (i + 1)) & (SHUNT_MARKS - 1);
}

static __always_inline __u32 *shunt_mark_word(struct shunt_mark_line *line, __u32 at)
{
	return &line->word[shunt_bound(at / 4, SHUNT_MARKS / 4 - 1)];
}

/*
 * Sets a mark of an epoch. Returns 0 if the epoch has moved: the mark must not replace one of a newer epoch. The word
 * is read atomically, so that the epoch is read after it, and replaced only if it is still the same.
 */
static __always_inline int shunt_set_mark(__u32 *word, __u32 shift, __u32 epoch)
{
	for (__u32 tries = 0; tries < SHUNT_MARK_TRIES; tries++) {
		__u32 have = __sync_fetch_and_add(word, 0);
		__u32 want = (have & ~(0xffU << shift)) | shunt_mark_of(epoch) << shift;

		if (shunt_epoch_now() != epoch)
			return 0;
		if (__sync_val_compare_and_swap(word, have, want) == have)
			return 1;
	}
	return 0;
}

/* Marks a dependency of a flow of this epoch. Returns 0 if that fails; then the flow must not be installed. */
__noinline int shunt_mark(__u64 hash, __u32 epoch)
{
	struct shunt_mark_line *line = shunt_marks_at(hash);

	if (!line)
		return 0;
	for (__u32 i = 0; i < SHUNT_MARKS_EACH; i++) {
		__u32 at = shunt_mark_at(hash, i), shift = at % 4 * 8;
		__u32 *word = shunt_mark_word(line, at);

		if ((*(volatile __u32 *)word >> shift & 0xff) != shunt_mark_of(epoch) &&
		    !shunt_set_mark(word, shift, epoch))
			return 0;
	}
	return 1;
}

/* Marks the prefixes that contain an address. */
__noinline int shunt_mark_address(__u32 family, __u64 hi, __u64 lo, __u32 epoch)
{
	__u64 levels = shunt_levels(family);

	for (__u32 i = 0; i < SHUNT_LEVELS_MAX; i++, levels >>= 8) {
		__u32 len = levels & 0xff;

		if (len == SHUNT_LEVELS_END)
			break;
		if (!shunt_mark(shunt_prefix(family, hi, lo, len), epoch))
			return 0;
	}
	return 1;
}

static __always_inline __u64 *shunt_last_change(__u64 hash)
{
	return &shunt_changes.last[shunt_bound(hash >> 24, SHUNT_CHANGE_SLOTS - 1)];
}

/*
 * Whether a dependency has, or may have, changed after the first `changes` changes. A full barrier is between its marks
 * and this.
 */
static __always_inline int shunt_has_changed(__u64 hash, __u64 changes)
{
	return *(volatile __u64 *)shunt_last_change(hash) > changes;
}

__noinline int shunt_address_has_changed(__u32 family, __u64 hi, __u64 lo, __u64 changes)
{
	__u64 levels = shunt_levels(family);

	for (__u32 i = 0; i < SHUNT_LEVELS_MAX; i++, levels >>= 8) {
		__u32 len = levels & 0xff;

		if (len == SHUNT_LEVELS_END)
			break;
		if (shunt_has_changed(shunt_prefix(family, hi, lo, len), changes))
			return 1;
	}
	return 0;
}

/* Records a change that is in force. Returns whether a flow of the current epoch may depend on what has changed. */
__noinline int shunt_note_change(__u64 hash)
{
	__u64 number = __sync_fetch_and_add(&shunt_changes.count, 1) + 1, before;
	struct shunt_mark_line *line = shunt_marks_at(hash);
	__u32 marks[SHUNT_MARKS_EACH], mark;

	/* A full barrier. */
	before = __sync_lock_test_and_set(shunt_last_change(hash), number);
	/* Another CPU recorded a newer change, which this exchange has overwritten. */
	if (before > number || !line)
		return 1;
	/* Atomic, so that the epoch is read after the marks: those of a newer epoch must not be taken for old ones. */
#pragma unroll
	for (__u32 i = 0; i < SHUNT_MARKS_EACH; i++) {
		__u32 at = shunt_mark_at(hash, i);

		marks[i] = __sync_fetch_and_add(shunt_mark_word(line, at), 0) >> at % 4 * 8 & 0xff;
	}
	mark = shunt_mark_of(shunt_epoch_now());
	return marks[0] == mark && marks[1] == mark && marks[2] == mark;
}

/*
 * Records a change of all addresses from the first to the last. Returns whether a flow of the current epoch may have
 * one of them.
 */
__noinline int shunt_note_addresses(__u32 family, __u64 from_hi, __u64 from_lo, __u64 to_hi, __u64 to_lo)
{
	__u64 levels = shunt_levels(family), hash = shunt_prefix(family, 0, 0, 0);

	for (__u32 i = 0; i < SHUNT_LEVELS_MAX; i++, levels >>= 8) {
		__u32 len = levels & 0xff;
		__u64 shared;

		if (len == SHUNT_LEVELS_END)
			break;
		shared = shunt_prefix(family, from_hi, from_lo, len);
		if (shunt_prefix(family, to_hi, to_lo, len) != shared)
			break;
		hash = shared;
	}
	return shunt_note_change(hash);
}

/* Records a change of a prefix of any length. */
static __always_inline int shunt_note_prefix(__u32 family, __u64 hi, __u64 lo, __u32 len)
{
	/* The last address of the prefix. */
	__u64 to_hi = len >= 64 ? hi : hi | ~0ULL >> len;
	__u64 to_lo = len >= 128 ? lo : len > 64 ? lo | ~0ULL >> (len - 64) : ~0ULL;

	return shunt_note_addresses(family, hi, lo, to_hi, family == 4 ? lo : to_lo);
}

/* Moves the epoch: every action learned until now is stale. */
static __always_inline void shunt_move_epoch(void)
{
	__sync_fetch_and_add(&shunt_control.epoch, 2);
}

/* The group of a flow, by the hashes of its stations. */
static __always_inline __u16 shunt_group(__u64 from, __u64 to)
{
	return (from >> 38 & 0xff) << 8 | (to >> 38 & 0xff);
}

enum { SHUNT_STATION_RUN = 16 };

/* Ends the use of all actions between a station's part of groups and a run of other parts. */
__noinline int shunt_end_groups(__u32 own, __u32 from)
{
#pragma clang loop unroll(disable)
	for (__u32 n = 0; n < SHUNT_STATION_RUN; n++) {
		__u32 other = from + n;

		__sync_fetch_and_add(&shunt_groups[shunt_bound(own << 8 | other, SHUNT_GROUPS - 1)], 2);
		__sync_fetch_and_add(&shunt_groups[shunt_bound(other << 8 | own, SHUNT_GROUPS - 1)], 2);
	}
	return 0;
}

/*
 * Ends the use of all actions of a station, and of the few others that share a group with it. The verifier follows
 * every iteration of a loop: nested short loops cost less than one long loop.
 */
__noinline int shunt_end_station(__u64 hash)
{
	__u32 own = hash >> 38 & 0xff;

#pragma clang loop unroll(disable)
	for (__u32 from = 0; from < 256; from += SHUNT_STATION_RUN)
		shunt_end_groups(own, from);
	return 0;
}

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Whether a commit of nftables concerns flows. One that only changes rules that no forwarded packet meets, such as
 * those of nat chains, concerns none. One of elements may concern a few. Anything else may concern every flow.
 *
 * The daemon lists in shunt_path the chains that forwarded packets may pass, and the sets that the rules of these use.
 * Whatever gets a chain or set onto that list is a change of one that is on it. Such a change is counted in
 * rule_changes, so that the list does not count until the daemon has read the rules again.
 *
 * The kernel sends the messages of a commit once all of it is in force, and then the new generation. A mutex of the
 * kernel allows one commit at a time.
 */
#ifndef SHUNT_COMMITS_H
#define SHUNT_COMMITS_H

#include "include/changes/elements.h"

enum {
	SHUNT_NFT = NFNL_SUBSYS_NFTABLES << 8,
	SHUNT_MESSAGES_MAX = 256, /* of a datagram; the kernel fills 8 KiB at most */
	SHUNT_CHAIN_ATTRS_MAX = 16,
};

/* Chains and sets. The value is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, SHUNT_PATH_MAX);
	__type(key, struct shunt_rules_name);
	__type(value, __u8);
} shunt_path SEC(".maps");

/*
 * Reads a name, with its zero, into a zeroed buffer of `most` + 1 bytes. Returns where the next attribute begins; -1 on
 * failure.
 */
static __always_inline int shunt_read_name(struct __sk_buff *skb, __u32 at, __u32 type, char *name, __u32 most)
{
	struct nlattr attr;
	__u32 bytes;

	if (bpf_skb_load_bytes(skb, at, &attr, sizeof(attr)) || !shunt_is_attr(&attr, type))
		return -1;
	bytes = attr.nla_len - sizeof(attr);
	if (bytes == 0 || bytes > most + 1)
		return -1;
	if (bpf_skb_load_bytes(skb, at + sizeof(attr), name, shunt_bound(bytes - 1, most) + 1))
		return -1;
	return at + NLA_ALIGN(attr.nla_len);
}

/*
 * Reads the names of a table and of a chain or set in it into shunt_commit.name. The name of the table always has the
 * type 1 and comes first; the other one has this type. Returns where the next attribute begins; -1 if a name is longer
 * than those of the lists.
 */
__noinline int shunt_read_names(struct __sk_buff *skb, __u32 at, __u32 type, __u32 is_set)
{
	struct shunt_rules_name *name = &shunt_commit.name;
	struct nfgenmsg common;
	struct nlattr attr;
	int next;

	if (bpf_skb_load_bytes(skb, at, &common, sizeof(common)))
		return -1;
	__builtin_memset(name, 0, sizeof(*name));
	name->family = common.nfgen_family;
	name->is_set = !!is_set;
	next = shunt_read_name(skb, at + sizeof(common), NFTA_CHAIN_TABLE, name->table, sizeof(name->table) - 1);
	if (next < 0 || bpf_skb_load_bytes(skb, next, &attr, sizeof(attr)))
		return -1;
	/* Some kernels put the handle of a chain before its name. */
	if (!shunt_is_attr(&attr, type))
		next += NLA_ALIGN(attr.nla_len);
	return shunt_read_name(skb, next, type, name->name, sizeof(name->name) - 1);
}

/* Whether no forwarded packet meets shunt_commit.name. */
static __always_inline int shunt_is_aside(void)
{
	__u32 path_at = *(volatile __u32 *)&shunt_control.path_at;

	return path_at && path_at == *(volatile __u32 *)&shunt_control.rule_changes + 1 &&
	       !bpf_map_lookup_elem(&shunt_path, &shunt_commit.name);
}

/*
 * Whether forwarded packets may meet a chain that is not in shunt_path: it is a base chain, or has another name there.
 * Its further attributes are those from `at` to `end`.
 */
__noinline int shunt_chain_is_unlisted(struct __sk_buff *skb, __u32 at, __u32 end, __u32 message_flags)
{
	struct nlattr attr;

	/* A chain that is not new may have been renamed. */
	if (!(message_flags & NLM_F_CREATE))
		return 1;
	for (__u32 i = 0; i < SHUNT_CHAIN_ATTRS_MAX && at < end; i++) {
		if (bpf_skb_load_bytes(skb, at, &attr, sizeof(attr)) || attr.nla_len < sizeof(attr) ||
		    shunt_is_attr(&attr, NFTA_CHAIN_HOOK))
			return 1;
		at += NLA_ALIGN(attr.nla_len);
	}
	return at < end;
}

/* Something that may concern every flow. `leads` if it may change what packets meet, or how rules use sets. */
static __always_inline void shunt_note_rules(int leads)
{
	shunt_commit.concerns = 1;
	if (leads)
		__sync_fetch_and_add(&shunt_control.rule_changes, 1);
}

/* A change of rules that no forwarded packet meets. */
static __always_inline void shunt_note_aside(void)
{
	shunt_commit.judged++;
	shunt_commit.aside = 1;
}

/* Looks at a message about the chain or set shunt_commit.name, or about its rules. */
static __always_inline void shunt_judge_rules(int is_listed)
{
	if (is_listed && shunt_is_aside())
		shunt_note_aside();
	else
		shunt_note_rules(1);
}

/* Looks at a message about elements. */
static __always_inline void shunt_judge_set(struct __sk_buff *skb, __u32 at, __u32 end, int deletes)
{
	struct nlattr list;
	int next = shunt_read_names(skb, at, NFTA_SET_ELEM_LIST_SET, 1);

	if (next < 0 || bpf_skb_load_bytes(skb, next, &list, sizeof(list)) ||
	    !shunt_is_attr(&list, NFTA_SET_ELEM_LIST_ELEMENTS)) {
		shunt_note_rules(1);
		return;
	}
	next += sizeof(list);
	if (shunt_is_aside())
		shunt_note_aside();
	else if (shunt_judge_elements(skb, next, end, deletes))
		shunt_note_rules(shunt_elements_lead(skb, next, end));
}

/* Looks at a message of a commit. Returns where the next one begins; -1 on failure. */
__noinline int shunt_judge_message(struct __sk_buff *skb, __u32 at)
{
	struct nlmsghdr message;
	__u32 end, body = at + NLMSG_HDRLEN;
	int next;

	if (bpf_skb_load_bytes(skb, at, &message, sizeof(message)) || message.nlmsg_len < sizeof(message))
		return -1;
	end = at + message.nlmsg_len;
	switch (message.nlmsg_type) {
	case SHUNT_NFT | NFT_MSG_NEWSETELEM:
	case SHUNT_NFT | NFT_MSG_DELSETELEM:
		shunt_judge_set(skb, body, end, message.nlmsg_type == (SHUNT_NFT | NFT_MSG_DELSETELEM));
		break;
	case SHUNT_NFT | NFT_MSG_NEWSET:
	case SHUNT_NFT | NFT_MSG_DELSET:
		shunt_judge_rules(shunt_read_names(skb, body, NFTA_SET_NAME, 1) >= 0);
		break;
	case SHUNT_NFT | NFT_MSG_NEWRULE:
	case SHUNT_NFT | NFT_MSG_DELRULE:
		shunt_judge_rules(shunt_read_names(skb, body, NFTA_RULE_CHAIN, 0) >= 0);
		break;
	case SHUNT_NFT | NFT_MSG_NEWCHAIN:
		next = shunt_read_names(skb, body, NFTA_CHAIN_NAME, 0);
		shunt_judge_rules(next >= 0 && !shunt_chain_is_unlisted(skb, next, end, message.nlmsg_flags));
		break;
	case SHUNT_NFT | NFT_MSG_DELCHAIN:
		shunt_judge_rules(shunt_read_names(skb, body, NFTA_CHAIN_NAME, 0) >= 0);
		break;
	default:
		/* Counters, quotas and flowtables lead nowhere. */
		shunt_note_rules(message.nlmsg_type < (SHUNT_NFT | NFT_MSG_NEWOBJ));
	}
	return at + NLMSG_ALIGN(message.nlmsg_len);
}

/* Looks at all messages of a datagram. */
static __always_inline void shunt_judge_messages(struct __sk_buff *skb)
{
	int at = 0;

	for (__u32 i = 0; i < SHUNT_MESSAGES_MAX && at >= 0 && (__u32)at < skb->len; i++)
		at = shunt_judge_message(skb, at);
	if (at < 0 || (__u32)at < skb->len)
		shunt_note_rules(1);
}

/* Ends the commit, at its new generation. Returns whether it may concern a flow. */
static __always_inline int shunt_commit_concerns(void)
{
	/* Without any change, the messages of the commit were lost. */
	int concerns = shunt_commit.concerns || shunt_commit.start_of || !shunt_commit.judged;

	shunt_commit.start_of = 0;
	shunt_commit.judged = 0;
	shunt_commit.aside = 0;
	shunt_commit.concerns = 0;
	return concerns;
}

#endif

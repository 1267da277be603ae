// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Filters on the sockets by which the daemon hears of changes. What ends the use of every action, whatever it says in
 * particular, moves the epoch here already: before the change is acknowledged, and however busy the daemon is. The
 * message goes on to the daemon, which moves the epoch once more and deals with the rest.
 */
#include "include/control.h"
#include <linux/netlink.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

enum {
	SHUNT_WHOLE = -1, /* all of the message goes on */
	SHUNT_PF_BRIDGE = 7,
	SHUNT_NEW_GENERATION = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWGEN,
};

static __always_inline int message_type(struct __sk_buff *skb)
{
	struct nlmsghdr message;

	return bpf_skb_load_bytes(skb, 0, &message, sizeof(message)) ? 0 : message.nlmsg_type;
}

static __always_inline void move_epoch(void)
{
	/* 0 marks retired actions. */
	if (__sync_fetch_and_add(&shunt_control.epoch, 1) == 0xffffffff)
		__sync_fetch_and_add(&shunt_control.epoch, 1);
}

/* The cache of a look-up changes nothing. */
static __always_inline int is_cloned(struct __sk_buff *skb)
{
	struct rtmsg route;

	return !bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &route, sizeof(route)) && route.rtm_flags & RTM_F_CLONED;
}

/* What messages of bridges begin with: links, neighbours and VLANs alike. */
static __always_inline int is_of_bridge(struct __sk_buff *skb)
{
	__u8 family;

	return !bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &family, sizeof(family)) && family == SHUNT_PF_BRIDGE;
}

/* A station, and not an address that a device listens to itself. */
static __always_inline int is_of_station(struct __sk_buff *skb)
{
	struct ndmsg neighbour;

	return is_of_bridge(skb) && !bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &neighbour, sizeof(neighbour)) &&
	       !(neighbour.ndm_flags & NTF_SELF);
}

SEC("socket")
int shunt_route_changes(struct __sk_buff *skb)
{
	switch (message_type(skb)) {
	case RTM_NEWLINK:
	case RTM_DELLINK:
		if (is_of_bridge(skb))
			move_epoch();
		break;
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		if (is_of_station(skb))
			move_epoch();
		break;
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
		if (!is_cloned(skb))
			move_epoch();
		break;
	case RTM_DELADDR:
	case RTM_NEWRULE:
	case RTM_DELRULE:
	case RTM_NEWNETCONF:
	case RTM_NEWVLAN:
	case RTM_DELVLAN:
	case RTM_NEWNEXTHOP:
	case RTM_DELNEXTHOP:
		move_epoch();
		break;
	}
	return SHUNT_WHOLE;
}

/* The end of a commit: its rules are in force. */
SEC("socket")
int shunt_ruleset_changes(struct __sk_buff *skb)
{
	if (message_type(skb) == SHUNT_NEW_GENERATION)
		move_epoch();
	return SHUNT_WHOLE;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

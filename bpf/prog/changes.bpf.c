// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Socket filters on the daemon's rtnetlink and nftables sockets. A message that invalidates all actions moves the
 * epoch here: before the kernel acknowledges the change, and however busy the daemon is. The message goes on to the
 * daemon, which moves the epoch once more and handles the details.
 */
#include "include/stations.h"
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>

enum {
	SHUNT_WHOLE = -1, /* pass the whole message to the daemon */
	SHUNT_NONE = 0, /* drop the message */
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

/* Whether a route message concerns only a cached look-up. */
static __always_inline int is_cloned(struct __sk_buff *skb)
{
	struct rtmsg route;

	return !bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &route, sizeof(route)) && route.rtm_flags & RTM_F_CLONED;
}

/* Whether a message is about a bridge. Link, neighbour and VLAN messages all begin with the family. */
static __always_inline int is_bridge_message(struct __sk_buff *skb)
{
	__u8 family;

	return !bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &family, sizeof(family)) && family == SHUNT_PF_BRIDGE;
}

/*
 * Whether a link message reports a change that matters. No flow uses a new device yet. Wireless drivers report
 * scans and stations by messages with just a name and IFLA_WIRELESS.
 */
static __always_inline int link_changed(struct __sk_buff *skb)
{
	__u32 at = NLMSG_HDRLEN + sizeof(struct ifinfomsg);
	struct ifinfomsg link;
	struct rtattr attr;

	if (bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &link, sizeof(link)))
		return 1;
	if (link.ifi_change == 0xffffffff)
		return 0;
	if (bpf_skb_load_bytes(skb, at, &attr, sizeof(attr)))
		return 1;
	at += RTA_ALIGN(attr.rta_len);
	return bpf_skb_load_bytes(skb, at, &attr, sizeof(attr)) || attr.rta_type != IFLA_WIRELESS;
}

/*
 * Handles a bridge's neighbour message: moves the epoch if a flow depends on the station. Returns whether to pass
 * it on.
 */
static __always_inline int handle_station(struct __sk_buff *skb)
{
	struct {
		struct ndmsg neighbour;
		struct rtattr attr;
		__u8 mac[8];
	} message;
	__u32 bytes = sizeof(message) - 2;

	if (!bpf_skb_load_bytes(skb, NLMSG_HDRLEN, &message, bytes) && message.attr.rta_type == NDA_LLADDR) {
		/* One of a device's own addresses, or a remote VXLAN endpoint. */
		if (message.neighbour.ndm_flags & NTF_SELF)
			return 0;
		if (!shunt_note_station_change(message.mac))
			return 0;
	}
	move_epoch();
	return 1;
}

SEC("socket")
int shunt_route_changes(struct __sk_buff *skb)
{
	switch (message_type(skb)) {
	case RTM_NEWLINK:
		if (is_bridge_message(skb) || link_changed(skb))
			move_epoch();
		break;
	case RTM_NEWNEIGH:
	case RTM_DELNEIGH:
		if (is_bridge_message(skb) && !handle_station(skb))
			return SHUNT_NONE;
		break;
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
		if (!is_cloned(skb))
			move_epoch();
		break;
	case RTM_DELLINK:
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

/* NFT_MSG_NEWGEN ends a commit: its rules are in force. */
SEC("socket")
int shunt_ruleset_changes(struct __sk_buff *skb)
{
	if (message_type(skb) == SHUNT_NEW_GENERATION)
		move_epoch();
	return SHUNT_WHOLE;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

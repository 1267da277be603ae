// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Which part of netfilter drops a traced packet. The functions are those of modules, so each program is left out if
 * the kernel does not show its function.
 */
#include "inspect/record.h"
#include <bpf/bpf_core_read.h>

enum { NF_DROP___shunt = 0 };
/* The verdict of a hook in the lowest byte. */
enum { NF_VERDICT_MASK___shunt = 0xff };

struct nft_table___shunt {
	const char *name;
} RELOCATED;

struct nft_chain___shunt {
	struct nft_table___shunt *table;
	const char *name;
} RELOCATED;

struct nft_pktinfo___shunt {
	struct sk_buff___shunt *skb;
} RELOCATED;

struct xt_table___shunt {
	char name[TRACE_NAME_BYTES];
} RELOCATED;

static __always_inline int is_drop(__u64 verdict)
{
	return ((__u32)verdict & NF_VERDICT_MASK___shunt) == NF_DROP___shunt;
}

/* nft_do_chain(pkt, chain). From Linux 6.7 on, it frees a packet that it drops, whose record ends before it returns. */
SEC("fentry/nft_do_chain")
int trace_chain_first(__u64 *ctx)
{
	const struct nft_pktinfo___shunt *packet = (void *)ctx[0];
	const struct nft_chain___shunt *chain = (void *)ctx[1];
	struct trace_record *record = record_of(packet->skb);

	if (!record)
		return 0;
	record->verdict = TRACE_BY_CHAIN;
	bpf_probe_read_kernel_str(record->chain, sizeof(record->chain), BPF_CORE_READ(chain, name));
	bpf_probe_read_kernel_str(record->table, sizeof(record->table), BPF_CORE_READ(chain, table, name));
	return 0;
}

SEC("fexit/nft_do_chain")
int trace_chain_last(__u64 *ctx)
{
	const struct nft_pktinfo___shunt *packet = (void *)ctx[0];
	struct trace_record *record;

	if (is_drop(ctx[2]))
		return 0;
	record = record_of(packet->skb);
	if (record)
		record->verdict = 0;
	return 0;
}

static __always_inline int by_table(__u64 *ctx)
{
	const struct xt_table___shunt *table = (void *)ctx[0];
	struct trace_record *record;

	if (!is_drop(ctx[3]))
		return 0;
	record = record_of((void *)ctx[1]);
	if (!record)
		return 0;
	record->verdict = TRACE_BY_TABLE;
	bpf_probe_read_kernel_str(record->table, sizeof(record->table), &table->name);
	return 0;
}

/* ipt_do_table(table, skb, state), and the same for IPv6 */
SEC("fexit/ipt_do_table")
int trace_table4(__u64 *ctx)
{
	return by_table(ctx);
}

SEC("fexit/ip6t_do_table")
int trace_table6(__u64 *ctx)
{
	return by_table(ctx);
}

/* nf_conntrack_in(skb, state) */
SEC("fexit/nf_conntrack_in")
int trace_conntrack(__u64 *ctx)
{
	struct trace_record *record;

	if (!is_drop(ctx[2]))
		return 0;
	record = record_of((void *)ctx[0]);
	if (record)
		record->verdict = TRACE_BY_CONNTRACK;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";

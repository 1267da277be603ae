/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What every program includes first: UAPI, libbpf, the core. Nothing here needs BTF of the running kernel. */
#ifndef SHUNT_BPF_H
#define SHUNT_BPF_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "core/learn.h"

/* Verdicts with one value in TCX and in cls_bpf direct action. */
enum {
	SHUNT_TC_NEXT = -1,  /* TCX_NEXT, TC_ACT_UNSPEC: whoever comes next decides */
	SHUNT_TC_DROP = 2,   /* TCX_DROP, TC_ACT_SHOT */
};

#endif

/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Data shared between the BPF programs and the daemon. Fixed width, no holes: the build checks with -Wpadded. The build
 * of crates/shunt-bpf makes its Rust twin of these headers, and a unit test there compares every size, every offset and
 * every constant.
 *
 * In Rust, a constant of a named enum has the type of the first field whose comment names that enum; all other
 * constants are u32. Times that end in _ticks are the low half of jiffies and wrap, unless noted.
 */
#ifndef SHUNT_ABI_H
#define SHUNT_ABI_H

#include "abi/sizes.h"

#include "abi/control.h"
#include "abi/external.h"
#include "abi/flows.h"
#include "abi/learn.h"
#include "abi/reports.h"
#include "abi/requests.h"

#endif

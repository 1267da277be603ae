// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Compiled with -Wpadded -Werror by tests/prog/abi.rs: every byte of the ABI is named. */
#include "abi/shunt_abi.h"
#include "abi/traffic_abi.h"

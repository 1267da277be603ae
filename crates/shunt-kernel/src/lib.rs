//! The Linux kernel by netlink and sysfs, as the policy sees it.

//! What an i.MX6 is known by.

use super::System;

pub(super) const IMX6: [&str; 6] = ["imx6q", "imx6dl", "imx6qp", "imx6s", "imx6d", "imx6dq"];

pub(super) fn is_imx6_enet(system: &System) -> bool {
    system.is_soc(&IMX6) && system.link.nic.driver.as_deref() == Some("fec")
}

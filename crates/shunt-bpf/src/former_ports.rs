//! Devices that are no longer ports, while flows may still name them.

/// Former ports that moved no epoch when they left. Flows that lead to one find no device in its slot, and those that
/// came in by it get no more packets, so the other flows go on. But no device may get such a slot, and none of these
/// devices another one, before the epoch has moved: those flows would lead to the wrong port, or count for it.
#[derive(Debug, Default)]
pub(crate) struct FormerPorts {
    epoch: u32,
    ports: Vec<(u32, u16)>,
    /// Another daemon has had ports in this epoch, and nobody knows which.
    unknown: bool,
}

impl FormerPorts {
    /// Those of a data plane that another daemon hands over in this epoch.
    pub(crate) fn unknown(epoch: u32) -> Self {
        Self { epoch, ports: Vec::new(), unknown: true }
    }

    /// Adds the device of a slot, which leaves in this epoch.
    pub(crate) fn add(&mut self, epoch: u32, ifindex: u32, slot: u16) {
        self.follow(epoch);
        self.ports.push((ifindex, slot));
    }

    /// Whether flows of this epoch may name the slot.
    pub(crate) fn had_slot(&self, epoch: u32, slot: u16) -> bool {
        self.epoch == epoch && (self.unknown || self.ports.iter().any(|(_, former)| *former == slot))
    }

    /// Whether flows of this epoch may name the device.
    pub(crate) fn had_device(&self, epoch: u32, ifindex: u32) -> bool {
        self.epoch == epoch && (self.unknown || self.ports.iter().any(|(former, _)| *former == ifindex))
    }

    /// Flows of earlier epochs are not used.
    fn follow(&mut self, epoch: u32) {
        if self.epoch != epoch {
            *self = Self { epoch, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_former_port_may_be_named_until_the_epoch_moves() {
        let mut former = FormerPorts::default();
        former.add(3, 7, 0);
        former.add(3, 8, 1);
        assert!(former.had_slot(3, 0) && former.had_device(3, 8));
        assert!(!former.had_slot(3, 2) && !former.had_device(3, 9));
        assert!(!former.had_slot(5, 0) && !former.had_device(5, 7));
        former.add(5, 9, 2);
        assert!(former.had_slot(5, 2) && !former.had_slot(5, 0));
    }

    #[test]
    fn any_port_may_have_been_one_of_another_daemon() {
        let mut former = FormerPorts::unknown(3);
        assert!(former.had_slot(3, 0) && former.had_device(3, 7) && !former.had_slot(5, 0));
        former.add(5, 9, 2);
        assert!(former.had_slot(5, 2) && !former.had_slot(5, 0) && !former.had_device(5, 7));
    }
}

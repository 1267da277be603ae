//! The ports of a data plane: attaching programs to devices, port flags, counters.

use crate::{
    DataPlane, Error,
    abi::{self, Counters, Plain, Port, Slots, XdpExit},
    attach::AttachMode,
    maps::COUNTERS,
    memory::ports_max,
    object::{TC_WATCH, XDP_FORWARD_TAGS, XDP_FORWARD_TAGS_VERIFYING, program},
    owner::Owner,
    pending::{
        AttachedPort, AttachedTc, AttachedXdp, FreeSlot, LeavingPort, NextXdp, TcPrograms, XdpChange,
        XdpProgram,
    },
};
use libbpf_rs::{MapCore, MapFlags, ProgramMut};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem::offset_of,
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, atomic::Ordering},
};

const DEVMAP: &str = "shunt_devmap";
pub(crate) const PORTS: &str = "shunt_ports";
pub(crate) const UPPERS: &str = "shunt_uppers";

impl DataPlane {
    /// Sets the handle of clsact filters, which are used without TCX, and the instance that they name. The handle is
    /// not 0.
    ///
    /// # Errors
    /// If the map with the name cannot be made.
    pub fn set_filter_owner(&mut self, handle: u32, instance: &str) -> Result<(), Error> {
        (self.filter_handle, self.owner) = (handle, Some(Arc::new(Owner::new(instance)?)));
        Ok(())
    }

    /// Attaches the tc programs to a device, with the port flags `flags` (`PORT_*`), by TCX if `tcx` and if the kernel
    /// has it. Waits for the RTNL lock.
    ///
    /// # Errors
    /// If all slots are in use, or the kernel refuses an attachment.
    pub fn attach(&mut self, ifindex: u32, flags: u16, tcx: bool) -> Result<AttachMode, Error> {
        let attached = self.add_port(ifindex, flags, tcx)?.attach();
        self.attached(ifindex, attached)
    }

    /// Makes a device a port, with the port flags `flags` (`PORT_*`). Its tc programs are still to be attached, by TCX
    /// if `tcx` and if the kernel has it; the outcome belongs to [`DataPlane::attached`].
    ///
    /// # Errors
    /// If all slots are in use.
    pub fn add_port(&mut self, ifindex: u32, flags: u16, tcx: bool) -> Result<TcPrograms, Error> {
        let epoch = self.control.epoch();
        let used: BTreeSet<u16> = self.ports.values().map(|port| port.slot).collect();
        let most = ports_max();
        let slot = (0..most as u16)
            .filter(|slot| [&used, &self.reserved, &self.leaving].iter().all(|taken| !taken.contains(slot)))
            .min_by_key(|slot| self.former.had_slot(epoch, *slot))
            .ok_or(Error::TooManyPorts(most))?;
        if self.former.had_slot(epoch, slot) || self.former.had_device(epoch, ifindex) {
            self.control.move_epoch();
        }
        let ingress = self.ingress(flags, false)?;
        let egress = match &self.watch {
            Some(watch) => Some(program(watch, &TC_WATCH, "shunt_out")?),
            None => None,
        };
        let fd = |program: &ProgramMut<'_>| program.as_fd().try_clone_to_owned().map_err(Error::Descriptor);
        let programs = TcPrograms {
            ifindex,
            ingress,
            egress: egress.as_ref().map(fd).transpose()?,
            tcx,
            filter_handle: self.filter_handle,
            owner: self.owner.clone(),
        };
        self.ports.insert(ifindex, AttachedPort { slot, tc: None, xdp: None });
        if let Err(error) = self.write_port(ifindex, Port { slot, flags, ifindex }) {
            self.ports.remove(&ifindex);
            self.erase_port(ifindex, slot)?;
            return Err(error);
        }
        Ok(programs)
    }

    /// Keeps the tc programs of a port. If they could not be attached, the device is no port any more.
    ///
    /// # Errors
    /// The error of the attachment.
    pub fn attached(
        &mut self,
        ifindex: u32,
        programs: Result<AttachedTc, Error>,
    ) -> Result<AttachMode, Error> {
        match programs {
            Ok(tc) => {
                let mode = tc.mode;
                if let Some(port) = self.ports.get_mut(&ifindex) {
                    port.tc = Some(tc);
                }
                Ok(mode)
            }
            Err(error) => {
                if let Some(port) = self.ports.remove(&ifindex) {
                    self.erase_port(ifindex, port.slot)?;
                }
                Err(error)
            }
        }
    }

    /// Attaches an XDP program to a port, instead of the one that it has, if any. Does nothing on a device that is not
    /// a port. Waits for the RTNL lock.
    ///
    /// # Errors
    /// If the XDP program was not loaded, or the device does not accept it.
    pub fn set_xdp(&mut self, ifindex: u32, which: Option<XdpProgram>) -> Result<(), Error> {
        let Some(change) = self.xdp_change(ifindex, which)? else { return Ok(()) };
        let attached = change.make();
        self.xdp_changed(ifindex, attached)
    }

    /// The change of a port's XDP program that is still to be made; `None` if the port has the program, or the device
    /// is not a port. The outcome belongs to [`DataPlane::xdp_changed`].
    ///
    /// # Errors
    /// If the XDP program was not loaded.
    pub fn xdp_change(
        &mut self,
        ifindex: u32,
        which: Option<XdpProgram>,
    ) -> Result<Option<XdpChange>, Error> {
        let Some(port) = self.ports.get_mut(&ifindex) else { return Ok(None) };
        if port.xdp.as_ref().map(|xdp| xdp.program) == which {
            return Ok(None);
        }
        let former = port.xdp.take().map(|xdp| xdp.attachment);
        let next = which.map(|which| self.next_xdp(which)).transpose()?;
        Ok(Some(XdpChange { ifindex, former, next, form: self.first_xdp_form() }))
    }

    /// The program that a port gets, to be loaded and attached.
    pub(crate) fn next_xdp(&self, which: XdpProgram) -> Result<NextXdp, Error> {
        let fd = |program: ProgramMut<'_>| program.as_fd().try_clone_to_owned().map_err(Error::Descriptor);
        let loaded = match which {
            XdpProgram::Forward => {
                let object = self.xdp.as_ref().map_err(|why| Error::NotLoaded(Arc::clone(why)))?;
                let (source, name) = self.first_xdp_form().program(self.verify_xdp);
                fd(program(object, source, name)?)?
            }
            XdpProgram::ForwardTags => {
                let source = if self.verify_xdp { &XDP_FORWARD_TAGS_VERIFYING } else { &XDP_FORWARD_TAGS };
                return Ok(NextXdp::ForDevice { source, size: self.size, maps: self.maps.try_clone()? });
            }
            XdpProgram::External => {
                let external = self.external.as_ref().ok_or(Error::missing_external())?;
                fd(external.program("shunt_xdp_ext")?)?
            }
        };
        Ok(NextXdp::Loaded(which, loaded))
    }

    /// Keeps the XDP program of a port.
    ///
    /// # Errors
    /// The error of the change.
    pub fn xdp_changed(
        &mut self,
        ifindex: u32,
        xdp: Result<Option<AttachedXdp>, Error>,
    ) -> Result<(), Error> {
        let xdp = xdp?;
        if let Some(port) = self.ports.get_mut(&ifindex) {
            port.xdp = xdp;
        }
        Ok(())
    }

    /// The XDP program that is attached to a port.
    pub fn xdp_program(&self, ifindex: u32) -> Option<XdpProgram> {
        Some(self.ports.get(&ifindex)?.xdp.as_ref()?.program)
    }

    /// Whether an XDP program is attached to a port.
    pub fn has_xdp(&self, ifindex: u32) -> bool {
        self.xdp_program(ifindex).is_some()
    }

    /// How the tc programs of a port are attached. None if they are not, or the device is not a port.
    pub fn attach_mode(&self, ifindex: u32) -> Option<AttachMode> {
        Some(self.ports.get(&ifindex)?.tc.as_ref()?.mode)
    }

    /// The slot of a port, `0..PORTS_MAX`. None if the device is not a port.
    pub fn slot(&self, ifindex: u32) -> Option<u16> {
        self.ports.get(&ifindex).map(|p| p.slot)
    }

    /// The ifindex of the port in a slot. None if the slot is free.
    pub fn ifindex_at(&self, slot: u16) -> Option<u32> {
        self.ports.iter().find(|(_, port)| port.slot == slot).map(|(ifindex, _)| *ifindex)
    }

    /// Keeps the slot of a port from other ports, even when the port goes, because entries of the table may name it.
    pub fn reserve_slot(&mut self, ifindex: u32) {
        self.reserved.extend(self.slot(ifindex));
    }

    /// Lets ports use all slots again.
    pub fn release_slots(&mut self) {
        self.reserved.clear();
    }

    /// Detaches all programs from a device and frees its slot. Moves the epoch as [`DataPlane::remove_port`]. Waits for
    /// the RTNL lock.
    ///
    /// # Errors
    /// If a map cannot be written.
    pub fn detach(&mut self, ifindex: u32) -> Result<(), Error> {
        let Some(leaving) = self.remove_port(ifindex)? else { return Ok(()) };
        let slot = leaving.detach();
        self.detached(slot)
    }

    /// Makes a device no port any more. Moves the epoch unless only tc has used the port: then packets of flows that
    /// lead there go to Linux, and others go on. Its programs are still to be detached, and let all packets pass until
    /// then; the outcome belongs to [`DataPlane::detached`]. `None` if the device is not a port.
    ///
    /// # Errors
    /// If a map cannot be written.
    pub fn remove_port(&mut self, ifindex: u32) -> Result<Option<LeavingPort>, Error> {
        let by_tc_alone = self.flags(ifindex) & (abi::PORT_XDP_OUT | abi::PORT_EXTERNAL) == 0;
        let Some(port) = self.ports.remove(&ifindex) else { return Ok(None) };
        // Until they are detached, the programs may count into the slot.
        self.leaving.insert(port.slot);
        self.erase_port(ifindex, port.slot)?;
        // Actions name their ports by slot, and must not send to the device that gets the slot next.
        if by_tc_alone && port.xdp.is_none() {
            self.former.add(self.control.epoch(), ifindex, port.slot);
        } else {
            self.control.move_epoch();
        }
        Ok(Some(LeavingPort(port)))
    }

    /// Whether the slot of a former port will be free when its programs are detached.
    pub fn frees_slots(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Frees the slot of a port whose programs are detached.
    ///
    /// # Errors
    /// If a map cannot be written.
    pub fn detached(&mut self, slot: FreeSlot) -> Result<(), Error> {
        let FreeSlot(slot) = slot;
        let zero = vec![Counters::default().bytes().to_vec(); possible_cpus()?];
        self.maps
            .get(COUNTERS)?
            .update_percpu(&u32::from(slot).to_ne_bytes(), &zero, MapFlags::ANY)
            .map_err(|source| Error::Map { map: COUNTERS, source })?;
        self.leaving.remove(&slot);
        Ok(())
    }

    /// The flags of a port (`PORT_*`); 0 if the device is not a port.
    pub fn flags(&self, ifindex: u32) -> u16 {
        let map = self.maps.find(PORTS);
        let port = map.and_then(|map| map.lookup(&ifindex.to_ne_bytes(), MapFlags::ANY).ok().flatten());
        port.as_deref().and_then(Port::from_bytes).unwrap_or_default().flags
    }

    /// Sets the flags of a port (`PORT_*`). Does nothing on a device that is not a port.
    pub fn set_flags(&self, ifindex: u32, flags: u16) -> Result<(), Error> {
        match self.slot(ifindex) {
            Some(slot) => self.write_port(ifindex, Port { slot, flags, ifindex }),
            None => Ok(()),
        }
    }

    /// Writes which devices are stacked on which ports: upper device to ports, by ifindex. Does nothing unless the data
    /// plane learns.
    pub fn set_uppers(&mut self, uppers: &BTreeMap<u32, BTreeSet<u32>>) -> Result<(), Error> {
        if !self.learns() {
            return Ok(());
        }
        let slots = |ports: &BTreeSet<u32>| {
            let mut slots = Slots::default();
            for slot in ports.iter().filter_map(|port| self.slot(*port)) {
                slots.words[usize::from(slot / 64)] |= 1 << (slot % 64);
            }
            slots
        };
        let want: BTreeMap<u32, Slots> = uppers.iter().map(|(upper, ports)| (*upper, slots(ports))).collect();
        for upper in self.uppers.keys().filter(|upper| !want.contains_key(upper)) {
            self.maps.delete(UPPERS, &upper.to_ne_bytes())?;
        }
        for (upper, slots) in want.iter().filter(|(upper, slots)| self.uppers.get(upper) != Some(slots)) {
            self.maps.update(UPPERS, &upper.to_ne_bytes(), slots.bytes())?;
        }
        self.uppers = want;
        Ok(())
    }

    fn write_port(&self, ifindex: u32, port: Port) -> Result<(), Error> {
        self.maps.update(PORTS, &ifindex.to_ne_bytes(), port.bytes())?;
        self.cache_port(ifindex, port.slot, port);
        self.write_exit(ifindex, port.slot)
    }

    /// Lets XDP send frames to a port.
    pub(crate) fn write_exit(&self, ifindex: u32, slot: u16) -> Result<(), Error> {
        if self.xdp.is_err() {
            return Ok(());
        }
        let program = self.exit_program.as_ref().map_or(0, |program| program.as_raw_fd().cast_unsigned());
        self.maps.update(DEVMAP, &u32::from(slot).to_ne_bytes(), XdpExit { ifindex, program }.bytes())
    }

    pub(crate) fn erase_port(&self, ifindex: u32, slot: u16) -> Result<(), Error> {
        if let Some(external) = &self.external {
            external.clear(slot);
        }
        self.forget_session(ifindex)?;
        self.maps.delete(PORTS, &ifindex.to_ne_bytes())?;
        self.cache_port(ifindex, slot, Port::default());
        if self.xdp.is_ok() {
            self.maps.delete(DEVMAP, &u32::from(slot).to_ne_bytes())?;
        }
        Ok(())
    }

    /// Writes a port, or zeros, to the port cache, where the programs look first.
    fn cache_port(&self, ifindex: u32, slot: u16, port: Port) {
        // Ports whose ifindexes have the same low bits share an element. The last one written has it; the programs find
        // the others in `shunt_ports`.
        let by_ifindex =
            offset_of!(abi::PortCache, by_ifindex) + (ifindex % abi::PORTS_MAX) as usize * size_of::<Port>();
        let by_slot = offset_of!(abi::PortCache, ifindex) + usize::from(slot) * size_of::<u32>();
        let mut whole = [0; size_of::<Port>()];
        whole.copy_from_slice(port.bytes());
        let whole = u64::from_ne_bytes(whole);
        self.port_cache.u32(by_slot).store(port.ifindex, Ordering::Relaxed);
        self.port_cache.u64(by_ifindex).store(whole, Ordering::Relaxed);
    }

    /// The counters of a port, summed over the CPUs; zeros if the device is not a port.
    pub fn counters(&self, ifindex: u32) -> Result<Counters, Error> {
        let mut sum = Counters::default();
        let Some(slot) = self.slot(ifindex) else { return Ok(sum) };
        let values = self
            .maps
            .get(COUNTERS)?
            .lookup_percpu(&u32::from(slot).to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| Error::Map { map: COUNTERS, source })?;
        for value in values.iter().flatten() {
            if let Some(counters) = Counters::from_bytes(value) {
                sum.add(&counters);
            }
        }
        if let Some(external) = &self.external {
            external.add_counters(slot, &mut sum);
        }
        Ok(sum)
    }
}

fn possible_cpus() -> Result<usize, Error> {
    libbpf_rs::num_possible_cpus().map_err(|source| Error::Map { map: COUNTERS, source })
}

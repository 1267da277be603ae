//! A CPU that interprets one BPF program. It stops before each access to shared memory, and the caller performs the
//! access.

use crate::{
    memory::{Memory, Time},
    object::{Instruction, Object, Symbol},
};
use anyhow::{Context, bail, ensure};
use std::{collections::BTreeMap, sync::Arc};

/// An address is a region number (upper half) and an offset. Regions from this number on are private to a CPU.
const OWN: u64 = 1 << 16;
const STACK: u64 = OWN + 1;
const CONTEXT: u64 = OWN + 2;
const SCRATCH: u64 = OWN + 3;
/// Bytes of a stack frame, and the number of frames.
const STACK_BYTES: u64 = 512;
const CALLS_MAX: u64 = 8;
/// The return value of helpers that are not modelled.
const FAILED: u64 = -1i64 as u64;

/// The regions of maps and of sections of globals, by name. Objects that use the same name share a region.
#[derive(Debug, Default)]
pub struct Regions {
    numbers: BTreeMap<String, u64>,
    /// Maps by region: number of elements, bytes per element, and whether the map is per CPU.
    maps: BTreeMap<u64, (u64, u64, bool)>,
}

impl Regions {
    /// Adds a map of `elements` elements with `bytes` bytes each. A map that is `per_cpu` is private to each CPU.
    pub fn map(&mut self, name: &str, elements: u64, bytes: u64, per_cpu: bool) {
        let region = self.region(name);
        self.maps.insert(region, (elements, bytes, per_cpu));
    }

    fn region(&mut self, name: &str) -> u64 {
        let next = self.numbers.len() as u64 + 1;
        *self.numbers.entry(name.to_owned()).or_insert(next)
    }
}

/// An object whose references to data are resolved to addresses.
#[derive(Debug)]
pub struct Image {
    object: Object,
    data: BTreeMap<usize, u64>,
    regions: Arc<Regions>,
}

/// Links objects, which share maps and globals.
pub fn link(objects: Vec<Object>, mut regions: Regions) -> Vec<Arc<Image>> {
    let mut linked = Vec::new();
    for object in objects {
        let mut data = BTreeMap::new();
        for (at, symbol) in &object.symbols {
            if let Symbol::Data(name, offset) = symbol {
                data.insert(*at, regions.region(name) << 32 | offset);
            }
        }
        linked.push((object, data));
    }
    let regions = Arc::new(regions);
    linked
        .into_iter()
        .map(|(object, data)| Arc::new(Image { object, data, regions: regions.clone() }))
        .collect()
}

/// A value, and the time of the latest load that it depends on.
#[derive(Debug, Clone, Copy, Default)]
struct Value {
    is: u64,
    since: Time,
}

/// A memory access that is due.
#[derive(Debug, Clone, Copy)]
struct Access {
    code: u8,
    address: u64,
    since: Time,
    bytes: u64,
}

/// A CPU and the state of its program.
#[derive(Debug, Clone)]
pub struct Cpu {
    number: usize,
    image: Arc<Image>,
    at: usize,
    registers: [Value; 11],
    calls: Vec<(usize, [Value; 5])>,
    /// Private memory, by the address of the word.
    own: BTreeMap<u64, Value>,
    /// The clock in ticks, constant during a program.
    now: u64,
    budget: u32,
}

/// Chooses an outcome where an access to shared memory may have several.
pub trait Choose {
    /// Chooses one of `count` values of a load. 0 is the current value.
    fn version(&mut self, count: usize) -> usize;
    /// Whether other CPUs see a store late.
    fn late(&mut self) -> bool;
}

/// The part of an access that lies in one 8-byte word.
#[derive(Debug, Clone, Copy)]
struct Part {
    word: u64,
    /// The accessed bits of the word.
    mask: u64,
    /// Position of the lowest accessed bit in the word.
    shift: u64,
    /// Number of bits of the access that earlier parts cover.
    done: u64,
}

impl Access {
    fn is_load(&self) -> bool {
        self.code & 7 == 1
    }

    /// The access by words: an access that crosses a word boundary is two accesses.
    fn parts(self) -> impl Iterator<Item = Part> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = self.address + done;
            let bytes = (8 - (at & 7)).min(self.bytes - done);
            let shift = 8 * (at & 7);
            let part =
                Part { word: at & !7, mask: mask(bytes).wrapping_shl(shift as u32), shift, done: 8 * done };
            done += bytes;
            (bytes > 0).then_some(part)
        })
    }
}

impl Part {
    /// The bits of a stored value that belong to this part, at their place in the word.
    fn place(self, value: u64) -> u64 {
        (value >> self.done) << self.shift & self.mask
    }
}

impl Value {
    /// Adds the part of a loaded value that is in one word.
    fn add(&mut self, part: Part, word: u64, since: Time) {
        self.is |= (word & part.mask) >> part.shift << part.done;
        self.since = self.since.max(since);
    }
}

/// The lowest `bytes` bytes.
fn mask(bytes: u64) -> u64 {
    if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 }
}

impl Cpu {
    /// A CPU that is about to run `function`, with these arguments as the context.
    ///
    /// # Errors
    /// If the image has no such function.
    pub fn start(
        number: usize,
        image: &Arc<Image>,
        function: &str,
        arguments: &[u64],
        now: u64,
    ) -> anyhow::Result<Self> {
        let at = *image
            .object
            .functions
            .get(function)
            .with_context(|| format!("there is no function {function}"))?;
        let mut registers = [Value::default(); 11];
        registers[1].is = CONTEXT << 32;
        registers[10].is = (STACK << 32) + STACK_BYTES * CALLS_MAX;
        let own = arguments
            .iter()
            .zip(0..)
            .map(|(is, n)| ((CONTEXT << 32) + 8 * n, Value { is: *is, since: 0 }))
            .collect();
        Ok(Self { number, image: image.clone(), at, registers, calls: Vec::new(), own, now, budget: 100_000 })
    }

    /// Word `n` of the context.
    pub fn argument(&self, n: u64) -> u64 {
        self.own.get(&((CONTEXT << 32) + 8 * n)).map_or(0, |value| value.is)
    }

    /// Runs until an access to shared memory is due. Returns false if the program has ended.
    pub fn advance(&mut self) -> anyhow::Result<bool> {
        loop {
            if let Some(access) = self.access()? {
                if access.address >> 32 < OWN {
                    ensure!(access.address >> 32 != 0, "access to address {:#x}", access.address);
                    return Ok(true);
                }
                self.perform_own(access)?;
            } else if self.step()? {
                return Ok(false);
            }
        }
    }

    /// The words of shared memory that the due access touches, and whether it stores.
    ///
    /// # Errors
    /// If the access is outside its map.
    pub fn due(&self) -> anyhow::Result<(Vec<u64>, bool)> {
        let access = self.access()?.context("no access is due")?;
        Ok((access.parts().map(|part| part.word).collect(), !access.is_load()))
    }

    fn access(&self) -> anyhow::Result<Option<Access>> {
        let code = self.image.object.code.get(self.at).context("ran off the code")?;
        let base = match code.code & 7 {
            1 => code.src,
            2 | 3 => code.dst,
            _ => return Ok(None),
        };
        let bytes = match code.code >> 3 & 3 {
            0 => 4,
            1 => 2,
            2 => 1,
            _ => 8,
        };
        let Value { is, since } = self.registers[base];
        let address = is.wrapping_add_signed(code.offset.into());
        let region = self.image.regions.maps.get(&(address >> 32));
        let outside = region.is_some_and(|(count, size, _)| (address & 0xffff_ffff) + bytes > count * size);
        ensure!(!outside, "access outside a map");
        Ok(Some(Access { code: code.code, address, since, bytes }))
    }

    /// Performs the due access to shared memory.
    pub fn perform(&mut self, memory: &mut Memory, choose: &mut dyn Choose) -> anyhow::Result<()> {
        let Some(access) = self.access()? else { bail!("no access is due") };
        let code = self.image.object.code[self.at];
        self.at += 1;
        if access.code & 0xe7 == 0xc3 {
            return self.atomic(memory, access, choose);
        }
        if access.is_load() {
            let mut loaded = Value::default();
            for part in access.parts() {
                let (is, since) = self.load(memory, choose, part.word, access.since);
                loaded.add(part, is, since);
            }
            self.registers[code.dst] = loaded;
        } else {
            let stored = self.stored(code).is;
            for part in access.parts() {
                let late = choose.late();
                memory.store(self.number, part.word, part.mask, part.place(stored), late);
            }
        }
        Ok(())
    }

    /// The value that a store instruction stores: an immediate or a register.
    fn stored(&self, code: Instruction) -> Value {
        match code.code & 7 {
            2 => Value { is: code.imm as i64 as u64, since: 0 },
            _ => self.registers[code.src],
        }
    }

    fn load(&self, memory: &mut Memory, choose: &mut dyn Choose, word: u64, since: Time) -> (u64, Time) {
        let versions = memory.versions(self.number, word, since);
        let chosen = if versions.len() > 1 { choose.version(versions.len()) } else { 0 };
        memory.saw(self.number, word, versions[chosen].0);
        (versions[chosen].1, versions[chosen].0)
    }

    /// An atomic operation that returns the old value is a full barrier, before and after.
    fn atomic(
        &mut self,
        memory: &mut Memory,
        access: Access,
        _choose: &mut dyn Choose,
    ) -> anyhow::Result<()> {
        let code = self.image.object.code[self.at - 1];
        let (word, shift) = (access.address & !7, 8 * (access.address & 7));
        ensure!(access.address.is_multiple_of(access.bytes), "unaligned atomic operation");
        let full = code.imm & 1 == 1;
        if full {
            memory.barrier(self.number);
        } else {
            memory.flush_word(self.number, word);
        }
        let old = memory.latest(word) >> shift & mask(access.bytes);
        if let Some(new) = self.result_of_atomic(code, access.bytes, old)? {
            memory.store(
                self.number,
                word,
                mask(access.bytes) << shift,
                (new & mask(access.bytes)) << shift,
                false,
            );
        }
        if full {
            memory.barrier(self.number);
            self.set_old_value(code, Value { is: old, since: 0 });
        }
        Ok(())
    }

    /// The value that an atomic operation stores; `None` if a comparison fails.
    fn result_of_atomic(&self, code: Instruction, bytes: u64, old: u64) -> anyhow::Result<Option<u64>> {
        let operand = self.registers[code.src].is & mask(bytes);
        Ok(match code.imm {
            0x00 | 0x01 => Some(old.wrapping_add(operand)),
            0x40 | 0x41 => Some(old | operand),
            0x50 | 0x51 => Some(old & operand),
            0xa0 | 0xa1 => Some(old ^ operand),
            0xe1 => Some(operand),
            0xf1 => (old == self.registers[0].is & mask(bytes)).then_some(operand),
            other => bail!("atomic operation {other:#x}"),
        })
    }

    fn set_old_value(&mut self, code: Instruction, old: Value) {
        let to = if code.imm == 0xf1 { 0 } else { code.src };
        self.registers[to] = old;
    }

    /// An atomic operation on private memory is no barrier here, which allows more orders than there are.
    fn atomic_own(&mut self, access: Access) -> anyhow::Result<()> {
        let code = self.image.object.code[self.at - 1];
        let (word, shift) = (access.address & !7, 8 * (access.address & 7));
        ensure!(access.address.is_multiple_of(access.bytes), "unaligned atomic operation");
        let have = self.own.get(&word).copied().unwrap_or_default();
        let old = have.is >> shift & mask(access.bytes);
        if let Some(new) = self.result_of_atomic(code, access.bytes, old)? {
            let mask = mask(access.bytes) << shift;
            self.own.insert(word, Value { is: have.is & !mask | new << shift & mask, since: have.since });
        }
        if code.imm & 1 == 1 {
            self.set_old_value(code, Value { is: old, since: have.since });
        }
        Ok(())
    }

    fn perform_own(&mut self, access: Access) -> anyhow::Result<()> {
        let code = self.image.object.code[self.at];
        self.at += 1;
        if access.code & 0xe7 == 0xc3 {
            return self.atomic_own(access);
        }
        if access.is_load() {
            let mut loaded = Value::default();
            for part in access.parts() {
                let entry = self.own.entry(part.word).or_default();
                loaded.add(part, entry.is, entry.since);
            }
            self.registers[code.dst] = loaded;
        } else {
            let stored = self.stored(code);
            for part in access.parts() {
                let entry = self.own.entry(part.word).or_default();
                entry.is = entry.is & !part.mask | part.place(stored.is);
                // A word is as late as its latest byte.
                let whole = part.mask == u64::MAX;
                entry.since = if whole { stored.since } else { entry.since.max(stored.since) };
            }
        }
        Ok(())
    }

    /// Executes an instruction that accesses no memory. Returns true if the program has ended.
    fn step(&mut self) -> anyhow::Result<bool> {
        self.budget = self.budget.checked_sub(1).context("the program does not end")?;
        let code = self.image.object.code[self.at];
        let wide = code.code & 7 == 7 || code.code & 7 == 6;
        match code.code & 7 {
            0 => {
                ensure!(code.code == 0x18, "load {:#x}", code.code);
                let high = self.image.object.code.get(self.at + 1).context("half an immediate")?.imm;
                let is = match self.image.data.get(&self.at) {
                    Some(address) => *address,
                    None => u64::from(code.imm as u32) | u64::from(high as u32) << 32,
                };
                self.registers[code.dst] = Value { is, since: 0 };
                self.at += 2;
            }
            5 if code.code == 0x85 => self.call()?,
            5 if code.code == 0x95 => {
                let Some((back, kept)) = self.calls.pop() else { return Ok(true) };
                self.registers[6..].copy_from_slice(&kept);
                self.at = back;
            }
            5 if code.code == 0x05 => self.at = (self.at as i64 + 1 + i64::from(code.offset)) as usize,
            5 | 6 => {
                let to = self.operand(code.code, code.src, code.imm).is;
                let from = self.registers[code.dst].is;
                let (a, b) = if wide { (from & mask(4), to & mask(4)) } else { (from, to) };
                let (x, y) =
                    if wide { (i64::from(a as i32), i64::from(b as i32)) } else { (a as i64, b as i64) };
                let jump = match code.code >> 4 {
                    0x1 => a == b,
                    0x2 => a > b,
                    0x3 => a >= b,
                    0x4 => a & b != 0,
                    0x5 => a != b,
                    0x6 => x > y,
                    0x7 => x >= y,
                    0xa => a < b,
                    0xb => a <= b,
                    0xc => x < y,
                    0xd => x <= y,
                    other => bail!("jump {other:#x}"),
                };
                self.at = (self.at as i64 + 1 + if jump { i64::from(code.offset) } else { 0 }) as usize;
            }
            4 | 7 => {
                self.compute(code.code, code.dst, code.src, code.imm, wide)?;
                self.at += 1;
            }
            other => bail!("instruction class {other}"),
        }
        Ok(false)
    }

    fn operand(&self, code: u8, src: usize, imm: i32) -> Value {
        if code & 8 == 0 { Value { is: imm as i64 as u64, since: 0 } } else { self.registers[src] }
    }

    fn compute(&mut self, code: u8, dst: usize, src: usize, imm: i32, wide: bool) -> anyhow::Result<()> {
        let to = self.registers[dst];
        let with = self.operand(code, src, imm);
        let (a, b) = if wide { (to.is, with.is) } else { (to.is & mask(4), with.is & mask(4)) };
        let bits = if wide { 63 } else { 31 };
        let mut since = to.since.max(with.since);
        let is = match code >> 4 {
            0x0 => a.wrapping_add(b),
            0x1 => a.wrapping_sub(b),
            0x2 => a.wrapping_mul(b),
            0x3 => a.checked_div(b).unwrap_or(0),
            0x4 => a | b,
            0x5 => a & b,
            0x6 => a << (b & bits),
            0x7 => a >> (b & bits),
            0x8 => a.wrapping_neg(),
            0x9 => a.checked_rem(b).unwrap_or(a),
            0xa => a ^ b,
            0xb => {
                since = with.since;
                b
            }
            0xc if wide => ((a as i64) >> (b & bits)) as u64,
            0xc => ((a as i32) >> (b & bits)) as u64,
            0xd => {
                since = to.since;
                match (code & 8, imm) {
                    (0, 16) => to.is & mask(2),
                    (0, 32) => to.is & mask(4),
                    (0, 64) => to.is,
                    (_, 16) => u64::from((to.is as u16).swap_bytes()),
                    (_, 32) => u64::from((to.is as u32).swap_bytes()),
                    _ => to.is.swap_bytes(),
                }
            }
            other => bail!("operation {other:#x}"),
        };
        let swap = code >> 4 == 0xd;
        self.registers[dst] = Value { is: if wide || swap { is } else { is & mask(4) }, since };
        Ok(())
    }

    fn call(&mut self) -> anyhow::Result<()> {
        let code = self.image.object.code[self.at];
        let function = match self.image.object.symbols.get(&self.at) {
            Some(Symbol::Function(at)) => Some(*at),
            Some(Symbol::Kernel(name)) => bail!("the kernel function {name} is not modelled"),
            _ if code.src == 1 => Some((self.at as i64 + 1 + i64::from(code.imm)) as usize),
            _ => None,
        };
        self.at += 1;
        if let Some(to) = function {
            let mut kept = [Value::default(); 5];
            kept.copy_from_slice(&self.registers[6..]);
            self.calls.push((self.at, kept));
            ensure!((self.calls.len() as u64) < CALLS_MAX, "too many calls");
            self.registers[10].is -= STACK_BYTES;
            self.at = to;
            return Ok(());
        }
        let is = match code.imm {
            // bpf_map_lookup_elem
            1 => self.look_up()?,
            // bpf_map_update_elem, bpf_map_delete_elem: only hash maps, which are not modelled
            2 | 3 => 0,
            // bpf_get_smp_processor_id
            8 => self.number as u64,
            // bpf_jiffies64
            118 => self.now,
            // bpf_ringbuf_reserve
            131 => 0,
            _ => FAILED,
        };
        // The address of an element depends on the loads that its index came from.
        let since = if code.imm == 1 { self.own_since(self.registers[2].is) } else { 0 };
        self.registers[0] = Value { is, since };
        Ok(())
    }

    fn own_since(&self, address: u64) -> Time {
        self.own.get(&(address & !7)).map_or(0, |value| value.since)
    }

    fn look_up(&self) -> anyhow::Result<u64> {
        let (map, key) = (self.registers[1].is, self.registers[2].is);
        ensure!(key >> 32 >= OWN, "the key is in shared memory");
        let Some((elements, bytes, own)) = self.image.regions.maps.get(&(map >> 32)) else { return Ok(0) };
        let word = self.own.get(&(key & !7)).map_or(0, |value| value.is);
        let key = word >> (8 * (key & 7)) & mask(4);
        Ok(match (key < *elements, own) {
            (false, _) => 0,
            (true, false) => map + key * bytes,
            (true, true) => (SCRATCH + (map >> 32)) << 32 | (key * bytes),
        })
    }
}

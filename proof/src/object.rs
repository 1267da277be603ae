//! Reads BPF objects: code with resolved calls and symbols. Supports the subset of ELF that clang's BPF objects use.

use anyhow::{Context, bail, ensure};
use std::{collections::BTreeMap, ops::Range};

/// An 8-byte instruction. A 64-bit immediate takes two.
#[derive(Debug, Clone, Copy)]
pub struct Instruction {
    /// The opcode: class, operation and source.
    pub code: u8,
    /// The destination register, or the base of a stored address.
    pub dst: usize,
    /// The source register, or the base of a loaded address.
    pub src: usize,
    /// The offset of an address in bytes, or of a jump in instructions.
    pub offset: i16,
    /// The immediate.
    pub imm: i32,
}

/// The target of a relocated instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Symbol {
    /// A map by name (offset 0), or a section of globals by name and an offset.
    Data(String, u64),
    /// The function that starts at this instruction.
    Function(usize),
    /// A kernel function by name. It is not in the object.
    Kernel(String),
}

/// The code of an object, all sections concatenated.
#[derive(Debug, Default)]
pub struct Object {
    /// The instructions.
    pub code: Vec<Instruction>,
    /// By the index of the instruction that refers to the symbol.
    pub symbols: BTreeMap<usize, Symbol>,
    /// The index of each function's first instruction.
    pub functions: BTreeMap<String, usize>,
}

struct Section<'a> {
    name: &'a str,
    kind: u32,
    flags: u64,
    bytes: &'a [u8],
    link: usize,
    info: usize,
}

fn number(bytes: &[u8], range: Range<usize>) -> anyhow::Result<u64> {
    let bytes = bytes.get(range).context("the object is truncated")?;
    Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn text(bytes: &[u8], at: usize) -> anyhow::Result<&str> {
    let rest = bytes.get(at..).context("a name is outside its table")?;
    Ok(std::str::from_utf8(rest.split(|byte| *byte == 0).next().unwrap_or_default())?)
}

fn sections(elf: &[u8]) -> anyhow::Result<Vec<Section<'_>>> {
    ensure!(elf.starts_with(b"\x7fELF\x02\x01"), "not a little-endian ELF object of 64 bits");
    let (table, size, count) =
        (number(elf, 40..48)? as usize, number(elf, 58..60)? as usize, number(elf, 60..62)? as usize);
    let names = number(elf, 62..64)? as usize;
    let header = |n: usize| {
        elf.get(table + n * size..table + (n + 1) * size).context("the section table is truncated")
    };
    let bytes = |n: usize| -> anyhow::Result<&[u8]> {
        let header = header(n)?;
        let (at, size) = (number(header, 24..32)? as usize, number(header, 32..40)? as usize);
        let none = number(header, 4..8)? == 8;
        if none { Ok(&[]) } else { elf.get(at..at + size).context("a section is truncated") }
    };
    let strings = bytes(names)?;
    let section = |n: usize| -> anyhow::Result<Section> {
        let header = header(n)?;
        Ok(Section {
            name: text(strings, number(header, 0..4)? as usize)?,
            kind: number(header, 4..8)? as u32,
            flags: number(header, 8..16)?,
            bytes: bytes(n)?,
            link: number(header, 40..44)? as usize,
            info: number(header, 44..48)? as usize,
        })
    };
    (0..count).map(section).collect()
}

impl Object {
    /// Reads an object that clang wrote.
    ///
    /// # Errors
    /// If it is not a BPF object, or has no function.
    pub fn read(elf: &[u8]) -> anyhow::Result<Self> {
        let sections = sections(elf)?;
        let mut object = Self::default();
        let mut starts = BTreeMap::new();
        for (n, section) in sections.iter().enumerate().filter(|(_, section)| section.flags & 4 != 0) {
            starts.insert(n, object.code.len());
            object.code.extend(section.bytes.chunks_exact(8).map(|bytes| Instruction {
                code: bytes[0],
                dst: usize::from(bytes[1] & 15),
                src: usize::from(bytes[1] >> 4),
                offset: i16::from_le_bytes([bytes[2], bytes[3]]),
                imm: i32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            }));
        }
        let table = sections.iter().find(|section| section.kind == 2).context("no symbols")?;
        let strings = sections.get(table.link).context("no symbol names")?.bytes;
        // Name, type, section and value of a symbol.
        let symbol = |n: usize| -> anyhow::Result<(&str, u8, usize, u64)> {
            let bytes = table.bytes.get(24 * n..24 * (n + 1)).context("symbol index out of range")?;
            let name = text(strings, number(bytes, 0..4)? as usize)?;
            Ok((name, bytes[4] & 15, number(bytes, 6..8)? as usize, number(bytes, 8..16)?))
        };
        for n in 0..table.bytes.len() / 24 {
            let (name, kind, section, value) = symbol(n)?;
            if let (2, Some(start)) = (kind, starts.get(&section)) {
                object.functions.insert(name.to_owned(), start + value as usize / 8);
            }
        }
        for section in sections.iter().filter(|section| section.kind == 9) {
            let Some(start) = starts.get(&section.info) else { continue };
            for bytes in section.bytes.chunks_exact(16) {
                let at = start + number(bytes, 0..8)? as usize / 8;
                let (name, _, of, value) = symbol(number(bytes, 8..16)? as usize >> 32)?;
                let to = if of == 0 {
                    Symbol::Kernel(name.to_owned())
                } else if let Some(function) = starts.get(&of) {
                    let code = &object.code[at];
                    // A call relative to a section symbol has the target in the immediate.
                    let beyond =
                        if code.code == 0x85 && name.is_empty() { i64::from(code.imm) + 1 } else { 0 };
                    Symbol::Function((*function as i64 + value as i64 / 8 + beyond) as usize)
                } else {
                    let section = sections.get(of).context("a symbol has no section")?.name;
                    match section {
                        ".maps" => Symbol::Data(name.to_owned(), 0),
                        _ => Symbol::Data(section.to_owned(), value + object.code[at].imm as u64),
                    }
                };
                object.symbols.insert(at, to);
            }
        }
        if object.functions.is_empty() {
            bail!("the object has no functions");
        }
        Ok(object)
    }
}

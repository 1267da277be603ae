//! CMSIS-SVD: peripherals, clusters, registers and fields, with arrays (`dim`) and `derivedFrom`.

use super::{Access, Block, Counter, Definitions, Field, Problem, Problems, Register, problem::line_of};
use roxmltree::{Document, Node, ParsingOptions};
use std::collections::BTreeMap;

/// Limits that no chip reaches, so that a wrong file ends with a message instead of exhausting memory.
const REGISTERS_MAX: usize = 200_000;
const DIM_MAX: u64 = 4096;
const DEPTH_MAX: usize = 12;
const NODES_MAX: u32 = 20_000_000;

/// Properties that a register inherits from the elements around it.
#[derive(Clone, Copy)]
struct Inherited {
    size: u64,
    access: Access,
}

struct Parser<'x> {
    text: &'x str,
    all: Definitions,
    problems: Vec<Problem>,
}

/// Parses a whole SVD file.
///
/// # Errors
/// The lines that are wrong; malformed XML ends parsing at its first error.
pub fn parse_svd(text: &str) -> Result<Definitions, Problems> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let options = ParsingOptions { nodes_limit: NODES_MAX, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options)
        .map_err(|error| Problem::new(error.pos().row as usize, format!("not well-formed XML: {error}")))?;
    let device = document.root_element();
    if !device.has_tag_name("device") {
        let reason =
            format!("not a CMSIS-SVD file: the root is <{}>, not <device>", device.tag_name().name());
        return Err(Problem::new(line_of(text, device.range().start), reason).into());
    }
    let mut parser = Parser { text, all: Definitions::default(), problems: Vec::new() };
    parser.device(device);
    if parser.problems.is_empty() { Ok(parser.all) } else { Err(Problems(parser.problems)) }
}

impl<'x> Parser<'x> {
    fn device(&mut self, device: Node<'x, 'x>) {
        let usual = self.inherited(device, Inherited { size: 32, access: Access::ReadWrite });
        let Some(peripherals) = child(device, "peripherals") else {
            return self.problem(device, "the device has no <peripherals>");
        };
        for peripheral in elements(peripherals, "peripheral") {
            if let Err((node, reason)) = self.peripheral(peripheral, usual) {
                self.problem(node, reason);
            }
        }
    }

    fn peripheral(&mut self, node: Node<'x, 'x>, usual: Inherited) -> Result<(), Wrong<'x>> {
        let name = text_of(node, "name")?;
        let base = number_of(node, "baseAddress")?;
        let usual = self.inherited(node, usual);
        let title = optional_text(node, "description").unwrap_or_default();
        for (index, offset) in places(node)? {
            let name = indexed(name, &index);
            let base = base.checked_add(offset).ok_or((node, "the address is beyond 64 bits".to_owned()))?;
            let block =
                Block { title: squeezed(title), source: "CMSIS-SVD".to_owned(), base, ..Block::default() };
            if self.all.blocks.insert(name.clone(), block).is_some() {
                return Err((node, format!("two peripherals are named `{name}`")));
            }
            if let Some(registers) = inherited_child(node, "registers") {
                self.registers(registers, &name, &format!("{name}_"), 0, usual, 0);
            }
        }
        Ok(())
    }

    /// The registers and clusters directly below a node.
    fn registers(
        &mut self,
        parent: Node<'x, 'x>,
        block: &str,
        prefix: &str,
        base: u64,
        usual: Inherited,
        depth: usize,
    ) {
        for node in parent.children().filter(Node::is_element) {
            if self.all.registers.len() > REGISTERS_MAX {
                return self.problem(node, format!("more than {REGISTERS_MAX} registers"));
            }
            let done = match node.tag_name().name() {
                "register" => self.register(node, block, prefix, base, usual),
                "cluster" if depth < DEPTH_MAX => self.cluster(node, block, prefix, base, usual, depth),
                "cluster" => Err((node, format!("clusters are nested more than {DEPTH_MAX} deep"))),
                _ => Ok(()),
            };
            if let Err((node, reason)) = done {
                self.problem(node, reason);
            }
        }
    }

    fn cluster(
        &mut self,
        node: Node<'x, 'x>,
        block: &str,
        prefix: &str,
        base: u64,
        usual: Inherited,
        depth: usize,
    ) -> Result<(), Wrong<'x>> {
        let name = text_of(node, "name")?;
        let offset = number_of(node, "addressOffset")?;
        let usual = self.inherited(node, usual);
        let inner = if node.children().any(|one| one.has_tag_name("register") || one.has_tag_name("cluster"))
        {
            node
        } else {
            derived(node).unwrap_or(node)
        };
        for (index, step) in places(node)? {
            if self.all.registers.len() > REGISTERS_MAX {
                break;
            }
            let at = [base, offset, step].into_iter().try_fold(0u64, u64::checked_add);
            let at = at.ok_or((node, "the offset is beyond 64 bits".to_owned()))?;
            let prefix = format!("{prefix}{}_", indexed(name, &index));
            self.registers(inner, block, &prefix, at, usual, depth + 1);
        }
        Ok(())
    }

    fn register(
        &mut self,
        node: Node<'x, 'x>,
        block: &str,
        prefix: &str,
        base: u64,
        usual: Inherited,
    ) -> Result<(), Wrong<'x>> {
        let name = text_of(node, "name")?;
        let offset = number_of(node, "addressOffset")?;
        let usual = self.inherited(node, usual);
        let width = match usual.size {
            8 | 16 | 32 | 64 => usual.size as u8,
            other => {
                return Err((node, format!("register `{name}` has {other} bits: expected 8, 16, 32 or 64")));
            }
        };
        let fields = match inherited_child(node, "fields") {
            Some(fields) => self.fields(fields, width),
            None => Vec::new(),
        };
        let about = squeezed(optional_text(node, "description").unwrap_or_default());
        let register = Register {
            name: String::new(),
            block: Some(block.to_owned()),
            offset: 0,
            width,
            access: write_one_to_clear(node).unwrap_or(usual.access),
            read_clears: inherited_child(node, "readAction").is_some(),
            counter: None::<Counter>,
            about,
            fields,
        };
        for (index, step) in places(node)? {
            let at = [base, offset, step].into_iter().try_fold(0u64, u64::checked_add);
            let offset = at.ok_or((node, "the offset is beyond 64 bits".to_owned()))?;
            let name = format!("{prefix}{}", indexed(name, &index));
            self.all.registers.push(Register { name, offset, ..register.clone() });
        }
        Ok(())
    }

    fn fields(&mut self, parent: Node<'x, 'x>, width: u8) -> Vec<Field> {
        let mut all = Vec::new();
        for node in elements(parent, "field") {
            match fields_of(node, width) {
                Ok(fields) => all.extend(fields),
                Err((node, reason)) => self.problem(node, reason),
            }
        }
        all
    }

    fn inherited(&mut self, node: Node<'x, 'x>, usual: Inherited) -> Inherited {
        let size = match inherited_child(node, "size") {
            None => usual.size,
            Some(size) => number(size).unwrap_or_else(|(node, reason)| {
                self.problem(node, reason);
                usual.size
            }),
        };
        let access = optional_text(node, "access").and_then(access_of).unwrap_or(usual.access);
        Inherited { size, access }
    }

    fn problem(&mut self, node: Node<'x, 'x>, reason: impl Into<String>) {
        let line = line_of(self.text, node.range().start);
        let problem = Problem::new(line, reason);
        // Instances of an array share a problem: report it once.
        if !self.problems.contains(&problem) && self.problems.len() < 1000 {
            self.problems.push(problem);
        }
    }
}

/// The element that is wrong, and the reason.
type Wrong<'x> = (Node<'x, 'x>, String);

fn fields_of<'x>(node: Node<'x, 'x>, width: u8) -> Result<Vec<Field>, Wrong<'x>> {
    let name = text_of(node, "name")?;
    let (high, low) = bits(node)?;
    let values = inherited_child(node, "enumeratedValues").map(values).unwrap_or_default();
    let access = write_one_to_clear(node).or_else(|| optional_text(node, "access").and_then(access_of));
    let about = squeezed(optional_text(node, "description").unwrap_or_default());
    let mut all = Vec::new();
    for (index, step) in places(node)? {
        let name = indexed(name, &index);
        let bit = |bit: u64| bit.checked_add(step).filter(|bit| *bit < u64::from(width));
        let (Some(high), Some(low)) = (bit(high), bit(low)) else {
            return Err((node, format!("field `{name}` is beyond the {width} bits of its register")));
        };
        let (high, low) = (high as u8, low as u8);
        all.push(Field { name, high, low, access, about: about.clone(), values: values.clone() });
    }
    Ok(all)
}

/// Highest and lowest bit, in any of the three notations.
fn bits<'x>(node: Node<'x, 'x>) -> Result<(u64, u64), Wrong<'x>> {
    let (high, low) = if let Some(range) = inherited_child(node, "bitRange") {
        let text = range.text().unwrap_or_default().trim();
        let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let pair = inner.and_then(|inner| inner.split_once(':'));
        let pair = pair.and_then(|(high, low)| Some((parse_number(high)?, parse_number(low)?)));
        pair.ok_or_else(|| (range, format!("`{text}` is not a bit range such as [7:0]")))?
    } else if inherited_child(node, "lsb").is_some() {
        (number_of(node, "msb")?, number_of(node, "lsb")?)
    } else {
        let low = number_of(node, "bitOffset")?;
        let width = inherited_child(node, "bitWidth").map_or(Ok(1), number)?;
        let high = width.checked_sub(1).and_then(|width| low.checked_add(width));
        (high.ok_or((node, "a field of 0 bits".to_owned()))?, low)
    };
    if high < low {
        return Err((node, format!("the highest bit {high} is below the lowest bit {low}")));
    }
    Ok((high, low))
}

fn values(node: Node) -> BTreeMap<u64, String> {
    let value = |one: Node| {
        let value = parse_number(child(one, "value")?.text()?)?;
        let about = child(one, "description").or_else(|| child(one, "name"))?.text()?;
        Some((value, squeezed(about)))
    };
    elements(node, "enumeratedValue").filter_map(value).collect()
}

fn write_one_to_clear(node: Node) -> Option<Access> {
    let text = optional_text(node, "modifiedWriteValues")?;
    (text == "oneToClear").then_some(Access::WriteOneToClear)
}

fn access_of(text: &str) -> Option<Access> {
    match text {
        "read-only" => Some(Access::ReadOnly),
        "write-only" | "writeOnce" => Some(Access::WriteOnly),
        "read-write" | "read-writeOnce" => Some(Access::ReadWrite),
        _ => None,
    }
}

/// Each instance of an element: its index, and the distance from the first. One without an index, if there is no `dim`.
fn places<'x>(node: Node<'x, 'x>) -> Result<Vec<(String, u64)>, Wrong<'x>> {
    let Some(dim) = child(node, "dim") else { return Ok(vec![(String::new(), 0)]) };
    let count = number(dim)?;
    if !(1..=DIM_MAX).contains(&count) {
        return Err((dim, format!("<dim> is {count}: expected 1 to {DIM_MAX}")));
    }
    let step = number_of(node, "dimIncrement")?;
    let names = optional_text(node, "dimIndex").map(indices).unwrap_or_default();
    let place = |n: u64| {
        let index = names.get(n as usize).cloned().unwrap_or_else(|| n.to_string());
        let offset = n.checked_mul(step).ok_or((dim, "the array is beyond 64 bits".to_owned()))?;
        Ok((index, offset))
    };
    (0..count).map(place).collect()
}

/// `A,B,C`, `3-6` or `A-D`.
fn indices(text: &str) -> Vec<String> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (first.trim(), last.trim());
        if let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) {
            return Some((first..=last).take(DIM_MAX as usize).map(|n| n.to_string()).collect());
        }
        let letter =
            |text: &str| text.chars().next().filter(|letter| letter.is_ascii_alphabetic() && text.len() == 1);
        Some((letter(first)?..=letter(last)?).map(String::from).collect())
    };
    range(text).unwrap_or_else(|| text.split(',').map(|index| index.trim().to_owned()).collect())
}

fn indexed(name: &str, index: &str) -> String {
    name.replace("[%s]", index).replace("%s", index)
}

fn elements<'x>(node: Node<'x, 'x>, tag: &'static str) -> impl Iterator<Item = Node<'x, 'x>> {
    node.children().filter(move |one| one.has_tag_name(tag))
}

fn child<'x>(node: Node<'x, 'x>, tag: &str) -> Option<Node<'x, 'x>> {
    node.children().find(|one| one.has_tag_name(tag))
}

/// The child of a node, or of the element that it is derived from.
fn inherited_child<'x>(node: Node<'x, 'x>, tag: &str) -> Option<Node<'x, 'x>> {
    let mut at = node;
    for _ in 0..DEPTH_MAX {
        if let Some(found) = child(at, tag) {
            return Some(found);
        }
        at = derived(at)?;
    }
    None
}

/// The element that `derivedFrom` names: a sibling, or any of the same kind if the name is a path.
fn derived<'x>(node: Node<'x, 'x>) -> Option<Node<'x, 'x>> {
    let path = node.attribute("derivedFrom")?;
    let name = path.rsplit('.').next()?;
    let named = |one: &Node<'x, 'x>| {
        one.tag_name() == node.tag_name()
            && *one != node
            && child(*one, "name").and_then(|name| name.text()).is_some_and(|text| text.trim() == name)
    };
    let container = path.rsplit('.').nth(1);
    let inside = |one: &Node<'x, 'x>| {
        container.is_none_or(|container| {
            one.ancestors().any(|up| {
                child(up, "name").and_then(|name| name.text()).is_some_and(|text| text.trim() == container)
            })
        })
    };
    let siblings = || node.parent().into_iter().flat_map(|parent| parent.children());
    let everywhere = || node.document().descendants();
    match container {
        None => siblings().find(named).or_else(|| everywhere().find(named)),
        Some(_) => everywhere().find(|one| named(one) && inside(one)),
    }
}

fn optional_text<'x>(node: Node<'x, 'x>, tag: &str) -> Option<&'x str> {
    Some(inherited_child(node, tag)?.text()?.trim())
}

fn text_of<'x>(node: Node<'x, 'x>, tag: &str) -> Result<&'x str, Wrong<'x>> {
    let text = child(node, tag).and_then(|one| one.text()).map(str::trim).filter(|text| !text.is_empty());
    text.ok_or_else(|| (node, format!("<{}> has no <{tag}>", node.tag_name().name())))
}

fn number_of<'x>(node: Node<'x, 'x>, tag: &str) -> Result<u64, Wrong<'x>> {
    number(
        inherited_child(node, tag)
            .ok_or_else(|| (node, format!("<{}> has no <{tag}>", node.tag_name().name())))?,
    )
}

fn number<'x>(node: Node<'x, 'x>) -> Result<u64, Wrong<'x>> {
    let text = node.text().unwrap_or_default().trim();
    parse_number(text)
        .ok_or_else(|| (node, format!("`{text}` in <{}> is not a number", node.tag_name().name())))
}

/// `scaledNonNegativeInteger` of the SVD schema: decimal, 0x, # or 0b for binary, with k, m, g or t.
fn parse_number(text: &str) -> Option<u64> {
    let text = text.trim().trim_start_matches('+');
    let lower = text.to_ascii_lowercase();
    if let Some(digits) = lower.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    if let Some(digits) = lower.strip_prefix('#').or_else(|| lower.strip_prefix("0b")) {
        return u64::from_str_radix(digits, 2).ok();
    }
    let scale = match lower.chars().last()? {
        'k' => 1 << 10,
        'm' => 1 << 20,
        'g' => 1 << 30,
        't' => 1 << 40,
        _ => 1,
    };
    let digits = if scale == 1 { &lower[..] } else { &lower[..lower.len() - 1] };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

/// Descriptions have line breaks and indentation.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;

//! Picks out of the kernel's types what the programs read.
//!
//! The programs declare, of each structure, the members that they read, under the kernel's name with an ending
//! (`sk_buff___shunt`). The new file has these structures with these members, at the kernel's offsets.

use super::{
    BuildId, MARK, TypesError,
    writer::{Member, Writer},
};
use crate::object::{CompiledObject, TC_FORWARD_WITHOUT_KFUNCS, TC_WATCH_WITHOUT_KFUNCS};
use libbpf_rs::btf::{
    Btf, BtfType, HasSize, TypeId,
    types::{Array, Composite, Enum, Int, IntEncoding, MemberAttr, Ptr},
};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::{OsStr, c_int},
    io,
};

/// Before the ending of a declaration's name.
const ENDING: &str = "___";
/// Structures without which nothing can be learned.
const NEEDED: [&str; 4] = ["sk_buff", "skb_shared_info", "nf_conn", "nf_ct_ext"];

/// The structures that programs declare, by the kernel's names; several with different members may have one name.
type Declared<'b> = BTreeMap<&'b str, Vec<(&'b Btf<'b>, Composite<'b>)>>;

/// What the new file has by now.
struct Reduced<'b> {
    writer: Writer,
    declared: Declared<'b>,
    /// Numbers of the integers.
    ints: HashMap<(usize, c_int), c_int>,
    /// Numbers of the structures and unions that have a name.
    composites: HashMap<String, c_int>,
    pointer: Option<c_int>,
}

pub(super) fn reduce(kernel: &[Btf<'_>], build_id: &BuildId) -> Result<Vec<u8>, TypesError> {
    let failed = TypesError::Make;
    let objects = [&TC_FORWARD_WITHOUT_KFUNCS, &TC_WATCH_WITHOUT_KFUNCS];
    let files = objects.into_iter().map(CompiledObject::bytes);
    let files: Vec<Cow<'_, [u8]>> = files.collect::<io::Result<_>>().map_err(failed)?;
    let programs = objects.into_iter().zip(&files).map(|(object, file)| object.btf(file));
    let programs: Vec<Btf<'_>> = programs.collect::<io::Result<_>>().map_err(failed)?;
    let mut declared = Declared::new();
    for btf in &programs {
        for (name, composite) in declarations::<Composite<'_>>(btf) {
            declared.entry(name).or_default().push((btf, composite));
        }
    }
    let names: Vec<&str> = declared.keys().copied().collect();
    let mut new = Reduced {
        writer: Writer::new().map_err(failed)?,
        declared,
        ints: HashMap::new(),
        composites: HashMap::new(),
        pointer: None,
    };
    // By the size of this type, libbpf knows how long addresses are.
    if let Some(bytes) = kernel.first().and_then(|btf| btf.ptr_size().ok()) {
        new.writer.int("unsigned long", bytes.get(), 0).map_err(failed)?;
    }
    for name in names {
        match kernel.iter().find_map(|btf| Some((btf, named::<Composite<'_>>(btf, name)?))) {
            Some(theirs) => drop(new.named(name, theirs).map_err(failed)?),
            None if NEEDED.contains(&name) => return Err(TypesError::Lacks(format!("struct {name}"))),
            None => {}
        }
    }
    for (name, declared) in programs.iter().flat_map(declarations::<Enum<'_>>) {
        if let Some(theirs) = kernel.iter().find_map(|btf| named::<Enum<'_>>(btf, name)) {
            new.enumeration(name, declared, theirs).map_err(failed)?;
        }
    }
    new.writer.declaration(&format!("{MARK}{build_id}")).map_err(failed)?;
    new.writer.bytes().map_err(failed)
}

/// The types that a program declares, by the kernel's names.
fn declarations<'b, T>(programs: &'b Btf<'_>) -> Vec<(&'b str, T)>
where
    T: TryFrom<BtfType<'b>>,
{
    let types = programs.type_by_kind::<BtfType<'_>>();
    types.filter_map(|declared| Some((essential(declared.name()?)?, T::try_from(declared).ok()?))).collect()
}

/// The name without its ending; None if it has none.
fn essential(name: &OsStr) -> Option<&str> {
    name.to_str()?.split_once(ENDING).map(|(name, _)| name)
}

/// The complete type of this name.
fn named<'b, T>(btf: &'b Btf<'_>, name: &str) -> Option<T>
where
    T: TryFrom<BtfType<'b>>,
{
    let mut types = btf.type_by_kind::<BtfType<'_>>().filter(|kind| kind.name() == Some(OsStr::new(name)));
    types.find_map(|kind| T::try_from(kind).ok())
}

/// The type of this number, without names and qualifiers before it.
fn numbered<'b>(btf: &'b Btf<'_>, number: TypeId) -> Option<BtfType<'b>> {
    Some(btf.type_by_id::<BtfType<'_>>(number)?.skip_mods_and_typedefs())
}

/// A member of a structure of the kernel, or of a structure without a name inside it.
struct Found<'b> {
    of: BtfType<'b>,
    bit_offset: u32,
    bits: u8,
}

fn member<'b>(
    (btf, composite): (&'b Btf<'_>, Composite<'b>),
    name: &OsStr,
    within: u32,
) -> Option<Found<'b>> {
    (0..composite.len()).find_map(|nth| {
        let member = composite.get(nth)?;
        let (offset, bits) = match member.attr {
            MemberAttr::Normal { offset } => (offset, 0),
            MemberAttr::BitField { size, offset } => (offset, size),
        };
        let of = numbered(btf, member.ty)?;
        match member.name.filter(|own| !own.is_empty()) {
            Some(own) if own == name => Some(Found { of, bit_offset: within + offset, bits }),
            None => self::member((btf, Composite::try_from(of).ok()?), name, within + offset),
            Some(_) => None,
        }
    })
}

impl Reduced<'_> {
    /// Adds a structure or union of the kernel, with the members that programs declare under its name, unless it is
    /// there.
    fn named(&mut self, name: &str, theirs: (&Btf<'_>, Composite<'_>)) -> io::Result<c_int> {
        if let Some(id) = self.composites.get(name) {
            return Ok(*id);
        }
        let declared = self.declared.get(name).cloned().unwrap_or_default();
        let id = self.composite(name, &declared, theirs)?;
        self.composites.insert(name.to_owned(), id);
        Ok(id)
    }

    fn composite(
        &mut self,
        name: &str,
        declared: &[(&Btf<'_>, Composite<'_>)],
        (kernel, theirs): (&Btf<'_>, Composite<'_>),
    ) -> io::Result<c_int> {
        let mut members: Vec<Member> = Vec::new();
        for (programs, declared) in declared {
            for wanted in (0..declared.len()).filter_map(|nth| declared.get(nth)) {
                let Some(name) = wanted.name else { continue };
                if members.iter().any(|member| name == member.name.as_str()) {
                    continue;
                }
                let Some(found) = member((kernel, theirs), name, 0) else { continue };
                let Some(wanted) = numbered(programs, wanted.ty) else { continue };
                // Declared with another type: it is that of another kernel.
                let Some(type_id) = self.any((programs, wanted), (kernel, found.of))? else { continue };
                let name = name.to_string_lossy().into_owned();
                members.push(Member { name, type_id, bit_offset: found.bit_offset, bits: found.bits });
            }
        }
        self.writer.composite(name, theirs.is_struct, theirs.size(), &members)
    }

    fn enumeration(&mut self, name: &str, declared: Enum<'_>, theirs: Enum<'_>) -> io::Result<c_int> {
        let wanted: BTreeSet<&str> =
            (0..declared.len()).filter_map(|nth| essential(declared.get(nth)?.name?)).collect();
        let values = (0..theirs.len()).filter_map(|nth| {
            let value = theirs.get(nth)?;
            let name = value.name?.to_str()?;
            wanted.contains(name).then(|| (name.to_owned(), value.value))
        });
        let values: Vec<(String, i64)> = values.collect();
        self.writer.enumeration(name, theirs.size(), &values)
    }

    /// Adds a type of the kernel that a member has, as far as it is declared; None if it has another kind.
    fn any(
        &mut self,
        (programs, declared): (&Btf<'_>, BtfType<'_>),
        (kernel, theirs): (&Btf<'_>, BtfType<'_>),
    ) -> io::Result<Option<c_int>> {
        if let Ok(int) = Int::try_from(theirs) {
            return self.int(int).map(Some);
        }
        if Ptr::try_from(theirs).is_ok() {
            return self.pointer().map(Some);
        }
        if let (Ok(wanted), Ok(array)) = (Array::try_from(declared), Array::try_from(theirs)) {
            let [of, wanted] =
                [array.contained_type(), wanted.contained_type()].map(|kind| kind.skip_mods_and_typedefs());
            let Some(of) = self.any((programs, wanted), (kernel, of))? else { return Ok(None) };
            let index = self.int_of(4, 0)?;
            return self.writer.array(index, of, array.capacity()).map(Some);
        }
        if let (Ok(wanted), Ok(composite)) = (Composite::try_from(declared), Composite::try_from(theirs)) {
            return match theirs.name().and_then(OsStr::to_str).filter(|name| self.declared.contains_key(name)) {
                Some(name) => self.named(name, (kernel, composite)),
                None => self.composite("", &[(programs, wanted)], (kernel, composite)),
            }
            .map(Some);
        }
        match Enum::try_from(theirs) {
            Ok(theirs) => self.writer.enumeration("", theirs.size(), &[]).map(Some),
            Err(_) => Ok(None),
        }
    }

    fn pointer(&mut self) -> io::Result<c_int> {
        if let Some(id) = self.pointer {
            return Ok(id);
        }
        let id = self.writer.pointer()?;
        self.pointer = Some(id);
        Ok(id)
    }

    fn int(&mut self, int: Int<'_>) -> io::Result<c_int> {
        let encoding = match int.encoding {
            IntEncoding::None => 0,
            IntEncoding::Signed => libbpf_sys::BTF_INT_SIGNED,
            IntEncoding::Char => libbpf_sys::BTF_INT_CHAR,
            IntEncoding::Bool => libbpf_sys::BTF_INT_BOOL,
        };
        self.int_of(int.size(), encoding as c_int)
    }

    fn int_of(&mut self, bytes: usize, encoding: c_int) -> io::Result<c_int> {
        if let Some(id) = self.ints.get(&(bytes, encoding)) {
            return Ok(*id);
        }
        let id = self.writer.int(&format!("int{}_{encoding}", bytes * 8), bytes, encoding)?;
        self.ints.insert((bytes, encoding), id);
        Ok(id)
    }
}

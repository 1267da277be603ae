//! Functions of the kernel that take a packet, from its type information.

use libbpf_rs::btf::{
    Btf, BtfKind, BtfType, ReferencesType, TypeId,
    types::{Func, FuncProto, Ptr},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// Arguments that are passed in registers on all architectures in use.
const ARGUMENTS: usize = 4;
/// Where the kernel lists functions that can be probed.
const LISTS: [&str; 2] = [
    "/sys/kernel/tracing/available_filter_functions",
    "/sys/kernel/debug/tracing/available_filter_functions",
];

/// Functions of the kernel with an argument `struct sk_buff *`, and the index of that argument. Functions of modules
/// are not part of the kernel's type information.
pub(super) fn with_packet() -> Result<Vec<(String, u16)>, String> {
    let btf = Btf::from_vmlinux().map_err(|e| format!("the kernel's type information: {e}"))?;
    let can_be_probed = probeable();
    let mut found = BTreeMap::new();
    for function in btf.type_by_kind::<Func<'_>>() {
        let Some(name) = function.name().and_then(|name| name.to_str()) else { continue };
        if !can_be_probed.contains(name) {
            continue;
        }
        let Some(prototype) = btf.type_by_id::<FuncProto<'_>>(function.referenced_type_id()) else {
            continue;
        };
        let at = prototype.iter().take(ARGUMENTS).position(|parameter| is_packet(&btf, parameter.ty));
        if let Some(at) = at {
            found.insert(name.to_owned(), at as u16);
        }
    }
    Ok(found.into_iter().collect())
}

/// Whether a type is a pointer to `struct sk_buff`.
fn is_packet(btf: &Btf<'_>, id: TypeId) -> bool {
    let pointer = btf.type_by_id::<Ptr<'_>>(id);
    let to = pointer.and_then(|pointer| btf.type_by_id::<BtfType<'_>>(pointer.referenced_type_id()));
    to.map(|to| to.skip_mods_and_typedefs())
        .is_some_and(|to| to.kind() == BtfKind::Struct && to.name().is_some_and(|name| name == "sk_buff"))
}

/// Names that the kernel lists for tracing, or all its symbols that are there once.
fn probeable() -> BTreeSet<String> {
    let listed = LISTS.iter().find_map(|path| fs::read_to_string(path).ok());
    if let Some(list) = listed {
        return once(list.lines().filter_map(|line| line.split_whitespace().next()));
    }
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let functions = symbols.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (matches!(words.next(), Some("t" | "T"))).then(|| words.next()).flatten()
    });
    once(functions)
}

/// The words that occur once.
fn once<'a>(words: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    words.for_each(|word| *count.entry(word).or_default() += 1);
    count.into_iter().filter(|(_, count)| *count == 1).map(|(word, _)| word.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_two_functions_have_cannot_be_probed() {
        assert_eq!(once("a b a c".split(' ')).into_iter().collect::<Vec<_>>(), ["b", "c"]);
    }
}

//! The Rust twin of an ABI header.

use super::header::{Declaration, Header, Struct};
use std::{collections::BTreeSet, fmt::Write};

/// A twin. Names lose the prefix of the project.
#[derive(Debug, Default)]
pub(crate) struct Twin {
    rust: String,
    /// Values of C that Rust has to agree with: their names, and what they are in C and in Rust.
    values: Vec<[String; 3]>,
    /// Structs that hold pointers.
    with_pointers: BTreeSet<String>,
}

impl Twin {
    /// The twin of a header.
    pub(super) fn of(header: &Header) -> Self {
        let mut twin = Self::default();
        for declared in &header.enums {
            let kind = kind_of_enum(header, &declared.name);
            for constant in &declared.enumerators {
                let name = constant_name(&constant.name);
                let value = expression(&constant.value, kind);
                twin.doc(&constant.name, &constant.comment, "");
                let _ = writeln!(twin.rust, "pub const {name}: {kind} = {value};");
                twin.values.push([constant.name.clone(), constant.name.clone(), format!("{name} as u64")]);
            }
        }
        for declared in &header.structs {
            twin.add_struct(declared);
        }
        twin
    }

    fn add_struct(&mut self, declared: &Struct) {
        let (c_name, name) = (&declared.name, type_name(&declared.name));
        self.doc(&format!("struct {c_name}"), &declared.comment, "");
        let has_pointers =
            declared.fields.iter().any(|field| field.is_pointer || self.with_pointers.contains(&field.kind));
        let derive = if has_pointers {
            self.with_pointers.insert(format!("struct {c_name}"));
            "Debug, Clone, Copy"
        } else {
            "Debug, Clone, Copy, PartialEq, Eq, ::zerocopy::FromBytes, ::zerocopy::IntoBytes, ::zerocopy::Immutable"
        };
        let _ = writeln!(self.rust, "#[repr(C)]\n#[derive({derive})]\npub struct {name} {{");
        self.values.push([
            c_name.clone(),
            format!("sizeof(struct {c_name})"),
            format!("size_of::<{name}>() as u64"),
        ]);
        for field in &declared.fields {
            self.doc(&format!("{c_name}.{}", field.name), &field.comment, "    ");
            let rust_name = if field.name == "in" { "r#in" } else { &field.name };
            let _ = writeln!(self.rust, "    pub {rust_name}: {},", field_type(field));
            let of = &field.name;
            self.values.push([
                format!("{c_name}.{of}"),
                format!("__builtin_offsetof(struct {c_name}, {of})"),
                format!("std::mem::offset_of!({name}, {rust_name}) as u64"),
            ]);
        }
        let _ = writeln!(self.rust, "}}");
        if !has_pointers {
            let _ = writeln!(
                self.rust,
                "impl Default for {name} {{\n    fn default() -> Self {{\n        ::zerocopy::FromZeros::new_zeroed()\n    }}\n}}"
            );
        }
    }

    fn doc(&mut self, c_name: &str, comment: &str, indent: &str) {
        let comment = comment.replace('[', "\\[").replace('<', "\\<");
        let mut letters = comment.chars();
        let sentence = letters.next().map(|first| first.to_uppercase().chain(letters).collect::<String>());
        let stop = if comment.ends_with('.') { "" } else { "." };
        let _ = match sentence {
            Some(sentence) => writeln!(self.rust, "{indent}/// `{c_name}`: {sentence}{stop}"),
            None => writeln!(self.rust, "{indent}/// `{c_name}`."),
        };
    }

    /// The twin in Rust. Its unit test compares every size, offset and constant with the C compiler's in `table`.
    pub(crate) fn rust(&self, table: &str) -> String {
        let count = self.values.len();
        let values: String =
            self.values.iter().map(|[name, _, rust]| format!("({name:?}, {rust}), ")).collect();
        format!(
            r#"{}
#[cfg(test)]
#[allow(unsafe_code, reason = "reads a table that C defines")]
mod layout {{
    use super::*;

    // SAFETY: the build script makes the table with as many values.
    unsafe extern "C" {{
        static {table}: [u64; {count}];
    }}

    #[test]
    #[cfg_attr(miri, ignore = "reads a table in C")]
    fn sizes_offsets_and_constants_are_those_of_the_c_header() {{
        let rust: [(&str, u64); {count}] = [{values}];
        // SAFETY: nobody writes to it.
        for ((name, value), c) in rust.into_iter().zip(unsafe {{ {table} }}) {{
            assert_eq!(value, c, "{{name}}");
        }}
    }}
}}
"#,
            self.rust
        )
    }

    /// C source of the table.
    pub(crate) fn c_table(&self, headers: &[&str], table: &str) -> String {
        let includes: String = headers.iter().map(|header| format!("#include \"{header}\"\n")).collect();
        let values: String = self.values.iter().map(|[_, c, _]| format!("\t{c},\n")).collect();
        format!("{includes}\nconst unsigned long long {table}[] = {{\n{values}}};\n")
    }
}

/// The type of the field that an enum is for: a field names the enum in its comment. Other constants have 32 bits.
fn kind_of_enum(header: &Header, name: &str) -> &'static str {
    let fields = header.structs.iter().flat_map(|declared| &declared.fields);
    let names_it = |field: &&Declaration| {
        let named = field.comment.split_once("enum ").map_or("", |(_, rest)| rest);
        named.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next() == Some(name)
    };
    let field =
        if name.is_empty() { None } else { fields.filter(names_it).find(|field| field.kind != "__s32") };
    field.map_or("u32", |field| integer(&field.kind))
}

fn integer(c: &str) -> &'static str {
    match c {
        "__u8" | "char" | "void" => "u8",
        "__u16" => "u16",
        "__u32" => "u32",
        "__u64" => "u64",
        "__s32" => "i32",
        other => panic!("unexpected type {other}"),
    }
}

fn field_type(field: &Declaration) -> String {
    let element = match field.kind.as_str() {
        kind if kind.starts_with("struct ") => type_name(&kind["struct ".len()..]),
        // What is in the order of the wire is bytes.
        "__be16" => "[u8; 2]".to_owned(),
        "__be32" => "[u8; 4]".to_owned(),
        "__u32" if field.name.ends_with("_be") => {
            return format!("[u8; 4 * {}]", expression(&field.value, "usize"));
        }
        kind => integer(kind).to_owned(),
    };
    let element = if field.is_pointer { format!("*mut {element}") } else { element };
    match field.value.is_empty() {
        true => element,
        false => format!("[{element}; {}]", expression(&field.value, "usize")),
    }
}

/// An expression of C in Rust, whose constants have this type.
fn expression(c: &[String], kind: &str) -> String {
    if let [size_of, _, _, name, _] = c
        && size_of == "sizeof"
    {
        return format!("size_of::<{}>() as {kind}", type_name(name));
    }
    let is_constant = |word: &str| word.starts_with(|c: char| c.is_ascii_alphabetic());
    c.iter()
        .map(
            |word| {
                if is_constant(word) { format!("({} as {kind})", constant_name(word)) } else { word.clone() }
            },
        )
        .collect()
}

fn constant_name(c: &str) -> &str {
    c.strip_prefix("SHUNT_").unwrap_or(c)
}

fn type_name(c: &str) -> String {
    let words = c.strip_prefix("shunt_").unwrap_or(c).split('_');
    words.map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::header::read, *};

    #[test]
    fn a_struct_has_its_fields_and_an_enum_the_type_of_the_field_it_is_for() {
        let twin = Twin::of(&read(
            "enum { SHUNT_MAX = 2 * 4 };\nenum shunt_bits {\n\tSHUNT_BIT_A = 1 << 0, /* set [by] C */\n};\n\
             struct shunt_small_key {\n\t__be16 port_be;\n\t__u8 bits; /* enum shunt_bits; more */\n\t__u8 in[SHUNT_MAX];\n};\n\
             struct holder {\n\tstruct shunt_small_key *keys;\n};\n",
        ));
        for line in [
            "pub const MAX: u32 = 2*4;",
            "/// `SHUNT_BIT_A`: Set \\[by] C.",
            "pub const BIT_A: u8 = 1<<0;",
            "pub struct SmallKey {",
            "    pub port_be: [u8; 2],",
            "    pub r#in: [u8; (MAX as usize)],",
            "    pub keys: *mut SmallKey,",
        ] {
            assert!(twin.rust.lines().any(|found| found == line), "{line} in {}", twin.rust);
        }
        assert!(twin.c_table(&["a.h"], "t").contains("\t__builtin_offsetof(struct shunt_small_key, in),\n"));
        assert!(twin.rust("t").contains("static t: [u64; 8];"));
    }
}

//! The C compilers' view of an ABI header, as a table for the unit tests of the Rust side.

use std::fmt::Write;

/// C source of the table `symbol`: the size of each struct of the header, the offset of each field and the value of
/// each enumerator, by name. An entry without a name ends the table.
///
/// The parser reads the style of our headers: definitions begin in the first column, and a line has one declaration.
pub(crate) fn table_source(include: &str, header: &str, symbol: &str) -> String {
    let header = without_comments(header);
    let mut entries = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(entries, "\t{{ \"{name}\", {value} }},");
    };
    let mut name = None;
    for text in header.lines() {
        if let Some(tag) = text.strip_prefix("struct ").and_then(|rest| rest.strip_suffix(" {")) {
            line(tag, &format!("sizeof(struct {tag})"));
            name = Some(tag);
        } else if text.starts_with("};") {
            name = None;
        } else if let (Some(tag), Some(field)) = (name, field(text)) {
            line(&format!("{tag}.{field}"), &format!("__builtin_offsetof(struct {tag}, {field})"));
        }
        for constant in constants(text) {
            line(constant, constant);
        }
    }
    format!(
        "#include \"{include}\"\n\nconst struct {{ const char *name; unsigned long value; }} {symbol}[] = {{\n{entries}\t{{ 0, 0 }},\n}};\n"
    )
}

/// The field that a line of a struct declares, without the `*` of a pointer. Lines that open or close a union declare
/// none.
fn field(line: &str) -> Option<&str> {
    let declaration = line.trim().strip_suffix(';').filter(|text| !text.starts_with('}'))?;
    declaration.split('[').next()?.split_whitespace().last().map(|name| name.trim_start_matches('*'))
}

/// The enumerators that a line defines: our enumerators all have explicit values.
fn constants(line: &str) -> impl Iterator<Item = &str> {
    let line = line.split_once("enum {").map_or(line, |(_, rest)| rest);
    let named = line.split(',').filter_map(|part| part.split_once(" = ").map(|(name, _)| name.trim()));
    named.filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
}

fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before.trim_end_matches([' ', '\t']));
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code + rest
}

#[cfg(test)]
mod tests {
    use super::table_source;

    #[test]
    fn the_table_has_structs_fields_and_constants() {
        let header = "enum { A_MAX = 4 };\n\
                      enum kind {\n\tA_ONE = 1, /* one;\n two */\n\tA_TWO = 1 << 1,\n};\n\
                      struct a {\n\t__u32 first; /* x = 1 */\n\tunion {\n\t\t__u32 b;\n\t\t__u32 c;\n\t};\n\tstruct k d[A_MAX];\n};\n\
                      _Static_assert(sizeof(struct a) == 8, \"a\");\n";
        let source = table_source("a.h", header, "values");
        let names: Vec<_> = source.split('"').skip(3).step_by(2).collect();
        assert_eq!(names, ["A_MAX", "A_ONE", "A_TWO", "a", "a.first", "a.b", "a.c", "a.d"]);
    }
}

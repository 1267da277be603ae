//! Reads an ABI header: structs, enumerators and what their comments say.
//!
//! It reads the style of our headers, not all of C: no typedef, no bit-field, no nested struct, and each enumerator
//! that Rust needs has a value.

use std::iter::Peekable;

/// What a header declares, in its order.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub enums: Vec<Enum>,
    pub structs: Vec<Struct>,
}

/// An enum; without a name, a group of constants.
#[derive(Debug, Default)]
pub(super) struct Enum {
    pub name: String,
    /// Those with a value. The others are only for C.
    pub enumerators: Vec<Declaration>,
}

#[derive(Debug, Default)]
pub(super) struct Struct {
    pub name: String,
    pub comment: String,
    /// Of a union, the first member.
    pub fields: Vec<Declaration>,
}

/// A field or an enumerator.
#[derive(Debug, Default)]
pub(super) struct Declaration {
    pub name: String,
    /// The type of a field, in C, without pointers and arrays.
    pub kind: String,
    pub is_pointer: bool,
    /// The number of elements, or the value of an enumerator: an expression in C; empty for a plain field.
    pub value: Vec<String>,
    pub comment: String,
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Sign(char),
    Comment { text: String, begins_line: bool },
}

/// Reads a header.
///
/// # Panics
/// If it declares something in another style.
pub(super) fn read(text: &str) -> Header {
    let mut tokens = tokens(text).into_iter().peekable();
    let mut header = Header::default();
    let mut comment = String::new();
    while let Some(token) = tokens.next() {
        match token {
            Token::Comment { text, .. } => comment = text,
            Token::Word(word) if word == "enum" => {
                let name = name(&mut tokens);
                if tokens.next_if_eq(&Token::Sign('{')).is_some() {
                    header.enums.push(Enum { name, enumerators: enumerators(&mut tokens) });
                } else {
                    skip_statement(&mut tokens);
                }
            }
            Token::Word(word) if word == "struct" => {
                let name = name(&mut tokens);
                if tokens.next_if_eq(&Token::Sign('{')).is_some() {
                    let fields = fields(&mut tokens, &name);
                    header.structs.push(Struct { name, comment: std::mem::take(&mut comment), fields });
                } else {
                    skip_statement(&mut tokens);
                }
            }
            Token::Word(_) => skip_statement(&mut tokens),
            Token::Sign(_) => comment.clear(),
        }
    }
    header
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut line_is_empty = true;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
            let lines = rest[2..length - 2].lines().map(|line| line.trim().trim_start_matches("* "));
            let text = lines.filter(|line| !line.is_empty() && *line != "*").collect::<Vec<_>>().join(" ");
            tokens.push(Token::Comment { text, begins_line: line_is_empty });
            length
        } else if first == '#' {
            rest.find('\n').unwrap_or(rest.len())
        } else if first == '"' {
            // The message of an assertion.
            rest[1..].find('"').map_or(rest.len(), |end| end + 2)
        } else if is_word(first) {
            let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..length].to_owned()));
            length
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Sign(first));
            }
            first.len_utf8()
        };
        line_is_empty = first == '\n' || (line_is_empty && first.is_whitespace());
        rest = &rest[length..];
    }
    tokens
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

type Tokens = Peekable<std::vec::IntoIter<Token>>;

fn name(tokens: &mut Tokens) -> String {
    match tokens.next_if(|token| matches!(token, Token::Word(_))) {
        Some(Token::Word(name)) => name,
        _ => String::new(),
    }
}

/// Skips an assertion or the declaration of a function.
fn skip_statement(tokens: &mut Tokens) {
    for token in tokens.by_ref() {
        if token == Token::Sign(';') {
            break;
        }
    }
}

/// Adds a comment that ends the line of a declaration.
fn add_comment(tokens: &mut Tokens, declaration: &mut Declaration) {
    if let Some(Token::Comment { text, .. }) =
        tokens.next_if(|token| matches!(token, Token::Comment { begins_line: false, .. }))
    {
        declaration.comment = text;
    }
}

fn enumerators(tokens: &mut Tokens) -> Vec<Declaration> {
    let mut found = Vec::new();
    let mut comment = String::new();
    loop {
        match tokens.next() {
            Some(Token::Comment { text, .. }) => comment = text,
            Some(Token::Word(name)) => {
                let mut value = Vec::new();
                while let Some(token) =
                    tokens.next_if(|token| !matches!(token, Token::Comment { .. } | Token::Sign(',' | '}')))
                {
                    value.push(text(token));
                }
                tokens.next_if_eq(&Token::Sign(','));
                let comment = std::mem::take(&mut comment);
                let mut enumerator = Declaration { name, comment, ..Declaration::default() };
                add_comment(tokens, &mut enumerator);
                if value.first().is_some_and(|sign| sign == "=") {
                    enumerator.value = value.split_off(1);
                    found.push(enumerator);
                }
            }
            Some(Token::Sign('}')) | None => return found,
            Some(token) => panic!("unexpected {token:?} in an enum"),
        }
    }
}

fn fields(tokens: &mut Tokens, of: &str) -> Vec<Declaration> {
    let mut found: Vec<Declaration> = Vec::new();
    let mut comment = String::new();
    // Within a union: the number of fields before it.
    let mut union = None;
    loop {
        match tokens.next() {
            Some(Token::Comment { text, .. }) => comment = text,
            Some(Token::Word(word)) if word == "union" => {
                tokens.next_if_eq(&Token::Sign('{'));
                union = Some(found.len());
            }
            Some(Token::Sign('}')) => match union.take() {
                Some(before) => {
                    skip_statement(tokens);
                    found.truncate(before + 1);
                }
                None => return found,
            },
            Some(Token::Word(word)) => {
                let mut field = Declaration { kind: word, ..Declaration::default() };
                if field.kind == "struct" {
                    field.kind = format!("struct {}", name(tokens));
                }
                field.is_pointer = tokens.next_if_eq(&Token::Sign('*')).is_some();
                field.name = name(tokens);
                if tokens.next_if_eq(&Token::Sign('[')).is_some() {
                    while let Some(token) = tokens.next_if(|token| *token != Token::Sign(']')) {
                        field.value.push(text(token));
                    }
                    tokens.next();
                }
                assert_eq!(tokens.next(), Some(Token::Sign(';')), "after {of}.{}", field.name);
                field.comment = std::mem::take(&mut comment);
                add_comment(tokens, &mut field);
                found.push(field);
            }
            token => panic!("unexpected {token:?} in struct {of}"),
        }
    }
}

fn text(token: Token) -> String {
    match token {
        Token::Word(text) | Token::Comment { text, .. } => text,
        Token::Sign(sign) => sign.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_unions_arrays_pointers_and_enumerators_are_read_with_their_comments() {
        let header = read(
            "#define X 1\nenum { A_MAX = 4 };\n\
             /* Kinds. */\nenum kind {\n\tA_ONE = 1, /* one;\n two */\n\tA_TWO = 1 << 1,\n\tA_END, /* for C */\n};\n\
             /*\n * First line,\n * second.\n */\nstruct a {\n\t__u32 first; /* x = 1 */\n\tunion {\n\t\t__u32 b;\n\
             \t\t__u32 c;\n\t};\n\tstruct k *d[A_MAX];\n};\n\
             _Static_assert(sizeof(struct a) == 8, \"a\");\nint f(const struct a *a);\n",
        );
        let [group, kind] = &header.enums[..] else { panic!("two enums") };
        assert_eq!((group.name.as_str(), group.enumerators[0].name.as_str()), ("", "A_MAX"));
        assert_eq!(kind.enumerators.len(), 2);
        assert_eq!(kind.enumerators[0].comment, "one; two");
        assert_eq!(kind.enumerators[1].value, ["1", "<", "<", "1"]);
        let [a] = &header.structs[..] else { panic!("one struct") };
        assert_eq!((a.name.as_str(), a.comment.as_str()), ("a", "First line, second."));
        let [first, b, d] = &a.fields[..] else { panic!("three fields") };
        assert_eq!((first.kind.as_str(), first.comment.as_str()), ("__u32", "x = 1"));
        assert_eq!(b.name, "b");
        assert_eq!(
            (d.kind.as_str(), d.is_pointer, d.value.as_slice()),
            ("struct k", true, &["A_MAX".to_owned()][..])
        );
    }
}

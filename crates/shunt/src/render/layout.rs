//! Fits a text to the terminal: aligns its tables, and breaks lines that are too long.

use super::columns::{CELL, TABLE};
use std::borrow::Cow;
use textwrap::{Options, WordSplitter, core::display_width};

/// Blanks between two columns.
const GAP: usize = 2;
/// How much further the rest of a broken line is indented.
const HANG: usize = 4;
/// No narrower terminal is taken into account.
const NARROWEST: usize = 20;
/// A column of text is broken if this much of it fits beside the other columns.
const BROKEN_COLUMN: usize = 24;

/// The text in lines of at most `width` columns, or as wide as it is.
///
/// A table that is too wide has its longest column of text broken, if the others leave room for it. A last column of
/// text without room stands below its rows. Otherwise the table becomes several tables, one below the other, which
/// repeat the columns that name the rows.
pub(crate) fn fit(text: &str, width: Option<usize>) -> String {
    let width = width.map(|width| width.max(NARROWEST));
    let mut fitted = String::new();
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let Some(sides) = line.strip_prefix(TABLE) else {
            fitted += &broken(line, width);
            continue;
        };
        let mut rows: Vec<Vec<&str>> = Vec::new();
        while let Some(row) = lines.next_if(|line| line.starts_with(CELL)) {
            rows.push(row.trim_end_matches('\n').split(CELL).skip(1).collect());
        }
        fitted += &table(sides.trim_end(), &rows, width);
    }
    fitted
}

fn broken(line: &str, width: Option<usize>) -> String {
    let text = line.trim_end_matches('\n');
    let Some(width) = width.filter(|width| display_width(text) > *width) else {
        return line.to_owned();
    };
    let indent = text.len() - text.trim_start().len();
    let rest = " ".repeat((indent + HANG).min(width / 2));
    let options = Options::new(width).subsequent_indent(&rest);
    textwrap::wrap(text, options).iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn table(sides: &str, rows: &[Vec<&str>], width: Option<usize>) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let last = sides.chars().next_back().unwrap_or('<');
    let sides: Vec<char> = sides.chars().chain(std::iter::repeat(last)).take(count).collect();
    let columns: Vec<usize> = (0..count).collect();
    let Some(width) = width else { return aligned(&sides, rows, &columns, None) };
    let widest =
        |at: &usize| rows.iter().filter_map(|row| row.get(*at)).map(|cell| display_width(cell)).max();
    let widths: Vec<usize> = columns.iter().map(|at| widest(at).unwrap_or(0)).collect();
    let total =
        |columns: &[usize]| columns.iter().map(|at| widths[*at] + GAP).sum::<usize>().saturating_sub(GAP);
    if total(&columns) <= width {
        return aligned(&sides, rows, &columns, None);
    }
    let longest = columns.iter().copied().filter(|at| sides[*at] == '<').max_by_key(|at| widths[*at]);
    if let Some(longest) = longest {
        let room = (width + widths[longest]).saturating_sub(total(&columns));
        if room >= BROKEN_COLUMN.min(width / 2) {
            return aligned(&sides, rows, &columns, Some((longest, room)));
        }
    }
    if let Some((last, before)) = columns.split_last().filter(|(_, before)| before.len() > 1)
        && sides[*last] == '<'
        && total(before) <= width
    {
        return with_remarks(&sides, rows, before, width);
    }
    let names = names(&sides, rows, &widths, width);
    let mut text = String::new();
    let mut rest = &columns[names..];
    while !rest.is_empty() {
        let shown = |more: usize| [&columns[..names], &rest[..more]].concat();
        let fits = (1..=rest.len()).rev().find(|more| total(&shown(*more)) <= width).unwrap_or(1);
        if !text.is_empty() {
            text.push('\n');
        }
        text += &aligned(&sides, rows, &shown(fits), None);
        rest = &rest[fits..];
    }
    text
}

/// The table without its last column, whose cells stand below their rows.
fn with_remarks(sides: &[char], rows: &[Vec<&str>], columns: &[usize], width: usize) -> String {
    let lines = aligned(sides, rows, columns, None);
    let remark = |row: &Vec<&str>| {
        let remark = row.get(columns.len()).copied().unwrap_or_default();
        let indented = format!("{:HANG$}{remark}\n", "");
        if remark.is_empty() { remark.to_owned() } else { broken(&indented, Some(width)) }
    };
    lines.split_inclusive('\n').zip(rows).map(|(line, row)| line.to_owned() + &remark(row)).collect()
}

/// How many of the first columns are repeated: those with text, as far as they take half of the width, and as many as
/// tell the rows apart, as far as they take three quarters. The first row has the heads.
fn names(sides: &[char], rows: &[Vec<&str>], widths: &[usize], width: usize) -> usize {
    let are_apart = |count: &usize| {
        let mut names: Vec<&[&str]> = rows.iter().map(|row| &row[..row.len().min(*count)]).collect();
        names.sort_unstable();
        names.windows(2).all(|two| two[0] != two[1])
    };
    let most_columns = widths.len().saturating_sub(1).max(1);
    let most_that_fit = |wanted: usize, width: usize| {
        let taken = |count: usize| widths[..count].iter().map(|width| width + GAP).sum::<usize>() - GAP;
        (1..=wanted.min(most_columns)).rev().find(|count| taken(*count) <= width).unwrap_or(1)
    };
    let texts = sides.iter().take_while(|side| **side == '<').count();
    let apart = (1..most_columns).find(are_apart).unwrap_or(most_columns);
    most_that_fit(texts, width / 2).max(most_that_fit(apart, width - width / 4))
}

/// These columns of the rows, one of them perhaps broken to a width.
fn aligned(sides: &[char], rows: &[Vec<&str>], columns: &[usize], broken: Option<(usize, usize)>) -> String {
    let lines = |row: &Vec<&str>| -> Vec<Vec<String>> {
        let cell = |at: &usize| match (row.get(*at).copied().unwrap_or(""), broken) {
            (cell, Some((broken, width))) if broken == *at => broken_cell(cell, width),
            (cell, _) => vec![cell.to_owned()],
        };
        columns.iter().map(cell).collect()
    };
    let rows: Vec<Vec<Vec<String>>> = rows.iter().map(lines).collect();
    let width = |(column, at): (usize, &usize)| match broken {
        Some((broken, width)) if broken == *at => width,
        _ => rows.iter().flat_map(|row| &row[column]).map(|line| display_width(line)).max().unwrap_or(0),
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for number in 0..row.iter().map(Vec::len).max().unwrap_or(0) {
            let mut line = String::new();
            for ((cell, at), width) in row.iter().zip(columns).zip(&widths) {
                let cell = cell.get(number).map_or("", String::as_str);
                let blanks = " ".repeat(width.saturating_sub(display_width(cell)));
                let (before, after) = if sides[*at] == '<' { ("", &*blanks) } else { (&*blanks, "") };
                line += &format!("{before}{cell}{after}{:GAP$}", "");
            }
            text += line.trim_end();
            text.push('\n');
        }
    }
    text
}

/// The lines of a cell. Each line begins with the colour in which the line before ends, and ends it.
fn broken_cell(cell: &str, width: usize) -> Vec<String> {
    const RESET: &str = "\u{1b}[0m";
    let options = Options::new(width).word_splitter(WordSplitter::NoHyphenation);
    let mut colour = String::new();
    let line = |line: Cow<'_, str>| {
        let text = format!("{colour}{line}");
        let last = text.rfind("\u{1b}[").map(|at| &text[at..=at + text[at..].find('m').unwrap_or(0)]);
        colour = last.filter(|last| *last != RESET).unwrap_or_default().to_owned();
        if colour.is_empty() { text } else { text + RESET }
    };
    textwrap::wrap(cell, options).into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::columns::align, *};

    fn rows(rows: &[&str]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.split('|').map(str::to_owned).collect()).collect()
    }

    fn widest(text: &str) -> usize {
        text.lines().map(display_width).max().unwrap_or(0)
    }

    #[test]
    fn a_table_has_two_blanks_between_columns_and_none_at_the_end_of_a_line() {
        let table = align("<>", &rows(&["port|packets|", "eth0|5", "enp1s0f1|12345|x"]));
        assert_eq!(fit(&table, None), "port      packets\neth0            5\nenp1s0f1    12345  x\n");
        assert_eq!(fit(&format!("a\n{table}b\n"), Some(80)), format!("a\n{}b\n", fit(&table, None)));
    }

    #[test]
    fn a_long_column_of_text_is_broken() {
        let table = align(
            "<",
            &rows(&["lan0|tc|its qdisc cake is in use, which XDP would bypass", "wan0|xdp|native XDP"]),
        );
        let fitted = "lan0  tc   its qdisc cake is in use,\n           which XDP would bypass\nwan0  xdp  native XDP\n";
        assert_eq!(fit(&table, Some(40)), fitted);
    }

    #[test]
    fn only_the_long_column_is_broken_whatever_its_words() {
        let why = "the kernel does not say whether its driver has native XDP, which AF_XDP needs";
        let table = align("<", &rows(&[&format!("r0|tc|{why}"), &format!("r1|tc|{why}")]));
        let row = |name: &str| {
            format!(
                "{name}  tc  the kernel does not say whether its driver has native XDP, which AF_XDP\n        needs\n"
            )
        };
        assert_eq!(fit(&table, Some(80)), row("r0") + &row("r1"));
    }

    #[test]
    fn a_colour_ends_with_the_line_and_goes_on_in_the_next() {
        let yellow = |text: &str| format!("\u{1b}[33m{text}\u{1b}[0m");
        let why = format!("{} slow", yellow("its qdisc cake is in use, which XDP would bypass"));
        let table = align("<<", &rows(&[&format!("lan0|{why}|tc")]));
        let first = yellow("its qdisc cake is in use,");
        let rest = yellow("which XDP would bypass");
        assert_eq!(fit(&table, Some(40)), format!("lan0  {first}{:7}tc\n      {rest} slow\n", ""));
    }

    #[test]
    fn a_table_with_too_many_columns_is_folded_and_repeats_the_names() {
        let table =
            align("<<>", &rows(&["router|size|first|second|third|fourth", "slow|64|1111|2222|33333|444444"]));
        let folded = "router  size  first\nslow    64     1111\n\n\
                      router  size  second\nslow    64      2222\n\n\
                      router  size  third\nslow    64    33333\n\n\
                      router  size  fourth\nslow    64    444444\n";
        assert_eq!(fit(&table, Some(26)), folded);
        for width in [20, 30, 40, 80] {
            assert!(widest(&fit(&table, Some(width))) <= width);
        }
    }

    #[test]
    fn the_rest_of_a_long_line_is_indented_and_colours_take_no_room() {
        let text = "  \u{1b}[33mslow:\u{1b}[0m packets that arrive through wan0 stay slow\nshort\n";
        let fitted = fit(text, Some(30));
        assert_eq!(
            fitted,
            "  \u{1b}[33mslow:\u{1b}[0m packets that arrive\n      through wan0 stay slow\nshort\n"
        );
        assert_eq!(fit(text, None), text);
    }
}

//! `cargo xtask boards`: runs Shunt on each board, and writes docs/boards.md.

use super::{
    super::{Options as Run, in_guest, today},
    BOARDS, Board,
};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write, fs};

/// Run Shunt on every emulated board and write docs/boards.md.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Time limit for booting and running on one board, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Run on these boards only, and keep what docs/boards.md says of the others
    #[arg(long, value_name = "BOARD")]
    only: Vec<String>,
}

/// Names of the script's output lines, and the titles of their rows.
const ROWS: [(&str, &str); 10] = [
    ("kernel", "kernel"),
    ("btf", "BTF of the kernel"),
    ("jit", "`net.core.bpf_jit_enable`"),
    ("driver", "Ethernet driver"),
    ("link", "link"),
    ("linux-alone", "echo through Linux alone"),
    ("reg", "`shunt reg read`"),
    ("link-brief", "`shunt link --brief`"),
    ("check", "`shunt check`"),
    ("trace", "`shunt trace` of an echo"),
];
/// Names of the ways in which the script starts Shunt, and the titles of their rows.
const STARTS: [(&str, &str); 7] = [
    ("auto", "`shunt up`"),
    ("tc", "`shunt up --engine tc`"),
    ("xdp", "`shunt up --engine xdp`"),
    ("external", "`shunt up --engine external`"),
    ("external-alone", "`shunt up --engine tc --external-port` with the Ethernet port"),
    ("vlan", "`shunt up`, and the host sends with a VLAN tag"),
    ("static", "`shunt up` with `learn = false`, both flows by `shunt flow add`"),
];
/// JSON pointers into the status, and the titles of their rows.
const FACTS: [(&str, &str); 6] = [
    ("/ports/0/engine", "engine of the Ethernet port"),
    ("/ports/0/engine_reason", "reason for the engine"),
    ("/ports/0/af_xdp_mode", "mode of AF_XDP"),
    ("/ports/0/attach", "tc programs attached by"),
    ("/packets/fast", "packets fast"),
    ("/packets/slow", "packets slow"),
];

const ECHO: &str = "echo through Shunt";
const DOWN: &str = "`shunt down`";

/// The results on one board.
struct BoardResults {
    board: &'static Board,
    date: String,
    output: BTreeMap<String, String>,
}

/// The cells of a board's column, each by its row and by the start of Shunt above it, because rows repeat.
type Column = BTreeMap<(String, String), String>;

/// Runs Shunt on one board after the other.
pub fn run(options: &Options) -> anyhow::Result<()> {
    for name in &options.only {
        Board::named(name)?;
    }
    let path = crate::vm::docs("boards.md");
    let before = fs::read_to_string(&path).unwrap_or_default();
    let (mut seen, mut columns) = (Vec::new(), Vec::new());
    for board in &BOARDS {
        if options.only.is_empty() || options.only.iter().any(|only| only == board.name) {
            let results = BoardResults::on(board, options.timeout)?;
            columns.push((board, results.column()));
            seen.push(results);
        } else {
            columns.push((board, column_of(&before, board)));
        }
    }
    fs::write(&path, page(&columns)).with_context(|| path.display().to_string())?;
    seen.iter().try_for_each(BoardResults::check)
}

/// The titles of all rows, each with the start of Shunt that it belongs to.
fn rows() -> Vec<(String, String)> {
    let of_board = ["architecture", "tried on"].into_iter().chain(ROWS.map(|(_, title)| title));
    let mut all: Vec<(String, String)> = of_board.map(|title| (String::new(), title.to_owned())).collect();
    for (_, start) in STARTS {
        let of_start = [start, ECHO].into_iter().chain(FACTS.map(|(_, title)| title)).chain([DOWN]);
        all.extend(of_start.map(|title| (start.to_owned(), title.to_owned())));
    }
    all
}

/// The column of a board in a page that this command has written.
fn column_of(page: &str, board: &Board) -> Column {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let is_row = |line: &&str| line.starts_with('|') && !line.starts_with("| ---");
    let mut lines = page.lines().filter(is_row).map(cells);
    let title = title(board);
    let Some(place) = lines.next().and_then(|titles| titles.iter().position(|cell| *cell == title)) else {
        return Column::new();
    };
    let mut start = String::new();
    let mut column = Column::new();
    for cells in lines {
        let (Some(row), Some(cell)) = (cells.first(), cells.get(place)) else { continue };
        if STARTS.iter().any(|(_, title)| title == row) {
            start.clone_from(row);
        }
        column.insert((start.clone(), row.clone()), cell.clone());
    }
    column
}

fn title(board: &Board) -> String {
    format!("{} (`--board {}`)", board.title, board.name)
}

impl BoardResults {
    fn on(board: &'static Board, timeout: u64) -> anyhow::Result<Self> {
        eprintln!("board {}", board.name);
        let mut output = Vec::new();
        let code = in_guest(
            &Run::on_board(board, timeout, include_str!("../../../../tests/vm/board.sh")),
            &mut output,
        )?;
        let output = String::from_utf8_lossy(&output);
        ensure!(code == 0, "board {}: the script ended with {code}: {output}", board.name);
        Ok(Self::parse(board, &output))
    }

    /// Parses the script's output, whose lines are `NAME: VALUE`.
    fn parse(board: &'static Board, output: &str) -> Self {
        let lines = output.lines().filter_map(|line| line.split_once(": "));
        let output: BTreeMap<String, String> =
            lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
        Self { board, date: today(), output }
    }

    fn value(&self, name: &str) -> String {
        self.output.get(name).cloned().unwrap_or_else(|| "-".to_owned())
    }

    /// A value of the status after this start; `None` if Shunt was not up.
    fn status(&self, start: &str, pointer: &str) -> Option<Value> {
        let status: Value = serde_json::from_str(self.output.get(&format!("{start}-status"))?).ok()?;
        status.pointer(pointer).cloned()
    }

    fn fact(&self, start: &str, pointer: &str) -> String {
        match self.status(start, pointer) {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => "-".to_owned(),
        }
    }

    fn column(&self) -> Column {
        let mut values = vec![self.board.kernel.arch.name.to_owned(), self.date.clone()];
        values.extend(ROWS.map(|(name, _)| self.value(name)));
        for (start, _) in STARTS {
            values.extend([self.value(start), self.value(&format!("{start}-echo"))]);
            values.extend(FACTS.map(|(pointer, _)| self.fact(start, pointer)));
            values.push(self.value(&format!("{start}-end")));
        }
        rows().into_iter().zip(values).collect()
    }

    /// Checks that static flows were forwarded, and that every echo was equal to what was sent.
    fn check(&self) -> anyhow::Result<()> {
        let name = self.board.name;
        for (start, echo) in
            self.output.iter().filter_map(|(what, echo)| Some((what.strip_suffix("-echo")?, echo)))
        {
            ensure!(echo == "same", "{name}: {start}: the echo differs from what was sent: {echo}");
        }
        let [fast, slow] = ["/packets/fast", "/packets/slow"]
            .map(|packets| self.status("static", packets).and_then(|packets| packets.as_u64()));
        ensure!(fast > slow, "{name}: static flows: {fast:?} packets were fast, {slow:?} slow");
        Ok(())
    }
}

fn page(columns: &[(&Board, Column)]) -> String {
    let mut page = "<!-- @generated by `cargo xtask boards` -->\n# Boards\n\n\
        Results of running Shunt on boards that QEMU emulates, with Debian's kernels. A host behind a veth sends\n\
        a megabyte over TCP through the board, which masquerades the connection, to an echo server at the other\n\
        end of the board's Ethernet, and compares the echo with the data sent. Emulated boards say nothing about\n\
        speed. A column with an older date was not tried again with the newer rows.\n\n\
        On the i.MX 8M Plus EVK, QEMU 10 emulates the first Ethernet port; Linux finds no PHY at the second one\n\
        (EQOS), and PCI Express does not start, because Debian's kernel lacks CONFIG_INTERCONNECT_IMX8MP. So\n\
        there is no second port at the other end of the cable, which `shunt check` needs. The kernel keeps\n\
        /dev/mem away from devices that have a driver (CONFIG_IO_STRICT_DEVMEM), so registers are read from the\n\
        driver's dump and by MDIO.\n\n"
        .to_owned();
    let mut row = |name: &str, cell: &dyn Fn(&Board, &Column) -> String| {
        let cells: Vec<String> = columns.iter().map(|(board, column)| cell(board, column)).collect();
        let _ = writeln!(page, "| {name} | {} |", cells.join(" | "));
    };
    row("", &|board, _| title(board));
    row("---", &|_, _| "---".to_owned());
    for key in rows() {
        row(&key.1, &|_, column| column.get(&key).cloned().unwrap_or_else(|| "not tried".to_owned()));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::{BOARDS, BoardResults, Column, column_of, page};

    fn column(board: usize, output: &str) -> Column {
        BoardResults::parse(&BOARDS[board], output).column()
    }

    #[test]
    fn the_error_of_a_board_on_which_shunt_does_not_start_is_in_the_table() {
        let output = "kernel: 6.1.0\nauto: shunt: the kernel has no BTF: build it\n";
        let page = page(&[(&BOARDS[0], column(0, output))]);
        assert!(page.contains("| `shunt up` | shunt: the kernel has no BTF: build it |"), "{page}");
        assert!(page.contains("| packets fast | - |"), "{page}");
    }

    #[test]
    fn the_counters_of_a_board_that_forwards_are_in_the_table() {
        let output = "auto: ok\nauto-status: {\"packets\": {\"fast\": 577}}\n";
        assert!(page(&[(&BOARDS[2], column(2, output))]).contains("| packets fast | 577 |"));
    }

    #[test]
    fn the_column_of_a_board_that_is_not_run_again_stays() {
        let status = |fast: u32| format!("-status: {{\"packets\": {{\"fast\": {fast}}}}}\n");
        let first = column(0, &format!("auto: ok\nauto{}static: ok\nstatic{}", status(1), status(2)));
        let before = page(&[(&BOARDS[0], first.clone())]);
        assert_eq!(column_of(&before, &BOARDS[0]), first);
        let after = page(&[(&BOARDS[0], column_of(&before, &BOARDS[0])), (&BOARDS[1], Column::new())]);
        assert!(after.contains("| packets fast | 1 | not tried |"), "{after}");
        assert!(after.contains("| packets fast | 2 | not tried |"), "{after}");
        assert!(column_of(&before, &BOARDS[1]).is_empty());
    }

    #[test]
    fn a_board_must_forward_static_flows() {
        let checked = |output: &str| BoardResults::parse(&BOARDS[0], output).check();
        let status = "static-status: {\"packets\": {\"fast\": 1361, \"slow\": 4}}\n";
        assert!(checked(&format!("{status}static-echo: same\n")).is_ok());
        assert!(checked(&format!("{status}static-echo: same\nauto-echo: other\n")).is_err());
        assert!(checked(&status.replace("1361", "3")).is_err());
        assert!(checked("static: shunt: the kernel refused\n").is_err());
    }
}

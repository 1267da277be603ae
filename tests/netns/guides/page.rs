//! The commands and files of a guide, in the order in which a reader meets them.

use std::path::PathBuf;

/// Where a command is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// Prompts `#` (root) and `$`.
    Router,
    /// Prompt `lan$`.
    Lan,
    /// Prompt `wan$`.
    Wan,
}

/// A step of a guide, with its line in the file.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A command of a block marked `console`, and the lines that the guide shows below it.
    Command { line: usize, host: Host, command: String, output: Vec<String> },
    /// Another block whose first line is a comment with an absolute path.
    File { line: usize, path: PathBuf, text: String },
}

/// A guide, read.
#[derive(Debug, Default)]
pub struct Page {
    pub steps: Vec<Step>,
    /// Why blocks behind `<!-- not run: REASON -->` are left out.
    pub not_run: Vec<String>,
}

const PROMPTS: [(&str, Host); 4] =
    [("# ", Host::Router), ("$ ", Host::Router), ("lan$ ", Host::Lan), ("wan$ ", Host::Wan)];

pub fn read(text: &str) -> Page {
    let mut page = Page::default();
    let mut reason = None;
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let Some(language) = line.trim_start().strip_prefix("```") else {
            if !line.trim().is_empty() {
                reason =
                    line.trim().strip_prefix("<!-- not run: ").and_then(|rest| rest.strip_suffix(" -->"));
            }
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let block: Vec<(usize, &str)> = lines
            .by_ref()
            .take_while(|(_, line)| line.trim_start() != "```")
            .map(|(number, line)| (number + 1, line.get(indent..).unwrap_or("")))
            .collect();
        match (reason.take(), language) {
            (Some(why), _) => page.not_run.push(why.to_owned()),
            (None, "console") => page.steps.extend(commands(&block)),
            (None, _) => page.steps.extend(file(&block)),
        }
    }
    page
}

fn commands(block: &[(usize, &str)]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for &(number, line) in block {
        let typed = PROMPTS.iter().find_map(|&(prompt, host)| Some((host, line.strip_prefix(prompt)?)));
        match (steps.last_mut(), typed) {
            (Some(Step::Command { command, .. }), _) if is_open(command) => *command += &format!("\n{line}"),
            (_, Some((host, command))) => {
                let command = command.to_owned();
                steps.push(Step::Command { line: number, host, command, output: Vec::new() });
            }
            (Some(Step::Command { output, .. }), None) => output.push(line.to_owned()),
            (_, None) => panic!("line {number}: no prompt before `{line}`"),
        }
    }
    steps
}

/// Whether the shell would ask for another line.
fn is_open(command: &str) -> bool {
    command.ends_with('\\') || command.matches('\'').count() % 2 == 1
}

fn file(block: &[(usize, &str)]) -> Option<Step> {
    let &(line, first) = block.first()?;
    let path = first.strip_prefix("# /").filter(|path| !path.contains(' '))?;
    let text = block.iter().map(|(_, line)| format!("{line}\n")).collect();
    Some(Step::File { line, path: format!("/{path}").into(), text })
}

#[test]
fn commands_output_files_and_reasons_are_told_apart() {
    let text = "\
# Title
```console
# nft add rule \\
    accept
lan$ ping -c 1 192.0.2.1
1 received
```
```nft
# /etc/nftables.conf
flush ruleset
```
<!-- not run: needs a board -->
```console
$ make deb
```
```toml
[a]
```
";
    let page = read(text);
    let command = |line, host, command: &str, output: &[&str]| Step::Command {
        line,
        host,
        command: command.to_owned(),
        output: output.iter().map(|&line| line.to_owned()).collect(),
    };
    let expected = [
        command(3, Host::Router, "nft add rule \\\n    accept", &[]),
        command(5, Host::Lan, "ping -c 1 192.0.2.1", &["1 received"]),
        Step::File {
            line: 9,
            path: "/etc/nftables.conf".into(),
            text: "# /etc/nftables.conf\nflush ruleset\n".to_owned(),
        },
    ];
    assert_eq!(page.steps, expected);
    assert_eq!(page.not_run, ["needs a board"]);
}

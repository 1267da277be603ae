use super::*;
use crate::{
    golden::{BRIEF, JSON, TEXT, VERBOSE, assert_golden},
    render::{Answer, Format},
};

#[test]
fn answers_match_their_golden_files() {
    let answers: &[(&str, &dyn Answer, Format)] = &[
        ("check/golden/check.json", &check::sample::checks(), JSON),
        ("check/golden/check.txt", &check::sample::checks(), TEXT),
        ("trace/golden/trace.json", &trace::sample::traced(), JSON),
        ("trace/golden/trace.txt", &trace::sample::traced(), TEXT),
        ("compare/golden/compare.txt", &compare::sample::comparison(), TEXT),
        ("compare/golden/compare.json", &compare::sample::comparison(), JSON),
        ("why/golden/why.txt", &why::sample::explanation(), TEXT),
        ("why/golden/why.json", &why::sample::explanation(), JSON),
        ("why/golden/why-brief.txt", &why::sample::explanation(), BRIEF),
        ("load/golden/load.txt", &load::sample::load(), TEXT),
        ("load/golden/load.jsonl", &load::sample::load(), JSON),
        ("load/golden/load-self-test.txt", &load::sample::self_test(), TEXT),
        ("load/golden/load-self-test.json", &load::sample::self_test(), JSON),
        ("link/golden/link.txt", &link::sample::link(), TEXT),
        ("generate/golden/gen.txt", &generate::sample::traffic(), TEXT),
        ("generate/golden/gen.json", &generate::sample::traffic(), JSON),
        ("generate/golden/streams.txt", &generate::streams::sample::streams(), TEXT),
        ("generate/golden/streams.json", &generate::streams::sample::streams(), JSON),
        ("doctor/golden/doctor.txt", &doctor::sample::examination(), VERBOSE),
        ("doctor/golden/doctor.json", &doctor::sample::examination(), JSON),
    ];
    for (name, answer, format) in answers {
        assert_golden(name, *answer, *format);
    }
}

/// Splits a line as a shell would, as far as examples need it.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    parts.fold(vec![String::new()], |mut words, (at, part)| {
        let mut pieces = part.split(if at % 2 == 0 { ' ' } else { '\'' });
        if let (Some(last), Some(first)) = (words.last_mut(), pieces.next()) {
            last.push_str(first);
        }
        words.extend(pieces.map(str::to_owned));
        words
    })
}

#[test]
fn every_example_is_a_command_line() {
    for (_, (typed, _)) in all_examples().filter(|(_, (typed, _))| !typed.starts_with("source")) {
        let parsed = crate::cli::parse(words(typed).into_iter().map(Into::into));
        assert!(parsed.is_ok(), "{typed}: {}", parsed.unwrap_err());
    }
    let names = example_lines().filter(|line| line.starts_with("[shunt") && line.ends_with(']'));
    assert_eq!(all_examples().count() + names.count(), example_lines().count(), "each line is read");
}

#[test]
fn every_command_has_examples() {
    fn check(command: &clap::Command, name: &str) {
        assert!(name.ends_with(" help") || !examples(name).is_empty(), "{name} has no example");
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            check(one, &format!("{name} {}", one.get_name()));
        }
    }
    check(&Command::augment_subcommands(clap::Command::new("shunt")), "shunt");
}

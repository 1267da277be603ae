//! Case files of the model: none may panic or hang, and what is accepted gives possible figures.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shunt_model::{Case, run};

fuzz_target!(|input: (&str, &str, &str)| {
    let (text, name, value) = input;
    let Ok(mut case) = Case::parse(text) else { return };
    let _ = case.set(name, value);
    case.traffic.seconds = 1e-4;
    let Ok(got) = run(&case) else { return };
    assert!(got.events < 2_000_000 && got.received <= got.sent);
    assert!((0.0..=1.0).contains(&got.loss) && (0.0..=1.0).contains(&got.cpu));
    let again = Case::parse(&case.to_toml()).expect("a case that runs can be written and read");
    assert_eq!(run(&again).expect("the same case"), got);
});

//! Pages of docs/ that are made from what the daemon is. They are kept, and compared with what would be made.

use crate::reasons::Text;
use shunt_bpf::abi::{FIRST_REFUSAL, REASONS};
use std::{env, fs, path::Path};

/// Compares with a kept file of docs/, or with SHUNT_BLESS=1 keeps what is.
pub(crate) fn compare_with_kept(name: &str, made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if env::var_os("SHUNT_BLESS").is_some_and(|v| v == "1") {
        fs::write(&path, made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/{name} is not current; `SHUNT_BLESS=1 cargo test -p shuntd kept` writes it anew"
    );
}

fn reasons() -> String {
    let mut page = "\
# Reasons

Each packet that goes through Linux does so for a reason, and so does each that Linux forwarded and that taught nothing. `shunt status`
counts them, `shunt why` names those of a connection, `shunt watch` shows them as they occur, and in the metrics they are the label
`reason`. The names do not change.

The daemon says the same of each as this page, which is made from its source; \"it\" is the flow. What punt, proof, action or epoch mean is in
[ARCHITECTURE.md](../ARCHITECTURE.md#words), and what lies behind some of them in [limitations.md](limitations.md).

## Punts: the packet goes to Linux
"
    .to_owned();
    for (number, name) in REASONS {
        if *number == FIRST_REFUSAL {
            page +=
                "\n## Refusals: Linux forwarded it, and nothing is learned; or a flow is taken out of use\n";
        }
        let Text { meaning, remedy, .. } = crate::reasons::text(name).unwrap();
        page += &format!("\n### {name}\n\n{}. {}.\n", capital(meaning), capital(remedy));
    }
    page
}

fn capital(sentence: &str) -> String {
    let (first, rest) = sentence.split_at(1);
    first.to_uppercase() + rest
}

#[test]
fn the_kept_page_of_reasons_is_what_the_daemon_says() {
    compare_with_kept("reasons.md", &reasons());
}

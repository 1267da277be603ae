//! Finds the token of an agent: in a file or an environment variable.

use shunt_api::{Failure, FailureCode};
use shunt_http::Token;
use std::{env, path::Path};

/// The environment variable with the token, if no file is named. The token is never an argument, because `ps` shows
/// arguments to every user.
pub(crate) const VARIABLE: &str = "SHUNT_AGENT_TOKEN";

/// Reads the token from the file, or from the environment if no file is named. `option` is the option that names the
/// file, for the message.
pub(crate) fn read(file: Option<&Path>, option: &str) -> Result<Token, Failure> {
    if let Some(path) = file {
        return Token::from_file(path);
    }
    let text = env::var(VARIABLE).map_err(|_| {
        Failure::new(
            FailureCode::BadConfig,
            format!(
                "no token: name a file with {option}, or set {VARIABLE}; `(umask 077; openssl rand -hex 16 > FILE)` makes one"
            ),
        )
    })?;
    Token::parse(&text, VARIABLE)
}

//! The token that an agent on TCP asks of its clients.

use sha2::{Digest, Sha256};
use shunt_api::{Failure, FailureCode};
use std::{env, fmt, fs, os::unix::fs::PermissionsExt, path::Path};
use subtle::ConstantTimeEq;

/// The environment variable with the token, if no file is named. The token is never an argument, because `ps` shows
/// arguments to every user.
pub(crate) const VARIABLE: &str = "SHUNT_AGENT_TOKEN";
/// Shorter tokens could be guessed.
const LENGTH_MIN: usize = 16;

/// A secret that the agent and its clients share.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// Reads the token from the file, or from the environment if no file is named. `option` is the option that names the file,
    /// for the message.
    pub(crate) fn read(file: Option<&Path>, option: &str) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::new(FailureCode::BadConfig, why);
        let (text, from) = match file {
            Some(path) => {
                let name = path.display().to_string();
                let failed = |error: std::io::Error| wrong(format!("{name}: {error}"));
                if fs::metadata(path).map_err(failed)?.permissions().mode() & 0o077 != 0 {
                    return Err(wrong(format!(
                        "{name}: other users may read this file; run: chmod 600 {name}"
                    )));
                }
                (fs::read_to_string(path).map_err(failed)?, name)
            }
            None => {
                let text = env::var(VARIABLE)
                    .map_err(|_| wrong(format!("no token: name a file with {option}, or set {VARIABLE}")))?;
                (text, VARIABLE.to_owned())
            }
        };
        Self::parse(text.trim()).ok_or_else(|| {
            wrong(format!(
                "{from}: a token is at least {LENGTH_MIN} printable ASCII characters without blanks; make one with: openssl rand -hex 16"
            ))
        })
    }

    /// None if the token is too short or has other characters than printable ASCII.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fit = text.len() >= LENGTH_MIN && text.bytes().all(|byte| byte.is_ascii_graphic());
        fit.then(|| Self(text.to_owned()))
    }

    /// Whether the client gave this token. Takes the same time for every input, so timing reveals nothing.
    pub(crate) fn matches(&self, given: &[u8]) -> bool {
        Sha256::digest(&self.0).ct_eq(&Sha256::digest(given)).into()
    }

    /// The value of the header `Authorization`.
    pub(crate) fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;

    const TEXT: &str = "0123456789abcdef";

    #[test]
    fn a_token_matches_only_the_whole_token_and_is_not_shown_in_debug_output() {
        let token = Token::parse(TEXT).unwrap();
        for (given, is) in [(TEXT, true), ("", false), (&TEXT[..15], false), ("0123456789abcdef0", false)] {
            assert_eq!(token.matches(given.as_bytes()), is, "{given}");
        }
        assert!(!format!("{token:?}").contains(TEXT));
    }

    #[test]
    fn a_token_is_at_least_16_characters_in_a_file_that_only_its_owner_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Token::read(Some(&path), "--token-file")
                .map(|token| token.authorization())
                .map_err(|why| why.message)
        };
        assert_eq!(read(&format!("{TEXT}\n"), 0o600).unwrap(), format!("Bearer {TEXT}"));
        assert!(read(TEXT, 0o640).unwrap_err().ends_with(&format!("chmod 600 {}", path.display())));
        for text in ["", "short", "0123456789 abcdef", "0123456789abcdéf"] {
            assert!(read(text, 0o600).unwrap_err().contains("at least 16 printable"), "{text}");
        }
    }
}

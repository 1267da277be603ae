//! What a client must know.

use sha2::{Digest, Sha256};
use shunt_api::{Failure, FailureCode};
use std::{env, fmt, fs, os::unix::fs::PermissionsExt, path::Path};
use subtle::ConstantTimeEq;

/// Where it is looked for without a file. Not among the arguments, which every user of the machine can read.
pub(crate) const VARIABLE: &str = "SHUNT_AGENT_TOKEN";
/// Shorter ones can be guessed.
const LEAST: usize = 16;

/// Shared by the agent and whoever asks it.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// From the file, or else from the environment.
    pub(crate) fn read(file: Option<&Path>, option: &str) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::new(FailureCode::BadConfig, why);
        let (text, from) = match file {
            Some(path) => {
                let name = path.display().to_string();
                let failed = |error: std::io::Error| wrong(format!("{name}: {error}"));
                if fs::metadata(path).map_err(failed)?.permissions().mode() & 0o077 != 0 {
                    return Err(wrong(format!("{name}: others may read it; `chmod 600 {name}`")));
                }
                (fs::read_to_string(path).map_err(failed)?, name)
            }
            None => {
                let text = env::var(VARIABLE).map_err(|_| {
                    wrong(format!(
                        "there is no token: name its file with {option}, or put it into {VARIABLE}"
                    ))
                })?;
                (text, VARIABLE.to_owned())
            }
        };
        Self::of(text.trim()).ok_or_else(|| {
            wrong(format!(
                "{from}: a token has {LEAST} visible characters of ASCII or more; `openssl rand -hex 16` makes one"
            ))
        })
    }

    pub(super) fn of(text: &str) -> Option<Self> {
        let fit = text.len() >= LEAST && text.bytes().all(|byte| byte.is_ascii_graphic());
        fit.then(|| Self(text.to_owned()))
    }

    /// Takes as long whatever is given, so that nothing can be learned by trying.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        Sha256::digest(&self.0).ct_eq(&Sha256::digest(given)).into()
    }

    /// As a request carries it.
    pub(crate) fn header(&self) -> String {
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
    fn only_the_whole_token_is_the_token() {
        let token = Token::of(TEXT).unwrap();
        for (given, is) in [(TEXT, true), ("", false), (&TEXT[..15], false), ("0123456789abcdef0", false)] {
            assert_eq!(token.is(given.as_bytes()), is, "{given}");
        }
        assert!(!format!("{token:?}").contains(TEXT));
    }

    #[test]
    fn a_token_is_long_and_its_file_its_owners_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            Token::read(Some(&path), "--token-file").map(|token| token.header()).map_err(|why| why.message)
        };
        assert_eq!(read(&format!("{TEXT}\n"), 0o600).unwrap(), format!("Bearer {TEXT}"));
        assert!(read(TEXT, 0o640).unwrap_err().ends_with(&format!("chmod 600 {}`", path.display())));
        for text in ["", "short", "0123456789 abcdef", "0123456789abcdéf"] {
            assert!(read(text, 0o600).unwrap_err().contains("16 visible characters"), "{text}");
        }
    }
}

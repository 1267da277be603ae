//! The token that a server on TCP asks of its clients.

use axum::http::header::AUTHORIZATION;
use hmac_sha256::Hash;
use hyper::Request;
use shunt_api::{Failure, FailureCode, cannot_read};
use std::{fmt, fs, io, os::unix::fs::PermissionsExt, path::Path};

/// Shorter tokens could be guessed.
const LENGTH_MIN: usize = 16;

/// A secret that a server and its clients share.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Reads the token from a file that only its owner may read.
    ///
    /// # Errors
    /// Fails if the file cannot be read, if others may read it, or if its text is not a token.
    pub fn from_file(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let wrong = |why: String| Failure::new(FailureCode::BadConfig, why);
        let failed = |error: io::Error| wrong(format!("{name}: {}", cannot_read(&error)));
        if fs::metadata(path).map_err(failed)?.permissions().mode() & 0o077 != 0 {
            return Err(wrong(format!("{name}: other users may read this file; run: chmod 600 {name}")));
        }
        Self::parse(&fs::read_to_string(path).map_err(failed)?, &name.to_string())
    }

    /// Reads the token from a text, without the blanks around it. `from` says in a message where the text is from.
    ///
    /// # Errors
    /// Fails if the token is too short or has other characters than printable ASCII.
    pub fn parse(text: &str, from: &str) -> Result<Self, Failure> {
        let text = text.trim();
        if text.len() >= LENGTH_MIN && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Self(text.to_owned()));
        }
        let why = format!(
            "{from}: a token is at least {LENGTH_MIN} printable ASCII characters without blanks; make one with: openssl rand -hex 16"
        );
        Err(Failure::new(FailureCode::BadConfig, why))
    }

    /// Whether the client gave this token. Takes the same time for every input, so timing reveals nothing.
    pub fn matches(&self, given: &[u8]) -> bool {
        Hash::verify(given, &Hash::hash(self.0.as_bytes()))
    }

    /// The value of the header `Authorization`.
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// The refusal of a request without a token in its header `Authorization`, or with a wrong one; None if the token
    /// is right.
    pub fn refusal<B>(&self, request: &Request<B>) -> Option<Failure> {
        let given =
            request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let why = match given {
            Some(given) if self.matches(given) => return None,
            Some(_) => "the token is wrong",
            None => "the request has no token; add `Authorization: Bearer TOKEN`",
        };
        Some(Failure::new(FailureCode::Unauthorized, why))
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
        let token = Token::parse(TEXT, "here").unwrap();
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
            Token::from_file(&path).map(|token| token.authorization()).map_err(|why| why.message)
        };
        assert_eq!(read(&format!("{TEXT}\n"), 0o600).unwrap(), format!("Bearer {TEXT}"));
        assert!(read(TEXT, 0o640).unwrap_err().ends_with(&format!("chmod 600 {}", path.display())));
        for text in ["", "short", "0123456789 abcdef", "0123456789abcdéf"] {
            assert!(read(text, 0o600).unwrap_err().contains("at least 16 printable"), "{text}");
        }
    }
}

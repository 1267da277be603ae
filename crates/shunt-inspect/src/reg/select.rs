//! Selects registers by name, by a pattern with `*` and `?`, or by address.

use super::{Definitions, Field, Register};
use std::{fmt, str::FromStr};

/// A selection as typed: `ENET_RCR`, `ENET_RCR.FCE`, `ENET_RMON_*`, `0x02188084`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    register: String,
    field: Option<String>,
}

/// A register, and the field if one was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selected<'d> {
    /// The register.
    pub register: &'d Register,
    /// The selected field; None for the whole register.
    pub field: Option<&'d Field>,
}

/// Why a selection has no register, or more than allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// No register has this name.
    #[error("no register `{name}`{}", near(.similar))]
    None {
        /// The name as typed.
        name: String,
        /// Names that are similar.
        similar: Vec<String>,
    },
    /// The register has no such field.
    #[error("{register} has no field `{field}`; it has {}", list(.fields))]
    NoField {
        /// Name of the register.
        register: String,
        /// The field as typed.
        field: String,
        /// The fields of the register.
        fields: Vec<String>,
    },
    /// Several registers match where one is required, as for a write.
    #[error("`{name}` matches {} registers ({}); name one to write it", .registers.len(), list(.registers))]
    Several {
        /// The pattern as typed.
        name: String,
        /// Names of the registers that match.
        registers: Vec<String>,
    },
}

fn near(similar: &[String]) -> String {
    if similar.is_empty() {
        "; `shunt reg list` shows all".to_owned()
    } else {
        format!("; similar: {}", similar.join(", "))
    }
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => "none".to_owned(),
        all if all > SHOWN => format!("{shown}, ..."),
        _ => shown,
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (register, field) =
            text.split_once('.').map_or((text, None), |(name, field)| (name, Some(field)));
        if register.is_empty() || field.is_some_and(str::is_empty) {
            return Err("expected NAME, NAME.FIELD, a pattern such as ENET_R*, or an address".to_owned());
        }
        Ok(Self { register: register.to_owned(), field: field.map(str::to_owned) })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.register)?;
        self.field.iter().try_for_each(|field| write!(f, ".{field}"))
    }
}

impl Selector {
    /// Whether the selection is a pattern, which may match several registers.
    pub fn is_pattern(&self) -> bool {
        self.register.contains(['*', '?'])
    }

    /// The registers that match, at least one. Ignores case.
    ///
    /// # Errors
    /// If no register matches, or the named register lacks the field.
    pub fn select<'d>(&self, all: &'d Definitions) -> Result<Vec<Selected<'d>>, SelectError> {
        let address =
            self.register.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let matches = |register: &&Register| match address {
            Some(address) => all.address(register) == Some(address),
            None => matches(&self.register, &register.name),
        };
        let registers: Vec<&Register> = all.registers.iter().filter(matches).collect();
        if registers.is_empty() {
            return Err(SelectError::None { name: self.register.clone(), similar: self.similar(all) });
        }
        let Some(name) = &self.field else {
            return Ok(registers.into_iter().map(|register| Selected { register, field: None }).collect());
        };
        let with = |register: &&'d Register| Some(Selected { register, field: Some(register.field(name)?) });
        let found: Vec<Selected> = registers.iter().filter_map(with).collect();
        if found.is_empty() {
            let fields = registers[0].fields.iter().map(|field| field.name.clone()).collect();
            let register = registers[0].name.clone();
            return Err(SelectError::NoField { register, field: name.clone(), fields });
        }
        Ok(found)
    }

    /// The only register that matches, for a write.
    ///
    /// # Errors
    /// If no register matches, or several do.
    pub fn only<'d>(&self, all: &'d Definitions) -> Result<Selected<'d>, SelectError> {
        match &self.select(all)?[..] {
            [one] => Ok(*one),
            several => {
                let registers = several.iter().map(|one| one.register.name.clone()).collect();
                Err(SelectError::Several { name: self.to_string(), registers })
            }
        }
    }

    fn similar(&self, all: &Definitions) -> Vec<String> {
        const MOST: usize = 3;
        let typed = self.register.to_ascii_uppercase();
        let contains = |register: &&Register| {
            let name = register.name.to_ascii_uppercase();
            name.contains(&typed)
                || name.len() >= 3 && typed.contains(&name)
                || name.split('_').next_back() == typed.split('_').next_back()
        };
        all.registers.iter().filter(contains).take(MOST).map(|register| register.name.clone()).collect()
    }
}

/// Whether a name matches a pattern with `*` and `?`; takes time in proportion to both lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Position of the last `*`, and of the part of the name that it covers.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(byte) if *byte == b'?' || byte.eq_ignore_ascii_case(&name[n]) => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, n) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::{super::builtin, *};

    fn names(selector: &str) -> Result<Vec<String>, String> {
        let all = builtin("imx6q").unwrap();
        let selector: Selector = selector.parse().unwrap();
        let found = selector.select(&all).map_err(|error| error.to_string())?;
        Ok(found.iter().map(|one| one.register.name.clone()).collect())
    }

    #[test]
    fn a_name_is_exact_and_only_a_pattern_matches_several() {
        assert_eq!(names("enet_rcr").unwrap(), ["ENET_RCR"]);
        assert_eq!(names("0x02188084").unwrap(), ["ENET_RCR"]);
        assert_eq!(names("ENET_R*R").unwrap(), ["ENET_RDAR", "ENET_RCR", "ENET_RDSR"]);
        assert_eq!(names("*RAF?").unwrap(), ["ENET_RAFL"]);
        assert_eq!(names("ENET_R*.FCE").unwrap(), ["ENET_RCR"]);
        assert_eq!(
            names("ENET_R").unwrap_err(),
            "no register `ENET_R`; similar: ENET_RDAR, ENET_RCR, ENET_RDSR"
        );
        assert_eq!(names("XYZ").unwrap_err(), "no register `XYZ`; `shunt reg list` shows all");
        let missing = names("ENET_RCR.NOPE").unwrap_err();
        assert!(missing.starts_with("ENET_RCR has no field `NOPE`; it has GRS, NLC, MAX_FL"), "{missing}");
        assert!("".parse::<Selector>().is_err() && "A.".parse::<Selector>().is_err());
    }

    #[test]
    fn what_matches_several_registers_is_not_for_writing() {
        let all = builtin("imx6q").unwrap();
        let only =
            |text: &str| text.parse::<Selector>().unwrap().only(&all).map(|one| one.register.name.clone());
        assert_eq!(only("ENET_RCR.FCE").unwrap(), "ENET_RCR");
        let refusal = only("ENET_RA*").unwrap_err().to_string();
        assert_eq!(
            refusal,
            "`ENET_RA*` matches 3 registers (ENET_RAEM, ENET_RAFL, ENET_RACC); name one to write it"
        );
    }

    #[test]
    fn patterns_end_in_time() {
        assert!(!matches(&"*a".repeat(50), &"a".repeat(40)));
        assert!(matches("*", "") && matches("a*b*", "aXbY") && !matches("a?", "a"));
    }
}

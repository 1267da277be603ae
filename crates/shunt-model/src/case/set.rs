//! Cases as text, and parameters by name.

use super::{
    Case,
    check::bounds,
    known::{self, is_cost, put_unknown, take_unknown},
    number::{factor, parse_number},
};
use thiserror::Error;
use toml::{Table, Value};

/// A case file or a parameter that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CaseError {
    /// The text is not a case.
    #[error("{0}")]
    Text(String),
    /// The text is not TOML, or not that of a case.
    #[error("{}", .0.message())]
    Document(Box<toml::de::Error>),
    /// No parameter has this name.
    #[error("there is no parameter {name}{hint}")]
    Name {
        /// The name as given.
        name: String,
        /// What names there are, as the end of the sentence.
        hint: String,
    },
    /// The value has another type.
    #[error("{name}={value}: {why}")]
    Value {
        /// The parameter.
        name: String,
        /// The value as given.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// The parameter cannot have this value.
    #[error(transparent)]
    Impossible(#[from] super::Impossible),
}

/// A value as the type that the parameter has now.
fn value_like(now: &Value, text: &str) -> Result<Value, &'static str> {
    if let (Some(factor), Some(number)) = (factor(text), as_number(now)) {
        let number = factor * number;
        return Ok(if now.is_integer() {
            Value::Integer(number.round() as i64)
        } else {
            Value::Float(number)
        });
    }
    match now {
        Value::Boolean(_) => match text {
            "on" | "true" | "yes" => Ok(Value::Boolean(true)),
            "off" | "false" | "no" => Ok(Value::Boolean(false)),
            _ => Err("use on or off"),
        },
        Value::Integer(_) => match parse_number(text).ok_or("use a whole number")? {
            whole if whole.fract() == 0.0 && whole.abs() < 1e15 => Ok(Value::Integer(whole as i64)),
            _ => Err("use a whole number"),
        },
        Value::Float(_) => parse_number(text).map(Value::Float).ok_or("use a number, such as 400M"),
        _ => Ok(Value::String(text.to_owned())),
    }
}

fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(whole) => Some(*whole as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    }
}

impl Case {
    /// Reads a case file (TOML).
    ///
    /// # Errors
    /// Fails if the text is not TOML, a parameter is unknown or has another type, or a parameter cannot be.
    pub fn parse(text: &str) -> Result<Self, CaseError> {
        let wrong = |error: toml::de::Error| CaseError::Document(Box::new(error));
        let mut table: Table = toml::from_str(text).map_err(wrong)?;
        let before = table.clone();
        let unknown = take_unknown(&mut table);
        // Errors in the text itself name its lines; those of a table do not.
        let case: Self =
            if table == before { toml::from_str(text) } else { table.try_into() }.map_err(wrong)?;
        case.check()?;
        Ok(Self { unknown: unknown.into_iter().collect(), ..case })
    }

    /// The case as a file, with all parameters.
    ///
    /// # Panics
    /// Never: a case is a table of numbers and strings.
    pub fn to_toml(&self) -> String {
        let mut table = self.table();
        put_unknown(self, &mut table);
        toml::to_string(&table).expect("a case is a table of numbers and strings")
    }

    fn table(&self) -> Table {
        Table::try_from(self).expect("a case is a table of numbers and strings")
    }

    fn value(&self, name: &str) -> Option<Value> {
        let (section, key) = name.split_once('.')?;
        self.table().get(section)?.get(key).cloned()
    }

    /// The value of a number, such as `bus.rx_rate`.
    pub fn number(&self, name: &str) -> Option<f64> {
        as_number(&self.value(name)?)
    }

    /// The value of a parameter as text, for comparisons.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.value(name).map(|value| value.to_string())
    }

    /// All numbers, by name.
    pub(super) fn numbers(&self) -> Vec<(String, f64)> {
        let table = self.table();
        let sections = table.iter().filter_map(|(name, value)| Some((name, value.as_table()?)));
        let all = sections.flat_map(|(section, keys)| {
            keys.iter().filter_map(move |(key, value)| Some((format!("{section}.{key}"), as_number(value)?)))
        });
        all.collect()
    }

    /// Sets a parameter from text: `fifo.pause` from `on`, `traffic.rate` from `400M`, `cpu.clock` from `2x` (twice the
    /// value that it has), `forward.tc_ns` from `unknown`. Whether the case as a whole can be is for [`Case::check`] to
    /// say.
    ///
    /// # Errors
    /// Fails if there is no such parameter, or if the value has another type.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), CaseError> {
        let mut table = self.table();
        let (section, key) = name.split_once('.').unwrap_or((name, ""));
        let Some(parameters) = table.get_mut(section).and_then(Value::as_table_mut) else {
            let hint = "; a name has a section and a key, such as fifo.pause".to_owned();
            return Err(CaseError::Name { name: name.to_owned(), hint });
        };
        let Some(now) = parameters.get(key) else {
            let known: Vec<&str> = parameters.keys().map(String::as_str).collect();
            let hint = format!("; {section} has {}", known.join(", "));
            return Err(CaseError::Name { name: name.to_owned(), hint });
        };
        let bad = |why: &str| CaseError::Value {
            name: name.to_owned(),
            value: text.to_owned(),
            why: why.to_owned(),
        };
        let mut unknown = self.unknown.clone();
        let scaled = |range: Option<(f64, f64)>| {
            let by = factor(text)?;
            Some(range.map(|(low, high)| (by * low, by * high)))
        };
        let now_unknown = known::unknown(text).or_else(|| scaled(*unknown.get(name)?));
        let value = match now_unknown {
            Some(range) if is_cost(name) => {
                unknown.insert(name.to_owned(), range);
                Value::Float(0.0)
            }
            _ => {
                unknown.remove(name);
                value_like(now, text).map_err(bad)?
            }
        };
        let is_whole = value.is_integer();
        parameters.insert(key.to_owned(), value);
        let case: Self = table.try_into().map_err(|e: toml::de::Error| match is_whole {
            // It does not fit its type, which users need not know.
            true => bad(bounds(name).2),
            false => bad(e.message().trim()),
        })?;
        *self = Self { unknown, ..case };
        Ok(())
    }

    /// Sets a number. A whole number is rounded.
    ///
    /// # Errors
    /// Fails if there is no such parameter, or if it is not a number.
    pub fn set_number(&mut self, name: &str, value: f64) -> Result<(), CaseError> {
        match self.value(name) {
            Some(Value::Integer(_)) => self.set(name, &value.round().to_string()),
            _ => self.set(name, &value.to_string()),
        }
    }
}

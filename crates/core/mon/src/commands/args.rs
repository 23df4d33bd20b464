//! [`Args`]: arguments of a command after they were checked against its signature.

use std::collections::BTreeMap;

/// A checked argument.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Arg {
    /// Words, names, choices.
    Text(String),
    /// `CephInt`, `CephOsdName`.
    Int(i64),
    /// `CephFloat`.
    Float(f64),
    /// `CephBool`.
    Flag(bool),
    /// Anything with `n=N`.
    List(Vec<String>),
}

/// Arguments by name. Required ones are there, by the check that made this; their getters yield an empty value
/// should a handler ask for a name that is not in its signature.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Args {
    values: BTreeMap<&'static str, Arg>,
}

impl Args {
    pub(super) fn insert(&mut self, name: &'static str, value: Arg) {
        self.values.insert(name, value);
    }

    /// A text argument; empty when it was left out.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.text_opt(name).unwrap_or_default()
    }

    /// A text argument that may be left out.
    #[must_use]
    pub fn text_opt(&self, name: &str) -> Option<&str> {
        match self.values.get(name)? {
            Arg::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A number that may be left out.
    #[must_use]
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.values.get(name)? {
            Arg::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A number with a fraction that may be left out.
    #[must_use]
    pub fn float(&self, name: &str) -> Option<f64> {
        match self.values.get(name)? {
            Arg::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// A flag; false when it was left out.
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.values.get(name), Some(Arg::Flag(true)))
    }

    /// The words of an argument that may repeat; empty when it was left out.
    #[must_use]
    pub fn list(&self, name: &str) -> &[String] {
        match self.values.get(name) {
            Some(Arg::List(words)) => words,
            _ => &[],
        }
    }

    /// The scalar arguments as text, for caps that restrict them.
    pub(super) fn to_texts(&self) -> BTreeMap<String, String> {
        let text = |arg: &Arg| match arg {
            Arg::Text(text) => Some(text.clone()),
            Arg::Int(value) => Some(value.to_string()),
            Arg::Float(value) => Some(value.to_string()),
            Arg::Flag(value) => Some(value.to_string()),
            Arg::List(_) => None,
        };
        self.values.iter().filter_map(|(name, arg)| Some(((*name).to_owned(), text(arg)?))).collect()
    }
}

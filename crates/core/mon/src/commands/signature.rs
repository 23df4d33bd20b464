//! [`Signature`]: a command's words and arguments, from the text that Ceph's source writes them in.
//!
//! `osd pool rename name=srcpool,type=CephPoolname name=destpool,type=CephPoolname`: bare words first, then one
//! `key=value,...` group per argument (`src/common/cmdparse.cc`, `src/pybind/ceph_argparse.py` at v16.2.15).

use super::args::{Arg, Args};
use super::call::{Failure, refuse};
use crate::command::CommandInput;
use nacre_format::{Node, Section};
use nacre_types::Errno;
use serde_json::Value;

/// Values that one repeated argument may have.
pub(super) const LIST_COUNT_MAX: usize = 65_536;

/// One argument of a command.
#[derive(Debug, Clone, Default)]
pub(super) struct Param {
    pub(super) name: &'static str,
    kind: &'static str,
    optional: bool,
    repeats: bool,
    choices: Vec<&'static str>,
    range: Option<&'static str>,
    good_chars: Option<&'static str>,
    /// All pairs as written, for the descriptor.
    fields: Vec<(&'static str, &'static str)>,
}

/// Words and arguments of a command.
#[derive(Debug, Clone, Default)]
pub(super) struct Signature {
    pub(super) prefix: String,
    words: Vec<&'static str>,
    params: Vec<Param>,
}

impl Param {
    fn parse(text: &'static str) -> Self {
        let mut param = Self::default();
        for field in text.split(',') {
            let (key, value) = field.split_once('=').unwrap_or((field, ""));
            match key {
                "name" => param.name = value,
                "type" => param.kind = value,
                "req" => param.optional = value.eq_ignore_ascii_case("false"),
                "n" => param.repeats = value == "N",
                "strings" => param.choices = value.split('|').collect(),
                "range" => param.range = Some(value),
                "goodchars" => param.good_chars = Some(value),
                _ => {}
            }
            param.fields.push((key, value));
        }
        param
    }

    fn bad(&self) -> Failure {
        refuse(Errno::EINVAL, format!("bad or missing field '{}'", self.name))
    }

    fn check(&self, value: &Value) -> Result<Arg, Failure> {
        if self.repeats {
            return self.check_list(value);
        }
        match self.kind {
            "CephInt" | "CephOsdName" => self.check_int(value).map(Arg::Int),
            "CephFloat" => self.check_float(value).map(Arg::Float),
            "CephBool" => truth(value).map(Arg::Flag).ok_or_else(|| self.bad()),
            _ => self.check_text(value).map(Arg::Text),
        }
    }

    fn check_list(&self, value: &Value) -> Result<Arg, Failure> {
        let values = match value {
            Value::Array(values) if values.len() > LIST_COUNT_MAX => return Err(self.bad()),
            Value::Array(values) => values.as_slice(),
            one => std::slice::from_ref(one),
        };
        values.iter().map(|value| self.check_text(value)).collect::<Result<_, _>>().map(Arg::List)
    }

    fn check_text(&self, value: &Value) -> Result<String, Failure> {
        let text = scalar_text(value).ok_or_else(|| self.bad())?;
        if !self.choices.is_empty() && !self.choices.contains(&text.as_str()) {
            let choices = self.choices.join("|");
            return Err(refuse(
                Errno::EINVAL,
                format!("invalid {} '{text}', must be one of {choices}", self.name),
            ));
        }
        if self.good_chars.is_some_and(|class| !text.chars().all(|ch| class_contains(class, ch))) {
            return Err(refuse(Errno::EINVAL, format!("invalid chars in '{text}' for {}", self.name)));
        }
        Ok(text)
    }

    fn check_int(&self, value: &Value) -> Result<i64, Failure> {
        let number = match value {
            Value::Number(number) => number.as_i64(),
            Value::String(text) if self.kind == "CephOsdName" => osd_id(text).map(i64::from),
            Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.bad())?;
        #[expect(clippy::cast_precision_loss, reason = "bounds are small")]
        self.check_range(number as f64)?;
        Ok(number)
    }

    fn check_float(&self, value: &Value) -> Result<f64, Failure> {
        let number = match value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
            _ => None,
        };
        let number = number.ok_or_else(|| self.bad())?;
        self.check_range(number)?;
        Ok(number)
    }

    fn check_range(&self, value: f64) -> Result<(), Failure> {
        let Some(range) = self.range else { return Ok(()) };
        let (low, high) = range.split_once('|').map_or((range, None), |(low, high)| (low, Some(high)));
        let below = low.parse::<f64>().is_ok_and(|low| value < low);
        let above = high.and_then(|high| high.parse::<f64>().ok()).is_some_and(|high| value > high);
        if below || above {
            let text = format!("{} not in range [{}, {}]", value, low, high.unwrap_or("inf"));
            return Err(refuse(Errno::EINVAL, text));
        }
        Ok(())
    }

    fn describe(&self) -> Node {
        Section::from_iter(self.fields.iter().copied()).into()
    }
}

impl Signature {
    pub(super) fn parse(text: &'static str) -> Self {
        let (params, words): (Vec<_>, Vec<_>) =
            text.split_whitespace().partition(|word| word.starts_with("name="));
        let params = params.into_iter().map(Param::parse).collect();
        Self { prefix: words.join(" "), words, params }
    }

    /// Checks the arguments; ones that the signature does not name are left aside, as clients add some.
    pub(super) fn check(&self, input: &CommandInput) -> Result<Args, Failure> {
        let mut args = Args::default();
        for param in &self.params {
            match input.args.get(param.name) {
                None | Some(Value::Null) if param.optional => {}
                None | Some(Value::Null) => return Err(param.bad()),
                Some(value) => args.insert(param.name, param.check(value)?),
            }
        }
        Ok(args)
    }

    pub(super) fn describe(&self) -> Node {
        let words = self.words.iter().map(|word| Node::from(*word));
        Node::array("arg", words.chain(self.params.iter().map(Param::describe)))
    }
}

/// [`Signature::describe`] of a text that a manager sent.
pub(super) fn describe_text(text: &str) -> Node {
    let word = |word: &str| {
        if !word.contains('=') {
            return Node::from(word);
        }
        let pair = |field: &str| field.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        word.split(',').filter_map(pair).collect::<Section>().into()
    };
    Node::array("arg", text.split_whitespace().map(word))
}

/// An OSD's number from `3` or `osd.3`.
pub(super) fn osd_id(text: &str) -> Option<i32> {
    let number = text.trim();
    number.strip_prefix("osd.").unwrap_or(number).parse().ok().filter(|id| *id >= 0)
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// Flags come as JSON booleans, or as the word that was typed.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => Some(number.as_i64()? != 0),
        Value::String(text) => match text.as_str() {
            "false" | "no" | "0" => Some(false),
            "true" | "yes" | "1" => Some(true),
            word => word.starts_with("--").then_some(true),
        },
        _ => None,
    }
}

/// A character class as a regular expression writes it, `[A-Za-z0-9-_.]`: a hyphen behind a range is itself.
fn class_contains(class: &str, wanted: char) -> bool {
    let mut rest = class.trim_start_matches('[').trim_end_matches(']').chars().peekable();
    while let Some(low) = rest.next() {
        let mut ahead = rest.clone();
        let high = if ahead.next() == Some('-') { ahead.next() } else { None };
        match high {
            Some(high) if low != '-' => {
                if (low..=high).contains(&wanted) {
                    return true;
                }
                rest = ahead;
            }
            _ if low == wanted => return true,
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use nacre_format::Format;

    const REWEIGHT: &str = "osd reweight name=id,type=CephOsdName name=weight,type=CephFloat,range=0.0|1.0";
    const OUT: &str = "osd out name=ids,type=CephString,n=N name=sure,type=CephBool,req=false";

    fn check(signature: &'static str, json: &str) -> Result<Args, String> {
        let Ok(Value::Object(args)) = serde_json::from_str(json) else { panic!("not an object: {json}") };
        let input = CommandInput { args, ..CommandInput::default() };
        Signature::parse(signature).check(&input).map_err(|failure| failure.text)
    }

    #[test]
    fn numbers_come_as_numbers_or_text() {
        for json in [r#"{"id":3,"weight":0.5}"#, r#"{"id":"osd.3","weight":"0.5","target":["mon-mgr",""]}"#] {
            let args = check(REWEIGHT, json).expect("valid arguments");
            assert_eq!((args.int("id"), args.float("weight")), (Some(3), Some(0.5)));
        }
        assert_eq!(check(REWEIGHT, r#"{"id":3}"#), Err("bad or missing field 'weight'".into()));
        assert_eq!(check(REWEIGHT, r#"{"id":"x","weight":1}"#), Err("bad or missing field 'id'".into()));
        assert_eq!(check(REWEIGHT, r#"{"id":3,"weight":1.5}"#), Err("1.5 not in range [0.0, 1.0]".into()));
    }

    #[test]
    fn lists_and_flags() {
        let args =
            check(OUT, r#"{"ids":["1","2"],"sure":"--yes-i-really-mean-it"}"#).expect("valid arguments");
        assert_eq!(args.list("ids"), ["1", "2"]);
        assert!(args.flag("sure"));
        let args = check(OUT, r#"{"ids":7}"#).expect("valid arguments");
        assert_eq!(args.list("ids"), ["7"]);
        assert!(!args.flag("sure"));
    }

    #[test]
    fn classes_follow_the_regular_expression() {
        for (text, fits) in [("a-b_c.9", true), ("a b", false), ("a/b", false), ("é", false)] {
            assert_eq!(text.chars().all(|ch| class_contains("[A-Za-z0-9-_.]", ch)), fits, "{text}");
        }
    }

    #[test]
    fn descriptors_are_words_then_fields() {
        let text = Signature::parse(REWEIGHT).describe().render(Format::Json, "sig");
        let want = r#"["osd","reweight",{"name":"id","type":"CephOsdName"},{"name":"weight","type":"CephFloat","range":"0.0|1.0"}]"#;
        assert_eq!(text, want);
    }
}

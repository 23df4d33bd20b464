//! [`Node`]: the answer of a command as a tree, and its renderings.
//!
//! Layouts follow Ceph `src/common/Formatter.cc` at v16.2.15: pretty JSON indents by four spaces, pretty XML
//! by one; floating point numbers carry 17 digits.

use crate::number::general;
use std::borrow::Cow;

/// How an answer is rendered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// Text for people; the command decides what it looks like.
    #[default]
    Plain,
    /// JSON without spaces.
    Json,
    /// JSON with line breaks and indentation.
    JsonPretty,
    /// XML without spaces.
    Xml,
    /// XML with line breaks and indentation.
    XmlPretty,
}

impl Format {
    /// Reads a command's `format` argument; what we do not know is plain.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        match name {
            "json" => Self::Json,
            "json-pretty" => Self::JsonPretty,
            "xml" => Self::Xml,
            "xml-pretty" => Self::XmlPretty,
            _ => Self::Plain,
        }
    }

    /// This format, or `other` where plain text was asked for.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self == Self::Plain { other } else { self }
    }
}

/// A value of the tree.
#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    /// `true` or `false`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating point number.
    Float(f64),
    /// A string, escaped when it is printed.
    Text(String),
    /// Text that stands in JSON as it is, without quotes: a number with a fixed count of decimals.
    Raw(String),
    /// Named members in order.
    Section(Section),
    /// Elements in order; XML wraps each in a tag of the given name.
    Array(Cow<'static, str>, Vec<Self>),
}

/// Named members in order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Section {
    members: Vec<(Cow<'static, str>, Node)>,
}

impl Section {
    /// A section without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a member.
    pub fn put(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Node>) {
        self.members.push((name.into(), value.into()));
    }

    /// Appends a member, for chains.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Node>) -> Self {
        self.put(name, value);
        self
    }

    /// Appends the members of `other`.
    pub fn extend(&mut self, other: Self) {
        self.members.extend(other.members);
    }

    /// The member of that name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Node> {
        self.members.iter().find(|(at, _)| at == name).map(|(_, node)| node)
    }

    /// True without members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

impl<K: Into<Cow<'static, str>>, V: Into<Node>> FromIterator<(K, V)> for Section {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        Self { members: pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect() }
    }
}

macro_rules! node_from {
    ($($from:ty => $value:ident $node:expr;)*) => {
        $(impl From<$from> for Node {
            fn from($value: $from) -> Self {
                $node
            }
        })*
    };
}

node_from! {
    bool => value Self::Bool(value);
    i16 => value Self::Int(value.into());
    i32 => value Self::Int(value.into());
    i64 => value Self::Int(value);
    u8 => value Self::Uint(value.into());
    u16 => value Self::Uint(value.into());
    u32 => value Self::Uint(value.into());
    u64 => value Self::Uint(value);
    usize => value Self::Uint(value as u64);
    f64 => value Self::Float(value);
    f32 => value Self::Float(value.into());
    &str => value Self::Text(value.to_owned());
    String => value Self::Text(value);
    &String => value Self::Text(value.clone());
    Section => value Self::Section(value);
}

impl Node {
    /// An array whose elements XML calls `item`.
    #[must_use]
    pub fn array<V: Into<Self>>(
        item: impl Into<Cow<'static, str>>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self::Array(item.into(), values.into_iter().map(Into::into).collect())
    }

    /// The rendering in `format`; plain becomes pretty JSON. `root` is the outermost tag in XML. Pretty
    /// renderings end their last line.
    #[must_use]
    pub fn render(&self, format: Format, root: &str) -> String {
        let mut out = String::new();
        match format {
            Format::Json => self.json(&mut out),
            Format::Plain | Format::JsonPretty => {
                self.json_pretty(&mut out, 0);
                out.push('\n');
            }
            Format::Xml => self.xml(&mut out, root, None),
            Format::XmlPretty => {
                self.xml(&mut out, root, Some(0));
                out.push('\n');
            }
        }
        out
    }

    fn scalar(&self) -> Option<String> {
        Some(match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Uint(value) => value.to_string(),
            Self::Float(value) => general(*value, 17),
            Self::Raw(text) | Self::Text(text) => text.clone(),
            Self::Section(_) | Self::Array(..) => return None,
        })
    }

    fn children(&self) -> Vec<(Option<&str>, &Self)> {
        match self {
            Self::Section(section) => {
                section.members.iter().map(|(name, node)| (Some(name.as_ref()), node)).collect()
            }
            Self::Array(_, nodes) => nodes.iter().map(|node| (None, node)).collect(),
            _ => Vec::new(),
        }
    }

    fn brackets(&self) -> (char, char) {
        if matches!(self, Self::Array(..)) { ('[', ']') } else { ('{', '}') }
    }

    fn json_scalar(&self, out: &mut String) -> bool {
        match (self, self.scalar()) {
            (Self::Text(text), _) => quote(out, text),
            (_, Some(text)) => out.push_str(&text),
            (_, None) => return false,
        }
        true
    }

    fn json(&self, out: &mut String) {
        if self.json_scalar(out) {
            return;
        }
        let (open, close) = self.brackets();
        out.push(open);
        for (index, (name, node)) in self.children().into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            if let Some(name) = name {
                quote(out, name);
                out.push(':');
            }
            node.json(out);
        }
        out.push(close);
    }

    fn json_pretty(&self, out: &mut String, depth: usize) {
        if self.json_scalar(out) {
            return;
        }
        let (open, close) = self.brackets();
        let children = self.children();
        out.push(open);
        for (index, (name, node)) in children.iter().enumerate() {
            out.push_str(if index > 0 { ",\n" } else { "\n" });
            out.push_str(&"    ".repeat(depth + 1));
            if let Some(name) = name {
                quote(out, name);
                out.push_str(": ");
            }
            node.json_pretty(out, depth + 1);
        }
        if !children.is_empty() {
            out.push('\n');
            out.push_str(&"    ".repeat(depth));
        }
        out.push(close);
    }

    /// `depth` is `None` for XML without line breaks.
    fn xml(&self, out: &mut String, tag: &str, depth: Option<usize>) {
        let tag = tag.replace(' ', "_");
        out.push_str(&" ".repeat(depth.unwrap_or(0)));
        out.push_str(&format!("<{tag}>"));
        if let Some(text) = self.scalar() {
            escape_xml(out, &text);
        } else {
            let line_break = if depth.is_some() { "\n" } else { "" };
            out.push_str(line_break);
            let inner = depth.map(|depth| depth + 1);
            let item = if let Self::Array(item, _) = self { item.as_ref() } else { "item" };
            for (name, node) in self.children() {
                node.xml(out, name.unwrap_or(item), inner);
            }
            out.push_str(&" ".repeat(depth.unwrap_or(0)));
        }
        out.push_str(&format!("</{tag}>"));
        if depth.is_some() {
            out.push('\n');
        }
    }
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for ch in text.chars() {
        match ch {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            ch if ch < ' ' || ch == '\x7f' => out.push_str(&format!("\\u{:04x}", u32::from(ch))),
            ch => out.push(ch),
        }
    }
    out.push('"');
}

fn escape_xml(out: &mut String, text: &str) {
    for ch in text.chars() {
        match ch {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\'' => out.push_str("&apos;"),
            '"' => out.push_str("&quot;"),
            ch if ch < ' ' && !matches!(ch, '\n' | '\t') => {
                out.push_str(&format!("&#x{:02x};", u32::from(ch)))
            }
            ch => out.push(ch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Node {
        Section::new()
            .with("epoch", 61_u32)
            .with("osds", Node::array("osd", [0, 1]))
            .with("none", Node::array("x", Vec::<Node>::new()))
            .with("checks", Section::new())
            .with("a b", Section::new().with("text", "say \"<>\"\n"))
            .into()
    }

    #[test]
    fn json_is_compact_or_indented() {
        let compact = r#"{"epoch":61,"osds":[0,1],"none":[],"checks":{},"a b":{"text":"say \"<>\"\n"}}"#;
        assert_eq!(sample().render(Format::Json, "x"), compact);
        let pretty = sample().render(Format::JsonPretty, "x");
        assert!(
            pretty.starts_with("{\n    \"epoch\": 61,\n    \"osds\": [\n        0,\n        1\n    ],\n")
        );
        assert!(pretty.contains("    \"none\": [],\n    \"checks\": {},\n"));
        assert!(pretty.ends_with("\n    }\n}\n"));
    }

    #[test]
    fn xml_names_the_elements_of_arrays() {
        let compact = sample().render(Format::Xml, "osdmap");
        let want = "<osdmap><epoch>61</epoch><osds><osd>0</osd><osd>1</osd></osds><none></none><checks></checks>\
                    <a_b><text>say &quot;&lt;&gt;&quot;\n</text></a_b></osdmap>";
        assert_eq!(compact, want);
        let pretty = sample().render(Format::XmlPretty, "osdmap");
        assert!(pretty.starts_with("<osdmap>\n <epoch>61</epoch>\n <osds>\n  <osd>0</osd>\n"));
    }
}

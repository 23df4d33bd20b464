//! [`Cursor`]: a place in caps text, with the words that the three grammars share.
//!
//! Ceph's grammars are parsing expressions: ordered choice, no going back into a choice once made. The
//! functions here keep that, because the refusal tells how far reading came.

/// A place in the text; copied to remember where to go back to.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    rest: &'a str,
}

fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\x0b'
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}

fn is_network(c: char) -> bool {
    c.is_ascii_hexdigit() || matches!(c, '/' | '.' | ':' | '[' | ']')
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    /// Runs `rule`; when it yields nothing, the cursor is where it was.
    pub(super) fn attempt<T>(&mut self, rule: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = *self;
        let found = rule(self);
        if found.is_none() {
            *self = before;
        }
        found
    }

    fn run(&mut self, accepts: fn(char) -> bool) -> Option<&'a str> {
        let end = self.rest.find(|c| !accepts(c)).unwrap_or(self.rest.len());
        let (run, rest) = self.rest.split_at_checked(end)?;
        self.rest = rest;
        (!run.is_empty()).then_some(run)
    }

    /// Exactly `text`.
    pub(super) fn literal(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// At least one space.
    pub(super) fn spaces(&mut self) -> Option<()> {
        self.run(is_space).map(drop)
    }

    /// Any number of spaces.
    pub(super) fn skip_spaces(&mut self) {
        self.run(is_space);
    }

    /// Spaces, then `keyword`.
    pub(super) fn keyword(&mut self, keyword: &str) -> Option<()> {
        self.attempt(|c| {
            c.spaces()?;
            c.literal(keyword)
        })
    }

    /// `=` or spaces: what stands between a keyword and its value.
    pub(super) fn equals_or_spaces(&mut self) -> Option<()> {
        self.literal("=").or_else(|| self.spaces())
    }

    fn quoted(&mut self, may_be_empty: bool) -> Option<&'a str> {
        let quote = self.rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let (inside, rest) = self.rest.get(1..)?.split_once(quote)?;
        if inside.is_empty() && !may_be_empty {
            return None;
        }
        self.rest = rest;
        Some(inside)
    }

    /// A word, or anything in quotes but nothing.
    pub(super) fn word(&mut self) -> Option<&'a str> {
        self.quoted(false).or_else(|| self.run(is_word))
    }

    /// A whole number.
    pub(super) fn number(&mut self) -> Option<()> {
        self.attempt(|c| c.run(|c| c.is_ascii_digit()).map(drop))
    }

    /// A word, or anything in quotes, also nothing.
    pub(super) fn word_or_empty(&mut self) -> Option<&'a str> {
        self.quoted(true).or_else(|| self.run(is_word))
    }

    /// Spaces, `keyword`, spaces, a word.
    pub(super) fn option(&mut self, keyword: &str) -> Option<&'a str> {
        self.attempt(|c| {
            c.keyword(keyword)?;
            c.spaces()?;
            c.word()
        })
    }

    /// ` network a.b.c.d/n`; the address is checked where it is used.
    pub(super) fn network(&mut self) -> Option<&'a str> {
        self.attempt(|c| {
            c.keyword("network")?;
            c.spaces()?;
            c.run(is_network)
        })
    }
}

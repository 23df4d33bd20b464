//! A POSIX extended regular expression over bytes, enough for caps, in time linear in text and pattern.
//!
//! Knows `.`, `[..]` with ranges and negation, groups, `|`, `*`, `+`, `?`, `{m,n}`, `^`, `$` and `\`. An
//! expression outside of that, or one too large, does not compile, and a constraint that does not compile
//! matches nothing. Runs all alternatives at once (Thompson's construction), so hostile caps or arguments
//! cannot make the monitor backtrack for ever.

/// Longest program; bounds memory and time of a match.
const PROGRAM_STEPS_MAX: usize = 4096;
/// Deepest nesting of groups.
const GROUP_DEPTH_MAX: usize = 32;
/// Largest bound in `{m,n}`.
const REPEAT_MAX: usize = 64;

/// Which bytes one position accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ByteSet {
    negated: bool,
    ranges: Vec<(u8, u8)>,
}

impl ByteSet {
    fn one(byte: u8) -> Self {
        Self { negated: false, ranges: vec![(byte, byte)] }
    }

    fn any() -> Self {
        Self { negated: true, ranges: Vec::new() }
    }

    fn accepts(&self, byte: u8) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&byte)) != self.negated
    }
}

/// One instruction; targets are relative so that pieces can be joined.
#[derive(Debug, Clone)]
enum Step {
    Byte(ByteSet),
    Split(isize, isize),
    Jump(isize),
    AtStart,
    AtEnd,
}

type Program = Vec<Step>;

/// A compiled expression.
#[derive(Debug, Clone)]
pub(super) struct Regex {
    program: Program,
}

impl Regex {
    /// Compiles `pattern`; `None` when it is malformed, unsupported or too large.
    pub(super) fn compile(pattern: &str) -> Option<Self> {
        let mut parser = Parser { rest: pattern.as_bytes(), depth: 0 };
        let program = parser.alternatives()?;
        (parser.rest.is_empty() && program.len() <= PROGRAM_STEPS_MAX).then_some(Self { program })
    }

    /// True when the whole of `text` matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        let mut places = Places::new(self.program.len());
        places.add(self, 0, 0, text.len());
        for (at, byte) in text.bytes().enumerate() {
            let mut next = Places::new(self.program.len());
            for place in &places.list {
                if let Some(Step::Byte(set)) = self.program.get(*place)
                    && set.accepts(byte)
                {
                    next.add(self, place + 1, at + 1, text.len());
                }
            }
            places = next;
        }
        places.list.contains(&self.program.len())
    }
}

/// The instructions that may come next; the end of the program is success.
struct Places {
    list: Vec<usize>,
    seen: Vec<bool>,
}

impl Places {
    fn new(steps: usize) -> Self {
        Self { list: Vec::new(), seen: vec![false; steps + 1] }
    }

    fn add(&mut self, regex: &Regex, start: usize, at: usize, end: usize) {
        let mut open = vec![start];
        while let Some(place) = open.pop() {
            match self.seen.get_mut(place) {
                Some(seen) if !*seen => *seen = true,
                _ => continue,
            }
            let target = |offset: isize| place.saturating_add_signed(offset);
            match regex.program.get(place) {
                Some(Step::Split(a, b)) => open.extend([target(*a), target(*b)]),
                Some(Step::Jump(a)) => open.push(target(*a)),
                Some(Step::AtStart) if at == 0 => open.push(place + 1),
                Some(Step::AtEnd) if at == end => open.push(place + 1),
                Some(Step::AtStart | Step::AtEnd) => {}
                Some(Step::Byte(_)) | None => self.list.push(place),
            }
        }
    }
}

struct Parser<'a> {
    rest: &'a [u8],
    depth: usize,
}

fn offset(length: usize) -> Option<isize> {
    isize::try_from(length).ok()
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn alternatives(&mut self) -> Option<Program> {
        let mut program = self.sequence()?;
        while self.peek() == Some(b'|') {
            self.next();
            let other = self.sequence()?;
            let mut both = vec![Step::Split(1, offset(program.len() + 2)?)];
            both.append(&mut program);
            both.push(Step::Jump(offset(other.len() + 1)?));
            both.extend(other);
            program = both;
        }
        Some(program)
    }

    fn sequence(&mut self) -> Option<Program> {
        let mut program = Program::new();
        while let Some(byte) = self.peek()
            && byte != b'|'
            && !(byte == b')' && self.depth > 0)
        {
            let piece = self.atom()?;
            program.extend(self.repeated(piece)?);
            if program.len() > PROGRAM_STEPS_MAX {
                return None;
            }
        }
        Some(program)
    }

    fn atom(&mut self) -> Option<Program> {
        Some(match self.next()? {
            b'.' => vec![Step::Byte(ByteSet::any())],
            b'^' => vec![Step::AtStart],
            b'$' => vec![Step::AtEnd],
            b'[' => vec![Step::Byte(self.set()?)],
            b'(' => return self.group(),
            b'\\' => vec![Step::Byte(ByteSet::one(self.next()?))],
            b'*' | b'+' | b'?' | b'{' | b')' => return None,
            byte => vec![Step::Byte(ByteSet::one(byte))],
        })
    }

    fn group(&mut self) -> Option<Program> {
        self.depth += 1;
        if self.depth > GROUP_DEPTH_MAX {
            return None;
        }
        let inside = self.alternatives()?;
        self.depth -= 1;
        (self.next()? == b')').then_some(inside)
    }

    fn set(&mut self) -> Option<ByteSet> {
        let negated = self.peek() == Some(b'^');
        if negated {
            self.next();
        }
        let mut ranges = Vec::new();
        loop {
            let low = self.next()?;
            match low {
                b']' if !ranges.is_empty() => return Some(ByteSet { negated, ranges }),
                b'[' if matches!(self.peek(), Some(b':' | b'.' | b'=')) => return None,
                _ => {}
            }
            let is_range = self.peek() == Some(b'-') && self.rest.get(1).is_some_and(|byte| *byte != b']');
            let high = if is_range {
                self.next();
                self.next()?
            } else {
                low
            };
            ranges.push((low, high));
        }
    }

    fn repeated(&mut self, piece: Program) -> Option<Program> {
        let (min, max) = match self.peek() {
            Some(b'*') => (0, None),
            Some(b'+') => (1, None),
            Some(b'?') => (0, Some(1)),
            Some(b'{') => {
                self.next();
                let bounds = self.bounds()?;
                return repeat(&piece, bounds.0, bounds.1);
            }
            _ => return Some(piece),
        };
        self.next();
        repeat(&piece, min, max)
    }

    /// Behind `{`: `m}`, `m,}` or `m,n}`.
    fn bounds(&mut self) -> Option<(usize, Option<usize>)> {
        let end = self.rest.iter().position(|byte| *byte == b'}')?;
        let text = std::str::from_utf8(self.rest.get(..end)?).ok()?;
        self.rest = self.rest.get(end + 1..)?;
        let number = |text: &str| text.parse::<usize>().ok().filter(|n| *n <= REPEAT_MAX);
        Some(match text.split_once(',') {
            None => (number(text)?, Some(number(text)?)),
            Some((min, "")) => (number(min)?, None),
            Some((min, max)) => (number(min)?, Some(number(max)?)),
        })
    }
}

/// `min` copies, then either a loop or up to `max - min` optional copies.
fn repeat(piece: &Program, min: usize, max: Option<usize>) -> Option<Program> {
    let mut program = Program::new();
    for _ in 0..min {
        program.extend_from_slice(piece);
    }
    let length = offset(piece.len())?;
    match max {
        None => {
            program.push(Step::Split(1, length + 2));
            program.extend_from_slice(piece);
            program.push(Step::Jump(-(length + 1)));
        }
        Some(max) => {
            for _ in 0..max.checked_sub(min)? {
                program.push(Step::Split(1, length + 1));
                program.extend_from_slice(piece);
            }
        }
    }
    (program.len() <= PROGRAM_STEPS_MAX).then_some(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_whole_texts() {
        let cases = [
            ("^[^/]+/[0-9]+$", "192.0.2.1:0/4711", true),
            ("^[^/]+/[0-9]+$", "192.0.2.1:0/", false),
            ("^[^/]+/[0-9]+$", "a/b/1", false),
            ("a|bc", "bc", true),
            ("a|bc", "abc", false),
            ("(ab)*", "", true),
            ("(ab)*c?", "ababc", true),
            ("x{2,3}", "x", false),
            ("x{2,3}", "xxx", true),
            ("x{2,3}", "xxxx", false),
            ("x{2}", "xx", true),
            ("[]a]+", "]a]", true),
            ("[a-c-]+", "a-c", true),
            ("\\.", ".", true),
            ("\\.", "a", false),
            ("a.c", "abc", true),
            ("a$b", "a$b", false),
            ("(a*)*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false),
        ];
        for (pattern, text, want) in cases {
            let regex = Regex::compile(pattern).expect("a supported expression");
            assert_eq!(regex.matches(text), want, "{pattern} on {text}");
        }
    }

    #[test]
    fn what_we_cannot_read_does_not_compile() {
        let deep = "(".repeat(100);
        for pattern in
            ["(", "a)b(", "[", "[[:alpha:]]", "*", "x{1", "x{9999}", "x{3,2}", "(x{60}){60}{60}", &deep]
        {
            assert!(Regex::compile(pattern).is_none(), "{pattern}");
        }
    }
}

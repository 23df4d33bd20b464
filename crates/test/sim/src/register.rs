//! [`Register`]: one key of the config-key store as clients see it: their history must be that of one register.

use std::collections::{BTreeMap, BTreeSet};

/// What a client has under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// To store this number.
    Write(u64),
    /// To say what is stored.
    Read,
}

/// A command that has begun and is not answered, in one possible course of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Progress {
    Waiting(Asked),
    /// It has taken effect, once, however often the client had to ask.
    Wrote,
    Got(Option<u64>),
}

/// A course of events that explains all answers so far: the value, and how far each client's command is.
type Course = (Option<u64>, BTreeMap<usize, Progress>);

/// Checks that a history is linearizable, answer by answer (G. Lowe, "Testing for linearizability", 2017).
#[derive(Debug)]
pub struct Register {
    courses: BTreeSet<Course>,
}

impl Default for Register {
    fn default() -> Self {
        Self::new()
    }
}

impl Register {
    /// Nothing has been stored and nothing asked.
    #[must_use]
    pub fn new() -> Self {
        Self { courses: BTreeSet::from([(None, BTreeMap::new())]) }
    }

    /// A client asks for something.
    pub fn asked(&mut self, client: usize, what: Asked) {
        let courses = std::mem::take(&mut self.courses).into_iter();
        let begun = courses.map(|(value, mut under_way)| {
            under_way.insert(client, Progress::Waiting(what));
            (value, under_way)
        });
        self.courses = begun.collect();
    }

    /// Every course in which any of the commands under way take effect now, in any order.
    fn expand(&mut self) {
        let mut fresh: Vec<Course> = self.courses.iter().cloned().collect();
        while let Some((value, under_way)) = fresh.pop() {
            for (client, progress) in &under_way {
                let (value, progress) = match progress {
                    Progress::Waiting(Asked::Write(new)) => (Some(*new), Progress::Wrote),
                    Progress::Waiting(Asked::Read) => (value, Progress::Got(value)),
                    Progress::Wrote | Progress::Got(_) => continue,
                };
                let mut next = under_way.clone();
                next.insert(*client, progress);
                if self.courses.insert((value, next.clone())) {
                    fresh.push((value, next));
                }
            }
        }
    }

    /// A client got its answer: of a read, the value.
    ///
    /// # Panics
    /// When no course of events explains it.
    pub fn answered(&mut self, client: usize, read: Option<Option<u64>>) {
        self.expand();
        let fits = |progress: &Progress| match (progress, read) {
            (Progress::Wrote, None) => true,
            (Progress::Got(value), Some(read)) => *value == read,
            _ => false,
        };
        let before = self.courses.clone();
        let courses = std::mem::take(&mut self.courses).into_iter();
        self.courses = courses
            .filter_map(|(value, mut under_way)| {
                under_way.remove(&client).filter(fits).map(|_| (value, under_way))
            })
            .collect();
        assert!(!self.courses.is_empty(), "client {client} got {read:?}, which nothing explains: {before:?}");
    }
}

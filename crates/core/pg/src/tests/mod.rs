//! Events in, effects out: a small cluster of copies under one seed.

mod background;
mod backoff;
mod chaos;
mod coded;
mod flags;
mod mend;
mod merge;
mod payload;
mod reservations;
mod split;
mod steady;
mod watch;

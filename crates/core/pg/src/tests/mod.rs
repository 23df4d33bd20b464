//! Events in, effects out: a small cluster of copies under one seed.

mod backfill;
mod background;
mod backoff;
mod chaos;
mod coded;
mod copies;
mod damaged;
mod flags;
mod liar;
mod losses;
mod lost;
mod merge;
mod overwrites;
mod payload;
mod permits;
mod repair;
mod requests;
mod reservations;
mod sizes;
mod split;
mod steady;
mod turns;
mod watch;

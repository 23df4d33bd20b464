//! [`out!`](crate::out), [`outln!`](crate::outln) and [`errln!`](crate::errln): text on standard output and standard error.
//!
//! The standard library's macros panic when the text cannot be written, as after `| head` has seen enough: a daemon would end there, and
//! a tool half-way. Here nobody reading is no error. That a file has no room for the text is one, which the program's end says
//! ([`has_lost_text`]).

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// As `print!`, but the text is lost where it cannot be written.
#[macro_export]
macro_rules! out {
    ($($text:tt)*) => {
        $crate::write_text(&mut ::std::io::stdout(), ::core::format_args!($($text)*))
    };
}

/// As `println!`, but the line is lost where it cannot be written.
#[macro_export]
macro_rules! outln {
    ($($line:tt)*) => {
        $crate::out!("{}\n", ::core::format_args!($($line)*))
    };
}

/// As `eprintln!`, but the line is lost where it cannot be written.
#[macro_export]
macro_rules! errln {
    ($($line:tt)*) => {
        $crate::write_text(&mut ::std::io::stderr(), ::core::format_args!("{}\n", ::core::format_args!($($line)*)))
    };
}

/// Text was lost for another reason than that nobody reads.
static IS_LOST: AtomicBool = AtomicBool::new(false);

fn note(outcome: std::io::Result<()>) {
    if outcome.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe) {
        IS_LOST.store(true, Ordering::Relaxed);
    }
}

/// What the macros are made of.
pub fn write_text(to: &mut impl Write, text: Arguments<'_>) {
    note(to.write_fmt(text));
}

/// Whether text was lost for another reason than that nobody reads, such as a file system that is full. For the end of a program.
#[must_use]
pub fn has_lost_text() -> bool {
    note(std::io::stdout().flush());
    IS_LOST.load(Ordering::Relaxed)
}
